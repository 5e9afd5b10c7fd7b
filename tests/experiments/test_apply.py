"""Best values are written into experiment files. Everything else of the file stays."""

import difflib
import os
import tomllib

import pytest

from fadas.errors import ConfigError, FadasWarning
from fadas.experiments.experiment_file import read_experiment
from fadas.experiments.sweeps.apply import WinnersFile, edit_experiment
from helpers.cli import ROOT
from helpers.experiments import BASE

BEST = {"fadas": {"eta": 0.002, "local.lr": 0.1}}


def changed_lines(path, winners):
    """The lines that are removed and added."""
    before, after = path.read_text().splitlines(), edit_experiment(path, winners).splitlines()
    lines = difflib.unified_diff(before, after, n=0)
    return [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]


def test_only_the_lines_of_winners_change():
    winners = {
        "fadas": {"eta": 0.007, "local.lr": 0.35},
        "fedavg": {"run.eval_every": 2},
        "fedasync": {"local.mu": 0.1},
    }
    assert changed_lines(ROOT / "experiments" / "names.toml", winners) == [
        "-eta = 0.005",
        "+eta = 0.007",
        "+local.mu = 0.1",
        "-run.eval_every = 1 # M = M_c",
        "+run.eval_every = 2 # M = M_c",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[algorithms.fadas] # mine\neta = 1 # rate\n\n# about run\n[run]\n",
            "[algorithms.fadas] # mine\neta = 0.002 # rate\nlocal.lr = 0.1\n\n# about run\n[run]\n",
        ),
        ("[algorithms.fadas]", "[algorithms.fadas]\neta = 0.002\nlocal.lr = 0.1\n"),
        (
            "[algorithms.fadas]\neta=1\n[algorithms.fadas.local]\nlr = 0.5 # c\nepochs=2\n",
            "[algorithms.fadas]\neta=0.002\n[algorithms.fadas.local]\nlr = 0.1 # c\nepochs=2\n",
        ),
        (
            "algorithms.fadas.eta = 1\nalgorithms.fadas.local.lr = 2 # b\n[run]\n",
            "algorithms.fadas.eta = 0.002\nalgorithms.fadas.local.lr = 0.1 # b\n[run]\n",
        ),
        ("algorithms.fadas = {} # x\n", "algorithms.fadas = {eta = 0.002, local = {lr = 0.1}} # x\n"),
        ("[algorithms]\nfadas = {eta=1}\n", "[algorithms]\nfadas = {eta = 0.002, local = {lr = 0.1}}\n"),
        (
            "[algorithms.fadas]\nlocal = {epochs=2} # z\n",
            "[algorithms.fadas]\nlocal = {epochs = 2, lr = 0.1} # z\neta = 0.002\n",
        ),
        (
            "[algorithms.fadas.local]\nepochs=2\n[run]\n[algorithms.fadas]\nbeta1=0.5\n",
            "[algorithms.fadas.local]\nepochs=2\nlr = 0.1\n[run]\n[algorithms.fadas]\nbeta1=0.5\neta = 0.002\n",
        ),
        (
            "[algorithms.fadas]\r\neta = 1 # rate\r\n",
            "[algorithms.fadas]\r\neta = 0.002 # rate\r\nlocal.lr = 0.1\r\n",
        ),
        ("\ufeff[algorithms.fadas]\n", "\ufeff[algorithms.fadas]\neta = 0.002\nlocal.lr = 0.1\n"),
    ],
)
def test_every_form_of_a_table_is_edited(tmp_path, text, expected):
    path = tmp_path / "x.toml"
    path.write_bytes(text.encode())
    edited = edit_experiment(path, BEST)
    assert edited.rstrip("\n") == expected.rstrip("\n")
    assert tomllib.loads(edited.removeprefix("\ufeff"))["algorithms"]["fadas"]["local"]["lr"] == 0.1


def test_equal_value_keeps_its_text(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text("[algorithms.fadas]\neta = 2e-3\nlocal.lr = 1e-1\n")
    assert edit_experiment(path, BEST) == path.read_text()


def test_table_values_are_written_inline(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text('[algorithms.m]\npreset = "fadas"\nstep_size = "constant" # s\n')
    winners = {"m": {"step_size": {"name": "cosine", "steps": 3, "eta": 0.1}}}
    assert changed_lines(path, winners)[1] == '+step_size = {name = "cosine", steps = 3, eta = 0.1} # s'


def test_file_that_cannot_be_edited_is_left_alone(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text('[algorithms.fadas]\noptimizer = "yogi"\n')
    with pytest.raises(ConfigError, match="optimizer is not a table"):
        edit_experiment(path, {"fadas": {"optimizer.beta1": 0.5}})
    with pytest.raises(ConfigError, match=r"x\.toml has no table \[algorithms\.fedbuff\]"):
        edit_experiment(path, {"fedbuff": {"eta": 0.5}})


def test_write_is_atomic_and_keeps_mode_and_link(tmp_path, monkeypatch):
    path, link = tmp_path / "x.toml", tmp_path / "link.toml"
    path.write_text(BASE)
    path.chmod(0o640)
    link.symlink_to(path)
    WinnersFile(link).write(BEST)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.read_text() == BASE + "eta = 0.002\nlocal.lr = 0.1\n"

    def fail(*paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ConfigError, match=r"cannot write .*link\.toml: No space left on device"):
        WinnersFile(link).write({"fadas": {"eta": 7}})
    assert path.read_text() == BASE + "eta = 0.002\nlocal.lr = 0.1\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_profiles_and_grids_stay_and_hidden_values_are_named(tmp_path):
    path = tmp_path / "x.toml"
    more = "[profiles.smoke]\nalgorithms.fadas.eta = 9 # quick\n[sweep.fadas]\neta = [1, 2]\n"
    path.write_text(BASE + more)
    with pytest.warns(FadasWarning, match=r"the profile smoke sets algorithms\.fadas\.eta again"):
        WinnersFile(path, None, "smoke").write(BEST)
    assert path.read_text() == BASE + "eta = 0.002\nlocal.lr = 0.1\n" + more
    assert read_experiment(path)["algorithms"]["fadas"] == {"eta": 0.002, "local": {"lr": 0.1}}


def test_copy_must_be_new_and_keep_paths(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(BASE.replace('name = "digits"', 'name = "files"\npath = "data"'))
    WinnersFile(path, tmp_path / "y.toml").require_usable(BEST)
    (tmp_path / "y.toml").write_text("")
    (tmp_path / "sub").mkdir()
    for copy, message in (
        (tmp_path / "y.toml", "exists; choose another file"),
        (tmp_path / "no" / "y.toml", "there is no folder"),
        (tmp_path / "sub" / "y.toml", r"task\.path is relative to .*; choose a file in the same folder"),
    ):
        with pytest.raises(ConfigError, match=message):
            WinnersFile(path, copy).require_usable(BEST)
