"""What fadas calls the files in a run's folder. All else that lies there is somebody else's."""

import re
from pathlib import Path

_FILES = (
    "config.toml",
    "metrics.jsonl",
    "model.safetensors",
    "adapter",
    "partition.json",
    "summary.json",
    "report.html",
)
_DRAFTS = ("config.toml.tmp", "partition.json.tmp", "summary.json.tmp")
_CHECKPOINT = re.compile(r"checkpoint-[0-9]{9}\.(ckpt|tmp)")  # and not a copy that someone keeps beside


def checkpoint(step: int) -> str:
    return f"checkpoint-{step:09d}.ckpt"


def is_checkpoint(name: str) -> bool:
    """Of a checkpoint, or of its draft."""
    return bool(_CHECKPOINT.fullmatch(name))


def is_ours(name: str) -> bool:
    known = name in _FILES or name in _DRAFTS or name.startswith("events.out.tfevents")
    return known or is_checkpoint(name)


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the newest first."""
    return sorted((path for path in folder.glob("*.ckpt") if is_checkpoint(path.name)), reverse=True)
