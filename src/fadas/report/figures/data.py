"""What figures draw: runs, or pandas frames with one row for each step, job or client."""

from collections.abc import Mapping, Sequence
from typing import Any

from fadas.errors import ConfigError
from fadas.runs.reader import Run, group_runs

_MOST_NAMES = 6  # in one line of text
Data = Sequence[Run] | Mapping[str, list[Run]] | Any  # Any: a pandas frame


def group(data: Data) -> dict[str, list[Run]]:
    """Return runs by method. Runs that are grouped already stay as they are."""
    return dict(data) if isinstance(data, Mapping) else group_runs(data)


def is_frame(data: Data) -> bool:
    """Return whether data are a pandas frame."""
    return hasattr(data, "columns") and hasattr(data, "groupby")


def join_names(names: Sequence[str]) -> str:
    """Return names with commas between them. Of many, the first ones."""
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown} and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else shown


def split_frame(frame: Any, *columns: str) -> dict[str, list[Any]]:
    """Return the rows of a frame by method, one frame for each seed. Rows without a value in a column are left out.

    Args:
        frame: A frame with the column algorithm. It may have the columns experiment and seed. If there are several
            experiments, their names are added to those of the methods.
        columns: The columns that are drawn.

    Raises:
        ConfigError: The frame does not have one of these columns.
    """
    if not len(frame):
        return {}
    for column in ("algorithm", *columns):
        if column not in frame.columns:
            known = ", ".join(map(str, frame.columns))
            raise ConfigError(
                f'the frame has no column "{column}", only {known}; choose another frame or another figure'
            )
    if "experiment" in frame.columns and frame["experiment"].nunique() > 1:
        names = frame["algorithm"].astype(str) + " (" + frame["experiment"].astype(str) + ")"
        frame = frame.assign(algorithm=names)
    keys = ["algorithm", "seed"] if "seed" in frame.columns else ["algorithm"]
    parts: dict[str, list[Any]] = {}
    for (name, *_), part in frame.dropna(subset=[*columns]).groupby(keys, sort=False):
        parts.setdefault(str(name), []).append(part)
    return parts
