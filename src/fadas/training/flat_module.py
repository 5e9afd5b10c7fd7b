"""A torch module as flat vectors. Converts between a torch module, (params, buffers) and a state_dict."""

from collections.abc import Mapping, MutableMapping
from typing import Literal, cast
from weakref import ref

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from fadas.core.model import Model
from fadas.errors import ConfigError

MemoryFormat = Literal["contiguous", "channels-last"]

# For each trainable parameter, the FlatModule that holds it. Neither is kept alive by this table.
_flattened: MutableMapping[Tensor, "ref[FlatModule]"] = WeakTensorKeyDictionary()


class FlatModule:
    """A torch module whose trainable parameters, gradients and buffers are views into three flat vectors.

    Loading a model is one copy, a delta is one subtraction, and an SGD step is two kernels.

    | part of the module                               | where it is stored                                |
    |--------------------------------------------------|---------------------------------------------------|
    | trainable parameters                             | `params`                                          |
    | their gradients                                  | `grads`                                           |
    | floating-point buffers                           | `buffers`                                         |
    | frozen parameters                                | in the module, unchanged                          |
    | integer buffers, such as BatchNorm's counters    | in the module; `load` restores the initial values |

    Args:
        module: The module. It is moved to the device, and its tensors are replaced by views.
        device: Where the module and the vectors are: "cpu", "cuda", "cuda:1", ...

    Raises:
        ConfigError: No parameter is trainable, two modules share a parameter, or the parameters have several dtypes.

    Example:
        >>> flat = FlatModule(torch.nn.Linear(4, 2))
        >>> flat.params.shape
        torch.Size([10])
        >>> model = flat.read()
        >>> flat.load(model)
    """

    def __init__(self, module: nn.Module, device: str | torch.device = "cpu") -> None:
        self.module, self.device = module.to(device), str(device)
        self.memory_format: MemoryFormat = "contiguous"  # of images in local training
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        floats = {name: b for name, b in module.named_buffers() if b.is_floating_point()}
        if not trained:
            raise ConfigError("the module has no trainable parameters")
        for name, parameter in trained.items():
            if (holder := _flattened.get(parameter)) and holder():
                raise ConfigError(
                    f"two modules share the trainable parameter {name!r}: the task's model function must make new "
                    "parameters at every call; or give the task a module, which is copied"
                )
            _flattened[parameter] = ref(self)
        for kind, tensors in (("parameters", trained), ("buffers", floats)):
            if len({t.dtype for t in tensors.values()}) > 1:
                raise ConfigError(f"the module's {kind} have several dtypes; fadas needs one")
        # GPUs convolve faster on channels-last tensors. No other code depends on the order of the vector's elements.
        self._channels_last = torch.device(device).type == "cuda"
        self.params, self.param_shapes = self._flatten(trained, device)
        self.buffers, self.buffer_shapes = self._flatten(floats, device)
        self.grads = torch.zeros_like(self.params)
        for name, grad in self.named_params(self.grads).items():
            trained[name].grad = grad
        self._tied = [(*_find_buffer(module, name), buffer) for name, buffer in module.named_buffers()]
        self.counters = {name: b.clone() for name, b in module.named_buffers() if not b.is_floating_point()}

    def _flatten(
        self, tensors: Mapping[str, Tensor], device: str | torch.device
    ) -> tuple[Tensor, dict[str, torch.Size]]:
        """Copy the tensors into one vector and make them views of it. Return the vector and the tensors' shapes."""
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
        """Return a copy of the module's current parameters and buffers."""
        self.tie()
        return Model(self.params.clone(), self.buffers.clone())

    def named_params(self, flat: Tensor) -> dict[str, Tensor]:
        """Return named views into a flat tensor of parameters: [P], or [B, P] for a batch of models."""
        return _split(flat, self.param_shapes, self._channels_last)

    def named_buffers(self, flat: Tensor) -> dict[str, Tensor]:
        """Return named views into a flat tensor of buffers, for one model or a batch of models."""
        return _split(flat, self.buffer_shapes, self._channels_last)

    @torch.no_grad()
    def tie(self) -> None:
        """Make every buffer a view again. A forward pass may have replaced a buffer by a new tensor.

        The values of the new tensor are kept.
        """
        for buffers, name, view in self._tied:
            if buffers[name] is not view:
                view.copy_(buffers[name])
                buffers[name] = view

    def arrange(self, inputs: list[Tensor]) -> list[Tensor]:
        """Return a batch in the memory format of local training, which may be faster."""
        if self.memory_format == "contiguous":
            return inputs
        return [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs]

    def load(self, model: Model) -> None:
        """Copy a model into the module, and reset the integer buffers to their initial values."""
        self.tie()
        self.params.copy_(model.params)
        self.buffers.copy_(model.buffers)
        for name, initial in self.counters.items():
            self.module.get_buffer(name).copy_(initial)

    def copy_from(self, other: "FlatModule") -> None:
        """Copy everything from a flat module of the same architecture, including the integer buffers."""
        self.params.copy_(other.params)
        self.buffers.copy_(other.buffers)
        for name in self.counters:
            self.module.get_buffer(name).copy_(other.module.get_buffer(name))

    def state_dict(self, model: Model) -> dict[str, Tensor]:
        """Return a model in the form that the module's `load_state_dict` takes. The model is loaded first."""
        self.load(model)
        return {name: tensor.detach().clone() for name, tensor in self.module.state_dict().items()}


def fastest_format(module: nn.Module, device: str) -> MemoryFormat:
    """Return the memory format of images with which a module trains fastest: a fixed rule, so that runs repeat.

    On a CPU, ordinary 2d convolutions are up to twice as fast on images whose channels are last. Results are equal up
    to rounding.
    """
    convolutions = [m for m in module.modules() if isinstance(m, nn.modules.conv._ConvNd)]  # pyright: ignore
    suited = all(type(m) is nn.Conv2d and m.groups == 1 for m in convolutions)
    return "channels-last" if convolutions and suited and torch.device(device).type == "cpu" else "contiguous"


def _find_buffer(module: nn.Module, name: str) -> tuple[dict[str, Tensor], str]:
    """Return the dict that holds a buffer, and the buffer's key in it."""
    path, _, last = name.rpartition(".")
    return cast(dict[str, Tensor], module.get_submodule(path)._buffers), last  # pyright: ignore[reportPrivateUsage]


def _split(flat: Tensor, shapes: Mapping[str, torch.Size], channels_last: bool) -> dict[str, Tensor]:
    """Return named views into the last dimension of a flat tensor: [P], or [B, P] for a batch of models."""
    views: dict[str, Tensor] = {}
    offset = 0
    for name, shape in shapes.items():
        piece = flat[..., offset : offset + shape.numel()]
        if channels_last and len(shape) == 4:
            out_channels, in_channels, height, width = shape
            views[name] = piece.view((*flat.shape[:-1], out_channels, height, width, in_channels)).movedim(-1, -3)
        else:
            views[name] = piece.view((*flat.shape[:-1], *shape))
        offset += shape.numel()
    return views
