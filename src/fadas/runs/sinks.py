"""Additional outputs for a run's records, besides metrics.jsonl."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from fadas.core.records import Record
from fadas.errors import ConfigError
from fadas.runs.summary import Summary


class Sink(Protocol):
    """Receives the records of one run.

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

        Args:
            record: The record, as in metrics.jsonl.
        """
        ...

    def close(self, summary: Summary | None) -> None:
        """End the run.

        Args:
            summary: The run's summary. None: the run was interrupted.
        """
        ...


class TensorBoard:
    """Writes losses, metrics, step sizes and delays as TensorBoard events into the run's folder.

    Example:
        >>> writer = Writer(claim, sinks=[TensorBoard()])
    """

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            hint = "pip install '.[tensorboard]' in a checkout"
            raise ConfigError(f"run.tensorboard needs the extra: {hint}") from None
        self._make_writer = SummaryWriter

    def open(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Open an event file in the run's folder."""
        self._writer = self._make_writer(str(folder))

    def record(self, record: Record) -> None:
        """Write the scalars of one server step."""
        values: dict[str, float] = {}
        if record.jobs:  # the initial model has none
            tau_max = max(job.tau for job in record.jobs)
            values = {"eta": record.eta, "train/loss": record.train_loss, "tau_max": tau_max}
        values |= {f"test/{name}": value for name, value in (record.metrics or {}).items()}
        for name, value in values.items():
            self._writer.add_scalar(name, value, record.step)  # pyright: ignore[reportUnknownMemberType]
        self._writer.flush()

    def close(self, summary: Summary | None) -> None:
        """Close the event file."""
        self._writer.close()


# A setting of [run] with the sink's name chooses it.
SINKS: dict[str, Callable[[], Sink]] = {"tensorboard": TensorBoard}
