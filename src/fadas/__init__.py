"""fadas: asynchronous federated learning that is exact, fast and deployable."""

from importlib import import_module
from typing import Any

import lazy_loader

from fadas import aliases

__version__ = "0.2.0.dev0"

# The public names stand in __init__.pyi. They are imported on first use, so that `fadas --help` does not load torch.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__.remove("AsyncStrategy")  # `from fadas import *` must not need Flower
aliases.install()


def __getattr__(name: str) -> Any:
    if name in aliases.MOVED:
        return import_module(f"fadas.{name}")
    return _load(name)
