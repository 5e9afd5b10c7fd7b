"""Where records go beside metrics.jsonl."""

from collections.abc import Callable
from pathlib import Path

from fadas.core.records import Record
from fadas.errors import ConfigError
from fadas.experiments.prepare import OnRecord


def _tensorboard() -> Callable[[Path], OnRecord]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError("run.tensorboard needs the extra: pip install -e '.[tensorboard]' in a checkout") from None

    def make_sink(folder: Path) -> OnRecord:
        writer = SummaryWriter(str(folder))

        def sink(record: Record) -> None:
            values = {
                "eta": record.eta,
                "train/loss": record.train_loss,
                "tau_max": max(job.tau for job in record.jobs),
            }
            values |= {f"test/{name}": value for name, value in (record.metrics or {}).items()}
            for name, value in values.items():
                writer.add_scalar(name, value, record.step)
            writer.flush()

        return sink

    return make_sink
