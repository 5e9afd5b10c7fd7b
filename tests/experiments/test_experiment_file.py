"""Experiment files, profiles and --set."""

import pytest

from fadas.errors import ConfigError
from fadas.experiments.experiment_file import read_experiment
from fadas.experiments.resolve import experiment_seeds, resolve
from fadas.simulation.delays import Uniform
from helpers.experiments import BASE, resolve_text, write_experiment


def test_overrides_replace_settings(tmp_path):
    changes = ["run.steps=9", "delays.name=uniform", "delays.low=2", "delays.high=3", "algorithms.fadas.eta=0.25"]
    config = resolve_text(tmp_path, overrides=changes)
    assert config.run.steps == 9
    assert config.delays.model == Uniform(2.0, 3.0)
    assert config.algorithm.step_size.eta == 0.25
    assert experiment_seeds(read_experiment(write_experiment(tmp_path, BASE), ["run.seeds=[4, 5]"])) == (4, 5)


def test_paths_are_relative_to_file_but_not_in_set(tmp_path):
    text = BASE.replace('"mild"', '"table"\npath = "a.csv"') + '[profiles.smoke]\ndelays = { path = "b.csv" }\n'
    path = write_experiment(tmp_path, text)
    assert read_experiment(path)["delays"]["path"] == str(tmp_path.resolve() / "a.csv")
    assert read_experiment(path, profile="smoke")["delays"]["path"] == str(tmp_path.resolve() / "b.csv")
    assert read_experiment(path, ["delays.path=c.csv"], "smoke")["delays"]["path"] == "c.csv"


def test_profile_applies_to_algorithms_unless_it_names_them(tmp_path):
    own = BASE + "run.steps = 50\nrun.eval_every = 7\n\n[algorithms.fedavg]\nrun.steps = 60\n"
    path = write_experiment(tmp_path, own + "[profiles.smoke]\nrun.steps = 3\nalgorithms.fedavg.run.steps = 2\n")
    steps = {label: resolve(read_experiment(path, profile="smoke"), label, 0).run for label in ("fadas", "fedavg")}
    assert (steps["fadas"].steps, steps["fadas"].eval_every, steps["fedavg"].steps) == (3, 7, 2)
    assert resolve(read_experiment(path, ["run.steps=4"], "smoke"), "fedavg", 0).run.steps == 4


def test_profile_and_set_apply_to_labels_with_dots(tmp_path):
    own = BASE + '[algorithms."fadas-0.1"]\npreset = "fadas"\nlocal.lr = 0.1\n[profiles.smoke]\nlocal.lr = 0.05\n'
    path = write_experiment(tmp_path, own)
    for tables in (read_experiment(path, profile="smoke"), read_experiment(path, ["local.lr=0.05"])):
        assert list(tables["algorithms"]) == ["fadas", "fadas-0.1"]
        assert resolve(tables, "fadas-0.1", 0).local.lr == 0.05


def test_set_needs_no_quotes_for_fault_kinds(tmp_path):
    for kind in ("nan", "inf", "fail"):
        faults = ["faults.some.clients=[1]", f"faults.some.kind={kind}"]
        assert read_experiment(write_experiment(tmp_path, BASE), faults)["faults"]["some"]["kind"] == kind
        resolve_text(tmp_path, overrides=[*faults, "faults.some.end=inf"])


def test_file_name_unfit_for_folder_needs_name_setting(tmp_path):
    path = tmp_path / "my first try.toml"
    path.write_text(BASE)
    with pytest.raises(
        ConfigError,
        match=r"name 'my first try' cannot name a folder; set name = \"...\" at the top",
    ):
        read_experiment(path)
    path.write_text('name = "first"\n' + BASE)
    assert read_experiment(path)["name"] == "first"


@pytest.mark.parametrize(
    ("text", "message"),
    [("[a", "not valid TOML"), ("", "names no algorithms"), ("[algorithms]\nfadas = 3", "must be a table")],
)
def test_bad_experiment_files_are_refused(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        read_experiment(write_experiment(tmp_path, text))


def test_other_executor_drops_unknown_options_of_file(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text("executor = { compile = true, threads = 1 }\n[algorithms.fadas]\n")
    assert read_experiment(path, ["executor.name=inline"])["executor"] == {"name": "inline", "threads": 1}
    assert read_experiment(path, executor="processes")["executor"] == {"name": "processes", "threads": 1}
    assert read_experiment(path, executor="cuda")["executor"] == {"name": "cuda", "threads": 1, "compile": True}
    assert (
        read_experiment(path, ['executor.name="inline"', "executor.precision=bf16"])["executor"]["precision"] == "bf16"
    )
