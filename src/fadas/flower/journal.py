"""What a deployment keeps on disk: the run folder that `fadas report` reads, and checkpoints to go on from."""

from logging import WARNING
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from flwr.common.logger import log
from safetensors.torch import save_file

import fadas
from fadas import checkpoint, runs
from fadas.build import ConfigError
from fadas.memory import pack, unpack
from fadas.toml import dumps

if TYPE_CHECKING:
    from fadas.flower.federation import Federation
    from fadas.flower.strategy import AsyncStrategy


class Journal:
    """One run's folder. A checkpoint follows every update, so that no accepted one is ever lost or applied twice."""

    def __init__(self, folder: Path, name: str, strategy: "AsyncStrategy", steps: int) -> None:
        self.folder, self.name, self.strategy = folder, name, strategy
        self._writer: runs.Writer | None = None
        self._lines: list[dict[str, Any]] = []
        schedule = strategy.schedule
        self._tables = {
            "name": folder.name,
            "task": {"name": "flower"},
            "schedule": {"concurrency": schedule.concurrency, "buffer": schedule.buffer},
            "run": {"steps": steps, "seeds": [strategy.seed]},
            "algorithms": {name: {}},
        }

    @property
    def run_folder(self) -> Path:
        return self.folder / f"{self.name}-{self.strategy.seed}"

    def restore(self, federation: "Federation") -> bool:
        """Bring a federation to the newest good checkpoint. Work in flight is lost, and will be sent out again."""
        if (self.run_folder / "summary.json").exists():
            raise ConfigError(f"{self.run_folder} holds a finished run: choose another folder, or move it away")
        kept = None
        for path in checkpoint.found(self.run_folder):
            try:
                tensors, values = checkpoint.read(path)
                kept = runs.kept(self.run_folder, values["metrics"])
                self._restore(federation, tensors, values)
                break
            except (ValueError, KeyError, TypeError, OSError) as error:
                log(WARNING, "%s cannot be used: %s", path, error)
                kept = None
        self._writer = runs.Writer(self.run_folder, self._tables, overwrite=kept is None, kept=kept)
        if kept is not None:
            (self.run_folder / "config.toml").write_text(dumps(self._tables), encoding="utf-8")
            self._lines = runs.read_lines(self.run_folder / "metrics.jsonl")
        return kept is not None

    def _restore(self, federation: "Federation", tensors: dict[str, torch.Tensor], values: dict[str, Any]) -> None:
        server = federation.server
        unpack(server, tensors, values)
        federation.nodes = list(values["nodes"])
        server.ledger.clients = len(federation.nodes)
        server.ledger.resume(server.state.version, [u.job for u in server.buffer], values["next_id"])
        for name in ("updates", "dropped", "expired"):
            setattr(federation, name, values[name])
        federation.losses = list(values["losses"])
        federation.sent, federation.ends = ({int(k): v for k, v in values[n].items()} for n in ("sent", "ends"))
        federation.begin -= values["now"]

    def checkpoint(self, federation: "Federation") -> None:
        assert self._writer
        server = federation.server
        tensors, values = pack(server)
        kept = {update.job.id for update in server.buffer}
        values |= {
            "next_id": server.ledger.next_id,
            "nodes": federation.nodes,
            "losses": federation.losses,
            "sent": {id: t for id, t in federation.sent.items() if id in kept},
            "ends": federation.ends,
            "now": federation.now(),
            **{name: getattr(federation, name) for name in ("updates", "dropped", "expired")},
            "metrics": self._writer.mark(),
        }
        checkpoint.write(self.run_folder, federation.updates, tensors, values)

    def append(self, line: dict[str, Any]) -> None:
        assert self._writer
        self._lines.append(line)
        self._writer.append(line)

    def finish(self, federation: "Federation") -> None:
        assert self._writer
        state = federation.layout.write(federation.server.model).to_torch_state_dict()
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, self.run_folder / "model.safetensors")
        summary = {
            "experiment": self.folder.name,
            "algorithm": self.name,
            "seed": self.strategy.seed,
            "place": 0,
            **runs.summarise(self._lines),
            "wall": federation.now(),
            "versions": {"fadas": fadas.__version__, "torch": torch.__version__},
        }
        self._writer.finish(summary)
