"""Objects from tables."""

import pytest

from fadas.errors import ConfigError
from fadas.registry import convert


@pytest.mark.parametrize(
    ("hint", "good", "bad", "message"),
    [
        (int | float, [1, 0.5], "a", "x must be a whole number, got 'a'; or x must be a number, got 'a'"),
        (str | list[str], ["a", ["a", "b"]], [1], r"x must be a string, got \[1\]; or x must be a string, got 1"),
        (list[int] | bool | None, [[1, 2], True, None], 1, "must be a list, got 1; or x must be true or false, got 1"),
        (float | None, [0.5, None], "a", "^x must be a number, got 'a'$"),
    ],
    ids=str,
)
def test_convert_tries_each_union_member(hint, good, bad, message):
    assert [convert(value, hint, "x") for value in good] == good
    with pytest.raises(ConfigError, match=message):
        convert(bad, hint, "x")
