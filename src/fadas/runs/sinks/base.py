"""What all sinks share: the contract, the guard that keeps their failures from the run, and how trackers resume."""

import re
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Protocol

from fadas.core.records import Record
from fadas.errors import ConfigError, FadasWarning, first_line, place_of
from fadas.runs.folder import CLIENTS, CONFIG, METRICS, MODEL, PARTITION, SINK_NOTES, SUMMARY
from fadas.runs.formats import FORMAT, upgrade_table
from fadas.runs.reader import written_records
from fadas.runs.serialization import from_table, parse_json, to_json, write_text
from fadas.runs.summary import Summary

_PAUSE = 1.0  # seconds between two batches: a tracker's server may be far away


class Sink(Protocol):
    """Receives the records of one run.

    A class of your own needs these three methods, and no base class. An exception in any of them becomes a warning,
    and the sink is not called again.

    A sink may also have a method `add_figures(paths)`. It receives the run's figures, as PNG files that are deleted
    afterwards, before the sink is closed with a summary. With a false attribute `figures`, none are drawn for it.

    Example:
        >>> class Printer:
        ...     def open(self, folder, settings): ...
        ...     def record(self, record): print(record.step, record.metrics)
        ...     def close(self, summary): ...
    """

    def open(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Begin a run, or continue one.

        Args:
            folder: The run's folder.
            settings: The run's settings, as in config.toml.
        """
        ...

    def record(self, record: Record) -> None:
        """Receive the record of one server step.

        A resumed run repeats the steps after its last checkpoint, and their records. The record of the last step may
        come twice, the second time with an evaluation.

        Args:
            record: The record, as in metrics.jsonl.
        """
        ...

    def close(self, summary: Summary | None) -> None:
        """End the run. The folder now holds its model, metrics and summary.

        Args:
            summary: The run's summary. None: the run was interrupted.
        """
        ...


class Guard:
    """Calls a sink. Its first exception becomes a warning, and it is not called again.

    Args:
        sink: The sink.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink, self._works = sink, True

    @property
    def takes_figures(self) -> bool:
        """Whether figures should be drawn for the sink."""
        return self._works and hasattr(self._sink, "add_figures") and bool(getattr(self._sink, "figures", True))

    def call(self, method: str, *arguments: Any) -> None:
        """Call a method of the sink, unless the sink has failed before."""
        if not self._works:
            return
        try:
            getattr(self._sink, method)(*arguments)
        except Exception as error:  # a sink may be the user's own, and trackers fail in many ways
            self._works = False
            line = re.sub(r"//[^/@\s]*@", "//", first_line(error))  # an address may hold a password
            name, reason = type(self._sink).__name__, f"{type(error).__name__}: {line}{place_of(error)}"
            text = f"the sink {name} failed in {method}(): {reason}; the run continues without this sink"
            warnings.warn(text, FadasWarning, stacklevel=2)


class Tracker:
    """A sink that sends a run to a tracker, and continues there when the run is resumed.

    It notes in sinks.json which run of the tracker this is, and the last step that was sent. Records up to that step
    are not sent again. Records in metrics.jsonl after it are sent when the run is resumed. So a sink that is added to
    an interrupted run gets all of it.

    Attributes:
        name: The sink's name in the registry.
        is_late: Whether another process of the tracker writes what was sent, a moment later, and keeps a step in memory
            until the next one comes. A killed run may lose that, so the note is one batch behind.
        figures: Send the figures.
    """

    name: ClassVar[str]
    is_late: ClassVar[bool] = False
    figures: bool = True

    def begin(self, folder: Path, settings: Mapping[str, Any], run: str | None, step: int) -> str:
        """Begin a run of the tracker, or continue one. Return its id.

        Args:
            folder: The run's folder.
            settings: The run's settings.
            run: The id of the tracker's run to continue. None: begin a new one.
            step: The last step that was sent; -1 if there is none.
        """
        raise NotImplementedError

    def send(self, rows: Sequence[tuple[int, dict[str, float]]]) -> None:
        """Send numbers: pairs of a step and its values by name. A step may come in two parts."""
        raise NotImplementedError

    def send_figures(self, paths: Sequence[Path], step: int) -> None:
        """Send the run's figures, as PNG files, at its last step."""
        raise NotImplementedError

    def end(self, summary: Summary | None) -> None:
        """End the tracker's run. None: the run was interrupted."""
        raise NotImplementedError

    def place(self) -> str:
        """Return where the tracker keeps its runs. Elsewhere, a resumed run begins a new one."""
        return ""

    def open(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Begin a run of the tracker, or continue it and send what it lacks."""
        noted = _read_notes(folder).get(self.name)
        run, self._step = (noted.run, noted.step) if noted and noted.place == self.place() else (None, -1)
        self._folder = folder
        self._before = self._safe = self._step
        self._keys: set[str] = set()  # what was sent of the last step
        self._rows: list[tuple[int, dict[str, float]]] = []
        self._sent_at = 0.0
        self._run_id = self.begin(folder, settings, run, self._step)
        self._note(self._step)
        for record in written_records(folder):
            self.record(record)

    def record(self, record: Record) -> None:
        """Send the numbers of a step: at once, or together with later ones if the last were sent a moment ago."""
        values = read_values(record)
        if record.step < self._step or (record.step == self._step and not self._keys):
            return  # sent before the run was resumed
        if record.step == self._step:
            values = {key: value for key, value in values.items() if key not in self._keys}
        else:
            self._before, self._step, self._keys = self._step, record.step, set()
        self._keys |= values.keys()
        if values:
            self._rows.append((record.step, values))
        if time.monotonic() - self._sent_at >= _PAUSE:
            self._send_rows()

    def add_figures(self, paths: Sequence[Path]) -> None:
        """Send what is left, and the figures."""
        self._send_rows()
        self.send_figures(paths, max(self._step, 0))

    def close(self, summary: Summary | None) -> None:
        """Send what is left, and end the tracker's run."""
        self._send_rows()
        self.end(summary)
        self._note(self._step)

    def _send_rows(self) -> None:
        if self._rows:
            self.send(self._rows)
            self._rows = []
            self._note(self._safe if self.is_late else self._step)
            self._safe = self._before
        self._sent_at = time.monotonic()

    def _note(self, step: int) -> None:
        """Note which run this is, and the last step that the tracker has received."""
        notes = {**_read_notes(self._folder), self.name: _Note(self.place(), self._run_id, step)}
        tables = {name: asdict(note) for name, note in notes.items()}
        write_text(self._folder / SINK_NOTES, to_json({"format": FORMAT, "sinks": tables}) + "\n")


@dataclass(frozen=True)
class _Note:
    """What sinks.json says of a sink: the place and the id of its run, and the last step that was sent."""

    place: str
    run: str
    step: int


@dataclass(frozen=True)
class _Notes:
    sinks: dict[str, _Note]


def _read_notes(folder: Path) -> dict[str, _Note]:
    path = folder / SINK_NOTES
    return from_table(_Notes, upgrade_table(parse_json(path), str(path)), SINK_NOTES).sinks if path.exists() else {}


def read_values(record: Record) -> dict[str, float]:
    """Return the numbers of a record by the names under which trackers show them.

    The record of the initial model has no jobs: it has neither a step size nor delays.
    """
    values: dict[str, float] = {"time": record.time, "updates": record.updates}
    if taus := [job.tau for job in record.jobs]:
        values |= {"eta": record.eta, "train/loss": record.train_loss, "tau_max": max(taus), "tau_mean": fmean(taus)}
        lost = {"dropped": record.dropped, "expired": record.expired, "refused": sum(record.refused.values())}
        values |= {f"lost/{reason}": count for reason, count in lost.items()}
    values |= {f"privacy/{name}": value for name, value in (record.privacy or {}).items()}
    return values | {f"test/{name}": value for name, value in (record.metrics or {}).items()}


def summary_values(summary: Summary) -> dict[str, float]:
    """Return the numbers of a summary."""
    values: dict[str, float] = {key: value for key, value in vars(summary).items() if isinstance(value, int | float)}
    nested = {f"privacy/{key}": value for key, value in (summary.privacy or {}).items()}
    nested |= {f"test/{key}": value for key, value in (summary.metrics or {}).items() if value is not None}
    return values | nested


def method_of(settings: Mapping[str, Any]) -> str:
    """Return the label of the algorithm that a run's settings name."""
    return next(iter(settings.get("algorithms", {})), "")


def name_of_run(folder: Path, settings: Mapping[str, Any]) -> str:
    """Return the name of a run in a tracker: "fadas-1", or for the point of a sweep "fadas/eta=0.1-1"."""
    method = method_of(settings)
    return folder.name if not method or folder.name.startswith(method) else f"{method}/{folder.name}"


def result_files(folder: Path) -> list[Path]:
    """Return the files of a run that has ended, without its model."""
    return [path for name in (CONFIG, METRICS, CLIENTS, SUMMARY, PARTITION) if (path := folder / name).exists()]


def model_of_run(folder: Path) -> Path | None:
    """Return the file or the folder with the final model. A run that diverged has none."""
    return next((path for name in (MODEL, "adapter") if (path := folder / name).exists()), None)


def require_package(module: str, extra: str) -> None:
    """Raise a ConfigError that says what to install if a module is missing."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:  # a folder of this name, such as W&B's own, looks like a package
        raise ConfigError(f"the sink {extra!r} needs an extra: run pip install '.[{extra}]' in a checkout")
