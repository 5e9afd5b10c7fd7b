"""Which jobs a simulation hands to its executor, what it says of lost ones, and snapshots at odd moments."""

import inspect
import json

import pytest
import torch

import fadas
from fadas.algorithms.presets import FADAS
from fadas.core.update_checks import Checks
from fadas.errors import Unsuitable
from fadas.executors import DEFAULT, Inline
from fadas.simulation import snapshot
from fadas.simulation.delays import Delays, Uniform
from fadas.simulation.faults import Fault
from fadas.simulation.planner import DROPPED, EXPIRED, plan
from fadas.simulation.simulator import Simulation, SimulationProgress, prepare, simulate
from helpers.training import LOCAL, make_faulty_simulation, make_plan, make_task


class Counting(Inline):
    """Remembers the jobs that it was given."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.given = []

    def submit(self, job, start, due):
        self.given.append(job.id)
        super().submit(job, start, due)


@pytest.mark.parametrize("faults", [(), (Fault("nan", (1, 5)),)], ids=["none", "nan"])
def test_every_needed_job_is_submitted_once(task, faults):
    p = make_plan(FADAS(), len(task.clients), faults=faults)
    executor = Counting(task, LOCAL, p.seed)
    simulation = simulate(p, task, FADAS(), LOCAL, executor=executor)
    list(simulation)
    assert len(set(executor.given)) == len(executor.given)
    needed = {id for id in range(len(simulation.plan.client)) if simulation.plan.needed[id]}
    assert needed <= set(executor.given)
    assert not faults or simulation.progress.refusals
    if not faults:
        assert needed == set(executor.given), "jobs whose updates never arrive are not trained"


def test_late_update_of_a_lost_job_is_refused_for_its_reason(task):
    p = plan(fadas.Schedule(3, 2), len(task.clients), Delays(Uniform(1, 3), 0.4, 2.5), steps=20, seed=2)
    simulation = simulate(p, task, FADAS(), LOCAL, executor="inline")
    list(simulation)
    reasons = {DROPPED: "dropped", EXPIRED: "expired"}
    for outcome, reason in reasons.items():
        (id, *_) = [id for id in p.ended.tolist() if p.outcome[id] == outcome]
        assert simulation.server.refuse_late(p.job(id)) == reason


def test_new_simulation_has_done_nothing(task):
    assert vars(SimulationProgress()) == {
        "updates": 0, "removed": 0, "dropped": 0, "expired": 0, "position": 0, "wall": 0.0, "refusals": [],
        "retractions": {}, "since": 0, "recorded": 0,
    }  # fmt: skip
    simulation = simulate(make_plan(FADAS(), len(task.clients)), task, FADAS(), LOCAL, executor="inline")
    assert (simulation.stopped, simulation.complete, simulation.metrics, simulation.finished) == (
        False,
        False,
        None,
        [],
    )


def test_defaults_are_the_documented_ones():
    def defaults(function):
        found = inspect.signature(function).parameters.values()
        return {one.name: one.default for one in found if one.default is not inspect.Parameter.empty}

    assert defaults(simulate) == {
        "executor": DEFAULT, "device": "cpu", "eval_every": 1, "clients_eval_every": None, "target": None,
        "metric": None, "checks": None,
    }  # fmt: skip
    assert defaults(prepare) == {
        "eval_every": 1, "target": None, "checks": None, "metric": None, "label": "", "clients_eval_every": None,
    }  # fmt: skip
    assert defaults(plan) == {
        "delays": None, "steps": None, "updates": None, "time": None, "seed": 0, "sizes": None,
    }  # fmt: skip
    assert defaults(Simulation) == {"checks": None, "metric": None, "clients_eval_every": None}


def test_updates_that_came_too_early_are_no_sign_of_divergence(task):
    checks = Checks(norm_factor=50.0)
    p = make_plan(FADAS(), len(task.clients), dropout=0.0, schedule=fadas.Schedule(5, 1))
    simulation = simulate(p, task, FADAS(), LOCAL, executor="inline", checks=checks)
    *_, last = simulation
    assert last.refused == {"too early to judge": 2}
    assert simulation.progress.since == 0


def test_refusals_are_counted_until_an_update_is_accepted():
    simulation = make_faulty_simulation(make_task(), faults=(Fault("nan", None, 5.0, 9.0),), steps=12)
    seen = [simulation.progress.since for _ in simulation]
    assert set(seen) == {0}
    assert simulation.progress.refusals


def make():
    return make_faulty_simulation(make_task(), FADAS())


def take_at(updates):
    """A snapshot after this many updates, as a checkpoint keeps it."""
    simulation, count = make(), iter(range(99))
    inner = simulation.executor.collect
    simulation.executor.collect = lambda job: (next(count) == updates - 1 and simulation.stop(), inner(job))[1]
    if not updates:
        simulation.stop()
    list(simulation)
    tensors, values = snapshot.take(simulation)
    return {name: tensor.clone() for name, tensor in tensors.items()}, json.loads(json.dumps(values))


def test_simulation_that_was_stopped_before_its_first_update_continues():
    tensors, values = take_at(0)
    assert values["progress"]["position"] == 0
    snapshot.restore(other := make(), tensors, values)
    assert [record.as_dict() for record in other] == [record.as_dict() for record in make()]


@pytest.mark.parametrize("name", ["updates", "removed", "dropped", "expired", "position", "since"])
def test_impossible_counter_of_a_snapshot_is_named(name):
    tensors, values = take_at(7)
    for wrong in (-1, 1.5, True):
        values["progress"][name] = wrong
        with pytest.raises(ValueError, match=f"^{name} must be a whole number of at least 0, got {wrong}$"):
            snapshot.restore(make(), tensors, values)


def test_impossible_seconds_of_a_snapshot_are_named():
    tensors, values = take_at(7)
    values["progress"]["wall"] = -1.0
    with pytest.raises(ValueError, match=r"^wall must be a finite number of at least 0, got -1.0$"):
        snapshot.restore(make(), tensors, values)


@pytest.mark.parametrize("name", ["updates", "removed", "dropped", "expired"])
def test_counter_that_does_not_follow_from_the_plan_is_refused(name):
    tensors, values = take_at(7)
    values["progress"][name] += 1
    with pytest.raises(ValueError, match="the counters do not fit the plan"):
        snapshot.restore(make(), tensors, values)


def test_trained_update_in_a_snapshot_may_be_infinite():
    """The server has not checked it yet, and will refuse it."""
    tensors, values = take_at(7)
    job = min(make_running(values), key=lambda job: job.id)
    like = make().server.model
    for part, tensor in (("delta", like.params * float("inf")), ("base", like.params), ("buffers", like.buffers)):
        tensors[f"finished.{job.id}.{part}"] = tensor
    values["finished"] = [[list(job), 3, {"loss": 1.0}]]
    snapshot.restore(other := make(), tensors, values)
    assert [update.job for update in other.finished] == [job]
    *_, last = other
    assert last.refused == {"not finite": 1}
    assert torch.isfinite(other.server.model.params).all()


def make_running(values):
    """The jobs that were running when the snapshot was taken."""
    p, position = make().plan, values["progress"]["position"]
    ended = set(p.ended[:position].tolist())
    return [p.job(id) for id in p.ended[position:].tolist() if p.start[id] <= p.end[p.ended[position - 1]]
            and id not in ended]  # fmt: skip


class Unfit(Inline):
    def preflight(self):
        raise Unsuitable("the module cannot be copied")


def test_unsuitable_executor_is_refused_with_others_to_use(task):
    p = make_plan(FADAS(), len(task.clients))
    with pytest.raises(Unsuitable, match=r"^the module cannot be copied; use another executor: \w+( or \w+)*$"):
        simulate(p, task, FADAS(), LOCAL, executor=Unfit(task, LOCAL, p.seed))


def test_resumed_plan_knows_which_updates_were_refused():
    """Some updates were refused on arrival, others as soon as they spoiled a step."""
    faults = (Fault("noise", (0,), scale=1e25), Fault("nan", (1,)))

    def make():
        return make_faulty_simulation(make_task(), FADAS(), faults=faults, steps=12)

    first, second = make(), make()
    for record in first:
        if record.step == 9:
            first.stop()
    assert first.progress.refusals
    assert first.progress.retractions
    snapshot.restore(second, *snapshot.take(first))
    for name in ("client", "version", "start", "end", "outcome", "ended", "time", "taken"):
        assert getattr(second.plan, name).tolist() == getattr(first.plan, name).tolist()
