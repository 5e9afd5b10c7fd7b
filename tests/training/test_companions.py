"""What methods add to local training: agreement of all executors, and what is refused."""

import re
from dataclasses import dataclass, replace

import pytest
import torch

from fadas import training
from fadas.algorithms import (
    COMPANIONS,
    SCAFFOLD,
    SGD,
    Algorithm,
    AMSGrad,
    AsyncSCAFFOLD,
    Companion,
    FedAvg,
    FedBuff,
    FedLALR,
    FedNova,
    FedProx,
    Private,
)
from fadas.algorithms.companions import SharedMoments
from fadas.core.ledger import Job
from fadas.core.model import Model, zero_updates
from fadas.core.saved_state import load_updates, save_updates
from fadas.errors import ConfigError
from fadas.executors import EXECUTORS
from fadas.simulation import snapshot
from fadas.simulation.simulator import simulate
from fadas.training.flat_module import FlatModule
from fadas.training.job_state import final_vectors, start_of_job
from fadas.training.one_job import train_job
from helpers.local_training import METHODS, PAIRS, TRAINERS
from helpers.training import LOCAL, local_for, make_plan, make_simulation, make_task, run_simulation


@pytest.mark.parametrize(("method", "trainer"), PAIRS)
@pytest.mark.parametrize("batchnorm", [False, True], ids=["stacked", "mapped"])
def test_batched_agrees_with_inline(method, trainer, batchnorm):
    # In float64: BatchNorm gives some parameters a gradient of zero, and Adam turns its rounding into steps.
    task = make_task(batchnorm=batchnorm, sizes=(4, 18, 30, 8), dtype=torch.float64)
    algorithm, local = METHODS[method], TRAINERS[trainer]
    if not local.elementwise:
        with pytest.raises(ValueError, match="TorchOptimizer trains one job at a time"):
            simulate(make_plan(algorithm), task, algorithm, local, executor="batched")
        return
    p = make_plan(algorithm, steps=6)
    _, one = run_simulation(p, task, algorithm, local)
    _, two = run_simulation(p, task, algorithm, local, executor="batched")
    torch.testing.assert_close(two.params, one.params, rtol=1e-9, atol=1e-10)
    for name, vector in one.vectors.items():
        torch.testing.assert_close(two.vectors[name], vector, rtol=1e-8, atol=1e-10)
        assert vector.abs().max() > 0


@pytest.mark.forks
@pytest.mark.parametrize(("method", "trainer"), [pair for pair in PAIRS if "kept" in pair[1] or pair[0] != "fedbuff"])
def test_worker_processes_agree_with_inline_bit_for_bit(method, trainer):
    task, algorithm, local = make_task(), METHODS[method], TRAINERS[trainer]
    p = make_plan(algorithm, steps=5)
    _, one = run_simulation(p, task, algorithm, local)
    simulation = simulate(p, task, algorithm, local, executor="processes")
    list(simulation)
    assert torch.equal(simulation.server.model.params, one.params)
    for name, vector in one.vectors.items():
        assert torch.equal(simulation.server.model.vectors[name], vector)


@pytest.mark.parametrize(("method", "trainer"), [pair for pair in PAIRS if "kept" in pair[1] or pair[0] != "fedbuff"])
def test_kept_and_sent_vectors_survive_a_stop(method, trainer):
    task, algorithm, local = make_task(), METHODS[method], TRAINERS[trainer]
    p = make_plan(algorithm, steps=9)
    whole, first, second = (simulate(p, task, algorithm, local, executor="inline") for _ in range(3))
    expected = [record.as_dict()["train_loss"] for record in whole]
    losses = []
    for record in first:
        losses.append(record.train_loss)
        if record.step == 4:
            first.stop()
    tensors, values = snapshot.take(first)
    snapshot.restore(second, tensors, values)
    assert losses + [record.train_loss for record in second] == expected
    assert torch.equal(second.server.model.params, whole.server.model.params)
    assert second.kept.keys() == whole.kept.keys()
    for client, vectors in whole.kept.items():
        assert all(torch.equal(second.kept[client][name], vector) for name, vector in vectors.items())


@pytest.mark.parametrize("executor", ["inline", "batched", "processes"])
@pytest.mark.parametrize("batchnorm", [False, True])
def test_methods_without_effect_equal_fedavg_exactly(executor, batchnorm):
    task, p = make_task(batchnorm=batchnorm, sizes=(4, 18, 30, 8)), make_plan(FedAvg(), steps=4)

    def final(algorithm, local=LOCAL):
        return run_simulation(p, task, algorithm, local, executor=executor)[1].params

    plain = final(FedAvg())
    assert torch.equal(final(FedProx(mu=0.0)), plain)
    assert torch.equal(final(FedProx(mu=0.5), replace(LOCAL, mu=0.0)), plain), "local.mu takes precedence"
    assert not torch.equal(final(FedProx(mu=0.5)), plain)

    @dataclass(frozen=True)
    class ZeroVariates(type(SCAFFOLD().companion)):
        def finish(self, state, delta, local, steps):
            zero = torch.zeros_like(delta)
            return {"dc": zero, "c_i": zero}

    assert torch.equal(final(replace(SCAFFOLD(), companion=ZeroVariates())), plain)
    assert not torch.equal(final(SCAFFOLD()), plain)


def test_server_momentum_can_be_sent_to_clients():
    @dataclass(frozen=True)
    class ServerMomentum(Companion):
        weight: float = 0.1
        receives = ("m",)

        def addition(self, state):
            return state["server.m"] * -self.weight

    task, algorithm = make_task(), Algorithm(optimizer=AMSGrad(), companion=ServerMomentum())
    p = make_plan(algorithm)
    _, with_momentum = run_simulation(p, task, algorithm)
    _, without = run_simulation(p, task, replace(algorithm, companion=ServerMomentum(0.0)))
    _, plain = run_simulation(p, task, replace(algorithm, companion=None))
    assert torch.equal(without.params, plain.params)
    assert not torch.equal(with_momentum.params, plain.params)
    with pytest.raises(ConfigError, match="ServerMomentum sends the slot 'm', which no part makes"):
        simulate(p, task, replace(algorithm, optimizer=SGD()), LOCAL)


@pytest.mark.parametrize("name", COMPANIONS)
def test_companion_declares_what_it_returns(name):
    companion, task = COMPANIONS[name](), make_task()
    algorithm = Algorithm(companion=companion)
    local = algorithm.local_training(local_for(algorithm))
    flat = FlatModule(task.module())
    x = flat.read()
    x = replace(x, vectors=algorithm.exchange.sent(x, {}))
    update = train_job(flat, task, local, 0, Job(0, 0, 0), start_of_job(x, {}))
    assert set(update.vectors) == {*companion.returns, *companion.numbers}
    assert set(update.kept) == set(companion.keeps)
    assert set(companion.squares) <= set(companion.returns)


class SignSteps(training.LocalSGD):
    """Elementwise, without memory, and no SGD."""

    def step(self, params, grads, state, t):
        params.sub_(grads.sign(), alpha=self.lr)


@pytest.mark.parametrize(
    ("algorithm", "local", "problem"),
    [
        (SCAFFOLD(), training.Momentum(0.1), 'need local.name = "sgd"'),
        (SCAFFOLD(), SignSteps(0.1), 'need local.name = "sgd"'),
        (SCAFFOLD(), training.TorchOptimizer(0.1), 'need local.name = "sgd"'),
        (FedLALR(), LOCAL, 'need local.name = "amsgrad"'),
        (FedLALR(), training.AMSGrad(0.1, keep=True), "remove local.keep"),
    ],
)
def test_method_refuses_local_training_that_does_not_fit(algorithm, local, problem):
    with pytest.raises(ConfigError, match=problem):
        simulate(make_plan(algorithm), make_task(), algorithm, local)


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="combine Normalized needs a companion whose clients return 'steps'"):
        replace(FedNova(), companion=None)
    with pytest.raises(ValueError, match='ControlVariates returns vectors, which the combine rule "private" does not'):
        replace(SCAFFOLD(), combine=Private(1.0, 1.0))
    with pytest.raises(ValueError, match="mu must be at least 0, got -1"):
        FedProx(mu=-1)
    with pytest.raises(ValueError, match="companion must be a Companion, got a LocalSGD"):
        Algorithm(companion=LOCAL)


def test_client_that_diverges_keeps_its_last_finite_state():
    simulation = make_simulation(make_task(), AsyncSCAFFOLD(), steps=6)
    inner = simulation.executor.collect

    def collect(job):
        update = inner(job)
        if job.client != 2:
            return update
        return replace(update, kept={"c_i": torch.full_like(update.delta, float("nan"))})

    simulation.executor.collect = collect
    list(simulation)
    assert simulation.kept
    assert 2 not in simulation.kept


@pytest.mark.parametrize("executor", ["inline", "batched"])
def test_executor_forgets_what_the_last_algorithm_added(executor):
    task, p = make_task(), make_plan(FedAvg(), steps=4)
    _, plain = run_simulation(p, task, FedAvg(), LOCAL)
    made = EXECUTORS[executor](task, LOCAL, p.seed, "cpu")
    _, alone = run_simulation(p, task, FedAvg(), LOCAL, executor=made)
    for algorithm in (SCAFFOLD(), FedProx(mu=0.5)):
        _, other = run_simulation(p, task, algorithm, LOCAL, executor=made)
        assert not torch.equal(other.params, alone.params)
        _, again = run_simulation(p, task, FedAvg(), LOCAL, executor=made)
        assert torch.equal(again.params, alone.params)
    torch.testing.assert_close(alone.params, plain.params)


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        ({"v": 3.0}, "'v' must be a tensor, shaped like the parameters; got float"),
        ({"v": torch.zeros(2)}, r"'v' must be a tensor, shaped like the parameters; got \[2\]"),
        ({"n": torch.zeros(2)}, r"'n' must be a tensor, a single number; got \[2\]"),
        ({"k": torch.zeros(())}, r"'k' must be a tensor, shaped like the parameters; got \[\]"),
    ],
)
def test_vectors_of_a_wrong_shape_are_refused_before_the_run(returned, problem):
    @dataclass(frozen=True)
    class Odd(Companion):
        returns = ("v",)
        numbers = ("n",)
        keeps = ("k",)

        def finish(self, state, delta, local, steps):
            return {"v": delta, "n": delta.new_ones(()), "k": delta, **returned}

    algorithm = Algorithm(companion=Odd())
    with pytest.raises(ConfigError, match=f"Odd.finish: {problem}"):
        simulate(make_plan(algorithm), make_task(), algorithm, LOCAL)


def test_client_that_returns_negative_squares_is_refused():
    """The clients take the root of what the server sends: one bad client would end the run."""
    algorithm = FedLALR()
    simulation = make_simulation(make_task(), algorithm, steps=8)
    inner = simulation.executor.collect

    def collect(job):
        update = inner(job)
        bad = {name: -9 * vector for name, vector in update.vectors.items() if name in algorithm.exchange.squares}
        return replace(update, vectors={**update.vectors, **bad}) if job.client == 2 else update

    simulation.executor.collect = collect
    assert len(list(simulation)) == 8
    assert simulation.server.refused["negative square"] > 0


KEPT_ADAM = training.Adam(0.01, 1, 6, keep=True)


@pytest.mark.parametrize(
    ("algorithm", "local", "kind", "change"),
    [
        (AsyncSCAFFOLD(), LOCAL, "client", lambda vector: torch.ones(())),
        (AsyncSCAFFOLD(), LOCAL, "client", lambda vector: vector[:3]),
        (AsyncSCAFFOLD(), LOCAL, "client", lambda vector: vector * torch.nan),
        (AsyncSCAFFOLD(), LOCAL, "version", lambda vector: torch.ones(())),
        (Algorithm(companion=SharedMoments()), training.AMSGrad(0.01, 1, 6), "version", lambda v: -v - 1),
        (Algorithm(companion=SharedMoments()), training.AMSGrad(0.01, 1, 6), "slot", lambda v: -v - 1),
        (FedBuff(), KEPT_ADAM, "client", lambda vector: vector * torch.nan),
        (FedBuff(), KEPT_ADAM, "client", lambda vector: -vector.abs() - 1),
        (FedBuff(), KEPT_ADAM, "client", None),
    ],
)
def test_damaged_vectors_are_refused(algorithm, local, kind, change):
    task, p = make_task(), make_plan(algorithm, steps=9)
    first, second = (simulate(p, task, algorithm, local, executor="inline") for _ in range(2))
    for record in first:
        if record.step == 4:
            first.stop()
    tensors, values = snapshot.take(first)
    names = ("client", "c_i", "local.t", "c", "local.vhat")
    name = next(n for n in tensors if n.startswith(f"{kind}.") and n.endswith(names))
    damaged = {n: tensor for n, tensor in tensors.items() if n != name}
    if change:
        damaged[name] = change(tensors[name])
    with pytest.raises(ValueError, match=re.escape(name)):
        snapshot.restore(second, damaged, values)
    snapshot.restore(second, tensors, values)


@pytest.mark.parametrize(
    ("algorithm", "name", "value", "problem"),
    [
        (AsyncSCAFFOLD(), "dc", torch.ones(()), "is a single number"),
        (FedNova(), "steps", torch.tensor(-1.0), "is not a positive number"),
        (FedNova(), "steps", torch.ones(3), "is not a positive number"),
        (FedLALR(), "local.v", -torch.ones(3), "must not be negative"),
    ],
)
def test_saved_update_has_what_the_server_would_accept(algorithm, name, value, problem):
    like = Model(torch.zeros(3), torch.zeros(0))
    (update,) = zero_updates([Job(5, 0, 0)], like, algorithm.exchange)
    tensors, values = save_updates("buffer", [update])
    assert load_updates("buffer", tensors, values, like, algorithm.exchange)
    damaged = {**tensors, f"buffer.5.vectors.{name}": value}
    with pytest.raises(ValueError, match=f"buffer.5.vectors.{name} {problem}"):
        load_updates("buffer", damaged, values, like, algorithm.exchange)


def test_fednova_takes_a_trainer_whose_fields_have_no_hash():
    @dataclass(frozen=True)
    class Mine(training.Momentum):
        rates: dict | None = None

    one, two = (cls(0.1, batch_size=1, beta=0.5).gain(4) for cls in (Mine, training.Momentum))
    assert replace(Mine(0.1, batch_size=1, beta=0.5), rates={"a": 1}).gain(4) == one == two


def test_all_that_a_client_keeps_is_on_the_device_of_its_model():
    """The cuda executor records the use of each tensor on a stream, which a tensor on the CPU does not allow."""
    m = torch.zeros(3, device="meta")
    _, kept = final_vectors(training.Momentum(keep=True), {"m": m}, m, 4)
    assert kept.keys() == {"m", "local.t"}
    assert {vector.device.type for vector in kept.values()} == {"meta"}
