"""Stopped anywhere and continued elsewhere, a simulation ends with the same bits."""

import pytest
import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.presets import ALGORITHMS, FADAS
from fadas.algorithms.privacy import Private
from fadas.core.ledger import Schedule
from fadas.core.update_checks import Checks
from fadas.runs import checkpoint
from fadas.runs.folder import checkpoints
from fadas.simulation import snapshot
from fadas.simulation.faults import Fault
from helpers.training import assert_same_model, make_simulation, make_task


def make_stoppable(task, algorithm, executor="inline", **options):
    return make_simulation(task, algorithm, executor, deadline=70.0, **options)


def stop_after(simulation, updates):
    """Stop when this many updates have been collected, even within a step."""
    inner, count = simulation.executor.collect, 0

    def collect(job):
        nonlocal count
        count += 1
        if count == updates:
            simulation.stop()
        return inner(job)

    simulation.executor.collect = collect
    return list(simulation)


def save_and_read(simulation, folder):
    tensors, values = snapshot.take(simulation)
    return checkpoint.read_checkpoint(checkpoint.write_checkpoint(folder, values["version"], tensors, values))


def assert_same_state(one, two):
    assert_same_model(one.server.model, two.server.model)
    assert one.server.state.slots.keys() == two.server.state.slots.keys()
    assert all(torch.equal(value, two.server.state.slots[name]) for name, value in one.server.state.slots.items())


EXAMPLES = {name: (make(), None) for name, make in ALGORITHMS.items() if name != "centralised"}  # takes no executor


# After these updates, mostly within a step. What an executor adds to a snapshot does not depend on the method.
STOPS = {"inline": (1, 7, 11), "batched": (1, 7), "processes": (7,)}

EXAMPLES["released"] = (FADAS(), Schedule(5, 3, "released"))


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("executor", ["inline", "batched", "processes"])
def test_every_algorithm_resumes_anywhere_with_same_bits(name, executor, tmp_path):
    task, (algorithm, schedule) = make_task(batchnorm=True, sizes=(4, 17, 30, 8)), EXAMPLES[name]
    whole = make_stoppable(task, algorithm, executor, schedule=schedule)
    expected = [r.as_dict() for r in whole]
    for stop in STOPS[executor]:
        first = make_stoppable(task, algorithm, executor, schedule=schedule)
        records = [r.as_dict() for r in stop_after(first, stop)]
        assert not first.complete
        second = make_stoppable(task, algorithm, executor, schedule=schedule)
        snapshot.restore(second, *save_and_read(first, tmp_path))
        records += [r.as_dict() for r in second]
        assert records == expected
        assert_same_state(second, whole)


@pytest.mark.parametrize(("schedule", "updates"), [(None, 5), (Schedule(5, 3, "released"), 1)], ids=str)
def test_many_stops_with_faults_give_same_bits(schedule, updates, tmp_path):
    task = make_task(sizes=(4, 17, 30, 8))
    options = {
        "schedule": schedule,
        "faults": (Fault("nan", (1,)), Fault("fail", (2,)), Fault("noise", (3,), end=20, scale=100.0)),
        "checks": Checks(norm=50.0),
        "steps": 15,
    }
    whole = make_stoppable(task, FADAS(), **options)
    expected = [r.as_dict() for r in whole]
    assert expected[-1]["refused"]["not finite"] > 3
    assert expected[-1]["refused"]["norm above bound"] > 0
    assert expected[-1]["dropped"] > 0
    records, state, sittings = [], None, 0
    while True:
        simulation = make_stoppable(task, FADAS(), **options)
        if state:
            snapshot.restore(simulation, *state)
        records += [r.as_dict() for r in stop_after(simulation, updates)]
        sittings += 1
        if simulation.complete:
            break
        state = save_and_read(simulation, tmp_path)
    assert sittings > 10
    assert records == expected
    assert_same_state(simulation, whole)
    assert len(checkpoints(tmp_path)) == 2


@pytest.mark.parametrize("executor", ["inline", "batched", "processes"])
def test_other_executor_resumes_with_finished_updates(executor, tmp_path):
    task = make_task(sizes=(4, 17, 30, 8))
    first, whole = make_stoppable(task, FADAS(), "batched"), make_stoppable(task, FADAS(), "batched")
    records = stop_after(first, 11)
    tensors, values = save_and_read(first, tmp_path)
    assert values["finished"]
    second = make_stoppable(task, FADAS(), executor)
    snapshot.restore(second, tensors, values)
    assert [u.job.id for u in second.finished] == [u.job.id for u in first.finished]
    assert len([*records, *second]) == len(list(whole))
    torch.testing.assert_close(second.server.model.params, whole.server.model.params, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("executor", ["inline", "batched", "processes"])
def test_abandoned_simulation_can_be_saved_but_not_replayed(executor):
    simulation = make_stoppable(make_task(sizes=(4, 17, 30, 8)), FADAS(), executor)
    for record in simulation:
        if record.step == 5:
            tensors, values = snapshot.take(simulation)
            break
    kept, after = snapshot.take(simulation)
    assert after == values
    assert kept.keys() == tensors.keys()
    assert all(torch.equal(kept[name], tensor) for name, tensor in tensors.items())
    assert bool(values["finished"]) == (executor == "batched")
    with pytest.raises(RuntimeError, match="can be iterated once"):
        list(simulation)


def test_snapshot_of_other_run_is_refused(tmp_path):
    task = make_task(sizes=(4, 17, 30, 8))
    first = make_stoppable(task, FADAS())
    stop_after(first, 7)
    tensors, values = save_and_read(first, tmp_path)
    fresh = make_stoppable(task, FADAS())
    (version, *_) = (name for name in tensors if name.startswith("version.") and name.endswith("params"))
    unfit = f"{version} belongs to another model"
    for bad_tensors, bad_values, error, message in (
        ({**tensors, version: tensors[version][1:]}, values, ValueError, unfit),
        ({**tensors, version: tensors[version].double()}, values, ValueError, unfit),
        ({**tensors, "params": tensors["params"].half()}, values, ValueError, "params belongs to another model"),
        ({name: t for name, t in tensors.items() if name != version}, values, KeyError, version),
        (tensors, {**values, "version": 1 + values["version"]}, ValueError, "belongs to another run"),
        (tensors, {**values, "buffer": values["buffer"][1:]}, ValueError, "belongs to another run"),
        (tensors, {**values, "progress": {**values["progress"], "position": 10**9}}, IndexError, "out of bounds"),
        (tensors, {**values, "progress": {"colour": "red"}}, ValueError, "belongs to another run"),
        (tensors, {}, KeyError, "progress"),
    ):
        with pytest.raises(error, match=message):
            snapshot.restore(fresh, bad_tensors, bad_values)
    whole = make_stoppable(task, FADAS())
    assert [r.as_dict() for r in fresh] == [r.as_dict() for r in whole]
    assert_same_state(fresh, whole)


def test_spent_privacy_is_restored(tmp_path):
    pytest.importorskip("dp_accounting")
    algorithm = Algorithm(Private(1.0, 0.5))
    task = make_task()
    expected = [r.as_dict() for r in make_stoppable(task, algorithm)]
    first = make_stoppable(task, algorithm)
    records = [r.as_dict() for r in stop_after(first, 13)]
    second = make_stoppable(task, algorithm)
    snapshot.restore(second, *save_and_read(first, tmp_path))
    assert records + [r.as_dict() for r in second] == expected
    assert expected[-1]["privacy"]["epsilon"] > expected[0]["privacy"]["epsilon"]
