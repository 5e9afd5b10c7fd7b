"""A torch module as flat vectors: torch module <-> (params, buffers) <-> state_dict."""

from collections.abc import Mapping, MutableMapping
from typing import cast
from weakref import ref

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from fadas.core.model import Model

# Trainable parameters and the FlatModule that has taken each; both may be gone by now.
_flattened: MutableMapping[Tensor, "ref[FlatModule]"] = WeakTensorKeyDictionary()


class FlatModule:
    """A module whose trainable parameters, their gradients and its buffers are views into three flat vectors.

    Loading a model is one copy, a delta one subtraction, an SGD step two kernels. Frozen parameters stay where they
    are. Integer buffers (BatchNorm's batch counters) do not travel: each load puts their initial values back.
    """

    def __init__(self, module: nn.Module, device: str | torch.device = "cpu") -> None:
        self.module, self.device = module.to(device), str(device)
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        floats = {name: b for name, b in module.named_buffers() if b.is_floating_point()}
        if not trained:
            raise ValueError("the module has no trainable parameters")
        for name, parameter in trained.items():
            if (other := _flattened.get(parameter)) and other():
                raise ValueError(
                    f"two modules share the trainable parameter {name!r}: each call of a task's model function must "
                    "make new ones, or the task be given a module instead, which is copied"
                )
            _flattened[parameter] = ref(self)
        for kind, tensors in (("parameters", trained), ("buffers", floats)):
            if len({t.dtype for t in tensors.values()}) > 1:
                raise ValueError(f"the module's {kind} have several dtypes; fadas needs one")
        # GPUs convolve faster on channels-last tensors; the order of the vector's elements is nobody's business
        self._channels_last = torch.device(device).type == "cuda"
        self.params, self.param_shapes = self._flatten(trained, device)
        self.buffers, self.buffer_shapes = self._flatten(floats, device)
        self.grads = torch.zeros_like(self.params)
        for name, grad in self.named_params(self.grads).items():
            trained[name].grad = grad
        self._tied = [(*_owner(module, name), buffer) for name, buffer in module.named_buffers()]
        self.counters = {name: b.clone() for name, b in module.named_buffers() if not b.is_floating_point()}

    def _flatten(
        self, tensors: Mapping[str, Tensor], device: str | torch.device
    ) -> tuple[Tensor, dict[str, torch.Size]]:
        """Move the tensors' contents into one vector and make the tensors views of it."""
        shapes = {name: t.shape for name, t in tensors.items()}
        if not tensors:
            return torch.zeros(0, device=device), shapes
        flat = torch.empty(
            sum(t.numel() for t in tensors.values()), dtype=next(iter(tensors.values())).dtype, device=device
        )
        for name, view in _split(flat, shapes, self._channels_last).items():
            view.copy_(tensors[name].detach())
            tensors[name].data = view
        return flat, shapes

    def read(self) -> Model:
        self.tie()
        return Model(self.params.clone(), self.buffers.clone())

    def named_params(self, flat: Tensor) -> dict[str, Tensor]:
        """Views into parameters laid out as this module's: [P], or [B, P] for a batch of models."""
        return _split(flat, self.param_shapes, self._channels_last)

    def named_buffers(self, flat: Tensor) -> dict[str, Tensor]:
        return _split(flat, self.buffer_shapes, self._channels_last)

    @torch.no_grad()
    def tie(self) -> None:
        """A forward pass may have put a new tensor in a buffer's place: take its values and put the first one back."""
        for buffers, name, first in self._tied:
            if buffers[name] is not first:
                first.copy_(buffers[name])
                buffers[name] = first

    def load(self, model: Model) -> None:
        self.tie()
        self.params.copy_(model.params)
        self.buffers.copy_(model.buffers)
        for name, initial in self.counters.items():
            self.module.get_buffer(name).copy_(initial)

    def take(self, other: "FlatModule") -> None:
        """All that another one of the same module holds: its counters too."""
        self.params.copy_(other.params)
        self.buffers.copy_(other.buffers)
        for name in self.counters:
            self.module.get_buffer(name).copy_(other.module.get_buffer(name))

    def state_dict(self, model: Model) -> dict[str, Tensor]:
        """The model as the module's own `load_state_dict` takes it."""
        self.load(model)
        return {name: tensor.detach().clone() for name, tensor in self.module.state_dict().items()}


def _owner(module: nn.Module, name: str) -> tuple[dict[str, Tensor], str]:
    """The dict that holds a buffer, and the buffer's name in it."""
    path, _, last = name.rpartition(".")
    return cast(dict[str, Tensor], module.get_submodule(path)._buffers), last  # pyright: ignore[reportPrivateUsage]


def _split(flat: Tensor, shapes: Mapping[str, torch.Size], channels_last: bool) -> dict[str, Tensor]:
    """Named views into the last dimension of a flat tensor ([P], or [B, P] for a batch of models)."""
    views: dict[str, Tensor] = {}
    offset = 0
    for name, shape in shapes.items():
        piece = flat[..., offset : offset + shape.numel()]
        if channels_last and len(shape) == 4:
            outside, inside, height, width = shape
            views[name] = piece.view((*flat.shape[:-1], outside, height, width, inside)).movedim(-1, -3)
        else:
            views[name] = piece.view((*flat.shape[:-1], *shape))
        offset += shape.numel()
    return views
