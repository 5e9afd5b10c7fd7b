"""Code that experiment files name or that worker processes import: both need a module."""

import atexit
import os
import signal
import threading
import warnings

import torch

from fadas.errors import FadasWarning
from fadas.experiments.parallel_runs import report_progress


class PlainStepSize:
    """A step size that is no dataclass."""

    def __init__(self, k: float = 2.0) -> None:
        self.k = k

    def __call__(self, delays):
        return self.k


def make_plain_step_size(k: float = 2.0) -> PlainStepSize:
    return PlainStepSize(k)


class NotUnpickled(Exception):
    """Cannot be made from what it is pickled as."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class NotPickled(Exception):
    """Cannot be pickled at all."""

    def __init__(self):
        super().__init__("too much")
        self.lock = threading.Lock()


def count_threads(item):
    """What a worker may use, unless the item asks for an exception."""
    if item == "not unpickled":
        raise NotUnpickled("this", "that")
    if item == "not pickled":
        raise NotPickled
    return torch.get_num_threads()


def terminate_at_exit(item):
    """Let this process get SIGTERM when it exits."""
    atexit.register(os.kill, os.getpid(), signal.SIGTERM)
    return item


def warn_of(item):
    """Warn of each word of the item, and report it as progress."""
    for word in item.split():
        report_progress(word)
        warnings.warn(word, FadasWarning, stacklevel=1)
    return item
