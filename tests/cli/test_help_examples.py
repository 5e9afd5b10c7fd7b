"""The help of every command ends with two examples that work."""

import re
import shlex

import pytest
import typer

from fadas.cli.app import app
from helpers.cli import call_fadas
from helpers.pages import Block, ExampleError, check_options


def all_commands(command, path):
    """Yield every command and group with its path."""
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from all_commands(child, f"{path} {name}")


COMMANDS = dict(all_commands(typer.main.get_command(app), "fadas"))


def examples_of(command) -> list[str]:
    return re.findall(r"^- `(.+)`$", command.epilog or "", re.M)


@pytest.mark.parametrize("path", COMMANDS)
def test_help_ends_with_examples_that_are_accepted(path):
    examples = examples_of(COMMANDS[path])
    assert len(set(examples)) == len(examples) >= 2
    is_group = hasattr(COMMANDS[path], "commands")
    for example in examples:
        assert example.startswith(path.replace("reproduce run", "reproduce")) or is_group
        check_options(Block("sh", example, path, {}))
    code, text, _ = call_fadas(*path.split()[1:], "--help")
    assert code == 0
    shown = " ".join(text.split())  # long lines are wrapped
    assert shown.endswith(" ".join(f"• {example}" for example in examples))


def test_wrong_option_in_an_example_is_found():
    for example in ("fadas run x.toml --oot y", "fadas fly", "fadas data get"):
        with pytest.raises(ExampleError):
            check_options(Block("sh", example, "here", {}))


@pytest.mark.parametrize(
    "path", ["fadas list", "fadas doctor", "fadas explain", "fadas init", "fadas plan", "fadas deploy init"]
)
def test_quick_examples_run(path, tmp_path, monkeypatch):
    if "deploy" in path:
        pytest.importorskip("flwr")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.py").write_text("def make_task(clients): ...\n")
    (tmp_path / "experiment.toml").write_text(DEMO)
    for number, example in enumerate(examples_of(COMMANDS[path])):
        arguments = [f"{word}-{number}" if word.startswith("my-") else word for word in shlex.split(example)[1:]]
        code, _, err = call_fadas(*arguments)
        assert code == 0, err


DEMO = """
task = {name = "digits", clients = 12}
schedule = {concurrency = 4, buffer = 2}
run = {steps = 3}
algorithms.fadas = {}
"""
