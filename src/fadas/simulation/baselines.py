"""Baselines without federated learning: the clients' data pooled in one place, and clients that train alone.

An `Algorithm` with a `baseline` is simulated like any other, with differences that live here.

| baseline      | difference                                                                     |
|---------------|--------------------------------------------------------------------------------|
| "centralised" | a job trains on a random part of all clients' data: see `pool_clients`         |
|               | one job at a time, and none is delayed or lost: see `plan_for`                 |
| "local-only"  | a job starts from its client's own model, see `OwnModels`, and not from x_t    |
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fadas.algorithms.algorithm import Algorithm
from fadas.core.ledger import Schedule
from fadas.core.model import Model, Update
from fadas.core.saved_state import take_model
from fadas.errors import ConfigError
from fadas.rng import PARTITION
from fadas.simulation.delays import DelayModel, Delays
from fadas.simulation.planner import Plan, plan
from fadas.tasks.subsets import Subsets
from fadas.tasks.task import Task

Metrics = dict[str, float]
_PREFIX = "own."  # of a client's model in a snapshot
_INITIAL = -1  # stands for the clients that have not trained yet


def task_of(algorithm: Algorithm, task: Task, seed: int) -> Task:
    """Return the task as an algorithm trains it: with all data pooled for the baseline "centralised".

    Args:
        algorithm: The algorithm.
        task: The task.
        seed: The run's seed.
    """
    return pool_clients(task, seed) if algorithm.is_timeless else task


def pool_clients(task: Task, seed: int) -> Task:
    """Return a task whose clients have random examples of all clients, as many as before.

    A job is then plain SGD on a random part of all data, with as many examples as a client's job. Local test splits
    stay with their clients.

    Args:
        task: The task.
        seed: The run's seed.

    Raises:
        ConfigError: The clients' examples differ in shape.
    """
    if isinstance(task.clients, Subsets):
        rows, data = torch.cat(list(task.clients.parts)).cpu(), task.clients
    else:
        if not task.alike:
            raise ConfigError("centralised: the clients' examples differ in shape, so they cannot be pooled")
        columns = [torch.cat(column) for column in zip(*task.clients, strict=True)]
        rows, data = torch.arange(sum(task.sizes)), Subsets(columns, [])
    order = np.random.default_rng([seed, 1, PARTITION]).permutation(len(rows))
    ends = np.cumsum(task.sizes)[:-1]
    parts = [np.sort(part) for part in np.split(rows.numpy()[order], ends)]
    return replace(task, clients=data.with_parts(parts))


def plan_for(
    algorithm: Algorithm,
    schedule: Schedule,
    clients: int,
    delays: Delays | DelayModel | None = None,
    *,
    steps: int | None = None,
    updates: int | None = None,
    time: float | None = None,
    seed: int = 0,
    sizes: Sequence[int] | None = None,
) -> Plan:
    """Return the plan of an algorithm. For the baseline "centralised" nothing is delayed or lost, and time has no end.

    Args:
        algorithm: The algorithm.
        schedule: Its schedule.
        clients: The number of clients.
        delays: How long jobs take, and what goes wrong.
        steps: The largest number of server steps.
        updates: The largest number of client updates.
        time: The end in virtual time.
        seed: The run's seed.
        sizes: The number of examples of each client, if the delays depend on it.

    Raises:
        ValueError: No plan is possible.
    """
    if algorithm.is_timeless:
        if steps is None and updates is None:
            raise ValueError("centralised training has no virtual time; set run.updates (in Python: updates)")
        model = delays.model if isinstance(delays, Delays) else delays
        delays, time, sizes = Delays() if model is None else Delays(model), None, None
    return plan(schedule, clients, delays, steps=steps, updates=updates, time=time, seed=seed, sizes=sizes)


def check_baseline(algorithm: Algorithm, timeline: Plan) -> None:
    """Refuse a plan with which the baseline "centralised" would not be plain SGD.

    Raises:
        ConfigError: Jobs would train at the same time, be averaged, or start from an earlier model.
    """
    schedule = timeline.schedule
    if algorithm.is_timeless and ((schedule.concurrency, schedule.buffer) != (1, 1) or timeline.tau.any()):
        found = f'concurrency {schedule.concurrency}, buffer {schedule.buffer} and refill "{schedule.refill}"'
        needs = 'centralised training takes one job after the other: concurrency 1, buffer 1 and refill "round"'
        raise ConfigError(f"{needs}, got {found}; remove schedule settings of its own, or use Centralised().schedule()")


class OwnModels:
    """The models of clients that train alone. Each starts from the initial model.

    Args:
        initial: The initial model.
        clients: The number of clients.

    Example:
        >>> own = OwnModels(Model(params, buffers), clients=50)
        >>> own.keep(update)
        >>> own[update.job.client].params
    """

    def __init__(self, initial: Model, clients: int) -> None:
        self._initial, self._clients = initial, clients
        self._models: dict[int, Model] = {}
        self._measured: dict[int, Metrics] = {}  # by client, for the model that it has now

    def __getitem__(self, client: int) -> Model:
        return self._models.get(client, self._initial)

    def keep(self, update: Update) -> None:
        """Make what a client has trained its model."""
        client = update.job.client
        self._models[client] = Model(update.base + update.delta, update.buffers)
        self._measured.pop(client, None)

    def evaluate(self, evaluate: Callable[[Model], Metrics]) -> Metrics:
        """Return the mean metrics over the clients' models. Only models that have changed are evaluated.

        Args:
            evaluate: Returns the metrics of a model.
        """
        models = [client if client in self._models else _INITIAL for client in range(self._clients)]
        for client in dict.fromkeys(models):
            if client not in self._measured:
                self._measured[client] = evaluate(self[client])
        rows = [self._measured[client] for client in models]
        return {name: _mean([row[name] for row in rows]) for name in rows[0]}

    def evaluate_clients(
        self, evaluate: Callable[[Model, Sequence[int]], dict[str, list[float]]]
    ) -> dict[str, list[float]]:
        """Return the metrics of each client's model on the client's own test data.

        Args:
            evaluate: Returns the metrics of a model on the test data of some clients; NaN for the others.
        """
        alone = [client for client in range(self._clients) if client not in self._models]
        found = evaluate(self._initial, alone)
        for client, model in self._models.items():
            for name, values in evaluate(model, [client]).items():
                found[name][client] = values[client]
        return found

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the models as tensors by name."""
        return {
            f"{_PREFIX}{client}.{name}": tensor
            for client, model in self._models.items()
            for name, tensor in (("params", model.params), ("buffers", model.buffers))
        }

    def take_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the models from the tensors that `to_tensors` returned.

        Raises:
            ValueError: They are not those of this run's clients.
        """
        holders = sorted({int(name.split(".")[1]) for name in tensors if name.startswith(_PREFIX)})
        if any(not 0 <= client < self._clients for client in holders):
            raise ValueError("a client that does not exist has a model")
        self._models = {client: take_model(tensors, f"{_PREFIX}{client}.", self._initial) for client in holders}
        self._measured = {}


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except (ValueError, OverflowError):  # infinities of both signs, or numbers beyond all floats
        return sum(values) / len(values)
