"""Training of many jobs in one chain of layers, with an explicit backward pass.

For small networks most of the time goes to kernel calls, not to arithmetic. Autograd, `vmap` and an optimizer each add
calls. A chain of linear layers, embeddings and functions without parameters (activations, reshaping, pooling) needs
none of them:

- The examples of all jobs pass through the chain together.
- Each linear layer is one batched product over the jobs.
- The product that gives a weight's gradient applies a plain SGD step in the same call. Other local optimizers take
  their elementwise step for all parameters of all jobs at once.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from fadas.core.model import Model
from fadas.tasks.task import Loss, cross_entropy
from fadas.training.batched.layers import Embedding, Head, Layer, Linear, Other, Relu
from fadas.training.batched.stacked_losses import AnyLoss, CrossEntropy, ManyClasses, StepsLoss
from fadas.training.flat_module import FlatModule
from fadas.training.job_state import steps_taken
from fadas.training.sgd import TAKEN, LocalSGD

_RELUS = (nn.ReLU, F.relu, torch.relu, "relu")
_FEW = 32  # classes
START = "start of the job"  # beside the memory of an optimizer, for the proximal term
ADDITION = "addition"  # what the method adds to each gradient


class Stacked:
    """A module as a chain of layers, for B jobs at once.

    Args:
        flat: The module.
        loss: The task's loss.
        labels: Is each target a single class?
        local: What a client does with a job.

    Raises:
        ValueError: The module is not a chain of linear layers, embeddings and functions without parameters, or a local
            step needs the norm over all layers.

    Example:
        >>> flat = FlatModule(torch.nn.Linear(4, 2))
        >>> stacked = Stacked(flat, cross_entropy, True, LocalSGD(lr=0.1))
        >>> stacked.load_models([flat.read(), flat.read()])
        >>> inputs, labels = torch.randn(1, 2, 8, 4), torch.zeros(1, 2, 8, dtype=torch.long)
        >>> losses = stacked.train(inputs, labels, torch.full((1, 2, 8), 1 / 8), active=[2])
        >>> params, state = stacked.unload()
        >>> params.shape
        torch.Size([2, 10])
    """

    def __init__(self, flat: FlatModule, loss: Loss, labels: bool, local: LocalSGD) -> None:
        if local.clip is not None:
            raise ValueError("the norm of a gradient is that of all layers")
        self._flat, self._local = flat, local
        self._layers = _chain(flat.module)
        self._sizes = [shape.numel() for shape in flat.param_shapes.values()]
        self._loss: Callable[[Tensor, Tensor], StepsLoss] = partial(AnyLoss, loss)
        self.classes = 0  # how many numbers per example the loss keeps until the end
        if loss is cross_entropy and labels and isinstance(last := self._layers[-1], Linear):
            self._loss, classes = ManyClasses, flat.param_shapes[last.names[0]][0]
            if classes < _FEW:
                self._layers[-1] = Head(*last.names)
                self._loss, self.classes = partial(CrossEntropy, classes), classes
        self._trained = [layer for layer in self._layers if isinstance(layer, Linear | Embedding)]
        used = [name for layer in self._trained for name in layer.names if name]
        if sorted(used) != sorted(flat.param_shapes):
            raise ValueError("each parameter must be used exactly once, in a linear layer or an embedding")
        self._learning = self._layers[self._layers.index(self._trained[0]) :]  # earlier layers need no gradient

    @property
    def rows(self) -> int | None:
        """The number of rows of the embedding that takes the inputs. None: another layer takes them."""
        first = self._layers[0]
        return self._flat.param_shapes[first.names[0]][0] if isinstance(first, Embedding) else None

    def load_models(
        self, starts: Sequence[Model], local: LocalSGD | None = None, state: Mapping[str, Tensor] = {}
    ) -> None:
        """Load the models that the jobs start from.

        Args:
            starts: The models.
            local: Local training with the jobs' learning rate. None: that of the constructor.
            state: The jobs' vectors by name, from `initial_states`.
        """
        self._local = local = local or self._local
        self._state, self._taken = dict(state), 0
        self._starts = torch.stack([start.params for start in starts])
        self._all, self._params = self._lay_out(self._starts)
        self._memory = {key: self._lay_out(vectors) for key, vectors in state.items() if key != TAKEN}
        if local.mu:
            self._memory[START] = self._lay_out(self._starts)
        if local.companion and (addition := local.companion.addition(self._state)) is not None:
            self._memory[ADDITION] = self._lay_out(addition)
        grads = torch.empty(0) if local.has_plain_steps else torch.empty_like(self._starts)
        self._grads = grads, self._views(grads) if len(grads) else {}
        for layer in self._trained:
            layer.set_training(local)
        self._keep_first(len(starts))

    def _lay_out(self, vectors: Tensor) -> "_Vectors":
        """Return a copy of vectors [B, P] that holds one contiguous tensor for each parameter, and these tensors.

        Products write into contiguous tensors faster.
        """
        memory = torch.empty_like(vectors)
        views = self._views(memory)
        pieces = [view.view(len(vectors), -1) for view in views.values()]
        torch.split_with_sizes_copy(vectors, self._sizes, 1, out=pieces)
        return memory, views

    def _views(self, memory: Tensor) -> dict[str, Tensor]:
        """Return views of memory for vectors [B, P]: one tensor for each parameter, one after the other."""
        jobs, shapes = len(memory), self._flat.param_shapes
        pieces = memory.view(-1).split([jobs * size for size in self._sizes])
        return {name: piece.view(jobs, *shape) for piece, (name, shape) in zip(pieces, shapes.items())}

    def _keep_first(self, jobs: int) -> None:
        """Train only the first `jobs` jobs from now on."""
        self._jobs = jobs
        for layer in self._trained:
            layer.load_params(self._params, self._grads[1], jobs)
        if jobs == len(self._starts) and TAKEN not in self._state:  # fewer calls: all parameters at once
            memory = {key: vectors.view(-1) for key, (vectors, _) in self._memory.items()}
            self._pieces = [_Piece(self._all.view(-1), self._grads[0].view(-1), memory)]
        else:
            self._pieces = [self._piece(name, jobs) for name in self._params]

    def _piece(self, name: str, jobs: int) -> "_Piece":
        """Return one parameter of the first jobs, with three dimensions."""

        def first(views: Mapping[str, Tensor]) -> Tensor:
            tensor = views[name][:jobs]
            return tensor if tensor.dim() == 3 else tensor.unsqueeze(1)

        grads = first(self._grads[1]) if self._grads[1] else self._grads[0]
        return _Piece(first(self._params), grads, {key: first(views) for key, (_, views) in self._memory.items()})

    def unload(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the deltas [B, P] and the vectors of all jobs, and release all tensors of the batch of jobs."""
        deltas, state = _join(self._params).sub_(self._starts), self._state
        if self._local.has_vectors:
            state |= {name: _join(self._memory[name][1]) for name in self._local.memory}
        self._params, self._memory, self._state = {}, {}, {}
        self._starts = self._all = torch.empty(0)
        self._grads, self._pieces = (torch.empty(0), {}), []
        for layer in self._layers:
            layer.clear()
        return deltas, state

    @torch.no_grad()
    def train(self, inputs: Tensor, targets: Tensor, weights: Tensor, active: Sequence[int]) -> Tensor:
        """Take K SGD steps.

        Args:
            inputs: The examples, [K, B, n, ...].
            targets: Their targets, [K, B, n, ...].
            weights: The weight of each example in its batch's loss, [K, B, n].
            active: For each step, how many jobs take part. These are the first jobs.

        Returns:
            For each job that took part, the sum of its losses over the steps.
        """
        local, plain = self._local, self._local.has_plain_steps
        shrink = -local.lr * local.weight_decay
        loss = self._loss(targets, weights)
        for k, (x, jobs) in enumerate(zip(inputs.unbind(), active, strict=True)):
            self._taken += 1
            if jobs < self._jobs:
                self._keep_first(jobs)
            if jobs < x.shape[0]:
                x = x[:jobs]
            for layer in self._layers:
                x = layer.forward(x)
            grads = self._backward(loss.gradient(k, x))
            if plain:
                if shrink:  # not in the products: their factor 1 - lr * decay has one rounding error for all weights
                    for piece in self._pieces:
                        piece.params.add_(piece.params, alpha=shrink)
                for layer, grad in grads:
                    layer.learn(grad)
                for params, _, memory in self._pieces:
                    if ADDITION in memory:
                        params.add_(memory[ADDITION], alpha=-local.lr)
            else:
                for layer, grad in grads:
                    layer.write_gradient(grad)
                now, t = local.at_step(self._taken), steps_taken(self._state, self._taken, 3, jobs)
                for piece in self._pieces:
                    piece.take_step(now, t)
        return loss.total()

    def _backward(self, grad: Tensor) -> list[tuple[Linear | Embedding, Tensor]]:
        """Return each trained layer with the gradient of its outputs, given that of the last layer's."""
        grads: list[tuple[Linear | Embedding, Tensor]] = []
        for layer in reversed(self._learning):
            if isinstance(layer, Linear | Embedding):
                grads.append((layer, grad))
            if layer is not self._learning[0]:
                grad = layer.backward(grad)
        return grads


_Vectors = tuple[Tensor, dict[str, Tensor]]  # vectors of many jobs, and views of them: a tensor for each parameter


class _Piece(NamedTuple):
    """Parameters of many jobs that take elementwise steps together."""

    params: Tensor
    grads: Tensor
    memory: dict[str, Tensor]  # the local optimizer's, and the terms that are added to the gradient

    def take_step(self, now: LocalSGD, t: int | Tensor) -> None:
        """Take step number t of an elementwise local optimizer, with the rate of `now`."""
        params, grads, memory = self
        if START in memory:
            now.attract(params, grads, memory[START])
        if ADDITION in memory:
            grads.add_(memory[ADDITION])
        now.decay(params, grads)
        now.step(params, grads, memory, t)


def _join(named: Mapping[str, Tensor]) -> Tensor:
    """Return one tensor for each parameter as vectors [B, P]."""
    return torch.cat([tensor.flatten(1) for tensor in named.values()], 1)


def _chain(module: nn.Module) -> list[Layer]:
    """Return the module as a chain of layers, found by tracing its `forward`."""
    if type(module) is nn.Linear:  # the tracer would trace the inside of the root module
        return [Linear("weight", "bias" if module.bias is not None else None)]
    graph = fx.Tracer().trace(module)
    modules = dict(module.named_modules())
    layers: list[Layer] = []
    last: fx.Node | None = None
    for node in graph.nodes:
        if node.op == "output":
            if node.args[0] is not last:
                raise ValueError("the output is not the last step of the chain")
            return layers
        if last is None:
            if node.op != "placeholder":
                raise ValueError("the chain does not begin with the input")
            last = node
            continue
        if node.op not in ("call_module", "call_function", "call_method") or node.args[:1] != (last,):
            raise ValueError(f"{node} does not take the output of the step before it")
        if any(isinstance(value, fx.Node) for value in (*node.args[1:], *node.kwargs.values())):
            raise ValueError(f"{node} takes more than the output of the step before it")
        layers.append(_make_layer(node, modules.get(str(node.target))))
        last = node
    raise ValueError("the module returns no output")


def _make_layer(node: fx.Node, module: nn.Module | None) -> Layer:
    """Return the layer for one node of the traced graph."""
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
        return Linear(f"{node.target}.weight", f"{node.target}.bias" if module.bias is not None else None)
    if kind is nn.Embedding:
        assert isinstance(module, nn.Embedding)
        if module.max_norm is not None or module.scale_grad_by_freq:
            raise ValueError(f"{node.target} changes its weight or its gradient by what the batch holds")
        return Embedding(f"{node.target}.weight", module.padding_idx)
    if module is None or any(True for _ in module.parameters()) or any(True for _ in module.buffers()):
        raise ValueError(
            f"{node.target} has parameters or buffers, and only linear layers and embeddings can be stacked"
        )
    return Other(module)
