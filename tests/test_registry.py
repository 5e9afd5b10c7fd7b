"""Objects from tables."""

import pickle
from functools import partial

import pytest

from fadas.errors import ConfigError
from fadas.registry import build, convert
from fadas.validate import InvalidValue, positive


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


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (InvalidValue("rate", "must be small"), "section.rate must be small"),
        (InvalidValue("low, high", "must be a range"), "section: low, high must be a range"),
        (ValueError("rate and other contradict each other"), "section: rate and other contradict each other"),
        (ConfigError("section.rate: unknown"), "section.rate: unknown"),
    ],
)
def test_error_of_factory_names_section_and_parameter(problem, message):
    def fail(rate=1.0, other=2.0):
        raise problem

    with pytest.raises(ConfigError) as caught:
        build(fail, {"rate": 3.0}, "section")
    assert str(caught.value) == message


def test_failing_code_of_the_user_is_named_with_its_line():
    def fail(rate=1.0):
        return 1 / 0

    with pytest.raises(ConfigError, match=r"^section: ZeroDivisionError: division by zero \(test_registry\.py:\d+\)$"):
        build(fail, {}, "section")


def test_bug_of_fadas_keeps_its_traceback(monkeypatch):
    def fail(rate=1.0):
        return 1 / 0

    fail.__module__ = "fadas.algorithms.presets"
    with pytest.raises(ZeroDivisionError):
        build(partial(fail), {}, "section")


def test_invalid_value_survives_a_process_boundary():
    with pytest.raises(InvalidValue) as caught:
        positive(rate=-1)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.name, str(again)) == ("rate", "rate must be a positive number, got -1")
