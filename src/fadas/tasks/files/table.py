"""A table, CSV or Parquet, with a column that names the client of each row."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save
from torch import nn

from fadas.errors import first_line
from fadas.runs.folder import MODEL
from fadas.runs.serialization import atomic_file
from fadas.tasks.files.columns import Features, Labels, Numbers, require_columns, require_values
from fadas.tasks.partition import natural
from fadas.tasks.subsets import Subsets
from fadas.tasks.task import Data

SUFFIXES = (".csv", ".parquet")


class Columns(NamedTuple):
    """Which columns of a table mean what.

    Attributes:
        target: The column to predict.
        client: The column that names the client.
        features: The columns of inputs. None: all others.
        one_hot: Columns of inputs that become a column of zeros and ones for each of their values.
        regression: Whether the target is a number to predict rather than a class.
    """

    target: str
    client: str
    features: Sequence[str] | None
    one_hot: Sequence[str]
    regression: bool


@dataclass
class Table:
    """A table as data of clients.

    Args:
        clients: The clients' data.
        test: Data of a file of test data. None: there is none.
        target: The column to predict.
        inputs: The name of each input.
        scalable: For each input, whether it is a number of the table, which may be standardized.
        classes: The classes. None: the target is a number.
        scaling: The mean and the standard deviation that standardized columns had, by name. The target has its own.
    """

    clients: Subsets
    test: Data | None
    target: str
    inputs: list[str]
    scalable: list[bool]
    classes: list[str] | None
    scaling: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def outputs(self) -> int:
        """The number of outputs that the network needs."""
        return 1 if self.classes is None else len(self.classes)

    @property
    def unit(self) -> float:
        """The standard deviation that a target had if it is standardized."""
        return self.scaling.get(self.target, (0.0, 1.0))[1]

    def standardize(self, clients: Subsets) -> None:
        """Subtract each column's mean and divide by its standard deviation, in place, also in the test data.

        Args:
            clients: The clients' data, over which both are taken.
        """
        rows = torch.cat(list(clients.parts))
        columns = [(name, 0, place) for place, name in enumerate(self.inputs) if self.scalable[place]]
        for name, part, place in columns if self.classes else [*columns, (self.target, 1, 0)]:
            train = clients.data[part][rows, place].double()
            mean, deviation = float(train.mean()), float(train.std(correction=0)) or 1.0
            self.scaling[name] = (mean, deviation)
            for data in (clients.data, self.test):
                if data is not None:
                    data[part][:, place] = (data[part][:, place].double() - mean) / deviation

    def save(self, module: nn.Module, folder: Path) -> None:
        """Write the state dict, with what tells how to use the network as the metadata of the file.

        Args:
            module: The trained network.
            folder: Where to write.
        """
        state = {name: tensor.detach().cpu().clone() for name, tensor in module.state_dict().items()}
        use = {"inputs": self.inputs, "target": self.target, "classes": self.classes, "scaling": self.scaling}
        with atomic_file(folder / MODEL) as file:
            file.write(save(state, {"fadas.table": json.dumps(use)}))


def read_table(path: Path, test: Path | None, clients: int, columns: Columns) -> Table:
    """Return a table as data of clients.

    Args:
        path: The file.
        test: A file of test data with the same columns. It needs no column of clients. None: there is none.
        clients: The number of clients. It must equal the number of different values in the column.
        columns: Which columns mean what.
    """
    table = _load_table(path, columns)
    require_columns(table, path, "target", [columns.target])
    require_columns(table, path, "client", [columns.client])
    require_columns(table, path, "feature", [*(columns.features or ()), *columns.one_hot])
    features = Features(table, path, columns.features, columns.one_hot, leave_out=(columns.target, columns.client))
    targets = (Numbers if columns.regression else Labels)(table, path, columns.target)
    require_values(table, path, [columns.client])
    parts = natural(np.asarray(table[columns.client].to_numpy()))
    if len(parts) != clients:
        values = f"the number of different values in the column {columns.client!r} of {path}"
        raise ValueError(f"clients must equal {values} ({len(parts)}), got {clients}")
    data = features.encode(table, path), targets.encode(table, path)
    held_out = None
    if test is not None:
        other = _load_table(test, columns)
        require_columns(other, test, "target", [columns.target])
        require_columns(other, test, "feature", features.names)
        held_out = features.encode(other, test), targets.encode(other, test)
    owned = Subsets(data, list(parts.values()))
    return Table(owned, held_out, columns.target, features.inputs, features.scalable, targets.classes)


def _load_table(path: Path, columns: Columns) -> Any:
    """Return a pandas DataFrame. In CSV files, clients and categories are text, so that 007 and 7 differ."""
    import pandas

    try:
        if path.suffix.lower() == ".csv":
            names = dict.fromkeys([columns.client, *columns.one_hot], str)
            table = pandas.read_csv(path, dtype=names, low_memory=False)  # type: ignore[arg-type]
        else:
            table = pandas.read_parquet(path, engine="pyarrow")
    except ImportError:
        raise ValueError(f"reading {path} needs pyarrow: run pip install '.[parquet]' in a checkout") from None
    except Exception as error:  # pandas and pyarrow raise many kinds of error for a broken file
        reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        raise ValueError(f"cannot read {path} ({reason})") from None
    if any(name is not None for name in table.index.names):
        table = table.reset_index()  # a named index is a column of the file
    if not len(table):
        raise ValueError(f"{path} has no rows")
    return table
