"""When a simulation evaluates, stops, gives up, and what it leaves behind."""

from dataclasses import dataclass

import pytest
import torch

import fadas
from fadas.algorithms.presets import FADAS, FedBuff
from fadas.core.ledger import Schedule
from fadas.errors import Diverged
from fadas.executors import Inline
from fadas.simulation.delays import Delays, Uniform
from fadas.simulation.faults import Fault
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from helpers.training import LOCAL, make_faulty_simulation, make_plan, make_task, run_simulation


@dataclass(frozen=True)
class Fixed:
    """Every job takes one unit of time."""

    def bind(self, clients, rng):
        return lambda client, u: 1.0


def test_run_stops_at_an_accuracy_equal_to_its_target(task):
    p = make_plan(FADAS(eta=0.05), len(task.clients), steps=30)
    records, _ = run_simulation(p, task, FADAS(eta=0.05))
    accuracies = [record.metrics["accuracy"] for record in records]
    best = max(accuracies)
    first = accuracies.index(best)
    assert 0 < first < 29
    stopped, _ = run_simulation(p, task, FADAS(eta=0.05), target=best)
    assert len(stopped) == first + 1
    assert len(run_simulation(p, task, FADAS(eta=0.05), target=best + 1e-9)[0]) == 30


def test_target_is_looked_at_in_evaluations_only(task):
    p = make_plan(FADAS(), len(task.clients), steps=7)
    records, _ = run_simulation(p, task, FADAS(), target=1e-9, eval_every=3)
    assert len(records) == 3
    simulation = simulate(p, task, FADAS(), LOCAL, executor="inline", target=1.0, eval_every=3)
    assert [record.metrics is not None for record in simulation] == [False, False, True, False, False, True, True]
    assert simulation.complete


def test_every_step_is_evaluated_by_default(task):
    records, _ = run_simulation(make_plan(FADAS(), len(task.clients), steps=4), task, FADAS())
    assert all(record.metrics for record in records)


@pytest.mark.parametrize(("end", "diverges"), [(7.5, False), (8.5, True)])
def test_time_that_ends_in_refusals_is_divergence_only_beyond_accidents(end, diverges):
    """One slot, a job per unit of time. Updates of jobs from time 5 on are NaN: refused at 6 and 7, and at 8."""
    task, algorithm = make_task(), FedBuff()
    p = plan(Schedule(1, 1), 8, Delays(Fixed(), faults=(Fault("nan", None, 5.0),)), time=end)
    simulation = simulate(p, task, algorithm, LOCAL, executor="inline")
    if diverges:
        with pytest.raises(Diverged, match=r"the last 3 updates were all refused .*not finite: 3\) when its time"):
            list(simulation)
    else:
        assert [record.time for record in simulation] == [1.0, 2.0, 3.0, 4.0, 5.0]
        assert simulation.complete


def test_refusals_are_counted_from_the_last_accepted_update():
    """Four slots: patience is 180 updates."""
    simulation = make_faulty_simulation(make_task(), faults=(Fault("nan", None, 5.0),), steps=12)
    with pytest.raises(Diverged, match=r"^the last 181 updates were all refused \(refused so far: not finite: 181\)$"):
        list(simulation)
    assert simulation.progress.updates > 0


class Refusing(Inline):
    def preflight(self):
        raise fadas.ConfigError("this executor is not at hand")


def test_executor_may_refuse_before_the_run(task):
    p = make_plan(FADAS(), len(task.clients))
    with pytest.raises(fadas.ConfigError, match="this executor is not at hand"):
        simulate(p, task, FADAS(), LOCAL, executor=Refusing(task, LOCAL, p.seed))


class CountingThreads:
    """A combine rule that remembers how many threads torch has."""

    def __init__(self):
        self.threads = []

    def __call__(self, state, step, updates, clients):
        self.threads.append(torch.get_num_threads())
        return updates[0].delta, {}


def test_server_computes_with_one_thread(task, one_thread):
    """As workers do: the number of threads changes the rounding of long sums."""
    counting = CountingThreads()
    algorithm = fadas.Algorithm(counting)
    simulation = simulate(make_plan(algorithm, len(task.clients), steps=3), task, algorithm, LOCAL, executor="inline")
    counting.threads.clear()
    torch.set_num_threads(2)
    list(simulation)
    assert counting.threads == [1, 1, 1]
    assert torch.get_num_threads() == 2


class Infinite:
    def __call__(self, state, step, updates, clients):
        return torch.full_like(updates[0].delta, float("inf")), {}


class Closing(Inline):
    closed = 0

    def close(self):
        self.closed += 1
        super().close()


def test_executor_is_closed_though_the_run_is_abandoned_or_diverges(task):
    p = make_plan(FADAS(), len(task.clients))
    executor = Closing(task, LOCAL, p.seed)
    for _ in simulate(p, task, FADAS(), LOCAL, executor=executor):
        break
    assert executor.closed == 1
    wild = Closing(task, LOCAL, p.seed)
    with pytest.raises(Diverged, match="step 1 gave a model that is not finite"):
        list(simulate(p, task, fadas.Algorithm(Infinite()), LOCAL, executor=wild))
    assert wild.closed == 1


def test_wall_time_of_a_resumed_run_goes_on(task):
    p = make_plan(FADAS(), len(task.clients), steps=6)
    first = simulate(p, task, FADAS(), LOCAL, executor="inline")
    for record in first:
        if record.step == 3:
            first.stop()
    tensors, values = fadas.snapshot.take(first)
    assert 0 < values["progress"]["wall"] < 60
    second = simulate(p, task, FADAS(), LOCAL, executor="inline")
    values["progress"]["wall"] = 1000.0
    fadas.snapshot.restore(second, tensors, values)
    assert all(1000 < record.wall < 1060 for record in second)
    assert not first.complete
    assert second.complete


def test_module_holds_the_current_model(task):
    p = make_plan(FADAS(), len(task.clients), steps=3)
    simulation = simulate(p, task, FADAS(eta=0.5), LOCAL, executor="inline")
    for record in simulation:
        assert task.evaluate(simulation.module()) == record.metrics


def test_unknown_executor_is_named_with_the_nearest(task):
    with pytest.raises(fadas.ConfigError, match="unknown executor 'inlin'; did you mean 'inline'"):
        simulate(make_plan(FADAS(), len(task.clients)), task, FADAS(), LOCAL, executor="inlin")


def test_records_count_dropped_and_expired_jobs_apart(task):
    delays = Delays(Uniform(1, 3), dropout=0.4, deadline=2.5)
    p = plan(Schedule(3, 2), len(task.clients), delays, steps=20, seed=2)
    records, _ = run_simulation(p, task, FedBuff())
    statistics = p.statistics()
    assert records[-1].expired == statistics["expired"] > 0
    assert records[-1].dropped == statistics["dropped"] > 0
