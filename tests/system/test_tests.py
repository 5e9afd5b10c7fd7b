"""The tests themselves: each can fail, none is long, none imports from another."""

import ast
from pathlib import Path

import pytest

from helpers.cli import ROOT

TESTS = sorted((ROOT / "tests").rglob("test_*.py"))


def name_of(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def functions_of(path: Path) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def checks_something(function: ast.FunctionDef, checking: set[str]) -> bool:
    """Does a function assert, expect an error or a warning, or call one of these functions?"""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call) and (name_of(node) in checking or name_of(node).startswith("assert_")):
            return True
    return False


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.relative_to(ROOT / "tests").as_posix())
def test_every_test_checks_something(path):
    """The helpers `play` and `run_fadas` check little, so a test that calls them needs an assertion of its own.

    `check_fadas`, `check_options` and `run_page` raise errors, and `simplefilter("error")` makes warnings errors.
    """
    functions, checking = (
        functions_of(path),
        {"raises", "warns", "simplefilter", "check_fadas", "check_options", "run_page"},
    )
    checking |= {name for name, f in functions.items() if not name.startswith("test_") and checks_something(f, set())}
    tests = [function for name, function in functions.items() if name.startswith("test_")]
    assert [function.name for function in tests if not checks_something(function, checking)] == []


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.relative_to(ROOT / "tests").as_posix())
def test_expected_errors_are_told_apart_by_their_message(path):
    """`match="must"` would accept almost any refusal."""
    vague = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or name_of(node) != "raises":
            continue
        for keyword in node.keywords:
            text = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
            if keyword.arg == "match" and text in ("must", "must be", "error", "", ".*"):
                vague.append(node.lineno)
    assert not vague


def test_no_test_file_is_long_or_imports_from_another():
    for path in TESTS:
        text = path.read_text()
        assert len(text.splitlines()) <= 400, path
        modules = {
            module
            for node in ast.walk(ast.parse(text))
            for module in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert not [module for module in modules if module.split(".")[-1].startswith("test_")], path
