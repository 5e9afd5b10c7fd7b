"""An asynchronous strategy for Flower, tested with Flower 1.41. It needs the extra `flower`."""

from fadas.flower.strategy import AsyncStrategy

__all__ = ["AsyncStrategy"]
