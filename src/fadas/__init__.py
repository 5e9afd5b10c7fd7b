"""fadas: asynchronous federated learning that is exact, fast and deployable."""

from importlib import import_module
from pathlib import Path
from typing import Any

import lazy_loader

from fadas import aliases

__version__ = "0.2.0.dev0"

# __init__.pyi lists the public names. They are imported on first use, so that `fadas --help` does not load torch.
_load, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)
# `from fadas import *` leaves out the packages, and what needs Flower.
_left_out = {path.parent.name for path in Path(__file__).parent.glob("*/__init__.py")} | {"AsyncStrategy"}
__all__ = [name for name in _names if name not in _left_out]  # pyright: ignore[reportUnsupportedDunderAll]
aliases.install()


def __getattr__(name: str) -> Any:
    if name in aliases.MOVED:
        return import_module(f"fadas.{name}")
    return _load(name)
