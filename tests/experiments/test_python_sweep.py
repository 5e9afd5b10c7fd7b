"""`fadas.sweep`: a sweep from Python."""

import subprocess
import sys
import warnings
from functools import partial

import pytest
import torch

import fadas
from fadas.errors import ConfigError, FadasWarning
from fadas.executors import EXECUTORS
from fadas.executors.inline import Inline
from fadas.experiments.sweeps.halving import HALVING, search_points
from fadas.experiments.sweeps.point_runner import hold_out_examples
from fadas.experiments.sweeps.points import Sweep, hold_out, read_grid
from fadas.experiments.sweeps.ranking import rank_points
from helpers.experiments import make_sweep

DIGITS = partial(fadas.TASKS["digits"], clients=12)
LOCAL = fadas.LocalSGD(steps=2, batch_size=8)
PLAN = fadas.plan(fadas.Schedule(6, 2), clients=12, delays=fadas.Mild(shares=(0.5, 0.25, 0.25)), steps=20, seed=3)
GRID = {"eta": [0.002, 0.005, 0.02], "local.lr": [0.03, 0.1]}
ETA = {"low": 1e-3, "high": 1e-1, "log": True}


@pytest.fixture(autouse=True)
def _ignore_warnings_of_edges():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* is best at the .* edge", FadasWarning)
        yield


def sweep(algorithms, grids, task=DIGITS, **options):
    return fadas.sweep(task, algorithms, grids, plan=PLAN, local=LOCAL, **{"eval_every": 2, **options})


def rank_file(tmp_path, rungs=(1.0,), samples=None, by="mean", seeds=(3,), **sections):
    """The same sweep by the tables of an experiment file."""
    tables = make_sweep() | {
        "delays": {"name": "mild", "shares": [0.5, 0.25, 0.25]},
        "local": {"steps": 2, "batch_size": 8},
        "run": {"updates": 40, "eval_every": 2},
        **sections,
    }
    labels = list(tables["sweep"])
    grids = {label: read_grid(tables, label, samples) for label in labels}
    sweep = Sweep(hold_out(tables, 0.2), grids, seeds, tmp_path)
    todo = [point for label in labels for point in sweep.make_points(label, grids[label])]
    results = {point.folder: (point, outcome) for point, outcome in search_points(todo, 1, rungs, by=by)}
    return rank_points(list(results.values()), by)


def facts_of(rows):
    return [(row.label, row.point, row.score, row.spread, row.share, row.best) for row in rows]


def test_same_points_give_the_same_numbers_as_a_file(tmp_path):
    algorithms = {"fadas": fadas.FADAS, "fedasync": fadas.FedAsync, "fedavg": lambda eta: fadas.FedAvg(eta)}
    grids = {"fadas": GRID, "fedasync": {"alpha": [0.5, 1.0]}, "fedavg": {"eta": [0.5, 1.0]}}
    file = rank_file(tmp_path, algorithms={label: {} for label in grids}, sweep=grids, seeds=(3, 4))
    result = sweep(algorithms, grids, seeds=[3, 4])
    assert facts_of(result.rows) == facts_of(file)
    assert result.best["fadas"].point in [row.point for row in file if row.best]


@pytest.mark.parametrize("by", ["mean", "last"])
def test_halving_over_ranges_agrees_with_a_file(tmp_path, by):
    grids = {"fadas": {"eta": ETA, "local.lr": [0.03, 0.1]}}
    file = rank_file(tmp_path, HALVING, 6, by, algorithms={"fadas": {}}, sweep=grids)
    result = sweep({"fadas": fadas.FADAS}, grids, samples=6, halving=True, by=by)
    assert facts_of(result.rows) == facts_of(file)
    assert [row.share for row in result.rows] == [1, 1 / 2, *[1 / 8] * 4]


def test_halving_continues_runs_instead_of_repeating_them(monkeypatch):
    trained = []

    class Counted(Inline):
        def collect(self, job):
            trained.append(job)
            return super().collect(job)

    monkeypatch.setitem(EXECUTORS, "inline", Counted)
    grid = {"a": {"eta": [0.001, 0.002, 0.005, 0.01]}}
    sweep({"a": fadas.FADAS}, grid, halving=True, eval_every=1, executor="inline")
    updates = PLAN.arrivals.size
    assert len(trained) == pytest.approx(4 * updates / 8 + updates * 7 / 8, abs=4 * PLAN.schedule.buffer)


def test_task_that_needs_the_number_of_clients_gets_that_of_the_plan():
    def make(clients, validation):
        return DIGITS(validation=validation) if clients == 12 else None

    assert sweep({"a": fadas.FADAS}, {"a": {"eta": [0.01]}}, task=make).rows[0].score > 0


def test_fields_of_an_algorithm_can_be_swept():
    by_field = sweep({"a": fadas.FADAS()}, {"a": {"step_size.eta": [0.002, 0.02], "local.lr": [0.1]}})
    by_function = sweep({"a": fadas.FADAS}, {"a": {"eta": [0.002, 0.02], "local.lr": [0.1]}})
    assert [row.score for row in by_field.rows] == [row.score for row in by_function.rows]
    best = by_field.best["a"].point
    assert by_field.algorithms["a"] == fadas.FADAS(best["step_size.eta"])
    assert by_field.local["a"].lr == 0.1


def test_schedule_can_be_swept():
    result = sweep({"a": fadas.FedBuff}, {"a": {"schedule.buffer": [1, 4], "schedule.per_client": [1]}})
    assert len(result.rows) == 2
    assert result.rows[0].score != result.rows[1].score


def test_several_jobs_give_the_same_rows():
    one, two = (sweep({"a": fadas.FADAS}, {"a": GRID}, seeds=[1, 2], jobs=jobs) for jobs in (1, 2))
    assert facts_of(one.rows) == facts_of(two.rows)


def test_lambda_runs_in_this_process_and_says_so():
    with pytest.warns(FadasWarning, match="runs one at a time, because not all can be sent to another process"):
        result = sweep({"a": lambda eta: fadas.FADAS(eta)}, {"a": {"eta": [0.002, 0.02]}}, jobs=2)
    assert len(result.rows) == 2


def test_edges_are_warned_of_and_widened():
    with pytest.warns(FadasWarning, match=r"a is best at the upper edge of eta \(0\.0002\); widen=True extends"):
        result = sweep({"a": fadas.FADAS}, {"a": {"eta": [0.0001, 0.0002]}})
    assert result.best["a"].edges[0].next == 0.0004
    wider = sweep({"a": fadas.FADAS}, {"a": {"eta": [0.0001, 0.0002]}}, widen=True, widen_limit=12)
    assert wider.best["a"].edges == ()
    assert wider.best["a"].point["eta"] > 0.0002
    assert wider.best["a"].score > result.best["a"].score


def test_values_that_the_function_refuses_are_bounds():
    result = sweep({"a": lambda beta1: fadas.FADAS(0.01, beta1)}, {"a": {"beta1": [0.0, 0.999]}}, widen=True)
    (edge,) = result.best["a"].edges
    assert (edge.side, edge.value, edge.next) == ("lower", 0.0, None)
    assert "beta1 must be at least 0 and below 1" in edge.reason
    assert len(result.rows) == 2


def test_task_is_measured_on_held_out_examples_of_its_clients():
    task = DIGITS(seed=3)
    held_out = hold_out_examples(task, 0.25)
    kept, measured = sum(held_out.sizes), len(held_out.test[-1])
    assert kept + measured == sum(task.sizes)
    assert measured == pytest.approx(0.25 * sum(task.sizes), abs=12)
    rows = [{tuple(row.tolist()) for row in part[0]} for part in held_out.clients]
    test = {tuple(row.tolist()) for row in held_out.test[0]}
    assert not test & set().union(*rows), "no example is trained on and measured"
    assert sweep({"a": fadas.FADAS}, {"a": {"eta": [0.01]}}, task=task).rows[0].score > 0


def test_regression_is_ranked_by_its_metric():
    x = torch.randn(12, 30, 3, generator=torch.Generator().manual_seed(0))
    task = fadas.Task(
        torch.nn.Linear(3, 1),
        [(part, part @ torch.ones(3, 1)) for part in x],
        loss=lambda outputs, targets: (outputs - targets).square().mean(1),
        test=(x[0], x[0] @ torch.ones(3, 1)),
        metrics={"rmse": lambda outputs, targets: (outputs - targets).square().mean().sqrt()},
    )
    result = sweep({"a": fadas.FedBuff}, {"a": {"eta": [0.1, 1.0, 1e30]}}, task=task)
    assert result.metric.name == "rmse"
    assert result.rows[0].score < result.rows[1].score, "lower is better"
    assert result.rows[2].diverged == 1
    assert result.table().splitlines()[0].split() == ["algorithm", "point", "validation", "rmse"]
    assert "diverged" in result.table().splitlines()[3]


def test_table_shows_spread_and_best():
    table = sweep({"a": fadas.FADAS}, {"a": GRID}, seeds=[1, 2]).table()
    assert table.splitlines()[1].startswith("a ")
    assert " ± " in table.splitlines()[1]
    assert "  best" in table.splitlines()[1]


@pytest.mark.parametrize(
    ("algorithms", "grids", "options", "message"),
    [
        ({"a": fadas.FADAS}, {"b": {"eta": [1]}}, {}, "unknown algorithm 'b'"),
        ({"a": fadas.FADAS}, {"a": {"etta": [1]}}, {}, "unknown key 'a.etta'; did you mean 'a.eta'?"),
        (
            {"a": fadas.FADAS()},
            {"a": {"step_sise.eta": [1]}},
            {},
            "unknown key 'a.step_sise'; did you mean 'a.step_size'?",
        ),
        ({"a": fadas.FADAS()}, {"a": {"step_size.etta": [1]}}, {}, "did you mean 'a.step_size.eta'?"),
        ({"a": fadas.FADAS}, {"a": {"local.lrr": [1]}}, {}, "unknown key 'local.lrr'; did you mean 'local.lr'?"),
        ({"a": fadas.FADAS}, {"a": {"eta": [-1.0]}}, {}, "eta must be a positive number, got -1.0"),
        ({"a": fadas.FADAS}, {"a": {"eta": ETA}}, {}, "grids['a'].eta is a range"),
        ({"a": fadas.FADAS}, {"a": {}}, {}, "there is no grid for a"),
        ({"a": fadas.FADAS}, {}, {}, "there is no grid for any algorithm"),
        ({"a": fadas.FADAS}, {"a": GRID}, {"by": "las"}, "did you mean 'last'?"),
        ({"a": fadas.FADAS}, {"a": GRID}, {"seeds": [1, 1]}, "seeds must be different numbers"),
        ({"a": fadas.FADAS}, {"a": GRID}, {"validation": 2}, "validation must lie between 0 and 1"),
        ({"a": fadas.FADAS}, {"a": GRID}, {"task": lambda seed: None}, "a task must take `validation`"),
        ({"a": fadas.FADAS}, {"a": GRID}, {"task": lambda validation: None}, "made a NoneType, not a Task"),
        ({"a": lambda eta: 7}, {"a": {"eta": [1]}}, {}, "its function made a int, not an Algorithm"),
        ({"a": fadas.FADAS}, {"a": GRID}, {"halving": True, "eval_every": 9}, "eval_every must be at most 3"),
        ({"a": fadas.FADAS}, {"a": GRID}, {"metric": "rmse"}, "the task does not measure 'rmse'"),
    ],
)
def test_mistakes_are_refused_with_one_line(algorithms, grids, options, message):
    with pytest.raises(ConfigError) as error:
        sweep(algorithms, grids, **options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_old_module_of_the_same_name_still_works():
    code = "from fadas.sweep import rank_points; import fadas; print(rank_points, fadas.sweep.__class__); fadas.sweep()"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert "rank_points" in done.stdout
    assert "TypeError: sweep() missing" in done.stderr, "the function is called"
