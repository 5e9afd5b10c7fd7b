"""The layers of a stacked chain, with an explicit backward pass for many models at once."""

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from fadas.training.sgd import LocalSGD

_threshold_backward = torch.ops.aten.threshold_backward.default
_NOTHING = torch.empty(0)


def _first(tensor: Tensor, jobs: int) -> Tensor:
    """Return the rows of the first jobs. Slicing takes time, and most steps are those of all jobs."""
    return tensor if jobs == tensor.shape[0] else tensor[:jobs]


class Layer(Protocol):
    """One layer of the chain. Its inputs and outputs are activations [B, n, ...]: the examples of all jobs.

    Example:
        >>> layer = Relu()
        >>> outputs = layer.forward(torch.randn(3, 8, 5))  # 3 jobs, 8 examples, 5 features
        >>> grad_inputs = layer.backward(torch.ones_like(outputs))
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's outputs. Keep what `backward` needs.

        Args:
            x: The inputs.
        """
        ...

    def backward(self, grad: Tensor) -> Tensor:
        """Return the gradient of the inputs.

        Args:
            grad: The gradient of the outputs.
        """
        ...

    def clear(self) -> None:
        """Release the tensors of the last batch."""
        ...


class Linear:
    """A linear layer with a weight [B, out, in] and a bias [B, 1, out].

    Args:
        weight: The name of the weight among the module's parameters.
        bias: The name of the bias. None: no bias.
    """

    def __init__(self, weight: str, bias: str | None) -> None:
        self.names = (weight, bias)
        self._ones = torch.ones(0, 1, 0)

    def set_training(self, local: LocalSGD) -> None:
        """Use these settings of local training, with the learning rate of the jobs to come."""
        self.lr = local.lr

    def load_params(self, params: Mapping[str, Tensor], grads: Mapping[str, Tensor], jobs: int) -> None:
        """Use the parameters of the first `jobs` jobs, and the memory for their gradients. Training writes into both.

        Args:
            params: All jobs' parameters by name.
            grads: Memory for their gradients. Empty for plain SGD.
            jobs: How many jobs train.
        """
        weight, bias = self.names
        self._weight = _first(params[weight], jobs)
        self._bias = None if bias is None else _first(params[bias], jobs).unsqueeze(1)
        self._across = self._weight.mT
        self._grads = [_first(grads[name], jobs) for name in self.names if name] if grads else []

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's outputs."""
        if x.dim() != 3:
            return self.forward(x.flatten(1, -2)).unflatten(1, x.shape[1:-1])
        self._rows = x
        return torch.bmm(x, self._across) if self._bias is None else torch.baddbmm(self._bias, x, self._across)

    def backward(self, grad: Tensor) -> Tensor:
        """Return the gradient of the inputs, given the gradient of the outputs."""
        if grad.dim() != 3:
            return self.backward(grad.flatten(1, -2)).unflatten(1, grad.shape[1:-1])
        return torch.bmm(grad, self._weight)

    def write_gradient(self, grad: Tensor) -> None:
        """Write the gradient of the parameters into its memory, given the gradient of the outputs."""
        grad = grad if grad.dim() == 3 else grad.flatten(1, -2)
        torch.bmm(grad.mT, self._rows, out=self._grads[0])
        if self._bias is not None:
            torch.sum(grad, 1, out=self._grads[1])

    def learn(self, grad: Tensor) -> None:
        """Take the plain SGD step in as few calls as possible, given the gradient of the outputs.

        Weight decay has been applied already.
        """
        grad = grad if grad.dim() == 3 else grad.flatten(1, -2)
        self._learn(grad.mT, grad)

    def _learn(self, across: Tensor, grad: Tensor) -> None:
        """Take the plain SGD step, given the gradient of the outputs as [B, out, n] and as [B, n, out]."""
        self._weight.baddbmm_(across, self._rows, alpha=-self.lr)
        if self._bias is not None:
            jobs, rows, _ = grad.shape
            if self._ones.shape != (jobs, 1, rows):
                self._ones = grad.new_ones(jobs, 1, rows)
            self._bias.baddbmm_(self._ones, grad, alpha=-self.lr)

    def clear(self) -> None:
        """Release the parameters and the tensors of the last batch."""
        self._weight = self._across = self._bias = self._rows = _NOTHING
        self._grads = []


class Head(Linear):
    """The last layer before a cross-entropy over few classes. Its outputs are [B, classes, n].

    With few classes, torch's softmax is several times faster along columns than along rows. With many classes it is
    slower.
    """

    def load_params(self, params: Mapping[str, Tensor], grads: Mapping[str, Tensor], jobs: int) -> None:
        """Use the parameters of the first `jobs` jobs, and the memory for their gradients."""
        super().load_params(params, grads, jobs)
        self._column = None if self._bias is None else self._bias.mT

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs, with the classes as the second dimension."""
        self._rows = x
        across = x.mT
        return (
            torch.bmm(self._weight, across)
            if self._column is None
            else torch.baddbmm(self._column, self._weight, across)
        )

    def backward(self, grad: Tensor) -> Tensor:
        """Return the gradient of the inputs, given the gradient of the outputs."""
        return torch.bmm(grad.mT, self._weight)

    def write_gradient(self, grad: Tensor) -> None:
        """Write the gradient of the parameters into its memory, given the gradient of the outputs."""
        super().write_gradient(grad.mT)

    def learn(self, grad: Tensor) -> None:
        """Take the plain SGD step, given the gradient of the outputs. Weight decay has been applied already."""
        self._learn(grad, grad.mT)

    def clear(self) -> None:
        """Release the parameters and the tensors of the last batch."""
        super().clear()
        self._column = None


class Embedding:
    """An embedding with a weight [B, vocabulary, size]. Its inputs are whole numbers, so it is the first layer.

    Args:
        weight: The name of the weight among the module's parameters.
        padding: The row that is never trained. None: all rows are.
    """

    def __init__(self, weight: str, padding: int | None) -> None:
        self.names: tuple[str, str | None] = (weight, None)
        self._padding = padding

    def set_training(self, local: LocalSGD) -> None:
        """Use these settings of local training, with the learning rate of the jobs to come."""
        self.lr = local.lr

    def load_params(self, params: Mapping[str, Tensor], grads: Mapping[str, Tensor], jobs: int) -> None:
        """Use the parameters of the first `jobs` jobs, and the memory for their gradients."""
        self._weight = params[self.names[0]][:jobs]
        self._grad = grads[self.names[0]][:jobs] if grads else _NOTHING
        self._first = torch.arange(jobs, device=self._weight.device) * self._weight.shape[1]

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows of each model's weight that the inputs name."""
        self._shape = x.shape
        self._rows = (x + self._first.view(-1, *[1] * (x.dim() - 1))).flatten()
        self._kept = None if self._padding is None else (x != self._padding).flatten()
        return self._weight.flatten(0, 1).index_select(0, self._rows).unflatten(0, x.shape)

    def backward(self, grad: Tensor) -> Tensor:
        """Return no gradient: whole numbers have none."""
        return grad.new_zeros(self._shape)

    def _row_gradients(self, grad: Tensor) -> Tensor:
        rows = grad.reshape(-1, grad.shape[-1])
        return rows if self._kept is None else rows * self._kept[:, None]

    def write_gradient(self, grad: Tensor) -> None:
        """Write the gradient of the weight into its memory, given the gradient of the outputs."""
        rows = self._grad.zero_().view(-1, grad.shape[-1])
        rows.index_add_(0, self._rows, self._row_gradients(grad))

    def learn(self, grad: Tensor) -> None:
        """Take the plain SGD step, given the gradient of the outputs. Weight decay has been applied already."""
        rows = self._weight.view(-1, self._weight.shape[-1])
        rows.index_add_(0, self._rows, self._row_gradients(grad), alpha=-self.lr)

    def clear(self) -> None:
        """Release the parameters and the tensors of the last batch."""
        self._weight = self._grad = self._rows = self._first = _NOTHING
        self._kept = None


class Relu:
    """A ReLU."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's outputs."""
        self._out = x.relu()
        return self._out

    def backward(self, grad: Tensor) -> Tensor:
        """Return the gradient of the inputs, given the gradient of the outputs."""
        return _threshold_backward(grad, self._out, 0)

    def clear(self) -> None:
        """Release the tensors of the last batch."""
        self._out = _NOTHING


class Other:
    """Any function without parameters. Autograd differentiates it."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self._function = function

    def forward(self, x: Tensor) -> Tensor:
        """Return the function's outputs."""
        self._in = x.detach().flatten(0, 1).requires_grad_(x.is_floating_point())
        with torch.enable_grad():
            self._out = self._function(self._in)
        return self._out.detach().view(len(x), -1, *self._out.shape[1:])  # one example may be several rows now

    def backward(self, grad: Tensor) -> Tensor:
        """Return the gradient of the inputs, given the gradient of the outputs."""
        (below,) = torch.autograd.grad(self._out, self._in, grad.reshape(self._out.shape))
        return below.view(len(grad), -1, *below.shape[1:])

    def clear(self) -> None:
        """Release the tensors of the last batch."""
        self._in = self._out = _NOTHING
