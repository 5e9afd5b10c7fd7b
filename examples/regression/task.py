"""How old do people get in a country, by its wealth, its size, its continent and the year? Each country is a client.

The data are Gapminder's: 142 countries in 12 years, 1952 to 2007. They ship with Plotly, which fadas needs anyway.
"""

import numpy as np
from plotly.data import gapminder
from torch import Tensor, nn

import fadas
from fadas.metrics import mae, r2, rmse


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return inputs, life expectancies and countries: three arrays with one entry per row of the table."""
    table = gapminder()
    numbers = [np.log(table.gdpPercap), np.log(table["pop"]), table.year]
    continents = [table.continent == name for name in sorted(table.continent.unique())]
    return np.stack([*numbers, *continents], axis=1).astype(float), table.lifeExp.to_numpy(), table.country.to_numpy()


def make_model(inputs: int) -> nn.Module:
    """Return the network. Its output has the shape of the targets, [examples, 1]."""
    return nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, 1))


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss: one value per example."""
    return (outputs - targets).square().squeeze(1)


def make_task(clients: int = 142, validation: float = 0.0) -> fadas.Task:
    """Return the task. experiment.toml names this function.

    Args:
        clients: The number of countries.
        validation: `fadas sweep` measures on this share of each country's training rows instead of the test rows.
    """
    x, y, countries = load_data()
    groups = list(fadas.partition.natural(countries).values())[:clients]
    test, groups = split_off([np.random.default_rng(0).permutation(rows) for rows in groups], 1 / 6)
    if validation:
        test, groups = split_off(groups, validation)
    train = np.concatenate(groups)
    x = ((x - x[train].mean(0)) / (x[train].std(0) + 1e-8)).astype("float32")
    mean, years = y[train].mean(), y[train].std()
    y = ((y - mean) / years).astype("float32")[:, None]
    return fadas.Task(
        model=lambda: make_model(x.shape[1]),
        clients=[(x[rows], y[rows]) for rows in groups],
        loss=squared_error,
        test=(x[np.concatenate(test)], y[np.concatenate(test)]),
        client_test=[(x[rows], y[rows]) for rows in test],
        metrics={  # errors in years, not in standard deviations
            "rmse": lambda outputs, targets: rmse(years * outputs, years * targets),
            "mae": lambda outputs, targets: mae(years * outputs, years * targets),
            "r2": r2,
        },
    )


def split_off(groups: list[np.ndarray], share: float) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return a share of each group, and the rest of each group."""
    cuts = [round(share * len(rows)) for rows in groups]
    return [rows[:cut] for rows, cut in zip(groups, cuts)], [rows[cut:] for rows, cut in zip(groups, cuts)]
