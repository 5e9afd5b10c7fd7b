"""Files of earlier versions open, resume and report; every file that fadas writes says its version.

tests/data/format-N holds what fadas wrote in format N: a finished run, interrupted runs with the unbroken ones to
compare with, a deployment, a result and a search of `fadas reproduce`. tests/data/make_format.py made them.
"""

import json
import shutil
import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fadas.errors import Damaged
from fadas.paper.results import read_result, read_search
from fadas.runs.checkpoint import read_checkpoint
from fadas.runs.folder import checkpoints
from fadas.runs.formats import FORMAT, format_of, upgrade_table
from fadas.runs.reader import find_runs, read_run
from helpers.cli import ROOT, run_fadas
from helpers.folders import read_records

DATA = ROOT / "tests" / "data"
FORMATS = sorted(DATA.glob("format-*"))
CODE = {"FADAS_ALLOW_CODE": "1", "PYTHONPATH": f"{ROOT / 'src'}:{DATA}", "OMP_NUM_THREADS": "1"}


def resume(format_folder: Path, name: str, tmp_path: Path, label: str, *settings) -> Path:
    """Resume an interrupted run in a copy of its folder."""
    shutil.copytree(format_folder / name, tmp_path / "runs")
    run_fadas(
        "run", DATA / "small.toml", "--only", label, "--resume", "--no-report", "--out", tmp_path / "runs", *settings,
        **CODE,
    )  # fmt: skip
    return tmp_path / "runs" / f"{label}-0"


def test_current_format_is_among_the_samples():
    assert DATA / f"format-{FORMAT}" in FORMATS


@pytest.mark.parametrize("folder", FORMATS, ids=lambda path: path.name)
def test_finished_run_opens(folder):
    (run,) = find_runs(folder / "finished")
    assert (run.label, run.summary.step, len(run.records)) == ("fedbuff", 6, 6)
    assert run.summary.target == 0.05
    assert run.config["precision"] == "fp32"
    assert sum(map(sum, run.counts)) == 1438


@pytest.mark.parametrize("folder", FORMATS, ids=lambda path: path.name)
def test_finished_run_is_skipped_and_reported(folder, tmp_path):
    shutil.copytree(folder / "finished", tmp_path / "runs")
    before = (tmp_path / "runs" / "fedbuff-0" / "metrics.jsonl").read_bytes()
    done = run_fadas("run", DATA / "small.toml", "--only", "fedbuff", "--out", tmp_path / "runs", **CODE)
    assert "fedbuff-0: skipped, it has finished" in done.stderr
    assert "fedbuff" in done.stdout
    assert (tmp_path / "runs" / "fedbuff-0" / "metrics.jsonl").read_bytes() == before


def assert_same_run(resumed: Path, unbroken: Path) -> None:
    """The runs agree in everything but the last bits: another processor may have made the unbroken one."""
    steps = [read_records(folder) for folder in (resumed, unbroken)]
    assert split_numbers(steps[0])[0] == split_numbers(steps[1])[0]
    assert split_numbers(steps[0])[1] == pytest.approx(split_numbers(steps[1])[1], rel=1e-4)
    models = [load_file(folder / "model.safetensors") for folder in (resumed, unbroken)]
    torch.testing.assert_close(*models, rtol=1e-4, atol=1e-5)


def split_numbers(value) -> tuple[object, list[float]]:
    """Return JSON with 0.0 in place of its floating-point numbers, and these."""
    numbers = []

    def visit(part):
        if isinstance(part, float):
            numbers.append(part)
            return 0.0
        if isinstance(part, dict):
            return {key: visit(one) for key, one in part.items()}
        return [visit(one) for one in part] if isinstance(part, list) else part

    return visit(value), numbers


@pytest.mark.parametrize("folder", FORMATS, ids=lambda path: path.name)
def test_interrupted_run_resumes_to_the_result_of_the_unbroken_one(folder, tmp_path):
    assert_same_run(resume(folder, "interrupted", tmp_path, "fadas"), folder / "unbroken" / "fadas-0")


@pytest.mark.parametrize("folder", FORMATS, ids=lambda path: path.name)
def test_interrupted_fedasync_with_batchnorm_ends_under_its_first_rule(folder, tmp_path):
    settings = ("--set", 'task={name="bn_task:make_task",clients=4}', "--set", "local.batch_size=8")
    resumed = resume(folder, "interrupted-batchnorm", tmp_path, "fedasync", *settings)
    assert_same_run(resumed, folder / "unbroken-batchnorm" / "fedasync-0")


@pytest.mark.parametrize("folder", FORMATS, ids=lambda path: path.name)
def test_interrupted_deployment_opens(folder):
    (newest, *_) = checkpoints(folder / "deployment" / "fadas-0")
    tensors, values = read_checkpoint(newest)
    assert values["version"] == 8
    assert tensors["params"].tolist() == pytest.approx(tensors["params"].tolist())
    assert "rules" in values


@pytest.mark.parametrize("folder", FORMATS, ids=lambda path: path.name)
def test_result_and_search_of_reproduce_open(folder):
    (path,) = (folder / "results").glob("*/*.json")
    assert read_result(path).cell.name == "fadas-1"
    (path,) = (folder / "results").glob("*/searches/*.json")
    search = read_search(path)
    assert search.cell.changes == {"schedule.refill": "released"}
    assert search.winning_settings == {"algorithms.fadas.eta": 0.001, "algorithms.fadas.local.lr": 0.1}
    assert [one.accuracy for one in search.tried] == [0.41, None, 0.62]


def test_every_file_of_a_run_says_its_format(tmp_path):
    run_fadas("run", DATA / "small.toml", "--only", "fedbuff", "--out", tmp_path, "--no-report")
    folder = tmp_path / "fedbuff-0"
    assert tomllib.loads((folder / "config.toml").read_text())["format"] == FORMAT
    for name in ("summary.json", "partition.json"):
        assert json.loads((folder / name).read_text())["format"] == FORMAT


def test_summary_with_format_of_its_metric_instead_of_the_files_is_read():
    table = {"format": "percent", "metric": "score", "better": "higher"}
    assert upgrade_table(table, "x") == {"metric": "score", "better": "higher", "metric_format": "percent"}
    assert upgrade_table({"format": "percent"}, "x") == {}


def test_files_of_format_1_do_not_say_it():
    folder = DATA / "format-1"
    assert format_of(json.loads((folder / "finished" / "fedbuff-0" / "summary.json").read_text())) == 1


@pytest.mark.parametrize("name", ["summary.json", "config.toml", "partition.json"])
def test_file_of_a_newer_fadas_is_refused(tmp_path, name):
    folder = tmp_path / "fedbuff-0"
    shutil.copytree(DATA / f"format-{FORMAT}" / "finished" / "fedbuff-0", folder)
    text = (folder / name).read_text()
    (folder / name).write_text(
        text.replace(f'"format": {FORMAT}', '"format": 99').replace(f"format = {FORMAT}", "format = 99")
    )
    with pytest.raises(Damaged, match=r"has format 99, written by a newer fadas; update fadas to read it"):
        read_run(folder)
