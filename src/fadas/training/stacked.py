"""The parameters of many jobs in one chain of layers, with a backward pass written out.

For small networks most of the time goes to calling kernels, not to arithmetic: autograd, `vmap` and an optimizer each
add calls of their own. A chain of linear layers and functions without parameters (activations, reshaping, pooling)
needs none of them: examples of all jobs pass through it together, each linear layer is one batched product over the
jobs, and the product that gives a weight's gradient applies the SGD step in the same call.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from fadas.core.model import Model
from fadas.tasks.task import Loss, cross_entropy
from fadas.training.flat_module import FlatModule
from fadas.training.stacked_losses import AnyLoss, CrossEntropy, ManyClasses, StepsLoss

_threshold_backward = torch.ops.aten.threshold_backward.default
_RELUS = (nn.ReLU, F.relu, torch.relu, "relu")
_FEW = 32  # classes


class Layer(Protocol):
    """Takes and gives the activations of all jobs' examples: [B, n, ...]."""

    def forward(self, x: Tensor) -> Tensor: ...

    def backward(self, grad: Tensor) -> Tensor:
        """From the gradient of what went out to the gradient of what came in."""
        ...

    def clear(self) -> None:
        """Forget the last batch."""
        ...


class Linear:
    """A linear layer: weight [B, out, in], bias [B, 1, out]."""

    def __init__(self, lr: float, decay: float, weight: str, bias: str | None) -> None:
        self.lr, self.decay, self.names = lr, decay, (weight, bias)
        self._ones = torch.ones(0, 1, 0)

    def load(self, params: dict[str, Tensor], jobs: int) -> None:
        weight, bias = self.names
        self._weight, self._bias = params[weight][:jobs], None if bias is None else params[bias][:jobs, None]
        self._across = self._weight.mT

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 3:
            return self.forward(x.flatten(1, -2)).unflatten(1, x.shape[1:-1])
        self._rows = x
        return torch.bmm(x, self._across) if self._bias is None else torch.baddbmm(self._bias, x, self._across)

    def backward(self, grad: Tensor) -> Tensor:
        if grad.dim() != 3:
            return self.backward(grad.flatten(1, -2)).unflatten(1, grad.shape[1:-1])
        return torch.bmm(grad, self._weight)

    def learn(self, grad: Tensor) -> None:
        """The SGD step, given the gradient of what went out."""
        grad = grad if grad.dim() == 3 else grad.flatten(1, -2)
        if self.decay:  # apart: as a factor of 1 - lr * decay in the product, it would be rounded alike for all weights
            self._weight.add_(self._weight, alpha=-self.lr * self.decay)
        self._weight.baddbmm_(grad.mT, self._rows, alpha=-self.lr)
        if self._bias is not None:
            jobs, rows, _ = grad.shape
            if self._ones.shape[0] != jobs or self._ones.shape[2] != rows:
                self._ones = grad.new_ones(jobs, 1, rows)
            if self.decay:
                self._bias.add_(self._bias, alpha=-self.lr * self.decay)
            self._bias.baddbmm_(self._ones, grad, alpha=-self.lr)

    def clear(self) -> None:
        self._weight = self._across = self._bias = self._rows = self._ones = torch.ones(0, 1, 0)


class Head(Linear):
    """The last layer before a cross-entropy over few classes: gives and takes [B, classes, n].

    Down columns torch's softmax is several times faster then than along rows; over many classes it is slower.
    """

    def forward(self, x: Tensor) -> Tensor:
        self._rows = x
        if self._bias is None:
            return torch.bmm(self._weight, x.mT)
        return torch.baddbmm(self._bias.mT, self._weight, x.mT)

    def backward(self, grad: Tensor) -> Tensor:
        return super().backward(grad.mT)

    def learn(self, grad: Tensor) -> None:
        super().learn(grad.mT)


class Relu:
    def forward(self, x: Tensor) -> Tensor:
        self._out = x.relu()
        return self._out

    def backward(self, grad: Tensor) -> Tensor:
        return _threshold_backward(grad, self._out, 0)

    def clear(self) -> None:
        self._out = torch.empty(0)


class Other:
    """Any function without parameters, differentiated by autograd."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self._function = function

    def forward(self, x: Tensor) -> Tensor:
        self._in = x.detach().flatten(0, 1).requires_grad_(x.is_floating_point())
        with torch.enable_grad():
            self._out = self._function(self._in)
        return self._out.detach().view(len(x), -1, *self._out.shape[1:])  # parts of an example may be rows by now

    def backward(self, grad: Tensor) -> Tensor:
        (below,) = torch.autograd.grad(self._out, self._in, grad.reshape(self._out.shape))
        return below.view(len(grad), -1, *below.shape[1:])

    def clear(self) -> None:
        self._in = self._out = torch.empty(0)


class Stacked:
    """`flat`'s module for B jobs, whose targets may be `labels`: one class each. A ValueError where it is no chain."""

    def __init__(self, flat: FlatModule, loss: Loss, labels: bool, lr: float, weight_decay: float) -> None:
        self._flat = flat
        self._layers = _chain(flat.module, lr, weight_decay)
        self._loss: Callable[[Tensor, Tensor], StepsLoss] = partial(AnyLoss, loss)
        self.classes = 0  # numbers that the loss keeps of an example
        if loss is cross_entropy and labels and isinstance(last := self._layers[-1], Linear):
            self._loss, classes = ManyClasses, flat.param_shapes[last.names[0]][0]
            if classes < _FEW:
                self._layers[-1] = Head(lr, weight_decay, *last.names)
                self._loss, self.classes = partial(CrossEntropy, classes), classes
        self._linear = [layer for layer in self._layers if isinstance(layer, Linear)]
        used = [name for layer in self._linear for name in layer.names if name]
        if sorted(used) != sorted(flat.param_shapes):
            raise ValueError("not every parameter is used exactly once, in a linear layer")
        self._learning = self._layers[self._layers.index(self._linear[0]) :]  # below, nothing needs a gradient

    def load(self, starts: Sequence[Model]) -> None:
        views = self._flat.named_params(torch.stack([start.params for start in starts]))
        self._params = {name: view.contiguous() for name, view in views.items()}  # products write into these faster
        self._keep(len(starts))

    def _keep(self, jobs: int) -> None:
        """From now on only the first so many jobs take part."""
        self._jobs = jobs
        for layer in self._linear:
            layer.load(self._params, jobs)

    def unload(self) -> Tensor:
        """The parameters of all jobs: [B, P]. Lets go of whatever a batch of jobs took."""
        trained = torch.cat([tensor.flatten(1) for tensor in self._params.values()], 1)
        self._params.clear()
        for layer in self._layers:
            layer.clear()
        return trained

    @torch.no_grad()
    def train(self, inputs: Tensor, targets: Tensor, weights: Tensor, active: Sequence[int]) -> Tensor:
        """SGD steps on weighted examples [K, B, n, ...], each of its first so many jobs; the sum of a job's losses."""
        loss = self._loss(targets, weights)
        for k, (x, jobs) in enumerate(zip(inputs.unbind(), active, strict=True)):
            if jobs < self._jobs:
                self._keep(jobs)
            if jobs < x.shape[0]:
                x = x[:jobs]
            for layer in self._layers:
                x = layer.forward(x)
            grad = loss.gradient(k, x)
            for layer in reversed(self._learning):
                below = grad if layer is self._learning[0] else layer.backward(grad)  # before the weights move
                if isinstance(layer, Linear):
                    layer.learn(grad)
                grad = below
        return loss.total()


def _chain(module: nn.Module, lr: float, decay: float) -> list[Layer]:
    """The module as a chain of layers, found by tracing what its `forward` does."""
    if type(module) is nn.Linear:  # of a module given by itself, the tracer sees the inside
        return [Linear(lr, decay, "weight", "bias" if module.bias is not None else None)]
    graph = fx.Tracer().trace(module)
    modules = dict(module.named_modules())
    layers: list[Layer] = []
    last: fx.Node | None = None
    for node in graph.nodes:
        if node.op == "output":
            if node.args[0] is not last:
                raise ValueError("the output is not the chain's end")
            return layers
        if last is None:
            if node.op != "placeholder":
                raise ValueError("the chain does not begin with the input")
            last = node
            continue
        if node.op not in ("call_module", "call_function", "call_method") or node.args[:1] != (last,):
            raise ValueError(f"{node} does not follow from the step before it alone")
        if any(isinstance(value, fx.Node) for value in (*node.args[1:], *node.kwargs.values())):
            raise ValueError(f"{node} depends on more than the step before it")
        layers.append(_layer(node, modules.get(str(node.target)), lr, decay))
        last = node
    raise ValueError("the module gives no output")


def _layer(node: fx.Node, module: nn.Module | None, lr: float, decay: float) -> Layer:
    kind = type(module) if node.op == "call_module" else node.target
    if kind in _RELUS:
        return Relu()
    if node.op != "call_module":
        name, arguments, options = node.target, node.args[1:], node.kwargs
        if callable(name):
            return Other(lambda x: name(x, *arguments, **options))
        return Other(lambda x: getattr(x, str(name))(*arguments, **options))
    if kind is nn.Linear:
        assert isinstance(module, nn.Linear)
        return Linear(lr, decay, f"{node.target}.weight", f"{node.target}.bias" if module.bias is not None else None)
    if module is None or any(True for _ in module.parameters()) or any(True for _ in module.buffers()):
        raise ValueError(f"{node.target} has parameters, and no stacked form")
    return Other(module)
