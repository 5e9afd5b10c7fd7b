"""The paper's cells are run once and kept as results."""

import shutil
import signal

import pytest

from fadas.errors import Interrupted
from fadas.paper.agreement import measured_accuracy
from fadas.paper.artefacts import Cell, all_artefacts
from fadas.paper.page import blocks
from fadas.paper.results import find_result, read_result
from fadas.paper.run_cells import AS_IN_FILE, CellRunner, Places, select_cells
from helpers.paper import FADAS_ROW, TABLE, reproduce
from helpers.processes import interruptible


def test_cells_are_run_once_and_kept(small_paper):
    assert reproduce(small_paper, "large-cifar10", "--only", "fadas,fedasync").exit_code == 0
    files = sorted(small_paper.glob("results/*/*.json"))
    assert [f"{path.parent.name[-3:]}/{path.stem}" for path in files] == [
        f"{alpha}/{method}-1" for alpha in ("0.1", "0.3") for method in ("fadas", "fedasync")
    ]
    result = read_result(files[0])
    assert (result.method, result.seed, result.config["task"]["alpha"]) == ("fadas", 1, 0.1)
    assert [point[0] for point in result.curve] == list(range(1, 21))
    assert result.accuracy == pytest.approx(sum(point[3] for point in result.curve[-5:]) / 5, abs=1e-4)
    assert result.delays["tau_max"] >= result.delays["tau_avg"] > 0
    assert result.versions["torch"]
    assert result.device
    assert result.commit
    before = [path.stat().st_mtime_ns for path in files]
    assert "0 cells run" in reproduce(small_paper, "large-cifar10", "--only", "fadas,fedasync").output
    assert [path.stat().st_mtime_ns for path in files] == before


def test_interrupted_cell_resumes(small_paper, monkeypatch):
    places = Places(small_paper / "experiments", small_paper / "results", small_paper / "runs")
    cells = select_cells([TABLE], ["fedbuff"], None, None)[:1]

    def interrupt(record):
        if record.step == 7:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setenv("FADAS_COMMIT", "that of yesterday")
    with interruptible(), pytest.raises(Interrupted):
        list(CellRunner(cells, places, AS_IN_FILE, lambda *_: interrupt, print).run())
    assert not list(small_paper.glob("results/*/*"))
    steps = []
    monkeypatch.setenv("FADAS_COMMIT", "that of today")
    runner = CellRunner(cells, places, AS_IN_FILE, lambda *_: lambda record: steps.append(record.step), print)
    ((_, result),) = runner.run()
    assert steps == list(range(8, 21))
    assert [point[0] for point in result.curve] == list(range(1, 21))
    assert result.commit == "that of yesterday, that of today"


def test_finished_cell_is_only_read(small_paper, monkeypatch):
    assert reproduce(small_paper, "large-cifar10", "--only", "fedbuff").exit_code == 0
    path = small_paper / "results/cifar10-large-dir0.1/fedbuff-1.json"
    first = path.read_text()
    path.unlink()
    monkeypatch.setenv("FADAS_COMMIT", "a later one")
    assert reproduce(small_paper, "large-cifar10", "--only", "fedbuff").exit_code == 0
    assert path.read_text() == first, "the cell must not be trained again"
    path.unlink()
    experiment = small_paper / "experiments" / "cifar10-large-dir0.1.toml"
    experiment.write_text(experiment.read_text().replace("updates = 100", "updates = 200"))
    message = str(reproduce(small_paper, "large-cifar10", "--only", "fedbuff").exception)
    way = "use the options the run began with, for example --device, or delete it to start over"
    assert message.endswith(f"fedbuff-1 holds a run with other settings (run.updates was 100 and is 200); {way}")


def test_rounds_and_seeds_give_separate_results(small_paper):
    shown = reproduce(small_paper, "large-cifar10", "--only", "fadas", "--rounds", 3, "--seeds", 2)
    assert "4 cells run, 0 left; trials, which no report shows" in shown.output
    cell = Cell("cifar10-large-dir0.3", "fadas", 2, rounds=3)
    result = find_result(cell, small_paper / "results")
    assert result
    assert (len(result.curve), result.seed) == (3, 2)
    assert find_result(Cell("cifar10-large-dir0.3", "fadas", 2), small_paper / "results") is None


def test_ablations_change_settings_and_share_cells(small_paper):
    assert reproduce(small_paper, "ablation-tau-c").exit_code == 0
    names = sorted(path.stem for path in small_paper.glob("results/cifar10-large-dir0.1/*.json"))
    assert names == ["fadas-da,tau_c=1-1", "fadas-da,tau_c=10-1", "fadas-da,tau_c=4-1", "fadas-da-1"]
    taus = {
        read_result(path).config["algorithms"]["fadas-da"]["tau_c"] for path in small_paper.glob("results/*/*.json")
    }
    assert taus == {1, 4, 8, 10}


def test_result_of_other_settings_is_refused(small_paper):
    assert reproduce(small_paper, "large-cifar10", "--only", "fadas").exit_code == 0
    path = small_paper / "experiments/cifar10-large-dir0.1.toml"
    path.write_text(path.read_text().replace("eta = 0.0001", "eta = 0.05"))
    message = str(reproduce(small_paper, "large-cifar10", "--only", "fadas").exception)
    assert "fadas-1.json has other settings than cifar10-large-dir0.1.toml gives now; delete it" in message


def test_diverged_cell_is_kept_and_others_run(small_paper):
    path = small_paper / "experiments/cifar10-large-dir0.1.toml"
    path.write_text(path.read_text() + '[faults.all]\nkind = "nan"\nstart = 3.0\n')
    for ran in (2, 0):
        shown = reproduce(small_paper, "large-cifar10", "--only", "fadas")
        assert f"large-cifar10: {ran} cells run, 0 left" in shown.output
        assert str(shown.exception).startswith("1 of 2 runs diverged: cifar10-large-dir0.1 fadas-1; the report says so")
    kept = read_result(small_paper / "results/cifar10-large-dir0.1/fadas-1.json")
    assert (kept.accuracy, kept.time_to_target) == (None, None)
    assert "updates were all refused (refused so far: not finite: " in kept.diverged
    assert kept.curve
    (wild, sound) = (measured_accuracy(TABLE, FADAS_ROW, column, small_paper / "results") for column in (0, 1))
    assert (wild.text, wild.verdict) == ("diverged", "worse")
    assert sound.text[0].isdigit()
    three = all_artefacts()["large-cifar10-seeds"]
    row = next(row for row in three.rows if row.method == "fadas")
    assert measured_accuracy(three, row, 0, small_paper / "results").text == "diverged (1 of 3 seeds)"
    shown = [row for block in blocks(small_paper / "results") for row in block.rows if row[0] == "FADAS"]
    assert any("diverged ▼" in row for row in shown)
    steady = next(row for row in shown if " to " in row[3])
    assert steady[1] == "", "a diverged curve has no last fifth"
    figure = next(block for block in blocks(small_paper / "results") if block.text == "large-cifar10-2")
    assert figure.curves["FADAS"]
    assert all(block.text != "large-cifar10-1" for block in blocks(small_paper / "results")), "nothing to draw"


def test_executor_option_replaces_that_of_experiment(small_paper):
    """The experiment files set options of one executor. Other executors ignore them."""
    for name in ("inline", "batched"):
        assert (
            reproduce(small_paper, "large-cifar10", "--only", "fadas", "--executor", name, "--rounds", 2).exit_code == 0
        )
        shutil.rmtree(small_paper / "results")
        shutil.rmtree(small_paper / "runs")


def test_cell_is_not_resumed_in_other_precision(small_paper):
    words = ["large-cifar10", "--only", "fadas", "--rounds", 2, "--executor", "inline"]
    assert reproduce(small_paper, *words, "--set", "executor.precision=bf16").exit_code == 0
    assert "0 cells run" in reproduce(small_paper, *words).output, (
        "its result is the cell's, and the page says how it was made"
    )
    shutil.rmtree(small_paper / "results")
    message = str(reproduce(small_paper, *words).exception)
    assert "(precision was 'bf16' and is 'fp32'); use the options the run began with" in message


def test_rounds_are_counted_in_steps_of_cell(small_paper):
    assert reproduce(small_paper, "ablation-buffer-rounds", "--rounds", 4, "--only", "fadas").exit_code == 0
    assert [len(read_result(path).curve) for path in small_paper.glob("results/*/*.json")] == [4, 4, 4]
    assert reproduce(small_paper, "large-cifar10", "--rounds", 4, "--only", "fedasync").exit_code == 0
    assert (
        read_result(small_paper / "results/cifar10-large-dir0.1/fedasync,rounds=4-1.json").curve[-1][1] == 20
    )  # 4 x M updates


def test_unusable_folder_is_refused_before_any_run(small_paper):
    foreign = small_paper / "runs/cifar10-large-dir0.3/fadas-1"
    foreign.mkdir(parents=True)
    (foreign / "cat.jpg").touch()
    assert "is not a run of fadas; choose another folder with --work DIR" in str(
        reproduce(small_paper, "large-cifar10").exception
    )
    assert not (small_paper / "runs/cifar10-large-dir0.1").exists()


def test_damaged_run_says_how_to_rerun_cell(small_paper):
    assert reproduce(small_paper, "large-cifar10", "--only", "fadas").exit_code == 0
    shutil.rmtree(small_paper / "results")
    metrics = small_paper / "runs/cifar10-large-dir0.1/fadas-1/metrics.jsonl"
    metrics.write_text(metrics.read_text()[:100])
    assert "to run the cell again" in str(reproduce(small_paper, "large-cifar10", "--only", "fadas").exception)
