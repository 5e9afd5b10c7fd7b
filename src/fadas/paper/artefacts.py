"""The paper's tables and figures as data (paper.toml), the cells they are made of, and the results kept for those."""

import json
import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fadas.core.records import TAUS
from fadas.errors import ConfigError, unknown
from fadas.runs.reader import DAMAGE


@dataclass(frozen=True)
class Cell:
    """One run: a method of an experiment with one seed, with some settings changed."""

    experiment: str
    method: str
    seed: int
    changes: tuple[str, ...] = ()  # as --set takes them

    @property
    def name(self) -> str:
        """`method,tau_c=1-seed`: the last words of the changed settings tell the cells of a method apart."""
        return f"{','.join([self.method, *map(short, self.changes)])}-{self.seed}"

    def path(self, results: Path) -> Path:
        return results / self.experiment / f"{self.name}.json"


def short(change: str) -> str:
    key, _, value = change.partition("=")
    return f"{key.rpartition('.')[2]}={value.rpartition('/')[2]}"


@dataclass(frozen=True)
class Row:
    """A line of a table, or of a figure: a method, and what the paper says of it in each column."""

    name: str
    method: str
    published: list[Any] | None = None  # by column: [mean, spread]; of a table of times, a number or "never"
    set: tuple[str, ...] = ()
    released: tuple[str, ...] = ()  # what else is set where the settings are those of the released code


@dataclass(frozen=True)
class Artefact:
    name: str
    kind: Literal["accuracy", "time", "figure"]
    title: str
    source: str  # the paper's label
    seeds: int
    columns: dict[str, str]  # heading -> experiment
    rows: list[Row]
    targets: list[float] = field(default_factory=list[float])  # of times, by column
    note: str = ""  # what a reader must know
    axis: str = ""  # of a figure: step, updates or time
    claim: str = ""  # what the paper reads from the figure, and that as pairs of rows:
    ahead: list[list[str]] = field(default_factory=list[list[str]])  # the first is ahead of the second
    alike: list[list[str]] = field(default_factory=list[list[str]])
    released: bool = False  # is there another one, with the settings of the code that the paper's authors released?
    original: str = ""  # of such another one: the name of the first

    @property
    def compared(self) -> bool:
        """Has the paper numbers for it?"""
        return any(row.published for row in self.rows)

    def cells(self, row: Row, experiment: str, seeds: int | None = None, rounds: int | None = None) -> list[Cell]:
        changes = row.set if rounds is None else (*row.set, f"rounds={rounds}")
        return [Cell(experiment, row.method, seed, changes) for seed in range(1, (seeds or self.seeds) + 1)]

    def all_cells(self, seeds: int | None = None, rounds: int | None = None) -> Iterator[Cell]:
        """Seed by seed and column by column: what a reader wants first comes first."""
        for seed in range(seeds or self.seeds):
            for experiment in self.columns.values():
                for row in self.rows:
                    yield self.cells(row, experiment, seeds, rounds)[seed]


@dataclass(frozen=True)
class Result:
    """What is kept of a finished cell."""

    experiment: str
    method: str
    seed: int
    changes: list[str]
    accuracy: float | None  # mean and standard deviation of the last five evaluations; none where it diverged
    accuracy_std: float | None
    time_to_target: float | None
    target: float | None
    delays: dict[str, float]
    curve: list[list[float]]  # [step, client updates, virtual time, accuracy]
    config: dict[str, Any]
    device: str
    versions: dict[str, str]
    wall: float
    commit: str
    diverged: str | None = None  # why it ended early, where it did

    @property
    def cell(self) -> Cell:
        return Cell(self.experiment, self.method, self.seed, tuple(self.changes))


def artefacts() -> dict[str, Artefact]:
    paper = _paper()
    found: dict[str, Artefact] = {}
    for name, table in paper["artefacts"].items():
        common = table.pop("set", [])  # of all its rows
        rows = [Row(**{**row, "set": (*common, *row.get("set", ()))}) for row in table["rows"]]
        one = found[name] = Artefact(name, **{**table, "rows": rows})
        if one.released:
            found[f"{name}-released"] = _as_released(one, **paper["released"])
    return found


def _as_released(original: Artefact, set: list[str], methods: dict[str, list[str]]) -> Artefact:
    """The same cells with the settings of the code that the paper's authors released."""
    rows = [
        replace(row, set=merged(*set, *methods[row.method], *row.set, *row.released))
        for row in original.rows
        if row.method in methods
    ]
    name, title = f"{original.name}-released", f"{original.title}, released code"
    return replace(original, name=name, title=title, rows=rows, released=False, original=original.name)


def merged(*changes: str) -> tuple[str, ...]:
    """Each setting once, as it was set last."""
    values = dict(change.split("=", 1) for change in changes)
    return tuple(f"{key}={value}" for key, value in values.items())


def artefact(name: str) -> Artefact:
    known = artefacts()
    if name not in known:
        raise unknown("artefact", name, known)
    return known[name]


def published_delays() -> list[float]:
    return _paper()["delays"]["published"]


def _paper() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "paper.toml").read_text(encoding="utf-8"))


def find_result(cell: Cell, results: Path) -> Result | None:
    """The result of a cell; None where it has not been run."""
    path = cell.path(results)
    return read_result(path) if path.exists() else None


def results_of(artefact: Artefact, row: Row, column: int, results: Path) -> list[Result]:
    """What has been run of a table's entry: a result for each seed."""
    cells = artefact.cells(row, list(artefact.columns.values())[column])
    return [result for result in (find_result(cell, results) for cell in cells) if result]


def read_result(path: Path) -> Result:
    try:
        result = Result(**json.loads(path.read_text(encoding="utf-8")))
        numbers = [result.wall, *(result.delays[key] for key in TAUS)]
        numbers += [] if result.diverged else [result.accuracy, result.accuracy_std]
        numbers += [number for point in result.curve for number in point]
        numbers += [] if result.time_to_target is None else [result.time_to_target]
        if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
            raise ValueError("a number is missing")
        kinds = {"seed": int, "config": dict, "device": str, "versions": dict, "commit": str, "diverged": str | None}
        if wrong := [name for name, kind in kinds.items() if not isinstance(getattr(result, name), kind)]:
            raise ValueError(f"its {wrong[0]} is not one")
        if not (result.curve or result.diverged) or any(len(point) != 4 for point in result.curve):
            raise ValueError("its curve is not one")
        if path != result.cell.path(path.parents[1]):
            raise ValueError(f"it holds {result.experiment} {result.cell.name}")
    except (*DAMAGE, OSError) as error:
        raise ConfigError(f"{path} is not a result of fadas: {type(error).__name__}: {error}", "damaged") from None
    return result
