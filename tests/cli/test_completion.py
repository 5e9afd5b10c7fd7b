"""Completion, as the shells ask for it."""

import shlex
import shutil
import subprocess
import sys

import pytest

from fadas.cli import completion
from fadas.experiments.catalog import list_settings
from helpers.cli import fadas_command, run_fadas

GROUPS = list_settings()
EXPERIMENT = """
[algorithms.slow]
preset = "fedavg"
[algorithms.swift]
[profiles.smoke.run]
updates = 5
"""


def ask_bash(line: str, folder) -> list[str]:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_FADAS_COMPLETE": "complete_bash"}
    return run_fadas(cwd=folder, **words).stdout.split()


def ask_fish(line: str, folder) -> list[str]:
    words = {
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_FADAS_COMPLETE": "complete_fish",
    }
    return [text.split("\t")[0] for text in run_fadas(cwd=folder, **words).stdout.splitlines()]


def ask_zsh(line: str, folder) -> str:
    return run_fadas(cwd=folder, _TYPER_COMPLETE_ARGS=line, _FADAS_COMPLETE="complete_zsh").stdout


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "trial.toml").write_text(EXPERIMENT)
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "more").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("line", "proposed"),
    [
        ("fadas sw", ["sweep"]),
        ("fadas run tr", ["trial.toml"]),
        ("fadas run ", ["more/", "trial.toml"]),
        ("fadas run trial.toml --only s", ["slow", "swift"]),
        ("fadas run trial.toml --only slow,s", ["slow,swift"]),
        ("fadas run trial.toml --profile ", ["smoke"]),
        ("fadas run trial.toml --executor b", ["batched"]),
        ("fadas run trial.toml --set schedule.b", ["schedule.buffer="]),
        ("fadas explain fadas", ["fadas", "fadas-da"]),
        ("fadas explain run.eval", ["run.eval_every"]),
        ("fadas init x --template reg", ["regression"]),
        ("fadas data get cifar100", ["cifar100"]),
        ("fadas deploy init x --task dig", ["digits"]),
        ("fadas bench pl", ["plan"]),
    ],
)
def test_bash_gets_proposals(folder, line, proposed):
    assert ask_bash(line, folder) == proposed


def test_fish_and_zsh_get_the_same_proposals(folder):
    assert ask_fish("fadas run trial.toml --only s", folder) == ["slow", "swift"]
    assert '"regression"' in ask_zsh("fadas init x --template reg", folder)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_for_shell_is_shown(shell, tmp_path):
    text = run_fadas(_FADAS_COMPLETE=f"source_{shell}", cwd=tmp_path).stdout
    assert f"complete_{shell}" in text


def test_completion_loads_no_torch(folder):
    code = """
import os, sys
sys.argv = ["fadas"]
os.environ |= {"COMP_WORDS": "fadas run trial.toml --only s", "COMP_CWORD": "4", "_FADAS_COMPLETE": "complete_bash"}
import fadas.cli
try: fadas.cli.main()
except SystemExit: pass
print([m for m in ("torch", "numpy", "matplotlib", "sklearn") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)
    assert done.stdout.split() == ["slow", "swift", "[]"], done.stderr


def test_names_and_keys_are_those_of_the_code():
    """They are read from the source files, so that nothing heavy is imported."""
    from fadas.cli.bench import BENCHES
    from fadas.tasks.cifar import ARCHIVES

    for kind in set(completion.REGISTRIES) - {"data", "benchmarks"}:
        expected = [name for group in GROUPS if group.section == kind for name in group.names]
        assert sorted(completion.registered_names(kind)) == sorted(expected), kind
    assert completion.registered_names("data") == list(ARCHIVES)
    assert completion.registered_names("benchmarks") == list(BENCHES)
    of_sections = [one.key for g in GROUPS if g.section in completion.SECTIONS and not g.names for one in g.settings]
    assert sorted(completion.section_keys()) == sorted(of_sections)


def test_unreadable_experiment_proposes_presets(tmp_path):
    (tmp_path / "bad.toml").write_text("[")
    assert "fedbuff" in ask_bash("fadas run bad.toml --only fedb", tmp_path)
    assert ask_bash("fadas run bad.toml --profile ", tmp_path) == []


def test_installed_script_completes_in_bash(folder):
    """--install-completion, then what bash does when the user presses the tab key."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    home = folder / "home"
    home.mkdir()
    told = run_fadas("--install-completion", "bash", HOME=str(home), _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "completion installed" in told.stdout
    script = home / ".bash_completions" / "fadas.sh"
    command = folder / "fadas"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(fadas_command())} "$@"\n')
    command.chmod(0o755)
    press = 'source "$0"; COMP_WORDS=(fadas run tr); COMP_CWORD=2; _fadas_completion ./fadas; echo "${COMPREPLY[@]}"'
    done = subprocess.run([bash, "-c", press, str(script)], capture_output=True, text=True, cwd=folder)
    assert done.stdout.split() == ["trial.toml"], done.stderr
