"""What a deployment keeps on disk: the run folder that `fadas report` reads, and checkpoints to continue from."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from logging import WARNING
from pathlib import Path
from typing import Any

import torch
from flwr.common.logger import log
from safetensors.torch import save
from torch import Tensor

import fadas
from fadas.core.records import Record
from fadas.core.saved_state import State
from fadas.errors import Busy, ConfigError, Damaged, Foreign
from fadas.flower.options import Options
from fadas.report.run_figures import save_run_figures
from fadas.runs.checkpoint import read_checkpoint, write_checkpoint
from fadas.runs.folder import CONFIG, METRICS, MODEL, SUMMARY, Claim, Finished, checkpoints, claim
from fadas.runs.reader import read_record, written_records
from fadas.runs.same_run import DEPLOYMENT, differing_settings
from fadas.runs.serialization import atomic_file, parse_toml
from fadas.runs.summary import Summary, Tally
from fadas.runs.writer import Writer, valid_length

LoadState = Callable[[Mapping[str, Tensor], Mapping[str, Any]], int]  # returns the number of server steps


class Journal:
    """The folder of one deployment. A checkpoint follows every update, so that none is ever lost or applied twice.

    Args:
        folder: The deployment's folder. The run is kept in a folder below it.
        options: The deployment's settings.
        steps: The number of server steps to do.
        arrays: A description of the arrays.
    """

    def __init__(self, folder: Path, options: Options, steps: int, arrays: str) -> None:
        self.folder = folder / f"{options.name}-{options.seed}"
        self._experiment, self._options, self._steps = folder.name, options, steps
        self.damaged: list[Path] = []  # checkpoints that were passed over
        self._writer: Writer | None = None
        self._tally = Tally(options.target, options.metric)
        self._tables = {
            "name": folder.name,
            "task": {"name": DEPLOYMENT, "reply": options.reply, "arrays": arrays},
            "schedule": options.schedule.as_table(),
            "run": {"steps": steps, "seeds": [options.seed], **_describe_metric(options)},
            "algorithms": {options.name: _describe(options.algorithm)},
            **({"app": dict(options.app)} if options.app else {}),
        }

    def open(self, load_state: LoadState) -> bool:
        """Claim the folder, and load the newest good checkpoint if there is one. Return whether there was.

        Work in flight at an interruption is lost. Its jobs will be sent out again.

        Raises:
            ConfigError: The folder holds something that this run would not continue. It is left as it is.
        """
        self._require_continuable()  # a folder that is refused gets no lock either
        claimed = self._claim()
        try:
            self._require_continuable()  # another process may have been faster
            return self._resume(claimed, load_state)
        except BaseException:
            claimed.release()
            raise

    def _require_continuable(self) -> None:
        """Refuse a run that has ended, and one with other settings that has already trained."""
        if (summary := self.folder / SUMMARY).exists():
            diverged = b'"diverged":' in summary.read_bytes()  # also if the file is damaged
            raise self._refusal("a run that diverged" if diverged else "a finished run")
        metrics = self.folder / METRICS
        begun = checkpoints(self.folder) or (metrics.exists() and metrics.stat().st_size)
        if begun and (others := self._differences()):
            raise self._refusal(f"an interrupted run with other settings ({'; '.join(others)})")

    def _claim(self) -> Claim:
        try:
            claimed = claim(self.folder, self._tables, "overwrite")
        except Busy as error:  # its advice is for the command line
            raise Busy(f"{error}: choose another folder, or end that process") from None
        except Foreign as error:
            raise self._refusal("something other than a run") from error
        assert not isinstance(claimed, Finished)
        return claimed

    def _resume(self, claimed: Claim, load_state: LoadState) -> bool:
        """Continue what the folder holds, if anything."""
        found = checkpoints(self.folder)
        kept, unusable = None, list[Path]()
        for path in found:
            if (kept := self._load_checkpoint(path, load_state)) is not None:
                break
            unusable.append(path)
        if found and kept is None:
            raise self._refusal("an interrupted run, and none of its checkpoints can be used")
        self._writer = Writer(claimed, kept, self._options.sinks, save_run_figures)
        if kept is None:
            return False
        self.damaged = unusable
        self._writer.write_config(self._tables)  # there may be more steps to do than at first
        for record in written_records(self.folder):
            self._tally.add(record)
        return True

    def _load_checkpoint(self, path: Path, load_state: LoadState) -> int | None:
        """Load a checkpoint. Return how much of metrics.jsonl belongs to it, or None if it cannot be used."""
        try:
            tensors, values = read_checkpoint(path)
            kept = valid_length(self.folder, values["metrics"])
            self._require_last_step(values, kept)
            done = load_state(tensors, values)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, OSError) as error:
            log(WARNING, "%s cannot be used: %s", path, error)
            return None
        if done > self._steps:
            raise ConfigError(
                f"{self.folder} has {done} steps done, but num_rounds is {self._steps}; raise num_rounds or choose "
                "another folder"
            )
        return kept

    def _require_last_step(self, values: Mapping[str, Any], kept: int) -> None:
        """Refuse a checkpoint of another step than the last one in the part of metrics.jsonl that belongs to it."""
        with (self.folder / METRICS).open("rb") as file:
            lines = file.read(kept).splitlines()
        last = read_record(lines[-1]).step if lines else 0
        if last != values["version"] - bool(values.get("unpublished")):
            raise ValueError(f"{METRICS} ends at step {last}, the checkpoint at step {values['version']}")

    def _refusal(self, what: str) -> ConfigError:
        return ConfigError(f"{self.folder} holds {what}: choose another folder, or move it away")

    def _differences(self) -> list[str]:
        """Return the settings in which the run in the folder is not this one."""
        try:
            return differing_settings(parse_toml(self.folder / CONFIG), self._tables)
        except Damaged as error:
            return [f"{CONFIG} cannot be read: {error}"]

    def checkpoint(self, number: int, state: State) -> None:
        """Write a checkpoint, and wait until it is on disk."""
        assert self._writer
        tensors, values = state
        write_checkpoint(self.folder, number, tensors, {**values, "metrics": self._writer.mark()})

    def append(self, record: Record) -> None:
        """Write the record of a server step."""
        assert self._writer
        self._tally.add(record)
        self._writer.append(record)

    def finish(self, state_dict: Mapping[str, Tensor], wall: float, key: str) -> None:
        """End the run: write the model and the summary. With the key of the jobs' seeds, the run can be replayed."""
        assert self._writer
        self._writer.require_held()
        with atomic_file(self.folder / MODEL) as file:
            file.write(save({name: tensor.contiguous() for name, tensor in state_dict.items()}))
        self._writer.finish(replace(self._summary(wall), key=key))

    def mark_diverged(self, reason: str, wall: float) -> None:
        """Write a summary that says why the run ended. Checkpoints stay: real clients' work cannot be repeated."""
        assert self._writer
        self._writer.write_summary(self._summary(wall, reason))
        log(WARNING, "%s: diverged. To continue from its last checkpoint, delete its summary.json", self.folder)

    def remove_damaged(self) -> None:
        """Remove damaged checkpoints: their higher numbers would make them look newer than those to come."""
        for path in self.damaged:
            path.unlink()
        self.damaged = []

    def close(self) -> None:
        """Let another process continue here."""
        if self._writer:
            self._writer.close()

    def _summary(self, wall: float, diverged: str | None = None) -> Summary:
        return Summary(
            experiment=self._experiment,
            algorithm=self._options.name,
            seed=self._options.seed,
            place=0,
            **vars(self._tally.outcome(diverged)),
            wall=wall,
            versions={"fadas": fadas.__version__, "torch": torch.__version__},
        )


def _describe_metric(options: Options) -> dict[str, Any]:
    metric = options.metric
    described = {"metric": metric.name, "better": metric.better, "format": metric.format} if metric else {}
    return {**described, **({"target": options.target} if options.target is not None else {})}


def _describe(algorithm: object) -> dict[str, str]:
    """Describe an algorithm as text that is equal in every process."""

    def words(part: object) -> str:
        plain = type(part).__repr__ is object.__repr__  # the user's own part, which does not print its parameters
        text = f"{type(part).__qualname__}({vars(part)})" if plain and hasattr(part, "__dict__") else repr(part)
        return re.sub(r" at 0x[0-9a-fA-F]+", "", text)  # an address differs from process to process

    # Format 1 stored the default as 1.0.
    parts = {**vars(algorithm)}
    if parts.get("statistics", 0) is None:
        parts["statistics"] = 1.0
    for name in ("companion", "baseline"):  # earlier versions had none
        if parts.get(name, 0) is None:
            del parts[name]
    return {"type": type(algorithm).__qualname__, **{name: words(part) for name, part in parts.items()}}
