"""fadas: asynchronous federated learning that is exact, fast and deployable."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lazy_loader

from fadas import aliases

__version__ = "0.2.0.dev0"

# __init__.pyi lists the public names. They are imported on first use, so that `fadas --help` does not load torch.
_load, _, _names = lazy_loader.attach_stub(__name__, __file__)
_FLOWER = ("AsyncStrategy", "flower")  # names that need the extra `flower`
# `from fadas import *` leaves out the packages, and what needs Flower.
_left_out = {path.parent.name for path in Path(__file__).parent.glob("*/__init__.py")} | {*_FLOWER}
__all__ = [name for name in _names if name not in _left_out]  # pyright: ignore[reportUnsupportedDunderAll]
aliases.install()


def __getattr__(name: str) -> Any:
    if name in aliases.MOVED and name not in _names:
        return import_module(f"fadas.{name}")
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if name in _FLOWER and (error.name or "").partition(".")[0] == "flwr":
            raise AttributeError(f"fadas.{name}: {error}") from error  # so that hasattr() and help() work
        raise


def __dir__() -> list[str]:
    return [name for name in _names if name not in _FLOWER or find_spec("flwr")]
