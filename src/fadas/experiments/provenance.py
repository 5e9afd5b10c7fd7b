"""Where a run's results come from: the hardware, the versions and the commit."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import fadas
from fadas.experiments.settings import RunConfig


def provenance(config: RunConfig) -> dict[str, Any]:
    """Return the origin fields of a summary. Call before training: the tree may change."""
    return {"device": config.traits.hardware(config.train_device), "versions": versions(), "commit": commit()}


def versions() -> dict[str, str]:
    """Return the versions of fadas, torch and Python."""
    return {"fadas": fadas.__version__, "torch": torch.__version__, "python": platform.python_version()}


def commit() -> str:
    """Return the commit of this code: $FADAS_COMMIT, for copies of the tree, or what git says."""
    if told := os.environ.get("FADAS_COMMIT"):
        return told
    tree = Path(__file__).parents[3]
    if not (tree / ".git").exists():
        return "unknown"  # an installed copy, which may lie within a repository of something else
    ask = ["git", "-C", str(tree), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        # In a session of its own, it is not ended by a Ctrl-C that the run takes note of.
        return subprocess.run(ask, capture_output=True, text=True, check=True, start_new_session=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
