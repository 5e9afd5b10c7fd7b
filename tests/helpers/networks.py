"""Networks and losses that more than one test uses. Experiment files name some of them."""

import torch
from torch import nn


class TinyNet(nn.Module):
    """A network that experiment files can name: "helpers.networks:TinyNet"."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x)


class Centred(nn.Module):
    """Its examples see each other, though it has no norm layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x - x.mean(0))


class Averaging(nn.Module):
    """Assigns new tensors to its buffers."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.training:
            self.steps = self.steps + 1
            self.mean = self.mean + (x.mean(0) - self.mean) / self.steps
        return self.layer(x - self.mean)


def make_chain():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 5), nn.Tanh()), nn.Linear(5, 3))


def squared_errors(outputs, targets):
    """One value per example and output."""
    return (outputs - torch.eye(3)[targets]) ** 2
