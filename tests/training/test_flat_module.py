"""Modules as flat vectors."""

import pytest
import torch
from torch import nn

from fadas.core.model import Model
from fadas.training.flat_module import FlatModule


class MixedModule(nn.Module):
    """Tied, frozen and integer tensors in one module."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3, bias=False)
        self.b = nn.Linear(3, 3, bias=False)
        self.b.weight = self.a.weight
        self.frozen = nn.Linear(3, 2)
        self.frozen.requires_grad_(False)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        return self.frozen(self.norm(self.b(self.a(x))))


def test_parameters_gradients_and_buffers_are_views():
    flat = FlatModule(MixedModule())
    assert flat.params.numel() == 9 + 3 + 3
    assert flat.buffers.numel() == 6
    module = flat.module
    module(torch.randn(4, 3)).sum().backward()
    assert flat.grads.abs().sum() > 0
    assert module.a.weight.grad.data_ptr() == flat.grads.data_ptr()
    flat.params.fill_(2.0)
    assert (module.a.weight == 2).all()
    assert (module.b.weight == 2).all()
    assert not torch.equal(module.norm.running_mean, torch.zeros(3))
    assert torch.equal(flat.buffers[:3], module.norm.running_mean)


def test_load_and_state_dict_round_trip():
    flat = FlatModule(MixedModule())
    frozen = flat.module.frozen.weight.clone()
    model = Model(torch.arange(15.0), torch.arange(6.0) + 1)
    flat.module.norm.num_batches_tracked += 7
    state = flat.state_dict(model)
    fresh = MixedModule()
    fresh.load_state_dict(state)
    again = FlatModule(fresh).read()
    assert torch.equal(again.params, model.params)
    assert torch.equal(again.buffers, model.buffers)
    assert torch.equal(state["frozen.weight"], frozen)
    assert torch.equal(state["a.weight"], state["b.weight"])
    assert state["norm.num_batches_tracked"] == 0
    flat.params.zero_()
    assert state["a.weight"].sum() == 36, "the state dict must not change with the module"


def test_unsuitable_modules_are_refused():
    with pytest.raises(ValueError, match="no trainable"):
        FlatModule(nn.ReLU())
    with pytest.raises(ValueError, match="several dtypes"):
        FlatModule(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1).double()))


class CallCounter(nn.Module):
    """A scalar parameter, and a buffer that every forward pass assigns a new tensor to."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("seen", torch.tensor(0.0))

    def forward(self, x):
        self.seen = self.seen + 1
        return x * self.scale


def test_scalars_and_assigned_buffers_are_read():
    flat = FlatModule(CallCounter())
    start = flat.read()
    assert (start.params.tolist(), start.buffers.tolist()) == ([2.0], [0.0])
    flat.module(torch.ones(1))
    flat.module(torch.ones(1))
    assert flat.read().buffers.tolist() == [2.0]
    flat.load(start)
    flat.module(torch.ones(1))
    assert flat.read().buffers.tolist() == [1.0], "a job must not see buffers of another"
    assert flat.state_dict(start)["seen"] == 0


def test_memory_layouts_agree():
    """Channels-last vectors, as on a GPU, split into the same tensors as plain ones, also for a batch of models."""
    from fadas.training.flat_module import _split

    shapes = {"conv": torch.Size([4, 3, 2, 2]), "bias": torch.Size([4])}
    flat = torch.arange(2 * 52.0).view(2, 52)
    plain, last = (_split(flat, shapes, layout) for layout in (False, True))
    assert plain["conv"].shape == last["conv"].shape == (2, 4, 3, 2, 2)
    assert torch.equal(last["conv"][1], flat[1, :48].view(4, 2, 2, 3).permute(0, 3, 1, 2))
    assert last["conv"][0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(plain["bias"], last["bias"])
