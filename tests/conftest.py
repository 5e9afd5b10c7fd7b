import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests run side by side, and the models are tiny

import pytest
import torch
from torch import nn

from fadas.tasks import Task

torch.set_num_threads(1)


def make_task(
    clients: int = 8, batchnorm: bool = False, seed: int = 0, sizes: tuple[int, ...] = (3, 17, 30, 8)
) -> Task:
    """A small task with clients of unequal size, none a multiple of the batch size."""
    generator = torch.Generator().manual_seed(seed)

    def data(n: int):
        x = torch.randn(n, 6, generator=generator)
        return x, (x[:, 0] > x[:, 1]).long() + (x[:, 2] > 0).long()

    def model() -> nn.Module:
        middle = [nn.BatchNorm1d(5)] if batchnorm else []
        return nn.Sequential(nn.Linear(6, 5), *middle, nn.ReLU(), nn.Linear(5, 3))

    return Task(model, [data(sizes[c % len(sizes)]) for c in range(clients)], test=data(50))


@pytest.fixture
def task() -> Task:
    return make_task()
