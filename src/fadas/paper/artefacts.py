"""The paper's tables and figures as data (paper.toml), and the cells they are made of."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from fadas.errors import unknown_name
from fadas.runs.serialization import flatten, toml_value

Settings = Mapping[str, Any]  # dotted key -> value


@dataclass(frozen=True)
class Cell:
    """One run: a method of an experiment with one seed, and with some settings changed.

    Attributes:
        experiment: The name of a file in experiments/.
        method: One of its algorithms.
        seed: The run's seed.
        changes: Settings that differ from the file.
        rounds: The length of the run, as a multiple of M client updates. None: the file's.
    """

    experiment: str
    method: str
    seed: int
    changes: Settings = field(default_factory=dict[str, Any], hash=False)
    rounds: int | None = None

    @property
    def name(self) -> str:
        """The name of its files: "method,tau_c=1-seed". The last words of a setting tell a method's cells apart."""
        words = [short_setting(key, value) for key, value in self.changes.items()]
        words += [] if self.rounds is None else [f"rounds={self.rounds}"]
        return f"{','.join([self.method, *words])}-{self.seed}"

    def path(self, results: Path) -> Path:
        """Return where its result is kept."""
        return results / self.experiment / f"{self.name}.json"


def short_setting(key: str, value: Any) -> str:
    """Return the last words of a setting: "tau_c=1" for algorithms.fadas-da.tau_c."""
    text = value if isinstance(value, str) else toml_value(value)
    return f"{key.rpartition('.')[2]}={text.rpartition('/')[2]}"


@dataclass(frozen=True)
class Row:
    """A line of a table or a figure: a method, and what the paper says of it in each column.

    Attributes:
        name: The line's name.
        method: The method's label in the experiment files.
        published: The paper's entries by column: [mean, spread]; in a table of times, a number or "never".
        set: Settings that differ from the experiment file.
        released: Further settings in the released-code version.
        rounds: The length of the runs, as a multiple of M client updates. None: the file's.
    """

    name: str
    method: str
    published: list[Any] | None = None
    set: Settings = field(default_factory=dict[str, Any])
    released: Settings = field(default_factory=dict[str, Any])
    rounds: int | None = None


@dataclass(frozen=True)
class Artefact:
    """A table or a figure of the paper.

    Attributes:
        name: Its name for `fadas reproduce`.
        kind: What its entries are.
        title: Its title on the page.
        source: The paper's label.
        seeds: How many seeds its entries have.
        columns: Heading -> experiment.
        rows: Its lines.
        targets: For times, the target accuracy of each column.
        note: What a reader must know.
        axis: For a figure: step, updates or time.
        claim: What the paper reads from a figure.
        ahead: The claim as pairs of rows, of which the first is ahead of the second.
        alike: The claim as pairs of rows that are level.
        released: Whether a version with the released code's settings exists.
        original: For such a version, the original artefact's name.
    """

    name: str
    kind: Literal["accuracy", "time", "figure"]
    title: str
    source: str
    seeds: int
    columns: dict[str, str]
    rows: list[Row]
    targets: list[float] = field(default_factory=list[float])
    note: str = ""
    axis: str = ""
    claim: str = ""
    ahead: list[list[str]] = field(default_factory=list[list[str]])
    alike: list[list[str]] = field(default_factory=list[list[str]])
    released: bool = False
    original: str = ""

    @property
    def compared(self) -> bool:
        """Whether the paper has numbers for it."""
        return any(row.published for row in self.rows)

    def cells(self, row: Row, experiment: str, seeds: int | None = None, rounds: int | None = None) -> list[Cell]:
        """Return the cells of one entry: one for each seed."""
        rounds = row.rounds if rounds is None else rounds
        return [Cell(experiment, row.method, seed, row.set, rounds) for seed in range(1, (seeds or self.seeds) + 1)]

    def all_cells(self, seeds: int | None = None, rounds: int | None = None) -> Iterator[Cell]:
        """Yield all cells, seed by seed and column by column, so that partial results are already useful."""
        for seed in range(seeds or self.seeds):
            for experiment in self.columns.values():
                for row in self.rows:
                    yield self.cells(row, experiment, seeds, rounds)[seed]


def all_artefacts() -> dict[str, Artefact]:
    """Return the paper's tables and figures by name, those with the settings of the released code included."""
    paper = read_paper()
    found: dict[str, Artefact] = {}
    for name, table in paper["artefacts"].items():
        common = flatten(table.get("set", {}))  # of all its rows
        rows = [_make_row(row, common) for row in table["rows"]]
        kept = {key: value for key, value in table.items() if key not in ("set", "rows")}
        original = found[name] = Artefact(name, rows=rows, **kept)
        if original.released:
            found[f"{name}-released"] = _with_released_settings(original, paper["released"])
    return found


def _make_row(table: Mapping[str, Any], common: Settings) -> Row:
    settings = {"set": {**common, **flatten(table.get("set", {}))}, "released": flatten(table.get("released", {}))}
    return Row(**{**table, **settings})


def _with_released_settings(original: Artefact, released: Mapping[str, Any]) -> Artefact:
    """Return the same cells with the settings of the code that the paper's authors released."""
    common, methods = flatten(released["set"]), released["methods"]
    rows = [
        replace(row, set={**common, **flatten(methods[row.method]), **row.set, **row.released})
        for row in original.rows
        if row.method in methods
    ]
    name, title = f"{original.name}-released", f"{original.title}, released code"
    return replace(original, name=name, title=title, rows=rows, released=False, original=original.name)


def find_artefact(name: str) -> Artefact:
    """Return one of the paper's tables and figures.

    Args:
        name: Its name, from `fadas reproduce list`.

    Raises:
        ConfigError: There is no such table or figure.

    Example:
        >>> find_artefact("large-cifar10").title
    """
    known = all_artefacts()
    if name not in known:
        raise unknown_name("artefact", name, known)
    return known[name]


@cache
def read_paper() -> Mapping[str, Any]:
    """Return what paper.toml holds."""
    return tomllib.loads((Path(__file__).parent / "paper.toml").read_text(encoding="utf-8"))
