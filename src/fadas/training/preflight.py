"""Checks of the client's side before a run. They refuse what would fail, be unrepeatable or learn nothing."""

import pickle
import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from math import isfinite

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]

from fadas.core.ledger import Job
from fadas.errors import ConfigError, FadasWarning, first_line, place_of
from fadas.tasks.task import Subsets, Task, cross_entropy
from fadas.training.flat_module import FlatModule
from fadas.training.sgd import LocalSGD
from fadas.validate import MOST_BATCHES

_FEW = 4  # examples to try things with
_MOST_CLIENTS = 1000  # whose data are looked at
_LOOKED_AT = 1 << 26  # bytes of a column that stays on disk


class _Unseeded(ConfigError):
    """Random numbers that no job's seed decides."""


def check_local_training(flat: FlatModule, task: Task, local: LocalSGD, seed: int = 0) -> None:
    """Check what a client does with a job. The module is left as it was.

    | refused                                                        | because                                    |
    |----------------------------------------------------------------|--------------------------------------------|
    | local training that is no `LocalSGD`                           | a step function needs `CustomStep`         |
    | labels that are not of type torch.int64, for `cross_entropy`   | torch's loss does not take them            |
    | labels of shape [n, 1], or without an output, for it           | the same                                   |
    | a transform that draws from a global random generator          | the run would not depend on its seed alone |
    | a module or loss that draws from Python's or NumPy's generator | the run would not depend on its seed alone |
    | a module or loss that keeps state in a Python attribute        | results would depend on earlier jobs       |
    | outputs [B, 1] beside targets [B], if the loss broadcasts them | the run would learn nothing                |
    | one output per example with the default loss                  | the cross-entropy is always 0              |
    | BatchNorm where a client has a batch of one example            | the job would fail                         |
    | more than a million batches in a job                           | the job would take hours                   |

    Raises:
        ConfigError: Something is refused. The message says what to change.
    """
    _require_local_training(local)
    _check_length(task, local, seed)
    _warn_of_missing_values(task)
    _check_labels(task)
    _check_transform(task)
    _check_module(flat, task)
    _check_shapes(flat, task)
    _check_batches_of_one(flat, task, local)


def random_devices(flat: FlatModule, task: Task) -> set[str]:
    """Return the kinds of device on which module and loss draw random numbers when they train, as dropout does.

    Raises:
        ConfigError: They draw from the global generator of Python or NumPy, which no job seeds.
    """
    return _draw_once(flat, task)[0]


def _require_local_training(local: object) -> None:
    """Refuse a step function in the place of local training."""
    if isinstance(local, LocalSGD):
        return
    name = getattr(local, "__name__", type(local).__name__)
    advice = f"; give a step function as fadas.training.CustomStep(lr, function={name})" if callable(local) else ""
    raise ConfigError(f"local must be a LocalSGD, got {name}{advice}")


def _check_length(task: Task, local: LocalSGD, seed: int) -> None:
    """Refuse jobs that would take hours: many epochs over many small batches."""
    try:
        own = [local.for_job(Job(0, client, 0), size, seed).batches(size) for client, size in enumerate(task.sizes)]
    except ConfigError:
        raise
    except Exception as error:  # laws and schedules may be the user's own
        raise ConfigError(f"local: {type(error).__name__}: {first_line(error)}{place_of(error)}") from error
    batches, client = max((count, client) for client, count in enumerate(own))
    if batches > MOST_BATCHES.most:
        raise ConfigError(
            f"local: the batches of a job must be at most {MOST_BATCHES}, got {batches:,} for client {client}; choose "
            "fewer epochs, a larger batch_size, or steps"
        )


def _warn_of_missing_values(task: Task) -> None:
    """Say where data are NaN or infinite. Training on them gives updates that the server refuses."""
    shared = isinstance(task.clients, Subsets)
    for client in range(1 if shared else min(len(task.clients), _MOST_CLIENTS)):
        columns = task.clients.data if isinstance(task.clients, Subsets) else task.clients[client]
        if rows := _count_not_finite(task, columns):
            whose = "the clients' data" if shared else f"the data of client {client}"
            text = f"{whose} have {rows} examples with NaN or infinite values; their updates will be refused"
            warnings.warn(text, FadasWarning, stacklevel=2)
            break
    if isinstance(task.test, tuple | list) and (rows := _count_not_finite(task, task.test)):  # not if it stays on disk
        text = f"the test data have {rows} examples with NaN or infinite values; metrics may be undefined"
        warnings.warn(text, FadasWarning, stacklevel=2)


def _count_not_finite(task: Task, columns: Iterable[Tensor]) -> int:
    """Return how many examples of the first column that has any are NaN or infinite."""
    for column in columns:
        if task.mapped:  # the whole file may be larger than memory, and take hours to read
            column = column[: 1 + _LOOKED_AT // (1 + column[:1].nbytes)]
        # the sum is quick; it may overflow, so the elements decide
        if column.is_floating_point() and not column.sum().isfinite() and not column.isfinite().all():
            return int((~column.isfinite().flatten(1).all(1) if column.dim() > 1 else ~column.isfinite()).sum())
    return 0


def _check_labels(task: Task) -> None:
    """Refuse labels that `cross_entropy`, the default loss, does not take."""
    if task.loss is not cross_entropy:
        return
    for owner, labels in _labels(task):
        if labels.dim() == 2 and labels.shape[1] == 1 and not labels.is_floating_point():
            raise ConfigError(
                f"{owner}: the loss cross_entropy needs labels of shape [n], got [n, 1]; write y[:, 0] instead of y"
            )
        if labels.dim() == 1 and labels.dtype != torch.int64:
            raise ConfigError(
                f"{owner}: the loss cross_entropy needs labels of type torch.int64, got {labels.dtype}; "
                "convert them with .long(), or give the task a loss for such targets"
            )


def _check_label_range(task: Task, outputs: Tensor) -> None:
    """Refuse labels for which the module has no output, if the loss is `cross_entropy`."""
    if task.loss is not cross_entropy or outputs.dim() != 2:
        return
    last = outputs.shape[1] - 1
    for owner, labels in _labels(task):
        if labels.dim() == 1 and int(labels.max()) > last:
            raise ConfigError(
                f"{owner}: a label is {int(labels.max())}, but the module's {last + 1} outputs are for labels 0 to "
                f"{last}; number the labels from 0, for example with np.unique(labels, return_inverse=True)"
            )


def _labels(task: Task) -> Iterator[tuple[str, Tensor]]:
    """Yield the labels of each client, or those that all share, and those of the test data, with their owner."""
    if isinstance(task.clients, Subsets):
        yield "the clients' data", task.clients.data[-1]
    else:
        yield from ((f"client {client}", task.targets(client)) for client in range(len(task.clients)))
    if task.test is not None:
        yield "the test data", task.test[-1]


def _check_transform(task: Task) -> None:
    if not task.transform:
        return

    def states() -> tuple[object, ...]:
        return torch.get_rng_state().tolist(), *_other_states()

    before = states()
    *inputs, _ = task.examples(0, slice(_FEW))
    with torch.random.fork_rng(devices=[]):
        task.prepare(inputs, torch.Generator().manual_seed(0))
        after = states()
    if before != after:
        raise ConfigError(
            "the task's transform draws from a global random generator, so a run would not depend on its seed alone; "
            "draw from the generator that the transform receives"
        )


def _check_module(flat: FlatModule, task: Task) -> None:
    """Return whether the module gives the same loss when it is called again."""
    try:
        _, first = _draw_once(flat, task)
        if flat.device != "cpu":
            return  # on a GPU the same sum may be rounded in two ways
        with _kept_random_state(flat.device):
            second = _trial_loss(flat, task)
    except _Unseeded:
        raise
    except Exception:  # the trial step reports what does not work
        return
    if not torch.allclose(first, second, 1e-4, 1e-7, equal_nan=True):
        raise ConfigError(
            "the task's module or loss gives different results for the same input. State in a Python attribute or "
            "a frozen parameter would make results depend on earlier jobs; keep it in a buffer"
        )


def _check_shapes(flat: FlatModule, task: Task) -> None:
    """Refuse outputs [B, 1] with targets [B] if the loss compares each output with every target."""
    try:
        with _kept_random_state(flat.device):
            outputs, targets = _trial_outputs(flat, task)
        _check_label_range(task, outputs)
        if task.loss is cross_entropy and outputs.shape[1:] == (1,):
            raise ConfigError(
                "the cross-entropy, the default loss, is always 0 for a network with one output; give fadas.Task "
                "another loss, such as torch.nn.functional.mse_loss"
            )
        if outputs.shape != (*targets.shape, 1) or targets.dim() != 1:
            return
        count = len(targets)
        ramp = torch.linspace(0.0, 1.0, count, device=outputs.device)
        outputs = ramp.to(outputs.dtype)[:, None]
        labels = torch.arange(count, device=ramp.device) % 2
        targets = ramp.square().to(targets.dtype) if targets.is_floating_point() else labels
        changed = torch.cat([targets[:-1], targets[2:3]])  # other targets; the flip is the same ones in another order
        with _no_warnings():
            here, flipped, other = (float(task.loss(outputs, t).mean()) for t in (targets, targets.flip(0), changed))
    except ConfigError:
        raise
    except Exception:  # the trial step reports what does not work
        return
    if here == other or abs(here - flipped) > 1e-6 * abs(here):
        return  # the loss ignores the targets, or compares each output with its own
    raise ConfigError(
        "outputs of shape [B, 1] and targets of shape [B] broadcast to [B, B] in the loss, which then compares each "
        "output with every target; give the targets the shape [B, 1], or the outputs the shape [B]"
    )


def _check_batches_of_one(flat: FlatModule, task: Task, local: LocalSGD) -> None:
    alone = next((c for c, size in enumerate(task.sizes) if 1 in (local.batch_size, local.short_batch(size))), None)
    if alone is None or not any(isinstance(module, _BatchNorm) for module in flat.module.modules()):
        return
    before = flat.read()
    *inputs, _ = (tensor.to(flat.device) for tensor in task.examples(alone, slice(1)))
    try:
        with torch.no_grad(), _training_mode(flat.module):
            flat.module(*task.prepare(inputs))
    except ValueError:
        raise ConfigError(
            f"batch_size ({local.batch_size}) leaves client {alone} with a batch of one example, which the module's "
            "BatchNorm cannot take; choose another batch_size"
        ) from None
    finally:
        flat.load(before)


def _other_states() -> tuple[object, ...]:
    """Return the states of the global generators that are not torch's."""
    legacy = pickle.dumps(np.random.get_state(legacy=False))  # noqa: NPY002  not to draw, but to see who does
    return random.getstate(), legacy


@contextmanager
def _training_mode(module: nn.Module) -> Iterator[None]:
    """Put a module into training mode, and afterwards each of its parts into the mode it had."""
    modes = [(part, part.training) for part in module.modules()]
    module.train()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Ignore warnings of a trial. If it is not refused, the run itself shows them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _kept_random_state(device: str) -> AbstractContextManager[None]:
    """Put torch's random generators back into their states at the end."""
    return torch.random.fork_rng([torch.device(device)] if torch.device(device).type == "cuda" else [])


def _draw_once(flat: FlatModule, task: Task) -> tuple[set[str], Tensor]:
    """Return the kinds of device that random numbers were drawn on, and the loss."""
    device = torch.device(flat.device)
    generators: dict[str, Callable[[], Tensor]] = {"cpu": torch.get_rng_state}
    if device.type == "cuda":
        generators["cuda"] = partial(torch.cuda.get_rng_state, device)
    others = _other_states()
    try:
        with _kept_random_state(flat.device):
            states = {kind: state() for kind, state in generators.items()}
            loss = _trial_loss(flat, task)
            return {kind for kind, state in generators.items() if not torch.equal(states[kind], state())}, loss
    finally:
        if others != _other_states():
            raise _Unseeded(
                "the task's module or loss draws from the global generator of Python or numpy, so a run would not "
                "depend on its seed alone; draw from torch's"
            )


def _trial_loss(flat: FlatModule, task: Task) -> Tensor:
    """Return the loss on a few examples, as in training. Only random generators change."""
    outputs, targets = _trial_outputs(flat, task)
    with torch.no_grad(), _training_mode(flat.module), _no_warnings():
        return task.loss(outputs, targets)


@torch.no_grad()
def _trial_outputs(flat: FlatModule, task: Task) -> tuple[Tensor, Tensor]:
    """Return outputs and targets of a few examples, as in training."""
    before = flat.read()
    *inputs, targets = (tensor.to(flat.device) for tensor in task.examples(0, slice(_FEW)))
    inputs = [torch.cat([column, column]) for column in task.prepare(inputs)]  # at least two, for BatchNorm
    try:
        with _training_mode(flat.module):
            return flat.module(*inputs), torch.cat([targets, targets])
    finally:
        flat.load(before)


def has_hooks(module: nn.Module, backward: bool = False) -> bool:
    """Return whether a job would call anything besides the modules' own `forward`.

    With `backward`, only hooks on gradients count.
    """
    names = ["_backward_hooks", "_backward_pre_hooks"] + ([] if backward else ["_forward_hooks", "_forward_pre_hooks"])
    mine = [vars(one).get(name) for one in module.modules() for name in names]
    params = [(p._backward_hooks, p._post_accumulate_grad_hooks) for p in module.parameters()]  # pyright: ignore
    replaced = [not backward and "forward" in vars(one) for one in module.modules()]
    return any(mine) or any(any(pair) for pair in params) or any(replaced)


def is_close(one: Tensor, other: Tensor) -> bool:
    """Return whether two ways to train have the same result, up to rounding."""
    scale = float(other.abs().max()) if len(other) else 0.0
    return isfinite(scale) and torch.allclose(one, other, rtol=1e-2, atol=1e-3 * scale)
