"""Data sets of Hugging Face, with a column that names the client."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fadas.tasks.partition import natural
from fadas.tasks.task import Loss, Task, cross_entropy

Model = nn.Module | Callable[[], nn.Module]


def from_huggingface(
    model: Model,
    dataset: Any,
    client: str,
    inputs: Sequence[str],
    target: str,
    test: Any = None,
    loss: Loss = cross_entropy,
) -> Task:
    """Return a task from a Hugging Face `datasets.Dataset` with a column that names each row's client.

    Args:
        model: A module, or a function that makes one.
        dataset: The clients' rows.
        client: The column that names the client. Clients are numbered in the order of first appearance.
        inputs: The columns of inputs. A column holds numbers of one shape, such as tokenised and padded text.
        target: The column of targets.
        test: The server's rows. None: nothing is measured.
        loss: See `fadas.Task`.

    Example:
        >>> rows = Dataset.from_dict({"x": [[0.0], [1.0], [2.0]], "y": [0, 1, 1], "hospital": ["a", "a", "b"]})
        >>> task = from_huggingface(nn.Linear(1, 2), rows, client="hospital", inputs=["x"], target="y")
    """
    columns = _columns(dataset, [*inputs, target])
    parts = natural(dataset[client])
    data = [[column[torch.from_numpy(rows)] for column in columns] for rows in parts.values()]
    return Task(model, data, loss, None if test is None else _columns(test, [*inputs, target]))


def _columns(dataset: Any, names: Sequence[str]) -> list[Tensor]:
    """Return columns of a Hugging Face data set as tensors."""
    table = dataset.with_format("torch")
    return [torch.as_tensor(table[name][:]) for name in names]
