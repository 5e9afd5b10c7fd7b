"""A task with BatchNorm, for runs that a later version resumes."""

import torch
from torch import nn

from fadas import Task


def make_task(clients: int = 4, seed: int = 0) -> Task:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(clients * 8, 3, generator=generator)
    labels = (inputs[:, 0] > 0).long()
    data = [(inputs[client::clients], labels[client::clients]) for client in range(clients)]
    return Task(lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), data, test=(inputs, labels))
