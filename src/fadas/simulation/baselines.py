"""Baselines without federated learning: the clients' data pooled in one place, and clients that train alone.

An `Algorithm` with a `baseline` is simulated like any other, with two differences that live here.

| baseline      | difference                                                                     |
|---------------|--------------------------------------------------------------------------------|
| "centralised" | a job trains on a random part of all clients' data: see `pool_clients`         |
| "local-only"  | a job starts from its client's own model, see `OwnModels`, and not from x_t    |
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fadas.algorithms.algorithm import Algorithm
from fadas.core.model import Model, Update
from fadas.core.saved_state import take_model
from fadas.errors import ConfigError
from fadas.rng import PARTITION
from fadas.tasks.subsets import Subsets
from fadas.tasks.task import Task

Metrics = dict[str, float]
_PREFIX = "own."  # of a client's model in a snapshot


def task_of(algorithm: Algorithm, task: Task, seed: int) -> Task:
    """Return the task as an algorithm trains it: with all data pooled for the baseline "centralised".

    Args:
        algorithm: The algorithm.
        task: The task.
        seed: The run's seed.
    """
    return pool_clients(task, seed) if algorithm.baseline == "centralised" else task


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
        rows, data = torch.cat(list(task.clients.parts)), task.clients
    else:
        if not task.alike:
            raise ConfigError("centralised: the clients' examples differ in shape, so they cannot be pooled")
        columns = [torch.cat(column) for column in zip(*task.clients, strict=True)]
        rows, data = torch.arange(sum(task.sizes)), Subsets(columns, [])
    order = np.random.default_rng([seed, 1, PARTITION]).permutation(len(rows))
    ends = np.cumsum(task.sizes)[:-1]
    parts = [np.sort(part) for part in np.split(rows.numpy()[order], ends)]
    return replace(task, clients=data.with_parts(parts))


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
        for client in [*self._models, -1]:  # -1 stands for the clients that have not trained yet
            if client not in self._measured and (client >= 0 or len(self._models) < self._clients):
                self._measured[client] = evaluate(self[client])
        rows = [self._measured.get(client) or self._measured[-1] for client in range(self._clients)]
        return {name: math.fsum(row[name] for row in rows) / len(rows) for name in rows[0]}

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
