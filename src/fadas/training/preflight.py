"""Checks before a run: what would fail within it, or not repeat itself."""

import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import isfinite

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fadas.tasks.task import Task
from fadas.training.flat_module import FlatModule
from fadas.training.sgd import LocalSGD


def check_repeatable(flat: FlatModule, task: Task, local: LocalSGD) -> None:
    """Refuse, before anything is trained, what would fail within a run or not repeat itself.

    That is a module whose BatchNorm cannot take the batch of one that a client has, a transform that draws from a
    generator of its own choice, and a module or loss that draws from any but torch's.
    """
    _check_transform(task)
    _check_module(flat, task)
    alone = next((c for c, size in enumerate(task.sizes) if 1 in (local.batch_size, local.short_batch(size))), None)
    if alone is None or not any(isinstance(module, _BatchNorm) for module in flat.module.modules()):
        return
    before = flat.read()
    *inputs, _ = (tensor[:1].to(flat.device) for tensor in task.clients[alone])
    try:
        with torch.no_grad(), _in_training(flat.module):
            flat.module(*task.prepare(inputs))
    except ValueError:
        hint = f"batch_size ({local.batch_size}) leaves client {alone} with a batch of one example"
        raise ValueError(f"{hint}, which the module's BatchNorm cannot take; choose another") from None
    finally:
        flat.load(before)


def _other_states() -> tuple[object, ...]:
    """Of the global generators that are not torch's."""
    legacy = pickle.dumps(np.random.get_state(legacy=False))  # noqa: NPY002  not to draw, but to see who does
    return random.getstate(), legacy


def _check_module(flat: FlatModule, task: Task) -> None:
    try:
        _, first = _drawn(flat, task)
        if flat.device != "cpu":
            return  # there the same sum may be rounded in two ways
        with torch.random.fork_rng(devices=[]):
            second = _rehearsed(flat, task)
    except _Unseeded:
        raise
    except Exception:  # what does not work shows when it is trained
        return
    if not torch.allclose(first, second, 1e-4, 1e-7, equal_nan=True):
        raise ValueError(
            "the task's module or loss gives something else when it is called again: what it keeps in a Python "
            "attribute or in a frozen parameter depends on which jobs were done before; make that a buffer"
        )


class _Unseeded(ValueError):
    """Random numbers that no job's seed decides."""


@contextmanager
def _in_training(module: nn.Module) -> Iterator[None]:
    """The module as it is when it trains; then as it was."""
    modes = [(part, part.training) for part in module.modules()]
    module.train()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _check_transform(task: Task) -> None:
    if not task.transform:
        return

    def states() -> tuple[object, ...]:
        return torch.get_rng_state().tolist(), *_other_states()

    before = states()
    *inputs, _ = (tensor[:4] for tensor in task.clients[0])
    with torch.random.fork_rng(devices=[]):
        task.prepare(inputs, torch.Generator().manual_seed(0))
        after = states()
    if before != after:
        raise ValueError(
            "the task's transform draws from a global random generator, so a run would not depend on its seed alone; "
            "draw from the generator that the transform is given"
        )


def random_devices(flat: FlatModule, task: Task) -> set[str]:
    """On what kinds of device module and loss draw random numbers when they train, as dropout does.

    A job seeds torch's generators, and no other: an error where they draw from Python's or numpy's.
    """
    return _drawn(flat, task)[0]


def _drawn(flat: FlatModule, task: Task) -> tuple[set[str], Tensor]:
    """What `draws` says, and the loss."""
    device = torch.device(flat.device)
    generators: dict[str, Callable[[], Tensor]] = {"cpu": torch.get_rng_state}
    if device.type == "cuda":
        generators["cuda"] = partial(torch.cuda.get_rng_state, device)
    others = _other_states()
    try:
        with torch.random.fork_rng([device] if "cuda" in generators else []):
            states = {kind: read() for kind, read in generators.items()}
            loss = _rehearsed(flat, task)
            return {kind for kind, read in generators.items() if not torch.equal(states[kind], read())}, loss
    finally:
        if others != _other_states():
            raise _Unseeded(
                "the task's module or loss draws from the global generator of Python or numpy, so a run would not "
                "depend on its seed alone; draw from torch's"
            )


@torch.no_grad()
def _rehearsed(flat: FlatModule, task: Task) -> Tensor:
    """The loss on a few examples, as in training; then all is as it was, but for the state of random generators."""
    before = flat.read()
    *inputs, targets = (tensor[:4].to(flat.device) for tensor in task.clients[0])
    inputs = [torch.cat([column, column]) for column in task.prepare(inputs)]  # two at least, for BatchNorm
    try:
        with _in_training(flat.module):
            return task.loss(flat.module(*inputs), torch.cat([targets, targets]))
    finally:
        flat.load(before)


def has_hooks(module: nn.Module, backward: bool = False) -> bool:
    """Is there anything besides the modules' own `forward` that a job would call? With `backward`: for gradients."""
    names = ["_backward_hooks", "_backward_pre_hooks"] + ([] if backward else ["_forward_hooks", "_forward_pre_hooks"])
    mine = [vars(one).get(name) for one in module.modules() for name in names]
    params = [(p._backward_hooks, p._post_accumulate_grad_hooks) for p in module.parameters()]  # pyright: ignore
    replaced = [not backward and "forward" in vars(one) for one in module.modules()]
    return any(mine) or any(any(pair) for pair in params) or any(replaced)


def _near(one: Tensor, other: Tensor) -> bool:
    """Do two ways to train have the same outcome? Bounds that rounding does not pass, and a mistake does."""
    scale = float(other.abs().max()) if len(other) else 0.0  # not finite where training diverges: that tells nothing
    return isfinite(scale) and torch.allclose(one, other, rtol=1e-2, atol=1e-3 * scale)
