"""The paper's artefacts: their cells are run once, kept as results, and the committed page is the one they give."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fadas.cli import app
from fadas.report.artefacts import Cell, artefacts, load, read
from fadas.report.reproduction import accuracy, time_to_target, write

ROOT = Path(__file__).parents[1]
TABLE, TIME = artefacts()["large-cifar10"], artefacts()["time"]
FADAS = next(row for row in TABLE.rows if row.method == "fadas")


@pytest.fixture
def small(tmp_path):
    """The paper's large CIFAR-10 experiments under their own names, but on digits and short."""
    folder = tmp_path / "experiments"
    folder.mkdir()
    for path in ROOT.glob("experiments/cifar10-large-*.toml"):
        text = path.read_text().replace('name = "cifar10"', 'name = "digits"').replace('model = "resnet18"\n', "")
        (folder / path.name).write_text(text.replace("updates = 2500", "updates = 100"))
    return tmp_path


def reproduce(where, *words):
    folders = ["--experiments", where / "experiments", "--results", where / "results", "--work", where / "runs"]
    return CliRunner().invoke(app, ["reproduce", *map(str, (*words, *folders, "--page", where / "page.md"))])


def test_cells_are_run_once_and_kept(small):
    assert reproduce(small, "large-cifar10", "--only", "fadas,fedasync").exit_code == 0
    files = sorted(small.glob("results/*/*.json"))
    assert [f"{path.parent.name[-3:]}/{path.stem}" for path in files] == [
        f"{alpha}/{method}-1" for alpha in ("0.1", "0.3") for method in ("fadas", "fedasync")
    ]
    result = read(files[0])
    assert (result.method, result.seed, result.config["task"]["alpha"]) == ("fadas", 1, 0.1)
    assert [point[0] for point in result.curve] == list(range(1, 21))
    assert result.accuracy == pytest.approx(sum(point[3] for point in result.curve[-5:]) / 5, abs=1e-4)
    assert result.delays["tau_max"] >= result.delays["tau_avg"] > 0
    assert result.versions["torch"]
    assert result.device
    assert result.commit
    before = [path.stat().st_mtime_ns for path in files]
    assert "0 cells run" in reproduce(small, "large-cifar10", "--only", "fadas,fedasync").output
    assert [path.stat().st_mtime_ns for path in files] == before


def test_an_interrupted_cell_goes_on_and_a_finished_one_is_only_read(small):
    assert reproduce(small, "large-cifar10", "--only", "fedbuff").exit_code == 0
    path = small / "results/cifar10-large-dir0.1/fedbuff-1.json"
    first = path.read_text()
    path.unlink()
    assert reproduce(small, "large-cifar10", "--only", "fedbuff").exit_code == 0
    assert path.read_text() == first, "wall time and all: it was not trained again"


def test_fewer_rounds_and_other_seeds_have_results_of_their_own(small):
    assert reproduce(small, "large-cifar10", "--only", "fadas", "--rounds", 3, "--seeds", 2).exit_code == 0
    cell = Cell("cifar10-large-dir0.3", "fadas", 2, ("rounds=3",))
    result = load(cell, small / "results")
    assert result
    assert (len(result.curve), result.seed) == (3, 2)
    assert load(Cell("cifar10-large-dir0.3", "fadas", 2), small / "results") is None


def test_ablations_change_what_they_say_and_share_the_cells_of_the_table(small):
    assert reproduce(small, "ablation-tau-c").exit_code == 0
    names = sorted(path.stem for path in small.glob("results/cifar10-large-dir0.1/*.json"))
    assert names == ["fadas-da,tau_c=1-1", "fadas-da,tau_c=10-1", "fadas-da,tau_c=4-1", "fadas-da-1"]
    taus = {read(path).config["algorithms"]["fadas-da"]["tau_c"] for path in small.glob("results/*/*.json")}
    assert taus == {1, 4, 8, 10}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["large-cifar11"], "did you mean 'large-cifar10'"),
        (["large-cifar10", "--only", "fedprox"], "no method 'fedprox'"),
        (["large-cifar10", "--set", "local.lr=1"], "only the executor's options"),
        (["large-cifar10", "--executor", "warp"], "warp"),
    ],
)
def test_mistakes_are_said_before_anything_runs(small, words, message):
    result = reproduce(small, *words)
    assert message in str(result.exception)
    assert not list(small.glob("runs/*"))


def result(mean, spread, tmp_path, time=None):
    """A result for FADAS under Dir(0.1), as a file."""
    fields = {"experiment": "x", "method": "fadas", "seed": 1, "changes": [], "target": 0.75, "delays": {}}
    fields |= {"config": {}, "device": "", "versions": {}, "wall": 1.0, "commit": ""}
    fields |= {"accuracy": mean, "accuracy_std": spread, "time_to_target": time, "curve": [[1, 5, 900.0, 0.5]]}
    for experiment in (*TABLE.columns.values(), *TIME.columns.values()):
        path = Cell(experiment, "fadas", 1).path(tmp_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(fields))


@pytest.mark.parametrize(  # the paper: 72.0 ± 0.94
    ("mean", "spread", "text", "verdict"),
    [
        (0.7290, 0.001, "72.9 ± 0.1", "agrees"),  # within the paper's spread
        (0.6900, 0.031, "69.0 ± 3.1", "agrees"),  # within ours
        (0.7000, 0.010, "70.0 ± 1.0", "worse"),
        (0.7500, 0.010, "75.0 ± 1.0", "better"),
    ],
)
def test_agreement_is_within_the_larger_spread(tmp_path, mean, spread, text, verdict):
    result(mean, spread, tmp_path)
    measured = accuracy(TABLE, FADAS, 0, tmp_path)
    assert (measured.text, measured.verdict) == (text, verdict)


@pytest.mark.parametrize(  # the paper: 228.0
    ("time", "text", "verdict"),
    [
        (230.0, "230.0", "agrees"),
        (150.0, "150.0", "better"),
        (400.0, "400.0", "worse"),
        (None, "never (50.0 % at 900)", "worse"),
    ],
)
def test_time_to_target(tmp_path, time, text, verdict):
    result(0.5, 0.0, tmp_path, time)
    row = next(row for row in TIME.rows if row.method == "fadas")
    measured = time_to_target(TIME, row, 0, tmp_path)
    assert (measured.text, measured.verdict) == (text, verdict)


def test_what_has_not_been_run_is_never_filled_in(tmp_path):
    write(tmp_path / "page.md", tmp_path / "none")
    text = (tmp_path / "page.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith(("| FADAS", "| FedBuff", "| FedAvg", "| FedAMS"))]
    entries = [cell.strip() for line in lines for cell in line.split("|")[3::2]]
    assert len(entries) > 60
    assert set(entries) <= {"not run ·", ""}
    assert not list(tmp_path.glob("**/*.png"))


def test_a_seed_alone_is_no_verdict_on_three(tmp_path):
    result(0.7, 0.01, tmp_path)
    three = artefacts()["large-cifar10-seeds"]
    measured = accuracy(three, next(row for row in three.rows if row.method == "fadas"), 0, tmp_path)
    assert (measured.text, measured.verdict) == ("70.0 ± 0.0 (1 of 3 seeds)", "not run")


def test_a_damaged_result_is_named(small):
    assert reproduce(small, "large-cifar10", "--only", "fadas").exit_code == 0
    path = small / "results/cifar10-large-dir0.1/fadas-1.json"
    path.write_text(path.read_text()[:100])
    assert "fadas-1.json is not a result" in str(reproduce(small, "report").exception)


def test_every_experiment_of_the_artefacts_exists_and_names_their_methods():
    for artefact in artefacts().values():
        for cell in artefact.all_cells():
            text = (ROOT / "experiments" / f"{cell.experiment}.toml").read_text()
            assert re.search(rf"^\[algorithms\.{re.escape(cell.method)}\]$", text, re.M), cell


def test_the_committed_page_is_the_one_that_the_results_give(tmp_path):
    """If this fails: `fadas reproduce report`, and commit what it writes."""
    write(tmp_path / "reproduction.md", ROOT / "results")
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.*")}
    assert made >= {Path("reproduction.md"), Path("reproduction.html")}
    for name in sorted(made):
        committed = ROOT / "docs" / name
        assert committed.exists(), name
        if name.suffix != ".png":
            assert committed.read_text() == (tmp_path / name).read_text(), name
    assert {path.name for path in (ROOT / "docs/reproduction").glob("*")} <= {path.name for path in made}
