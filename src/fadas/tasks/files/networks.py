"""Simple networks for rows of numbers, and what regression needs: a loss and metrics."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from torch import Tensor, nn

from fadas.registry import lookup
from fadas.tasks.subsets import Data, Subsets
from fadas.validate import MOST_WIDTH, at_least, at_most


def linear(inputs: int, outputs: int, hidden: int) -> nn.Module:
    """Return a linear model."""
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs))


def mlp(inputs: int, outputs: int, hidden: int) -> nn.Module:
    """Return a network with two layers."""
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


NETWORKS: Mapping[str, Callable[[int, int, int], nn.Module]] = {"linear": linear, "mlp": mlp}


def choose_network(name: str, hidden: int, clients: Sequence[Data], outputs: int) -> Callable[[], nn.Module]:
    """Return a function that makes the network.

    Args:
        name: A name of `NETWORKS`, or the user's own class or function without arguments, "package.module:Name".
        hidden: The width of the hidden layer of `mlp`.
        clients: The clients' data.
        outputs: The number of outputs.
    """
    at_least(1, hidden=hidden)
    at_most(MOST_WIDTH, hidden=hidden)
    make = lookup(NETWORKS, "model", name)
    if name not in NETWORKS:
        return make
    x = clients.data[0] if isinstance(clients, Subsets) else clients[0][0]
    if not x.is_floating_point():
        raise ValueError(
            f"the network {name!r} takes floats, and x holds {x.dtype}; convert x, or use your own network"
        )
    return partial(make, x[:1].numel(), outputs, hidden)


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the squared error of each example."""
    return (outputs - targets).square().flatten(1).mean(1)


def rmse(outputs: Tensor, targets: Tensor, unit: float = 1.0) -> Tensor:
    """Return the root of the mean squared error, in multiples of a unit."""
    return unit * (outputs - targets).double().square().mean().sqrt()


def mae(outputs: Tensor, targets: Tensor, unit: float = 1.0) -> Tensor:
    """Return the mean absolute error, in multiples of a unit."""
    return unit * (outputs - targets).double().abs().mean()
