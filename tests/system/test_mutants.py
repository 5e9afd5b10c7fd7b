"""The tool that changes the code to see whether the tests notice."""

import ast
import subprocess
import sys

import pytest

from helpers.cli import ROOT
from mutants import is_equivalent
from mutations import Finder, find_mutants, take_sample

TOY = '''"""A module."""

LIMIT = 10


def clip(value, limit=LIMIT, least=0):
    """Return a value between two others."""
    if value > limit and not value < least:
        return limit
    return max(value, least)


def never(log):
    log("a message")
    raise ValueError("this is " + "a message")
'''

TEST = """from toy.numbers import clip


def test_clip():
    assert [clip(value) for value in (-1, 3, 10, 11, 20)] == [0, 3, 10, 10, 10]
    assert clip(9, least=4) == 9
"""

SETTINGS = """source = "src/toy"
copy = ["src", "tests"]
files = ["numbers.py"]
preload = ["pytest"]
[environment]
PYTEST_DISABLE_PLUGIN_AUTOLOAD = "1"
[tests]
"" = []
[[equivalent]]
file = "numbers.py"
where = "clip"
change = "if value > limit and not value < least: -> if value >= limit and not value < least:"
reason = "a value at the limit is the limit"
"""


@pytest.fixture
def toy(tmp_path):
    """A repository with one module, its tests and its settings."""
    for name, text in (
        ("src/toy/numbers.py", TOY),
        ("tests/test_numbers.py", TEST),
        ("tests/mutants.toml", SETTINGS),
        ("src/toy/__init__.py", ""),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def changes_of(text):
    return [mutant.change.partition(" -> ")[2] for mutant in Finder("toy.py", text.encode()).found]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = a < b", ["x = a <= b", "x = a >= b"]),
        ("x = a is not b in c", ["x = a is b in c", "x = a is not b not in c"]),
        ("x = a and b or c", ["x = a and b and c", "x = a or b or c"]),
        ("x = not (a or b)", ["x = (a or b)", "x = not (a and b)"]),
        ("x = a - (b) // c", ["x = a + (b) // c", "x = a - (b) * c"]),
        ("x = 1, 2.5, 0.0, True, 'a'", [f"x = {t}" for t in (
            "2, 2.5, 0.0, True, 'a'", "1, 5.0, 0.0, True, 'a'", "1, 2.5, 1.0, True, 'a'", "1, 2.5, 0.0, False, 'a'",
            "1, 2.5, 0.0, True, 'a_'",
        )]),
        ("x.y = -z", ["pass", "x.y = z"]),
        ("x += z", ["pass", "x -= z"]),
        ("f(x)", ["pass"]),
        ("if x: raise y('no' + str(1))", ["if not (x): raise y('no' + str(1))", "if x: pass"]),
        ("def f(x: int = 1): return x", ["def f(x: int = 2): return x", "def f(x: int = 1): return None"]),
        ("class A(Protocol): x = 1", []),
        ("x: Literal['a'] = f'{1} {y}'", []),
        ("log('told', 1)", ["pass"]),
        ("'a docstring'", []),
    ],
)  # fmt: skip
def test_finder_lists_changes_of_line(line, expected):
    assert sorted(changes_of(line)) == sorted(expected)


def test_every_mutant_is_valid_and_names_its_line(toy):
    mutants = find_mutants(toy / "src" / "toy", ["*.py"])
    content = TOY.encode()
    for mutant in mutants:
        changed = content[: mutant.begin] + mutant.text + content[mutant.end :]
        ast.parse(changed)
        before, _, after = mutant.change.partition(" -> ")
        assert before in content.decode().splitlines()[mutant.line - 1]
        assert after in changed.decode().splitlines()[mutant.line - 1]
        assert str(mutant) == f"numbers.py:{mutant.line}: {mutant.change}"
    assert {mutant.where for mutant in mutants} == {"", "clip", "never"}


def test_sample_depends_on_seed_and_outlasts_edits_elsewhere(toy):
    source = toy / "src" / "toy"
    mutants = find_mutants(source, ["numbers.py"])
    one, same, other = (take_sample(mutants, 6, seed) for seed in (0, 0, 1))
    assert one == same != other
    assert len(one) == 6
    assert take_sample(mutants, 0, 0) == mutants
    (source / "numbers.py").write_text(TOY.replace('"""A module."""', '"""A module with more lines."""\n\n'))
    moved = take_sample(find_mutants(source, ["numbers.py"]), 6, 0)
    assert [mutant.change for mutant in moved] == [mutant.change for mutant in one]
    assert [mutant.line for mutant in moved] == [mutant.line + 2 for mutant in one]


def test_known_equivalents_are_matched_by_content(toy):
    mutants = find_mutants(toy / "src" / "toy", ["numbers.py"])
    change = "if value > limit and not value < least: -> if value >= limit and not value < least:"
    known = {"file": "numbers.py", "where": "clip", "change": change, "reason": "the same value"}
    assert [mutant.change for mutant in mutants if is_equivalent(mutant, [known])] == [change]
    assert not any(is_equivalent(mutant, [{**known, "where": "never"}]) for mutant in mutants)
    whole = {"file": "numbers.py", "where": "never", "reason": "all of it"}
    assert [mutant for mutant in mutants if is_equivalent(mutant, [whole])] == [
        m for m in mutants if m.where == "never"
    ]


def run_tool(toy, *options):
    command = [sys.executable, ROOT / "tests" / "mutants.py", "--root", toy, "--jobs", "2", "--count", "0", *options]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


def test_tool_reports_survivors_and_score(toy):
    before = (toy / "src" / "toy" / "numbers.py").read_bytes()
    done = run_tool(toy)
    assert done.returncode == 1, done.stderr
    survivors = done.stdout.partition("Survivors:")[2]
    assert "numbers.py:10: return max(value, least) -> return None" not in survivors
    assert 'numbers.py:14: log("a message") -> pass' in survivors
    assert "if value >= limit" not in done.stdout, "it is known to make no difference"
    noticed, survived = done.stdout.count("noticed: numbers.py"), survivors.count("numbers.py")
    assert min(noticed, survived) > 1
    assert f"Noticed {100 * noticed / (noticed + survived):.1f} % of {noticed + survived} mutants" in done.stdout
    assert (toy / "src" / "toy" / "numbers.py").read_bytes() == before


def test_tool_stops_mutant_that_never_ends(toy):
    endless = "def count(value):\n    while value:\n        value -= 1\n"
    (toy / "src" / "toy" / "numbers.py").write_text(endless)
    (toy / "tests" / "test_numbers.py").write_text("from toy.numbers import count\n\ndef test_count():\n    count(3)\n")
    done = run_tool(toy, "--timeout", "1", "--threshold", "50")
    assert done.returncode == 0, done.stderr
    assert "timed out: numbers.py:3: value -= 1 -> pass" in done.stdout
    assert "of 4 mutants (3 by the timeout)" in done.stdout


def test_tool_refuses_tests_that_fail_without_change(toy):
    (toy / "tests" / "test_numbers.py").write_text(TEST.replace("== 9", "== 8"))
    done = run_tool(toy)
    assert done.returncode == 1
    assert "assert 9 == 8" in done.stderr
    assert done.stderr.endswith("the tests fail without any change\n")
