"""Which settings make another run: those that its results depend on beyond rounding."""

import pytest

from fadas.experiments.experiment_file import read_experiment
from fadas.experiments.resolve import resolve
from fadas.registry import code_digests, lookup
from fadas.runs.same_run import precision, same_run
from helpers.cli import DEMO, SMALL, run_fadas


def resolve_demo(*overrides, executor=None):
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
def test_precision_is_given_or_chosen_by_executor(executor, overrides, expected):
    made = resolve_demo(*overrides, executor=executor)
    assert precision(made) == expected
    assert same_run(made, resolve_demo()) is (expected == "fp32")
    assert same_run(made, resolve_demo("executor.precision=bf16", executor="inline")) is (expected == "bf16")


def test_executor_and_outputs_do_not_make_another_run():
    others = ["executor.workers=3", "executor.threads=2", "run.tensorboard=true", "run.checkpoint_every=7"]
    sinks = """run.sinks=["mlflow", {name = "wandb", project = "x"}]"""
    assert same_run(resolve_demo(), resolve_demo(*others, sinks, executor="processes"))
    assert not same_run(resolve_demo(), resolve_demo("local.epochs=1"))


@pytest.mark.parametrize("damaged", [{}, {"executor": 3}, {"run": 3, "task": 3}, {"executor": {"device": 3}}])
def test_damaged_settings_are_other_settings(damaged):
    assert not same_run(damaged, resolve_demo())


def test_run_in_other_precision_is_refused(tmp_path):
    command = ["run", DEMO, "--only", "fadas", *SMALL, "--out", tmp_path, "--no-report"]
    bf16 = ["--executor", "inline", "--set", "executor.precision=bf16"]
    run_fadas(*command, *bf16)
    assert "skipped, it has finished" in run_fadas(*command, *bf16).stderr
    for more in ([], ["--resume"]):
        refused = run_fadas(*command, *more, code=2).stderr
        which = "precision was 'bf16' and is 'fp32'"
        way = "choose another folder with --out DIR, or replace the run with --overwrite"
        assert refused.endswith(f"holds a run with other settings ({which}); {way}\n")
    run_fadas(*command, "--overwrite")
    assert (
        "skipped, it has finished" in run_fadas(*command, "--executor", "inline", "--set", "executor.threads=2").stderr
    )


def test_changed_user_code_is_another_run(tmp_path):
    code = tmp_path / "mine.py"
    code.write_text("def half(delays):\n    return 0.5\n\ndef size():\n    return half\n")
    step = ["--set", "algorithms.fedbuff.step_size='mine:size'"]
    command = ["run", DEMO, "--only", "fedbuff", *SMALL, *step, "--out", "o", "--no-report"]
    run_fadas(*command, cwd=tmp_path)
    assert "skipped, it has finished" in run_fadas(*command, cwd=tmp_path).stderr
    (kept,) = tmp_path.glob("o/*/config.toml")
    run_fadas("plan", kept, cwd=tmp_path)  # saved settings are an experiment file too
    code.write_text(code.read_text().replace("0.5", "0.25"))
    assert "holds a run with other settings (mine.py has changed)" in run_fadas(*command, cwd=tmp_path, code=2).stderr
    run_fadas(*command, "--overwrite", cwd=tmp_path)


def test_digest_is_of_imported_code(tmp_path, monkeypatch):
    """Neither the file's present content nor a text that names a module counts."""
    code = tmp_path / "imported_once.py"
    code.write_text("def size():\n    return lambda delays: 0.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    step = "algorithms.custom={preset='fedbuff', step_size='imported_once:size'}"
    resolved = [resolve(read_experiment(DEMO, [step]), "custom", 1).tables]
    code.write_text("def size():\n    return lambda delays: 0.25\n")
    resolved.append(resolve(read_experiment(DEMO, [step]), "custom", 1).tables)
    assert resolved[0]["code"] == resolved[1]["code"]
    assert list(resolved[0]["code"]) == ["imported_once"]
    assert "code" not in resolve_demo("task.partition=iid")
    assert code_digests(["random: a note"]) == {}
    assert lookup({}, "task", "builtins:int") is int, "a built-in has no file"
