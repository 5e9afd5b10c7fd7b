"""`fadas init`: what it writes runs as it is, outside the checkout."""

import json
import re
import shlex

import pytest

from fadas.cli.projects.init import Template, read_template
from helpers.cli import ROOT, call_fadas, run_fadas
from helpers.pages import read_blocks

TEMPLATES = [template.value for template in Template]
METRICS = {"regression": "rmse", "language": "perplexity"}


def test_each_template_is_a_folder():
    root = ROOT / "src" / "fadas" / "cli" / "projects" / "templates"
    assert sorted(path.name for path in root.iterdir()) == sorted(TEMPLATES)


@pytest.mark.parametrize("template", TEMPLATES)
def test_commands_of_readme_run(tmp_path, template):
    said = run_fadas("init", "my project", "--template", template, cwd=tmp_path).stdout
    folder = tmp_path / "my project"
    assert {"experiment.toml", "task.py", "README.md"} <= {path.name for path in folder.iterdir()}
    (block,) = [block for block in read_blocks(folder / "README.md") if block.language == "sh"]
    commands = block.code.strip().splitlines()
    assert len(commands) == 3
    assert [line.strip() for line in said.splitlines()[2:]] == ['cd "my project"', *commands]
    for number, command in enumerate(commands):
        program, *arguments = shlex.split(command)
        assert program == "fadas"
        # Only shorter. `make dist` runs the commands of all templates as they are.
        arguments += ["--set", "run.updates=12", "--seed", "100"] if arguments[0] == "sweep" else []
        arguments += (
            ["--set", "run.updates=120", "--seed", "1"] if (arguments[0], template) == ("run", "language") else []
        )
        done = run_fadas(*arguments, cwd=folder, FADAS_ALLOW_CODE="")
        text = done.stdout
        if number == 0:
            assert done.seconds < 60, "a minute on one core"
    assert (folder / "runs" / "my-project" / "report.html").exists()
    assert len(re.findall(r"best(?:, at .*)? *$", text, re.M)) >= 2
    summaries = [json.loads(path.read_text()) for path in (folder / "runs" / "my-project").glob("*/summary.json")]
    assert len(summaries) >= 2
    assert all(summary.get("diverged") is None for summary in summaries)
    assert {summary.get("metric", "accuracy") for summary in summaries} == {METRICS.get(template, "accuracy")}
    assert all(len(summary["metrics"]) > 2 for summary in summaries), "the metric, the loss, and a further one"


@pytest.mark.parametrize("template", TEMPLATES)
def test_template_says_what_methods_it_compares(template):
    texts = read_template(template)
    assert len(re.findall(r"^\[algorithms\.", texts["experiment.toml"], re.M)) in (2, 3)
    assert "seeds = [1, 2, 3]" in texts["experiment.toml"]
    assert ("[algorithms.fedbuff]" in texts["experiment.toml"]) is True
    assert not any(re.search(r"transformers|urllib|requests", text) for text in texts.values())


OWNERS = """
    rng = np.random.default_rng(1)
    owners = np.array(["clinic-b", "clinic-a", "clinic-c"]).repeat([1, 40, 60])
    return rng.normal(size=(101, 3)), np.array(["well", "ill"])[rng.integers(0, 2, 101)], owners
"""


def test_template_takes_owners_and_text_labels(tmp_path):
    """A user changes `load_data` and `clients` only. An owner with one example keeps it for training."""
    folder = tmp_path / "mine"
    call_fadas("init", folder)
    text = (folder / "task.py").read_text()
    body = "    return *load_breast_cancer(return_X_y=True), None\n"
    assert text.count(body) == 1
    (folder / "task.py").write_text(text.replace(body, OWNERS))
    run = ["run", "experiment.toml", "--allow-code", "--no-report", "--seed", "1", "--only", "fedbuff"]
    short = ["--set", "run.updates=8", "--set", "schedule.concurrency=2", "--set", "schedule.buffer=1"]
    refused = run_fadas(*run, *short, cwd=folder, code=2).stderr
    assert "the data have 3 owners; set clients = 3 in experiment.toml" in refused
    short += ["--set", "task.clients=3"]
    run_fadas(*run, *short, cwd=folder)
    counts = json.loads((folder / "runs" / "mine" / "fedbuff-1" / "partition.json").read_text())["counts"]
    assert [sum(row) for row in counts] == [1, 32, 48]


def test_init_refuses_folder_that_is_not_empty(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name, message in (("full", "is not empty"), ("file", "exists and is not a folder")):
        code, out, err = call_fadas("init", tmp_path / name)
        assert (code, out) == (2, "")
        assert err == f"fadas: {tmp_path / name} {message}; choose another folder\n"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full", "notes.txt"]


def test_init_writes_into_empty_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = call_fadas("init", ".")
    assert code == 0
    assert "cd " not in out
    assert f"runs/{re.sub('[^a-z0-9]+', '-', tmp_path.name)}" in out


def test_unknown_template_lists_those_there_are(tmp_path):
    code, _, err = call_fadas("init", tmp_path / "new", "--template", "classificaton")
    assert code == 2
    assert "'classification'" in err
    assert not (tmp_path / "new").exists()
