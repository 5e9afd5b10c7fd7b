"""The paper's artefacts: their cells are run once, kept as results, and the committed page is the one they give."""

import json
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import matplotlib
import pytest

from fadas.errors import ConfigError, Interrupted
from fadas.experiments.run import execute
from fadas.paper.agreement import measured_accuracy, time_to_target
from fadas.paper.artefacts import Cell, artefacts, find_result, read_result
from fadas.paper.page import _made, blocks, write_page
from fadas.paper.run_cells import Places, has_result, make_config, run_cells, select_cells
from fadas.runs import lock
from helpers.cli import ROOT, reproduce
from helpers.paper import FADAS_ROW, RELEASED, TABLE, TIMES, save_method
from helpers.processes import hold_lock, interruptible


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


def test_several_artefacts_in_one_go_share_their_cells(small_paper):
    output = reproduce(small_paper, "large-cifar10", "ablation-tau-c", "--only", "fadas-da").output
    assert "large-cifar10, ablation-tau-c: 5 cells run" in output
    assert "stand alone" in reproduce(small_paper, "large-cifar10", "report").output


def test_list_names_every_artefact_in_a_narrow_terminal(small_paper, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    save_method(0.7, 0.01, small_paper / "results")
    output = reproduce(small_paper, "list").output
    lines = dict(re.findall(r"^ *(\S+) +(\d+ of \d+) ", output, re.M))
    assert list(lines) == list(artefacts())
    assert (lines["large-cifar10"], lines["large-cifar10-released"]) == ("2 of 12", "0 of 8")
    assert "…" not in output


def test_an_interrupted_cell_goes_on(small_paper, monkeypatch):
    places = Places(small_paper / "experiments", small_paper / "results", small_paper / "runs")
    cells = select_cells([TABLE], ["fedbuff"], None, None)[:1]

    def interrupt(record):
        if record.step == 7:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setenv("FADAS_COMMIT", "that of yesterday")
    with interruptible(), pytest.raises(Interrupted):
        list(run_cells(cells, places, [], None, lambda *_: interrupt, print))
    assert not list(small_paper.glob("results/*/*"))
    steps = []
    monkeypatch.setenv("FADAS_COMMIT", "that of today")
    ((_, result),) = run_cells(cells, places, [], None, lambda *_: lambda record: steps.append(record.step), print)
    assert steps == list(range(8, 21))
    assert [point[0] for point in result.curve] == list(range(1, 21))
    assert result.commit == "that of yesterday, that of today"


def test_a_finished_cell_is_only_read(small_paper, monkeypatch):
    assert reproduce(small_paper, "large-cifar10", "--only", "fedbuff").exit_code == 0
    path = small_paper / "results/cifar10-large-dir0.1/fedbuff-1.json"
    first = path.read_text()
    path.unlink()
    monkeypatch.setenv("FADAS_COMMIT", "a later one")
    assert reproduce(small_paper, "large-cifar10", "--only", "fedbuff").exit_code == 0
    assert path.read_text() == first, "wall time, commit and all: it was not trained again"
    path.unlink()
    experiment = small_paper / "experiments" / "cifar10-large-dir0.1.toml"
    experiment.write_text(experiment.read_text().replace("updates = 100", "updates = 200"))
    message = str(reproduce(small_paper, "large-cifar10", "--only", "fedbuff").exception)
    way = "give the options it was begun with, --device for one, or delete it to run the cell anew"
    assert message.endswith(f"fedbuff-1 holds a run with other settings (run.updates was 100 and is 200); {way}")


def test_fewer_rounds_and_other_seeds_have_results_of_their_own(small_paper):
    shown = reproduce(small_paper, "large-cifar10", "--only", "fadas", "--rounds", 3, "--seeds", 2)
    assert "4 cells run, 0 left; trials, which no report shows" in shown.output
    cell = Cell("cifar10-large-dir0.3", "fadas", 2, ("rounds=3",))
    result = find_result(cell, small_paper / "results")
    assert result
    assert (len(result.curve), result.seed) == (3, 2)
    assert find_result(Cell("cifar10-large-dir0.3", "fadas", 2), small_paper / "results") is None


def test_ablations_change_what_they_say_and_share_the_cells_of_the_table(small_paper):
    assert reproduce(small_paper, "ablation-tau-c").exit_code == 0
    names = sorted(path.stem for path in small_paper.glob("results/cifar10-large-dir0.1/*.json"))
    assert names == ["fadas-da,tau_c=1-1", "fadas-da,tau_c=10-1", "fadas-da,tau_c=4-1", "fadas-da-1"]
    taus = {
        read_result(path).config["algorithms"]["fadas-da"]["tau_c"] for path in small_paper.glob("results/*/*.json")
    }
    assert taus == {1, 4, 8, 10}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["large-cifar11"], "did you mean 'large-cifar10'"),
        (["large-cifar10", "--only", "fedprox"], "no method 'fedprox'"),
        (["large-cifar10", "language", "--only", "fedams"], "no method 'fedams' in large-cifar10, language"),
        (["large-cifar10", "--set", "local.lr=1"], "only the executor's options"),
        (["large-cifar10", "--set", "executor.name=inline"], "with --executor"),
        (["large-cifar10", "--executor", "warp"], "warp"),
    ],
)
def test_mistakes_are_said_before_anything_runs(small_paper, words, message):
    result = reproduce(small_paper, *words)
    assert message in str(result.exception)
    assert not list(small_paper.glob("runs/*"))


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
    save_method(mean, spread, tmp_path)
    measured = measured_accuracy(TABLE, FADAS_ROW, 0, tmp_path)
    assert (measured.text, measured.verdict) == (text, verdict)


def test_the_edge_of_the_spread_agrees(tmp_path):
    save_method(0.501, 0.0, tmp_path)
    assert measured_accuracy(TABLE, replace(FADAS_ROW, published=[[50.0, 0.1]]), 0, tmp_path).verdict == "agrees"


@pytest.mark.parametrize(  # the paper: 228.0
    ("time", "end", "text", "verdict"),
    [
        (230.0, 900.0, "230.0", "agrees"),
        (150.0, 900.0, "150.0", "better"),
        (400.0, 900.0, "400.0", "worse"),
        (None, 900.0, "not by 900 (50.0 %)", "worse"),
        (None, 240.0, "not by 240 (50.0 %)", "not run"),  # it ended too early to tell
        (205.2, 900.0, "205.2", "agrees"),  # a tenth less, and in floats a little more than that
        (250.8, 900.0, "250.8", "agrees"),
    ],
)
def test_time_to_target(tmp_path, time, end, text, verdict):
    save_method(0.5, 0.0, tmp_path, time, end)
    row = next(row for row in TIMES.rows if row.method == "fadas")
    measured = time_to_target(TIMES, row, 0, tmp_path)
    assert (measured.text, measured.verdict) == (text, verdict)


def test_a_time_to_another_target_is_not_shown(tmp_path):
    save_method(0.5, 0.0, tmp_path, 150.0)
    row = next(row for row in TIMES.rows if row.method == "fadas")
    with pytest.raises(ConfigError, match=r"fadas-1\.json has the time to an accuracy of 0\.75, not 0\.8"):
        time_to_target(replace(TIMES, targets=[0.8, 0.8, 0.5, 0.5]), row, 0, tmp_path)


@pytest.mark.parametrize(("time", "verdict"), [(None, "agrees"), (400.0, "better")])
def test_a_target_that_the_paper_never_reached(tmp_path, time, verdict):
    save_method(0.5, 0.0, tmp_path, time)
    row = replace(next(row for row in TIMES.rows if row.method == "fadas"), published=["never"])
    assert time_to_target(TIMES, row, 0, tmp_path).verdict == verdict


def test_the_released_code_has_settings_of_its_own(small_paper):
    cells = list(artefacts()["ablation-tau-c-released"].all_cells())
    made = [make_config(cell, ROOT / "experiments").tables for cell in cells]
    assert [tables["algorithms"]["fadas-da"]["step_size"]["tau_c"] for tables in made] == [1, 4, 8, 10]
    assert {tables["task"]["partition"] for tables in made} == {"dirichlet"}
    assert {tables["algorithms"]["fadas-da"]["schedule"]["refill"] for tables in made} == {"released"}
    assert {tables["algorithms"]["fadas-da"]["optimizer"]["bias_correction"] for tables in made} == {True}
    assert cells[0] == next(c for c in RELEASED.all_cells() if c.method == "fadas-da")
    assert reproduce(small_paper, "large-cifar10-released", "--rounds", 2).exit_code == 0
    assert len(list(small_paper.glob("results/*/*released*.json"))) == len(RELEASED.rows) * len(RELEASED.columns)


def test_the_released_code_has_columns_and_figures_of_its_own(tmp_path):
    save_method(0.7, 0.01, tmp_path)
    cell = next(cell for cell in RELEASED.all_cells() if cell.method == "fadas")
    save_method(0.72, 0.0, tmp_path, changes=cell.changes)
    Cell("cifar10-large-dir0.3", "fadas", 1, cell.changes).path(tmp_path).unlink()
    page = list(blocks(tmp_path))
    delays = "seed 1: tau_max 9, tau_avg 2.5, tau_med 2"
    assert any(f". As printed: {delays}. Released code: {delays}." in block.text for block in page)
    table = next(block for block in page if "Dir(0.1), released code" in block.head)
    row = ("72.00 ± 0.94", "70.0 ± 1.0 ▼", "72.0 ± 0.0 =", "73.27 ± 1.37", "70.0 ± 1.0 ▼", "not run ·")
    assert ("FADAS", *row) in table.rows
    figures = {block.text: list(block.curves) for block in page if block.text.startswith("large-cifar10-")}
    assert list(figures) == ["large-cifar10-1", "large-cifar10-2", "large-cifar10-released-1"]
    names = [row.name for row in TABLE.rows]
    assert list(figures.values()) == [names] * 3, "a method has one place, and so one colour, in both readings"


def test_what_has_not_been_run_is_never_filled_in(tmp_path):
    with pytest.raises(ConfigError, match="there is no folder"):  # a slip of the pen would empty the page
        write_page(tmp_path / "page.md", tmp_path / "none")
    assert not (tmp_path / "page.md").exists()
    (tmp_path / "none").mkdir()
    write_page(tmp_path / "page.md", tmp_path / "none")
    text = (tmp_path / "page.md").read_text()
    assert text.count(" not run · |") == sum(len(one.rows) * len(one.columns) for one in artefacts().values()) > 100
    assert "Nothing has been run yet" in text
    assert not list(tmp_path.glob("**/*.png"))


def test_the_overview_counts_what_the_paper_has_no_number_for(tmp_path):
    for name in ("ca2fl", "fadas"):
        save_method(0.7, 0.01, tmp_path, method=name)
    write_page(tmp_path / "page.md", tmp_path)
    text = (tmp_path / "page.md").read_text()
    assert "large-worst-case-delays) | ▼ 2, · 8, 2 not in the paper | · 8 |" in text
    assert "(#the-concurrency-m_c) | 1 of 6 lines run | 0 of 6 lines run |" in text
    assert "| FADAS, M_c = 25 | 70.0 ± 1.0 | not run · |" in text


def test_a_seed_alone_is_no_verdict_on_three(tmp_path):
    save_method(0.7, 0.01, tmp_path)
    three = artefacts()["large-cifar10-seeds"]
    measured = measured_accuracy(three, next(row for row in three.rows if row.method == "fadas"), 0, tmp_path)
    assert (measured.text, measured.verdict) == ("70.0 (1 of 3 seeds)", "not run")


@pytest.mark.parametrize(
    "changes",
    [
        {"accuracy": None},
        {"accuracy": "x"},
        {"accuracy": float("nan")},
        {"curve": []},
        {"curve": [[1, 2, 3]]},
        {"curve": [[1, 5, 2.0, None]]},
        {"delays": {}},
        {"time_to_target": "soon"},
        {"config": None},
        {"versions": None},
        {"commit": None},
        {"seed": "1"},
        {"seed": 7},
        {"method": "fedbuff"},
        {"more": 1},
    ],
    ids=str,
)
def test_a_damaged_result_is_named(tmp_path, changes):
    save_method(0.7, 0.01, tmp_path)
    path = Cell("cifar10-large-dir0.1", "fadas", 1).path(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ConfigError, match=r"fadas-1.json is not a result"):
        write_page(tmp_path / "page.md", tmp_path)


def test_a_damaged_result_may_be_deleted(small_paper):
    path = Cell("cifar10-large-dir0.1", "fadas", 1).path(small_paper / "results")
    path.parent.mkdir(parents=True)
    path.write_text("{")
    for words in (["large-cifar10", "--only", "fadas"], ["report"], ["list"]):
        assert str(reproduce(small_paper, *words).exception).endswith("; delete it to run the cell anew")


def test_remarks_stand_below_their_artefact(tmp_path):
    remarks = tmp_path / "remarks.toml"
    remarks.write_text('time = "One."\ntime-released = """Two.\n\nThree."""')
    texts = [block.text for block in blocks(tmp_path) if block.kind in ("heading", "text")]
    place = texts.index("One.")
    assert texts[place + 1 : place + 3] == ["Two.", "Three."]
    assert texts.index(TIMES.title) < place < texts.index(artefacts()["large-cifar100"].title)
    for text, message in (('tim = "x"', "no artefact 'tim'"), ("time = 3", "is a text"), ("time", "remarks.toml: ")):
        remarks.write_text(text)
        with pytest.raises(ConfigError, match=message):
            list(blocks(tmp_path))


def test_a_published_number_is_the_same_wherever_it_stands():
    """Several artefacts repeat the rows of a table."""
    seen = {}
    for one in artefacts().values():
        for row in one.rows:
            if row.published:
                for experiment, number in zip(one.columns.values(), row.published, strict=True):
                    assert seen.setdefault((one.source, experiment, row.method), number) == number, (one.name, row.name)


def test_a_result_of_other_settings_is_not_taken_for_the_cells(small_paper):
    assert reproduce(small_paper, "large-cifar10", "--only", "fadas").exit_code == 0
    path = small_paper / "experiments/cifar10-large-dir0.1.toml"
    path.write_text(path.read_text().replace("eta = 0.0001", "eta = 0.05"))
    message = str(reproduce(small_paper, "large-cifar10", "--only", "fadas").exception)
    assert "fadas-1.json has other settings than cifar10-large-dir0.1.toml gives now; delete it" in message


def test_a_cell_that_diverges_is_kept_as_that_and_the_others_run(small_paper):
    path = small_paper / "experiments/cifar10-large-dir0.1.toml"
    path.write_text(path.read_text() + '[faults.all]\nkind = "nan"\nstart = 3.0\n')
    for ran in (2, 0):
        shown = reproduce(small_paper, "large-cifar10", "--only", "fadas")
        assert f"large-cifar10: {ran} cells run, 0 left" in shown.output
        assert str(shown.exception).startswith("1 of 2 runs diverged: cifar10-large-dir0.1 fadas-1; the report says so")
    kept = read_result(small_paper / "results/cifar10-large-dir0.1/fadas-1.json")
    assert (kept.accuracy, kept.time_to_target) == (None, None)
    assert kept.diverged.startswith("none of the last")
    assert kept.curve
    (wild, sound) = (measured_accuracy(TABLE, FADAS_ROW, column, small_paper / "results") for column in (0, 1))
    assert (wild.text, wild.verdict) == ("diverged", "worse")
    assert sound.text[0].isdigit()
    three = artefacts()["large-cifar10-seeds"]
    row = next(row for row in three.rows if row.method == "fadas")
    assert measured_accuracy(three, row, 0, small_paper / "results").text == "diverged (1 of 3 seeds)"
    shown = [row for block in blocks(small_paper / "results") for row in block.rows if row[0] == "FADAS"]
    assert any("diverged ▼" in row for row in shown)
    steady = next(row for row in shown if " to " in row[3])
    assert steady[1] == "", "of its curve there is no last fifth"
    figure = next(block for block in blocks(small_paper / "results") if block.text == "large-cifar10-2")
    assert figure.curves["FADAS"]
    assert all(block.text != "large-cifar10-1" for block in blocks(small_paper / "results")), "nothing to draw"


def test_how_to_compute_is_the_users_choice(small_paper):
    """The experiment files name options of one executor: another one does not stumble over them."""
    for name in ("inline", "batched"):
        assert (
            reproduce(small_paper, "large-cifar10", "--only", "fadas", "--executor", name, "--rounds", 2).exit_code == 0
        )
        shutil.rmtree(small_paper / "results")
        shutil.rmtree(small_paper / "runs")


def test_a_cell_in_one_precision_is_not_continued_in_another(small_paper):
    words = ["large-cifar10", "--only", "fadas", "--rounds", 2, "--executor", "inline"]
    assert reproduce(small_paper, *words, "--set", "executor.precision=bf16").exit_code == 0
    assert "0 cells run" in reproduce(small_paper, *words).output, (
        "its result is the cell's, and the page says how it was made"
    )
    shutil.rmtree(small_paper / "results")
    message = str(reproduce(small_paper, *words).exception)
    assert "(executor.precision was 'bf16' and is 'fp32'); give the options it was begun with" in message


def test_rounds_are_those_of_the_cell(small_paper):
    assert reproduce(small_paper, "ablation-buffer-rounds", "--rounds", 4, "--only", "fadas").exit_code == 0
    assert [len(read_result(path).curve) for path in small_paper.glob("results/*/*.json")] == [4, 4, 4]
    assert reproduce(small_paper, "large-cifar10", "--rounds", 4, "--only", "fedasync").exit_code == 0
    assert (
        read_result(small_paper / "results/cifar10-large-dir0.1/fedasync,rounds=4-1.json").curve[-1][1] == 20
    )  # 4 x M updates


def test_a_cell_that_another_process_is_at_is_left_to_it(small_paper):
    with hold_lock(small_paper / "runs/cifar10-large-dir0.1/fadas-1"):
        shown = reproduce(small_paper, "large-cifar10", "--only", "fadas")
    assert "another process is at it" in shown.output
    assert "1 cells run, 1 left" in shown.output
    left = "1 of 2 cells left out, in use by another process: cifar10-large-dir0.1 fadas-1; wait for it"
    assert str(shown.exception) == left
    assert [path.parent.name for path in small_paper.glob("results/*/*.json")] == ["cifar10-large-dir0.3"]


def test_a_cell_that_another_process_finishes_meanwhile_is_tried_once_more(small_paper, monkeypatch):
    with hold_lock(small_paper / "runs/cifar10-large-dir0.1/fadas-1") as file:
        monkeypatch.setattr("fadas.paper.run_cells.execute", lambda *a, **k: (file.close(), execute(*a, **k))[1])
        shown = reproduce(small_paper, "large-cifar10", "--only", "fadas")
    assert shown.exit_code == 0, shown.output
    assert "another process is at it" in shown.output
    assert "2 cells run, 0 left" in shown.output


def test_a_folder_that_cannot_be_used_is_told_before_anything_is_run(small_paper):
    foreign = small_paper / "runs/cifar10-large-dir0.3/fadas-1"
    foreign.mkdir(parents=True)
    (foreign / "cat.jpg").touch()
    assert "is not a run of fadas; use --work DIR" in str(reproduce(small_paper, "large-cifar10").exception)
    assert not (small_paper / "runs/cifar10-large-dir0.1").exists()


def test_a_cell_that_another_process_has_just_finished_is_read(small_paper, monkeypatch):
    assert reproduce(small_paper, "large-cifar10", "--only", "fedbuff").exit_code == 0
    kept = {path: path.read_text() for path in small_paper.glob("results/*/*.json")}
    summaries = [path.rename(path.with_name("away")) for path in small_paper.glob("runs/*/*/summary.json")]
    for path in kept:
        path.unlink()

    def take(folder, take=lock.acquire):
        """Whoever had the lock before has come to its end."""
        for path in summaries:
            if path.parent == folder and path.exists():
                path.rename(path.with_name("summary.json"))
        take(folder)

    monkeypatch.setattr(lock, "acquire", take)
    shown = reproduce(small_paper, "large-cifar10", "--only", "fedbuff")
    assert shown.exit_code == 0, shown.output
    assert {path: path.read_text() for path in small_paper.glob("results/*/*.json")} == kept, "not trained again"


def test_a_broken_run_says_how_to_begin_anew(small_paper):
    assert reproduce(small_paper, "large-cifar10", "--only", "fadas").exit_code == 0
    shutil.rmtree(small_paper / "results")
    metrics = small_paper / "runs/cifar10-large-dir0.1/fadas-1/metrics.jsonl"
    metrics.write_text(metrics.read_text()[:100])
    assert "to run the cell anew" in str(reproduce(small_paper, "large-cifar10", "--only", "fadas").exception)


def test_trials_stay_off_the_page_and_other_settings_and_seeds_are_shown(tmp_path):
    save_method(0.7, 0.01, tmp_path)
    source = Cell("cifar10-large-dir0.1", "fadas", 1).path(tmp_path)

    def add(experiment, seed, *changes):
        path = Cell(experiment, "fadas", seed, changes).path(tmp_path)
        path.parent.mkdir(exist_ok=True)
        one = {"experiment": experiment, "seed": seed, "changes": changes, "device": "a laptop"}
        path.write_text(json.dumps({**json.loads(source.read_text()), **one}))

    write_page(tmp_path / "page.md", tmp_path)
    before = (tmp_path / "page.md").read_text()
    add("cifar10-large-dir0.1", 1, "rounds=3")
    add("an-experiment-of-ones-own", 1)
    write_page(tmp_path / "page.md", tmp_path)
    assert (tmp_path / "page.md").read_text() == before, "nor are they counted"
    add("cifar10-large-dir0.1", 1, "algorithms.fadas.eta=0.003")
    add("cifar10-large-dir0.1", 9)
    write_page(tmp_path / "page.md", tmp_path)
    text = (tmp_path / "page.md").read_text()
    assert "a laptop" in text
    assert text.count("| fadas, algorithms.fadas.eta=0.003 | Dir(0.1), seed 1 | 70.0 ± 1.0 |") == 1
    assert text.count("| fadas | Dir(0.1), seed 9 | 70.0 ± 1.0 |") == 1


def test_the_page_says_how_steady_an_accuracy_is(tmp_path):
    save_method(0.7, 0.01, tmp_path)
    path = Cell("cifar10-large-dir0.1", "fadas", 1).path(tmp_path)
    curve = [[step, 5 * step, float(step), step / 100] for step in range(1, 101)]
    path.write_text(json.dumps({**json.loads(path.read_text()), "curve": curve}))
    write_page(tmp_path / "page.md", tmp_path)
    assert "\n| FADAS | 90.5 (81.0 to 100.0) |  | 50.0 (50.0 to 50.0) |  |\n" in (tmp_path / "page.md").read_text()


def test_cells_have_names_of_their_own_and_results_the_settings_of_their_files():
    cells = {cell for artefact in artefacts().values() for cell in artefact.all_cells()}
    assert len({cell.path(ROOT) for cell in cells}) == len(cells)
    places = Places(ROOT / "experiments", ROOT / "results", ROOT / "nowhere")
    kept = [read_result(path).cell for path in ROOT.glob("results/*/*.json")]
    assert kept
    assert all(has_result(cell, places) for cell in kept), "made in bf16, which the files do not ask for"


@pytest.mark.parametrize(
    ("executor", "precision"),
    [
        ({"name": "auto", "device": "cuda"}, "bf16"),
        ({"name": "cuda", "device": "cuda", "precision": "tf32"}, "tf32"),
        ({"name": "auto", "device": "cpu"}, "fp32"),
    ],
)
def test_the_page_says_in_which_precision(tmp_path, executor, precision):
    save_method(0.7, 0.01, tmp_path)
    for path in tmp_path.glob("*/*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "config": {"executor": executor}}))
    assert f", {precision}, torch" in _made(tmp_path)


def test_the_released_code_has_only_what_it_can_run():
    """Its get_dataset knows CIFAR alone."""
    cells = {cell for one in artefacts().values() if one.original for cell in one.all_cells()}
    assert {cell.experiment.partition("-")[0] for cell in cells} == {"cifar10", "cifar100"}


def test_every_experiment_of_the_artefacts_exists_and_names_their_methods():
    for artefact in artefacts().values():
        for cell in artefact.all_cells():
            text = (ROOT / "experiments" / f"{cell.experiment}.toml").read_text()
            assert re.search(rf"^\[algorithms\.{re.escape(cell.method)}\]$", text, re.M), cell


def test_the_committed_page_is_the_one_that_the_results_give(tmp_path):
    """If this fails: `fadas reproduce report`, and commit what it writes."""
    write_page(tmp_path / "reproduction.md", ROOT / "results")
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.*")}
    assert made >= {Path("reproduction.md"), Path("reproduction.html")}
    pinned = f"matplotlib=={matplotlib.__version__}" in (ROOT / "constraints.txt").read_text().splitlines()
    compared = [".md", ".html", *([".svg"] if pinned else [])]  # another version may draw differently
    for name in sorted(made):
        committed = ROOT / "docs" / name
        assert committed.exists(), name
        if name.suffix in compared:
            assert committed.read_text() == (tmp_path / name).read_text(), name
    left = {path.name for path in (ROOT / "docs/reproduction").glob("*")} - {path.name for path in made}
    assert not left, "of no use any more: delete them"
