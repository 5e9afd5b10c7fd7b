"""The task `files`: which form the data have, and the network, loss and metrics that go with them."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from fadas.tasks.files.arrays import INPUTS, read_arrays
from fadas.tasks.files.folder import read_folder
from fadas.tasks.files.holding_out import gathered, hold_out, hold_out_own
from fadas.tasks.files.networks import NETWORKS, choose_network, mae, rmse, squared_error
from fadas.tasks.files.table import SUFFIXES, Columns, read_table
from fadas.tasks.subsets import Subsets
from fadas.tasks.task import Data, Task, cross_entropy


def files(
    path: str,
    model: str,
    clients: int,
    validation: float = 0.0,
    *,
    target: str | None = None,
    client: str | None = None,
    features: tuple[str, ...] | None = None,
    one_hot: tuple[str, ...] = (),
    standardize: bool = False,
    kind: Literal["classification", "regression"] = "classification",
    test: str | float | None = None,
    hidden: int = 64,
    client_test: float | None = None,
) -> Task:
    """Your own data: a table, a folder with one file per client, or a folder with arrays that stay on disk.

    | `path` | what it holds | which client holds an example |
    |---|---|---|
    | a `.csv` or `.parquet` file | one row per example | the column `client` |
    | a folder with `x.npy` and `y.npy` | arrays, which may be larger than memory | `client.npy` |
    | a folder with `.npz` or `.safetensors` files | in each file the arrays x and y of one client | the file |

    With the extra `parquet`, fadas reads Parquet files.

    Args:
        path: The file or folder.
        model: The network: "linear", "mlp" (two layers), or your own class or function without arguments,
            "package.module:Name".
        clients: The number of clients. It must equal the number that the data have.
        validation: Hold out this share of each client's examples and measure on it instead of the test data, for
            tuning. Clients with too few examples keep all of them.
        target: The column of a table to predict.
        client: The column of a table that names the client. Clients are numbered in the order of first appearance.
        features: The columns of a table that are inputs. None: all but `target` and `client`.
        one_hot: Columns of a table, such as text, of which each value becomes a column of zeros and ones.
        standardize: Subtract the mean of each column of numbers of a table, and divide by its standard deviation, over
            the training examples of all clients. A number to predict is standardized too, and rmse and mae stay in its
            own unit.
        kind: What to predict: classes, or numbers. For classes, the loss is the cross-entropy and the metric the
            accuracy. For numbers, the loss is the squared error and the metrics are rmse and mae.
        test: The test data: a second table, or a share of each client's examples to hold out. None: the test data in
            the folder, if there are any.
        hidden: The width of the hidden layer of "mlp".
        client_test: Hold out this share of each client's training examples as its own test data, see
            `run.clients_eval_every`. None: clients have none.

    Example:
        >>> task = files("hospitals", model="mypackage.networks:Net", clients=12, validation=0.2, client_test=0.2)
        >>> task = files("wine.csv", "mlp", clients=12, target="cultivar", client="estate", test=0.2, hidden=16)
        >>> task = files("rides.parquet", "linear", 80, target="price", client="city", kind="regression",
        ...     features=("distance", "weekday"), one_hot=("weekday",), standardize=True)
    """
    place, regression, table = Path(path), kind == "regression", None
    given = {"target": target, "client": client, "features": features, "one_hot": one_hot, "standardize": standardize}
    data: Sequence[Data]
    if place.suffix.lower() in SUFFIXES:
        goal = _required("target", target, place, "to predict")
        owner = _required("client", client, place, "that says which client holds a row")
        columns = Columns(goal, owner, features, one_hot, regression)
        file = Path(test) if isinstance(test, str) else None
        table = read_table(place, file, clients, columns)
        data, held_out = table.clients, table.test
    else:
        _require_folder(place, test, given)
        read = read_arrays if (place / INPUTS).exists() else read_folder
        data, held_out = read(place, clients, regression)
    if isinstance(test, float | int):
        if held_out is not None:
            raise ValueError(f"test: {place} holds test data, so no share can be held out; remove one of them")
        data, held_out = hold_out(data, test, "test")
    if validation:
        data, held_out = hold_out(data, validation, "validation")
    data, own = hold_out_own(data, client_test)
    if standardize and table and isinstance(data, Subsets):
        table.standardize(data)
    outputs = table.outputs if table else _count_outputs(data, held_out, regression) if model in NETWORKS else 0
    network = choose_network(model, hidden, data, outputs)
    loss, metrics = cross_entropy, None
    if regression:
        unit = table.unit if table else 1.0
        loss, metrics = squared_error, {"rmse": partial(rmse, unit=unit), "mae": partial(mae, unit=unit)}
    save = table.save if table else None
    return Task(network, data, loss, gathered(held_out), metrics, save=save, client_test=own)


def _required(name: str, column: str | None, place: Path, role: str) -> str:
    """Return a column that a table must name."""
    if column is None:
        raise ValueError(f"{name} is missing: name the column of {place} {role}")
    return column


def _require_folder(place: Path, test: Any, given: Mapping[str, Any]) -> None:
    """Refuse a path that is no folder, and settings that only tables have."""
    if not place.is_dir():
        forms = f"a folder, or a file that ends in {' or '.join(SUFFIXES)}"
        raise ValueError(
            f"path must be {forms}, got {str(place)!r}{'' if place.exists() else ', which does not exist'}"
        )
    for name, value in given.items():
        if value:
            raise ValueError(f"{name} is for tables ({' or '.join(SUFFIXES)}), and {place} is a folder; remove it")
    if isinstance(test, str):
        raise ValueError(f"test: {place} is a folder, so it holds its own test data; set a share, or remove it")


def _count_outputs(data: Sequence[Data], held_out: Data | None, regression: bool) -> int:
    """Return the number of outputs that the targets need."""
    targets = [columns[-1] for columns in ([data.data] if isinstance(data, Subsets) else data)]
    if held_out is not None:
        targets.append(held_out[-1])
    if regression or targets[0].is_floating_point():
        return targets[0][:1].numel()
    return 1 + max(int(labels.max()) for labels in targets)
