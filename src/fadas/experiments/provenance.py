"""Where a run's results come from: the machine, the versions and the commit."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import fadas
from fadas.experiments.settings import RunConfig


def provenance(config: RunConfig) -> dict[str, Any]:
    """For the summary. Asked before training: the tree may change meanwhile."""
    return {"device": _device(config), "versions": versions(), "commit": commit()}


def versions() -> dict[str, str]:
    return {"fadas": fadas.__version__, "torch": torch.__version__, "python": platform.python_version()}


def _device(config: RunConfig) -> str:
    """What the clients are trained on."""
    executor = config.tables["executor"]
    if executor["name"] == "ray":
        return f"Ray, {executor['device']}"
    name = config.device
    return torch.cuda.get_device_name(name) if torch.device(name).type == "cuda" else f"{platform.machine()} {name}"


def commit() -> str:
    """The commit this code is of: $FADAS_COMMIT, for copies of the tree, or what git says."""
    if told := os.environ.get("FADAS_COMMIT"):
        return told
    tree = Path(__file__).parents[3]
    if not (tree / ".git").exists():
        return "unknown"  # an installed copy, maybe within a repository of something else
    ask = ["git", "-C", str(tree), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
