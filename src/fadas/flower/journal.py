"""What a deployment keeps on disk: the run folder that `fadas report` reads, and checkpoints to go on from."""

import os
import re
import tomllib
from dataclasses import asdict
from logging import WARNING
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from flwr.common.logger import log
from safetensors.torch import save

import fadas
from fadas.algorithms.algorithm import Algorithm
from fadas.core.saved_state import load_server, save_server
from fadas.errors import ConfigError
from fadas.runs import checkpoint, lock
from fadas.runs import writer as runs
from fadas.runs.folder import claim
from fadas.runs.run_reader import read_lines
from fadas.runs.same_run import differing_settings
from fadas.runs.serialization import dumps
from fadas.runs.summary import summarise

if TYPE_CHECKING:
    from fadas.flower.federation import Federation


_COUNTERS = ("updates", "dropped", "expired")


class Journal:
    """One run's folder. A checkpoint follows every update, so that no accepted one is ever lost or applied twice."""

    def __init__(self, folder: Path, federation: "Federation") -> None:
        strategy = federation.strategy
        self.federation, self.seed, self.name, self.experiment = federation, strategy.seed, strategy.name, folder.name
        self.folder = folder / f"{strategy.name}-{strategy.seed}"
        self._writer: runs.Writer | None = None
        self._lines: list[dict[str, Any]] = []
        self._tables = {
            "name": folder.name,
            "task": {"name": "flower", "reply": strategy.reply, "arrays": federation.layout.digest},
            "schedule": asdict(strategy.schedule),
            "run": {"steps": federation.steps, "seeds": [strategy.seed]},
            "algorithms": {strategy.name: _described(strategy.algorithm)},
        }

    def restore(self) -> bool:
        """Bring the federation to the newest good checkpoint. Work in flight is lost, and will be sent out again.

        A folder that holds anything which this run would not go on with is left as it is.
        """
        self._check()  # what is refused anyway gets no lock either
        try:
            self._claim()
            self._check()  # another process may have been faster: from here on, none can be
            return self._resume()
        except BaseException:
            lock.release(self.folder)
            raise

    def _check(self) -> None:
        """Refuse a run that has ended, and one with other settings that has got somewhere."""
        if (summary := self.folder / "summary.json").exists():
            diverged = b'"diverged":' in summary.read_bytes()  # also of a damaged one
            raise self._refusal("a run that diverged" if diverged else "a finished run")
        metrics = self.folder / "metrics.jsonl"
        begun = checkpoint.found(self.folder) or (metrics.exists() and metrics.stat().st_size)
        if begun and (others := self._differences()):
            raise self._refusal(f"an interrupted run with other settings ({'; '.join(others)})")

    def _claim(self) -> None:
        try:
            claim(self.folder, self._tables, overwrite=True)
        except ConfigError as error:  # its advice is for the command line
            if error.matter == "busy":
                raise ConfigError(f"{error}: choose another folder, or end that one") from None
            raise self._refusal("something other than a run") from error

    def _resume(self) -> bool:
        """The folder is ours: go on with what it holds, if anything."""
        checkpoints, federation = checkpoint.found(self.folder), self.federation
        private = federation.server.spending is not None
        kept, unusable = None, list[Path]()
        for path in checkpoints:
            if (kept := self._load(path)) is not None:
                break
            unusable.append(path)
            if private:  # its model was sent out: another step with the same noise would give that noise away
                raise self._refusal("an interrupted run with differential privacy, whose last checkpoint is damaged")
        if checkpoints and kept is None:
            raise self._refusal("an interrupted run, and none of its checkpoints can be used")
        if (done := federation.server.state.version) > federation.steps:
            asked = f"{done} steps already, and {federation.steps} are asked for"
            raise ConfigError(f"{self.folder} holds an interrupted run of {asked}: ask for more, or for another folder")
        self._writer = runs.Writer(self.folder, self._tables, overwrite=kept is None, kept=kept)
        if kept is None:
            return False
        for path in unusable:  # with their higher numbers they would pass for newer than those to come
            path.unlink()
        draft = self.folder / "config.toml.tmp"  # there may be more steps to do than at first
        draft.write_text(dumps(self._tables), encoding="utf-8")
        os.replace(draft, self.folder / "config.toml")
        self._lines = read_lines(self.folder / "metrics.jsonl")
        return True

    def _refusal(self, what: str) -> ConfigError:
        return ConfigError(f"{self.folder} holds {what}: choose another folder, or move it away")

    def _differences(self) -> list[str]:
        """Where the settings of the run in the folder are not those of this one."""
        try:
            held = tomllib.loads((self.folder / "config.toml").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            return [f"config.toml cannot be read: {error}"]
        return differing_settings(held, self._tables)

    def _load(self, path: Path) -> int | None:
        """Go back to a checkpoint: the bytes of metrics.jsonl that belong to it, or None where it cannot be used."""
        try:
            tensors, values = checkpoint.read_checkpoint(path)
            kept = runs.valid_length(self.folder, values["metrics"])
            self._restore(tensors, values)
            return kept
        except (ValueError, KeyError, TypeError, OSError) as error:
            log(WARNING, "%s cannot be used: %s", path, error)
            return None

    def _restore(self, tensors: dict[str, torch.Tensor], values: dict[str, Any]) -> None:
        federation, server = self.federation, self.federation.server
        load_server(server, tensors, values)
        federation.roster.restore(list(values["nodes"]), list(values.get("absent", [])))
        server.ledger.clients = len(federation.roster.nodes)
        server.ledger.resume(server.state.version, [u.job for u in server.buffer], values["next_id"])
        federation.updates, federation.dropped, federation.expired = (values[name] for name in _COUNTERS)
        federation.losses = list(values["losses"])
        federation.sent, federation.ends = ({int(k): v for k, v in values[n].items()} for n in ("sent", "ends"))
        federation.begin -= values["now"]

    def checkpoint(self) -> None:
        assert self._writer
        federation, server = self.federation, self.federation.server
        tensors, values = save_server(server)
        kept = {update.job.id for update in server.buffer}
        values |= {
            "next_id": server.ledger.next_id,
            "nodes": federation.roster.nodes,
            "absent": federation.roster.absent,
            "losses": federation.losses,
            "sent": {id: t for id, t in federation.sent.items() if id in kept},
            "ends": federation.ends,
            "now": federation.now(),
            **dict(zip(_COUNTERS, (federation.updates, federation.dropped, federation.expired), strict=True)),
            "metrics": self._writer.mark(),
        }
        checkpoint.write_checkpoint(self.folder, federation.updates, tensors, values)

    def close(self) -> None:
        """Let another process go on here."""
        if self._writer:
            self._writer.close()

    def append(self, line: dict[str, Any]) -> None:
        assert self._writer
        self._lines.append(line)
        self._writer.append(line)

    def finish(self) -> None:
        assert self._writer
        self._writer.check()
        state = self.federation.layout.write(self.federation.server.model).to_torch_state_dict()
        model = save({name: tensor.contiguous() for name, tensor in state.items()})
        (self.folder / "model.safetensors").write_bytes(model)
        self._writer.finish(self._summary())

    def diverged(self, reason: str) -> None:
        """Mark the run as that. Its checkpoints stay: what real clients have done cannot be had again for a seed."""
        assert self._writer
        self._writer.check()
        self._writer.write_json("summary.json", self._summary(reason))
        log(WARNING, "%s: diverged; without its summary.json it would go on from its last checkpoint", self.folder)

    def _summary(self, diverged: str | None = None) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "algorithm": self.name,
            "seed": self.seed,
            "place": 0,
            **summarise(self._lines, diverged=diverged),
            "wall": self.federation.now(),
            "versions": {"fadas": fadas.__version__, "torch": torch.__version__},
        }


def _described(algorithm: Algorithm) -> dict[str, str]:
    """What an algorithm is made of, in words that are the same in every process."""

    def words(part: object) -> str:
        plain = type(part).__repr__ is object.__repr__  # the user's own, which says nothing of its parameters
        text = f"{type(part).__qualname__}({vars(part)})" if plain and hasattr(part, "__dict__") else repr(part)
        return re.sub(r" at 0x[0-9a-fA-F]+", "", text)  # an address is another every time

    return {"type": type(algorithm).__qualname__, **{name: words(part) for name, part in vars(algorithm).items()}}
