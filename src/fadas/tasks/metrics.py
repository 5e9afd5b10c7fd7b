"""Ready metrics for tasks. A metric is a function of (all outputs, all targets) that returns a number.

| name                    | outputs                          | targets         |
|-------------------------|----------------------------------|-----------------|
| `accuracy`, `top5`, ... | a score for each class           | labels          |
| `macro_f1`              | a score for each class           | labels          |
| `auc`                   | a score for each class, or one   | labels          |
| `rmse`, `mae`, `r2`     | numbers                          | numbers         |
| `perplexity`            | a score for each token           | the next tokens |

The statistics are those of scikit-learn.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fadas.errors import ConfigError, unknown_name
from fadas.registry import convert

Measure = Callable[[Tensor, Tensor], Any]
_TOP = re.compile(r"top[-_]?(\d+)")


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the share of examples whose largest output is that of their label.

    Args:
        outputs: One output per class, of shape [examples, classes].
        targets: One label per example.

    Example:
        >>> accuracy(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1]))
        tensor(0.5000, dtype=torch.float64)
    """
    _require_classes("accuracy", outputs, targets)
    return (outputs.argmax(1) == targets).double().mean()


def top_k(k: int) -> Measure:
    """Return the metric "top k": the share of examples whose label is among the k largest outputs.

    Args:
        k: How many outputs count.

    Example:
        >>> Task(model, clients, test=test, metrics={"accuracy": fadas.accuracy, "top5": top_k(5)})
    """
    if k < 1:
        raise ConfigError(f"top_k needs k of at least 1, got {k}")

    def top(outputs: Tensor, targets: Tensor) -> Tensor:
        _require_classes(f"top{k}", outputs, targets)
        if k > outputs.shape[1]:
            raise ConfigError(f"top{k} needs at least {k} classes, got {outputs.shape[1]}")
        return (outputs.topk(k, 1).indices == targets[:, None]).any(1).double().mean()

    return top


def macro_f1(outputs: Tensor, targets: Tensor) -> float:
    """Return the mean over the classes of each class's F1 score: rare classes count as much as frequent ones.

    Classes that are neither among the targets nor predicted do not count.

    Args:
        outputs: One output per class, of shape [examples, classes].
        targets: One label per example.

    Example:
        >>> macro_f1(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1]))
        0.3333333333333333
    """
    from sklearn.metrics import f1_score

    _require_classes("macro_f1", outputs, targets)
    return float(f1_score(_numbers(targets), _numbers(outputs.argmax(1)), average="macro", zero_division=0))  # type: ignore


def auc(outputs: Tensor, targets: Tensor) -> float:
    """Return the area under the ROC curve. With more than two classes: the mean of one class against the rest.

    It is NaN if a class is missing among the targets.

    Args:
        outputs: One output per class, of shape [examples, classes], or one score per example for two classes.
        targets: One label per example.

    Example:
        >>> auc(torch.tensor([0.2, 0.9, 0.4]), torch.tensor([0, 1, 0]))
        1.0
    """
    from sklearn.metrics import roc_auc_score

    scores = outputs.flatten() if outputs.numel() == len(targets) else outputs.double().softmax(1)
    classes = 2 if scores.dim() == 1 else scores.shape[1]
    if targets.unique().numel() < classes or not scores.isfinite().all():
        return float("nan")
    if classes == 2:
        return float(roc_auc_score(_numbers(targets), _numbers(scores if scores.dim() == 1 else scores[:, 1])))
    return float(roc_auc_score(_numbers(targets), _numbers(scores), multi_class="ovr"))


def rmse(outputs: Tensor, targets: Tensor) -> float:
    """Return the root of the mean squared error.

    Args:
        outputs: The predictions, of the targets' shape, or with one column more.
        targets: The targets.

    Example:
        >>> rmse(torch.tensor([[1.0], [3.0]]), torch.tensor([1.0, 1.0]))
        1.4142135623730951
    """
    from sklearn.metrics import mean_squared_error

    pair = _pair("rmse", outputs, targets)
    return float(mean_squared_error(*pair)) ** 0.5 if pair else float("nan")


def mae(outputs: Tensor, targets: Tensor) -> float:
    """Return the mean absolute error.

    Args:
        outputs: The predictions, of the targets' shape, or with one column more.
        targets: The targets.

    Example:
        >>> mae(torch.tensor([[1.0], [3.0]]), torch.tensor([1.0, 1.0]))
        1.0
    """
    from sklearn.metrics import mean_absolute_error

    pair = _pair("mae", outputs, targets)
    return float(mean_absolute_error(*pair)) if pair else float("nan")


def r2(outputs: Tensor, targets: Tensor) -> float:
    """Return the share of the targets' variance that is explained: 1 is best, 0 is no better than their mean.

    Args:
        outputs: The predictions, of the targets' shape, or with one column more.
        targets: The targets.

    Example:
        >>> r2(torch.tensor([[1.0], [3.0]]), torch.tensor([1.0, 3.0]))
        1.0
    """
    from sklearn.metrics import r2_score

    pair = _pair("r2", outputs, targets)
    return float(r2_score(*pair)) if pair and len(targets) > 1 else float("nan")


def perplexity(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the exponential of the mean cross-entropy per token. Targets of -100 are ignored.

    Args:
        outputs: One output per token of the vocabulary, of shape [examples, ..., vocabulary], or as torch's
            cross-entropy takes it: [examples, vocabulary, ...].
        targets: The next tokens, of shape [examples, ...].

    Example:
        >>> perplexity(torch.zeros(2, 5, 10), torch.zeros(2, 5, dtype=torch.int64))
        tensor(10.0000, dtype=torch.float64)
    """
    if outputs.shape[:-1] == targets.shape:
        outputs, targets = outputs.flatten(0, -2), targets.flatten()
    elif outputs.dim() < 2 or (outputs.shape[0], *outputs.shape[2:]) != tuple(targets.shape):
        raise ConfigError(f"perplexity needs an output per token, got {_shapes(outputs, targets)}")
    losses = [F.cross_entropy(o.double(), t, reduction="sum") for o, t in zip(outputs.split(1024), targets.split(1024))]
    return (torch.stack(losses).sum() / (targets != -100).sum()).exp()


METRICS: dict[str, Measure] = {
    "accuracy": accuracy,
    "macro_f1": macro_f1,
    "auc": auc,
    "rmse": rmse,
    "mae": mae,
    "r2": r2,
    "perplexity": perplexity,
}


def choose_metrics(wanted: Mapping[str, Measure] | Sequence[str] | None) -> dict[str, Measure] | None:
    """Return metrics by name.

    Args:
        wanted: The metrics, or names of ready ones, such as ["accuracy", "top5"]. None: the task's default.

    Raises:
        ConfigError: A name is unknown.

    Example:
        >>> choose_metrics(["macro-f1", "top5"]).keys()
        dict_keys(['macro-f1', 'top5'])
    """
    if wanted is None:
        return None
    if isinstance(wanted, Mapping):
        return dict(wanted)
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    return {name: _find(name) for name in names}


def take_metrics(section: dict[str, Any], takes: Collection[str]) -> tuple[str, ...] | None:
    """Remove the names of ready metrics, which every task can measure, from a task's settings, and return them.

    Args:
        section: The settings.
        takes: The parameters of the task. One that takes `metrics` itself gets them as they are.

    Raises:
        ConfigError: A name is unknown.
    """
    if "metrics" in takes or "metrics" not in section:
        return None
    names = convert(section.pop("metrics"), tuple[str, ...], "task.metrics")
    choose_metrics(names)
    return names


def _find(name: str) -> Measure:
    if found := _TOP.fullmatch(name.lower()):
        return top_k(int(found[1]))
    known = name.lower().replace("-", "_")
    if known not in METRICS:
        raise unknown_name("metric", name, [*METRICS, "top5"])
    return METRICS[known]


def _require_classes(name: str, outputs: Tensor, targets: Tensor) -> None:
    classes = outputs.shape[1] if outputs.dim() > 1 else 1
    if classes < 2 or outputs[:, 0].shape != targets.shape:  # torch would broadcast and compare something else
        needs = f"{name} needs an output per class and a label per example"
        raise ConfigError(f"{needs}, got {_shapes(outputs, targets)}; set Task.metrics to other metrics")


def _shapes(outputs: Tensor, targets: Tensor) -> str:
    return f"outputs of shape {list(outputs.shape)} and targets of shape {list(targets.shape)}"


def _pair(name: str, outputs: Tensor, targets: Tensor) -> tuple[Any, Any] | None:
    """Return targets and predictions as scikit-learn takes them. None: the predictions are not finite."""
    if outputs.numel() != targets.numel() or len(outputs) != len(targets):
        raise ConfigError(f"{name} needs a prediction for each target, got {_shapes(outputs, targets)}")
    shape = (len(targets), -1)
    predicted = outputs.double().reshape(shape)
    if not predicted.isfinite().all():
        return None
    return _numbers(targets.double().reshape(shape)), _numbers(predicted)


def _numbers(tensor: Tensor) -> Any:
    return tensor.detach().cpu().numpy()
