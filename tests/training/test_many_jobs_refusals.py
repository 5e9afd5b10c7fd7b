"""What batches refuse, and who trains it instead."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fadas.algorithms.presets import FADAS
from fadas.core.ledger import Job
from fadas.errors import Unsuitable
from fadas.executors import EXECUTORS, Batched
from fadas.executors.processes import can_fork
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from fadas.tasks.task import cross_entropy
from fadas.training.batched.many_jobs import BatchTrainer
from fadas.training.flat_module import FlatModule
from fadas.training.sgd import LocalSGD
from helpers.networks import Centred
from helpers.training import LOCAL_DECAY, make_even_task, make_plan, make_task


class DataDependent(Centred):
    def forward(self, x):
        y = self.layer(x)
        return y if y.sum() > 0 else -y


class CallCounting(Centred):
    """Keeps its state in a plain attribute, which loading does not restore."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return self.layer(x) * self.calls


def make_cumulative_norm():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, momentum=None), nn.Linear(8, 3))


def make_spectral_norm():
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 8)), nn.Linear(8, 3))


class FunctionalDropout(Centred):
    def forward(self, x):
        return F.dropout(self.layer(x), 0.5)


@pytest.mark.parametrize(
    ("model", "reason"),
    [(DataDependent, "cannot be trained in batches"), (make_cumulative_norm, "cannot be trained in batches")]
    + [
        (make_spectral_norm, "cannot be trained in batches"),
        (CallCounting, "learns differently when jobs share a batch"),
        (FunctionalDropout, "dropout draws other random numbers"),
    ],
)
def test_unbatchable_module_is_refused_with_its_reason(model, reason):
    task = make_task()
    task.model = model
    with pytest.raises(Unsuitable, match=reason) as refused:
        Batched(task, LOCAL_DECAY, 0).preflight()
    assert "\n" not in str(refused.value)


def test_refusal_before_the_run_names_executors_that_take_every_task():
    task = make_task()
    task.model = FunctionalDropout
    with pytest.raises(ValueError, match="dropout draws other random numbers") as refused:
        simulate(make_plan(FADAS()), task, FADAS(), LOCAL_DECAY, executor="batched")
    assert str(refused.value).endswith("use another executor: inline or processes")
    for name in ("inline", *(["processes"] if can_fork() else [])):
        pass_preflight(EXECUTORS[name](task, LOCAL_DECAY, 0))


def test_dropout_is_refused():
    task = make_task()
    task.model = lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    with pytest.raises(ValueError, match="dropout"):
        BatchTrainer(FlatModule(task.module()), task, LOCAL_DECAY, 0).check_batching()


def make_gradient_hooks():
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    for parameter in module.parameters():
        parameter.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))
    return module


def make_output_hooks():
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    module[0].register_forward_hook(lambda module, inputs, output: output.clamp(-1e-3, 1e-3))
    return module


@pytest.mark.parametrize("model", [make_gradient_hooks, make_output_hooks])
def test_hooks_are_called_or_refused(model):
    task, local = make_even_task(model), LocalSGD(lr=0.5, batch_size=4)
    executors = [EXECUTORS[name](task, local, 1) for name in ("auto", "inline")]
    start = FlatModule(task.module(1)).read()
    deltas = []
    for executor in executors:
        executor.preflight()
        executor.submit(Job(0, 0, 0), start, 0)
        deltas.append(executor.collect(Job(0, 0, 0)).delta)
        executor.close()
    assert torch.equal(*deltas)
    if model is make_gradient_hooks:
        with pytest.raises(ValueError, match="hooks on gradients are not called"):
            Batched(task, local, 1).preflight()
    else:
        batched = Batched(task, local, 1)
        batched.preflight()
        assert not batched._trainer.stacked


class DictOutput(nn.Module):
    """Returns a dict."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return {"logits": self.layer(x)}


def pass_preflight(executor):
    executor.preflight()
    executor.close()


def test_auto_trains_what_batches_refuse():
    local = LocalSGD(batch_size=4)
    wide = [(torch.randn(12, 5 + k), torch.arange(12) % 3) for k in range(4)]
    task = make_even_task(lambda: nn.Sequential(nn.AdaptiveAvgPool1d(4), nn.Linear(4, 3)), clients=wide)
    pass_preflight(EXECUTORS["auto"](task, local, 1))
    with pytest.raises(ValueError, match="clients whose examples differ in shape cannot share a batch"):
        Batched(task, local, 1).preflight()
    named = make_even_task(DictOutput, loss=lambda outputs, targets: cross_entropy(outputs["logits"], targets))
    pass_preflight(EXECUTORS["auto"](named, local, 1))
    rare = make_even_task(lambda: nn.Sequential(nn.Dropout(0.001), nn.Linear(6, 3)))
    for seed in range(5):  # with p = 0.001 a trial may drop nothing
        torch.manual_seed(seed)
        assert not isinstance(EXECUTORS["auto"](rare, local, 1), Batched)


def test_modules_sharing_trainable_parameters_are_refused():
    body = nn.Linear(6, 6)
    task = make_even_task(lambda: nn.Sequential(body, nn.ReLU(), nn.Linear(6, 3)))
    timeline = plan(FADAS().schedule(3, 2), 6, steps=2, seed=1)
    for executor in ("auto", "inline", "batched", *(["processes"] if can_fork() else [])):
        with pytest.raises(ValueError, match=r"share the trainable parameter '0.weight'"):
            simulate(timeline, task, FADAS(), LocalSGD(), executor=executor)
    body.requires_grad_(False)  # as in LoRA
    assert len(list(simulate(timeline, task, FADAS(), LocalSGD(), executor="inline"))) == 2
