"""The CUDA executor's own logic without a GPU. test_cuda.py has the real thing.

A graph is the list of operations that a capture saw, replayed on the same tensors. The tests check what a captured
step reads and writes, which batches go where, what is accepted and what falls back. Streams and events do nothing
here, so races are not tested.
"""

import random
from contextlib import nullcontext
from importlib import import_module
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import fadas.executors
from fadas.executors import Inline, cuda
from fadas.tasks.task import Task, cross_entropy
from fadas.training.optimizers import CustomStep
from fadas.training.sgd import LocalSGD
from helpers.local_training import METHODS, PAIRS, TRAINERS
from helpers.networks import Averaging
from helpers.training import LOCAL_LONG, assert_same_model, final_model, make_plan, make_task, run_simulation


class ReplayedGraph:
    def __init__(self):
        self.operations = []

    def replay(self):
        with torch.no_grad():
            for function, args, options, results in self.operations:
                for old, new in zip(find_tensors(results), find_tensors(function(*args, **options)), strict=True):
                    if old.data_ptr() != new.data_ptr():
                        old.copy_(new)


class Capture(TorchDispatchMode):
    def __init__(self, graph, **options):
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("a value was looked at while a step was captured")
        results = function(*args, **(kwargs or {}))
        self.graph.operations.append((function, args, kwargs or {}, results))
        return results


def find_tensors(values):
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


class Silent:
    """A stream or an event."""

    def __init__(self, *args, **options):
        pass

    def query(self):
        return True

    def __getattr__(self, name):
        return lambda *args: None


def refuse_host_tensor(tensor, stream):
    """A CUDA build does so. Here all tensors are on the host."""
    raise NotImplementedError("record_stream: the tensor is on the host")


@pytest.fixture
def make_cuda(monkeypatch):
    """Make the CUDA executor on a CPU."""
    fake_torch = ModuleType("torch")
    fake_torch.__getattr__ = lambda name: getattr(torch, name)
    fake_torch.device = lambda name: SimpleNamespace(type="cuda")
    fake_torch.cuda = SimpleNamespace(
        Stream=Silent,
        Event=Silent,
        CUDAGraph=ReplayedGraph,
        graph=Capture,
        graph_pool_handle=lambda: None,
        stream=lambda stream: nullcontext(),
        current_stream=lambda device: Silent(),
        set_stream=lambda stream: None,
        synchronize=lambda device: None,
    )
    monkeypatch.setattr(cuda, "torch", fake_torch)
    monkeypatch.setattr(cuda, "use_precision", lambda precision, device: False)
    monkeypatch.setattr(torch.Tensor, "record_stream", refuse_host_tensor)
    return lambda task, local=LOCAL_LONG, seed=3: cuda.Cuda(task, local, seed, "cpu", "fp32")


def assert_agrees_with_inline(make_cuda, task, local=LOCAL_LONG):
    one, other = final_model(make_cuda(task, local), task, local), final_model(Inline(task, local, 3), task, local)
    assert_same_model(one, other)
    return one


@pytest.mark.parametrize("batchnorm", [False, True])
@pytest.mark.parametrize(
    "local", [LOCAL_LONG, LocalSGD(lr=0.1, batch_size=7, steps=5), LocalSGD(lr=0.1, batch_size=40)], ids=str
)
def test_captured_steps_agree_with_inline(make_cuda, batchnorm, local):
    """Full batches, short ones on the benches of others, and batches that no client can fill."""
    assert_agrees_with_inline(make_cuda, make_task(batchnorm=batchnorm, sizes=(4, 17, 30, 9)), local)


@pytest.mark.parametrize(("method", "trainer"), [pair for pair in PAIRS if TRAINERS[pair[1]].elementwise])
def test_captured_local_training_agrees_with_inline(make_cuda, method, trainer):
    task, algorithm, local = make_task(sizes=(4, 17, 30, 9)), METHODS[method], TRAINERS[trainer]
    p = make_plan(algorithm, steps=5)
    _, one = run_simulation(p, task, algorithm, local)
    _, two = run_simulation(p, task, algorithm, local, executor=make_cuda(task, local, p.seed))
    torch.testing.assert_close(two.params, one.params, rtol=1e-4, atol=1e-5)
    for name, vector in one.vectors.items():
        torch.testing.assert_close(two.vectors[name], vector, rtol=1e-3, atol=1e-5)


def test_plain_step_has_no_more_operations_than_before(make_cuda):
    """The number is that of the version before local optimizers could be chosen."""
    executor = make_cuda(make_task(sizes=(6, 18, 30, 12)), LocalSGD(0.1, 1, 6))
    (captured,) = executor._lanes.get().bench.captured.values()
    assert len(captured.graph.operations) <= 48


def test_step_function_is_refused_with_the_reason(make_cuda):
    local = CustomStep(0.1, function=lambda params, grads, state, t: params.sub_(grads))
    with pytest.raises(RuntimeError, match="CustomStep cannot be captured in a graph"):
        make_cuda(make_task(), local)


def test_assigned_buffers_are_trained(make_cuda):
    task = make_task(sizes=(4, 17, 30, 9))
    task.model = Averaging
    assert assert_agrees_with_inline(make_cuda, task).buffers.abs().sum() > 0


def test_transform_that_crops_only_in_training_agrees(make_cuda):
    def transform(inputs, generator):
        if generator is None:
            return inputs
        first = int(torch.randint(0, 3, (), generator=generator))
        return [column[:, first : first + 6] for column in inputs]

    plain = make_task(sizes=(4, 17, 30, 9))
    wide = [(torch.cat([x, x[:, :2]], 1), y) for x, y in plain.clients]
    model = nn.Sequential(nn.Unflatten(1, (1, -1)), nn.AdaptiveAvgPool1d(6), nn.Flatten(), nn.Linear(6, 3))
    assert_agrees_with_inline(make_cuda, Task(model, wide, test=plain.test, transform=transform))


def test_clients_with_different_shapes_are_refused(make_cuda):
    """A graph has one shape. Another shape that fits by broadcasting would learn something else."""
    torch.manual_seed(0)
    clients = [(torch.randn(9, 5 if client else 1, 4), torch.arange(9) % 3) for client in range(8)]

    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(x.mean(1))

    with pytest.raises(RuntimeError, match="different shapes"):
        make_cuda(Task(Mean, clients))


def test_random_numbers_of_host_are_refused(make_cuda):
    task = make_task()
    task.loss = lambda outputs, targets: cross_entropy(outputs, targets) * torch.rand([])
    with pytest.raises(RuntimeError, match="draws random numbers on the host"):
        make_cuda(task)
    task.loss = lambda outputs, targets: cross_entropy(outputs, targets) * random.random()
    with pytest.raises(ValueError, match="global generator of Python or numpy"):
        make_cuda(task)


def test_loss_that_reads_a_value_is_not_captured(make_cuda, monkeypatch):
    """`auto` then trains step by step, with a warning."""
    task = make_task()
    task.loss = lambda outputs, targets: (
        cross_entropy(outputs, targets) if float(outputs.detach().sum()) < 1e9 else outputs
    )
    with pytest.raises(RuntimeError, match="looked at"):
        make_cuda(task)
    auto = import_module("fadas.executors.auto")  # fadas.executors has a function of this name
    monkeypatch.setattr(auto, "torch", cuda.torch)
    monkeypatch.setattr(auto, "Inline", lambda *args: args)
    with pytest.warns(UserWarning, match="cannot be captured"):
        assert fadas.executors.auto(task, LOCAL_LONG, 3, "cpu")[3:] == ("cpu", "bf16")


def test_error_in_lane_ends_run(make_cuda, monkeypatch):
    task = make_task()
    executor = make_cuda(task)
    monkeypatch.setattr(cuda.Lane, "run", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        final_model(executor, task)
