"""A step size sees the server step. It is computed once per step, and recorded as used."""

from dataclasses import dataclass, field

import pytest
from torch import nn

import fadas
from fadas.algorithms.step_sizes import Constant, Cosine, Warmup
from fadas.core.model import ServerState, ServerStep, Update
from fadas.errors import ConfigError
from helpers.training import LOCAL, make_plan


@dataclass(frozen=True)
class Watched:
    """Remembers the steps that it was asked about."""

    seen: list = field(default_factory=list)

    def __call__(self, step):
        self.seen.append(step)
        return 0.5 / (1 + step.index)


@dataclass(frozen=True)
class OldForm:
    """Takes the delays, as in fadas 0.1."""

    def __call__(self, delays):
        return 0.1 / (1 + max(delays))


@dataclass(frozen=True)
class Broken:
    """Has a mistake, and a part that takes anything."""

    then: Constant = Constant()

    def __call__(self, step):
        return {}["nothing"]


def test_step_size_is_called_once_per_step_and_recorded(task):
    watched = Watched()
    algorithm = fadas.Algorithm(step_size=watched)
    simulation = fadas.simulate(make_plan(algorithm), task, algorithm, LOCAL, executor="inline")
    watched.seen.clear()  # the trial step before the run
    records = list(simulation)
    assert [step.index for step in watched.seen] == list(range(len(records)))
    assert [record.eta for record in records] == [0.5 / (1 + index) for index in range(len(records))]


def test_step_size_sees_state_updates_and_jobs(task):
    watched = Watched()
    algorithm = fadas.Algorithm(step_size=watched)
    simulation = fadas.simulate(make_plan(algorithm, seed=7), task, algorithm, LOCAL, executor="inline")
    watched.seen.clear()
    records = list(simulation)
    for step, record in zip(watched.seen, records, strict=True):
        assert isinstance(step, ServerStep)
        assert isinstance(step.state, ServerState)
        assert step.state.version == step.index
        assert [(job.id, job.client) for job in step.jobs] == [(job.id, job.client) for job in record.jobs]
        assert list(step.delays) == [job.tau for job in record.jobs]
        assert all(isinstance(update, Update) for update in step.updates)
        assert [update.job for update in step.updates] == list(step.jobs)
        assert (step.seed, step.clients) == (7, 8)


def test_step_size_may_depend_on_updates(task):
    def by_norm(step):
        return 1.0 / (1.0 + float(sum(update.delta.norm() for update in step.updates)))

    algorithm = fadas.Algorithm(step_size=by_norm)
    records = list(fadas.simulate(make_plan(algorithm), task, algorithm, LOCAL, executor="inline"))
    assert len({record.eta for record in records}) == len(records)


@pytest.mark.parametrize("step_size", [OldForm(), Warmup(3, OldForm()), Cosine(5, then=Warmup(3, OldForm()))])
def test_step_size_of_old_form_is_refused_in_python(task, step_size):
    algorithm = fadas.Algorithm(step_size=step_size)
    with pytest.raises(ConfigError, match=r"takes the server step.*def __call__\(self, step\).*step\.delays"):
        fadas.simulate(make_plan(algorithm), task, algorithm, LOCAL)


def test_other_error_of_step_size_is_not_taken_for_the_old_form(task):
    algorithm = fadas.Algorithm(step_size=Broken())
    with pytest.raises(ConfigError, match="KeyError: 'nothing'"):
        fadas.simulate(make_plan(algorithm), task, algorithm, LOCAL)


def test_step_size_of_old_form_is_refused_in_deployments():
    pytest.importorskip("flwr")
    from fadas.flower.federation import try_one_step

    server = fadas.Server(
        fadas.Algorithm(step_size=OldForm()),
        fadas.Ledger(fadas.Schedule(2, 2), 4),
        fadas.FlatModule(nn.Linear(2, 1)).read(),
    )
    with pytest.raises(ConfigError, match=r"def __call__\(self, step\)"):
        try_one_step(server)
