"""FADAS as an asynchronous strategy for Flower (the extra `flower`), tested with Flower 1.41."""

from fadas.flower.strategy import AsyncStrategy

__all__ = ["AsyncStrategy"]
