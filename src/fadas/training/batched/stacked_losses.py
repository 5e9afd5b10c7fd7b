"""Losses of many jobs at once, with explicit gradients, for the steps of a stacked chain (stacked.py)."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fadas.tasks.task import Loss, cross_entropy

_IGNORED = -100  # torch's cross-entropy ignores examples with this label


def stack_padded(tensors: Sequence[Tensor], dim: int = 0, padding: int = 0) -> Tensor:
    """Return tensors stacked along a new dimension `dim` (0 or 1), padded at the end to the same number of rows.

    The first tensor must have the most rows, and the last one the fewest.
    """
    if tensors[0].shape == tensors[-1].shape:  # nothing to pad, and `pad_sequence` copies the tensors one by one
        return torch.stack(list(tensors), dim)
    return pad_sequence(list(tensors), batch_first=dim == 0, padding_value=padding)


class StepsLoss(Protocol):
    """The loss of K steps of B jobs, made from the targets [K, B, n, ...] and the examples' weights [K, B, n].

    A step may have outputs of the first jobs only. The others have no batch left.

    Example:
        >>> loss = CrossEntropy(classes, targets, weights)
        >>> gradients = [loss.gradient(k, outputs) for k, outputs in enumerate(outputs_of_steps)]
        >>> sums = loss.total()
    """

    def gradient(self, k: int, outputs: Tensor) -> Tensor:
        """Return the gradient of the weighted sum of step k's losses.

        Args:
            k: The step.
            outputs: The outputs of the step's jobs.
        """
        ...

    def total(self) -> Tensor:
        """Return each job's weighted sum of the losses, over all steps."""
        ...


class CrossEntropy:
    """Cross-entropy over few classes, on outputs [B, classes, n]."""

    def __init__(self, classes: int, targets: Tensor, weights: Tensor) -> None:
        steps, jobs, rows = targets.shape
        targets, weights = _mask_ignored(targets, weights)
        self._targets, self._weights = targets.unsqueeze(2), weights.unsqueeze(2)
        hit = weights.new_zeros(steps, jobs, classes, rows).scatter_(2, self._targets, -self._weights)
        self._steps = list(zip(hit.unbind(), self._weights.unbind()))
        self._log_p: list[Tensor] = []

    def gradient(self, k: int, outputs: Tensor) -> Tensor:
        """Return the gradient of the weighted sum of step k's losses."""
        log_p = outputs.log_softmax(1)
        self._log_p.append(log_p)
        hit, weights = self._steps[k]
        if (jobs := outputs.shape[0]) < hit.shape[0]:
            hit, weights = hit[:jobs], weights[:jobs]
        return torch.addcmul(hit, log_p.exp(), weights)

    def total(self) -> Tensor:
        """Return each job's weighted sum of the losses, over all steps."""
        log_p = stack_padded(self._log_p)  # later steps may have fewer jobs
        jobs = log_p.shape[1]
        targets, weights = self._targets, self._weights
        if jobs < targets.shape[1]:
            targets, weights = targets[:, :jobs], weights[:, :jobs]
        return log_p.gather(2, targets).mul_(weights).sum((0, 2, 3)).neg_()


class AnyLoss:
    """Any loss function, on outputs [B, n, ...]. Autograd gives its gradient."""

    def __init__(self, loss: Loss, targets: Tensor, weights: Tensor) -> None:
        self._loss, self._targets, self._weights = loss, targets, weights
        self._losses: list[Tensor] = []

    def gradient(self, k: int, outputs: Tensor) -> Tensor:
        """Return the gradient of the weighted sum of step k's losses."""
        jobs = len(outputs)
        leaf = outputs.detach().flatten(0, 1).requires_grad_()
        with torch.enable_grad():
            losses = self._loss(leaf, self._targets[k, :jobs].flatten(0, 1))
            losses = losses.flatten(1).mean(1) if losses.dim() > 1 else losses
        self._losses.append(losses.detach().view(jobs, -1))
        return torch.autograd.grad(losses, leaf, self._weights[k, :jobs].flatten())[0].view_as(outputs)

    def total(self) -> Tensor:
        """Return each job's weighted sum of the losses, over all steps."""
        losses = stack_padded(self._losses)
        return losses.mul_(self._weights[:, : losses.shape[1]]).sum((0, 2))


class ManyClasses(AnyLoss):
    """Cross-entropy over many classes, on outputs [B, n, classes]. No tensor of that size is kept after a step."""

    def __init__(self, targets: Tensor, weights: Tensor) -> None:
        super().__init__(cross_entropy, *_mask_ignored(targets, weights))

    def gradient(self, k: int, outputs: Tensor) -> Tensor:
        """Return the gradient of the weighted sum of step k's losses."""
        jobs = len(outputs)
        targets, weights = self._targets[k, :jobs, :, None], self._weights[k, :jobs, :, None]
        log_p = outputs.log_softmax(2)
        self._losses.append(log_p.gather(2, targets).neg_().squeeze(2))
        return log_p.exp_().mul_(weights).scatter_add_(2, targets, -weights)


def _mask_ignored(targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Give examples that torch's cross-entropy ignores the label 0 and no weight."""
    if targets.min() >= 0:
        return targets, weights
    ignored = targets == _IGNORED
    return targets.masked_fill(ignored, 0), weights.masked_fill(ignored, 0)
