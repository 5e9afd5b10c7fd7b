"""Which settings make another run: those that its results depend on beyond rounding."""

import pytest

from fadas.experiments.experiment_file import read_experiment
from fadas.experiments.resolve import resolve
from fadas.registry import lookup
from fadas.runs.same_run import code_of, precision, same_run
from helpers.cli import DEMO, SMALL, run_fadas


def tables(*overrides, executor=None):
    return resolve(read_experiment(DEMO, overrides, executor=executor), "fadas", 1).tables


@pytest.mark.parametrize(
    ("executor", "overrides", "expected"),
    [
        ("auto", [], "fp32"),
        ("auto", ["executor.device=cuda"], "bf16"),
        ("auto", ["executor.device=mps"], "fp32"),
        ("cuda", ["executor.device=cuda:1"], "bf16"),
        ("cuda", ["executor.device=cuda", "executor.precision=tf32"], "tf32"),
        ("ray", ["executor.device=cuda"], "bf16"),
        ("ray", [], "fp32"),
        ("ray", ["executor.precision=bf16"], "bf16"),
        ("inline", ["executor.device=cuda"], "fp32"),
        ("inline", ["executor.precision=bf16"], "bf16"),
        ("batched", ["executor.device=cuda"], "fp32"),
        ("processes", [], "fp32"),
    ],
)
def test_the_precision_is_what_the_executor_is_told_or_chooses(executor, overrides, expected):
    made = tables(*overrides, executor=executor)
    assert precision(made) == expected
    assert same_run(made, tables()) is (expected == "fp32")
    assert same_run(made, tables("executor.precision=bf16", executor="inline")) is (expected == "bf16")


def test_who_computes_and_who_is_told_does_not_matter():
    others = ["executor.workers=3", "executor.threads=2", "run.tensorboard=true", "run.checkpoint_every=7"]
    assert same_run(tables(), tables(*others, executor="processes"))
    assert not same_run(tables(), tables("local.epochs=1"))


@pytest.mark.parametrize("damaged", [{}, {"executor": 3}, {"run": 3, "task": 3}, {"executor": {"device": 3}}])
def test_damaged_settings_are_other_settings(damaged):
    assert not same_run(damaged, tables())


def test_a_run_in_one_precision_is_not_taken_for_another(tmp_path):
    command = ["run", DEMO, "--only", "fadas", *SMALL, "--out", tmp_path, "--no-report"]
    bf16 = ["--executor", "inline", "--set", "executor.precision=bf16"]
    run_fadas(*command, *bf16)
    assert "already there" in run_fadas(*command, *bf16).stderr
    for more in ([], ["--resume"]):
        refused = run_fadas(*command, *more, code=2).stderr
        which = "executor.precision was 'bf16' and is 'fp32'"
        assert refused.endswith(f"holds a run with other settings ({which}); use --out DIR, or --overwrite\n")
    run_fadas(*command, "--overwrite")
    assert "already there" in run_fadas(*command, "--executor", "inline", "--set", "executor.threads=2").stderr


def test_code_of_ones_own_that_has_changed_is_another_run(tmp_path):
    code = tmp_path / "mine.py"
    code.write_text("def half(delays):\n    return 0.5\n\ndef size():\n    return half\n")
    step = ["--set", "algorithms.fedbuff.step_size='mine:size'"]
    command = ["run", DEMO, "--only", "fedbuff", *SMALL, *step, "--out", "o", "--no-report"]
    run_fadas(*command, cwd=tmp_path)
    assert "already there" in run_fadas(*command, cwd=tmp_path).stderr
    (kept,) = tmp_path.glob("o/*/config.toml")
    run_fadas("plan", kept, cwd=tmp_path)  # a run's settings make an experiment, too
    code.write_text(code.read_text().replace("0.5", "0.25"))
    assert "holds a run with other settings (code.mine was '" in run_fadas(*command, cwd=tmp_path, code=2).stderr
    run_fadas(*command, "--overwrite", cwd=tmp_path)


def test_what_counts_is_the_code_that_was_imported(tmp_path, monkeypatch):
    """Not what its file says by now, nor a text that happens to name a module."""
    code = tmp_path / "imported_once.py"
    code.write_text("def size():\n    return lambda delays: 0.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    step = "algorithms.custom={preset='fedbuff', step_size='imported_once:size'}"
    resolved = [resolve(read_experiment(DEMO, [step]), "custom", 1).tables]
    code.write_text("def size():\n    return lambda delays: 0.25\n")
    resolved.append(resolve(read_experiment(DEMO, [step]), "custom", 1).tables)
    assert resolved[0]["code"] == resolved[1]["code"]
    assert list(resolved[0]["code"]) == ["imported_once"]
    assert "code" not in tables("task.partition=iid")
    assert code_of({"task": {"note": "random: a note"}}) == {}
    assert lookup({}, "task", "builtins:int") is int, "which has no file"
