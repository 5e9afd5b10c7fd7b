"""The simulator against naive implementations of the paper."""

import copy

import torch
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import fadas
from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.optimizers import AMSGrad
from fadas.algorithms.presets import FADAS, FedAMS, FedAvg, FedBuff
from fadas.algorithms.step_sizes import Constant
from fadas.core.ledger import Schedule
from fadas.core.model import Model
from fadas.training.flat_module import FlatModule
from fadas.training.one_job import train_job
from fadas.training.sgd import epoch_rows
from helpers.training import LOCAL, make_plan, make_task, run_simulation


def test_fadas_da_agrees_with_naive_algorithm_1():
    """Whole modules, torch.optim on clients, the paper's recurrences on the server, no arithmetic of fadas."""
    task, eta, tau_c = make_task(clients=10), 0.05, 2
    algorithm = fadas.FADAS_DA(eta=eta, tau_c=tau_c)
    p = make_plan(algorithm, len(task.clients), steps=30)
    records, model = run_simulation(p, task, algorithm)

    module = task.module(p.seed)
    x = parameters_to_vector(module.parameters()).detach()
    m, v, vhat = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)
    versions = [x]
    for t in range(p.steps):
        total = torch.zeros_like(x)
        for id in p.arrivals[t]:
            job = p.job(int(id))
            client = copy.deepcopy(module)
            vector_to_parameters(versions[job.version].clone(), client.parameters())
            optimizer = torch.optim.SGD(client.parameters(), LOCAL.lr, weight_decay=LOCAL.weight_decay)
            inputs, targets = task.clients[job.client]
            (epoch,) = epoch_rows(task, LOCAL, p.seed, job, "cpu")[1]
            for index in epoch.split(LOCAL.batch_size):
                optimizer.zero_grad()
                F.cross_entropy(client(inputs[index]), targets[index]).backward()
                optimizer.step()
            total += parameters_to_vector(client.parameters()).detach() - versions[job.version]
        delta = total / len(p.arrivals[t])
        m = 0.9 * m + 0.1 * delta
        v = 0.99 * v + 0.01 * delta * delta
        vhat = torch.maximum(vhat, v)
        tau_max = max(t - p.job(int(id)).version for id in p.arrivals[t])
        eta_t = eta if tau_max <= tau_c else eta / tau_max
        assert records[t].eta == eta_t
        x = x + eta_t * m / (vhat.sqrt() + 1e-8)
        versions.append(x)
    assert any(record.eta < eta for record in records)
    torch.testing.assert_close(model.params, x, rtol=1e-4, atol=1e-5)


def test_released_schedule_agrees_with_authors_loop():
    """The authors' loop: M new clients per round, all but the last with the previous model; deltas to the new one."""
    task = make_task(clients=12, batchnorm=True)
    algorithm, M = Algorithm(optimizer=AMSGrad(bias_correction=True), step_size=Constant(0.05)), 3
    p = make_plan(algorithm, len(task.clients), steps=15, dropout=0.0, schedule=Schedule(5, M, "released"))
    _, model = run_simulation(p, task, algorithm)

    flat = FlatModule(task.module(p.seed))
    x = last = flat.read()
    m, v, vhat = (torch.zeros_like(x.params) for _ in range(3))
    sent, trained, wanted = 0, {}, 5
    for t in range(p.steps):
        jobs = [p.job(id) for id in range(sent, sent + wanted)]
        for job in jobs:
            start = last if t and job != jobs[-1] else x
            update = train_job(flat, task, LOCAL, p.seed, job, start)
            trained[job.id] = (start.params + update.delta - x.params, update.buffers)
            assert job.version == t
        sent, wanted = sent + wanted, M
        deltas, buffers = zip(*(trained.pop(int(id)) for id in p.arrivals[t]))
        delta = torch.stack(deltas).mean(0)
        m, v = 0.9 * m + 0.1 * delta, 0.99 * v + 0.01 * delta**2
        vhat = torch.maximum(vhat, v)
        root = vhat.sqrt() / (1 - 0.99 ** (t + 1)) ** 0.5 + 1e-8
        last, x = x, Model(x.params + 0.05 / (1 - 0.9 ** (t + 1)) * m / root, torch.stack(buffers).mean(0))
    torch.testing.assert_close(model.params, x.params, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.buffers, x.buffers)


def test_synchronous_variants_equal_fedams_and_fedavg(task):
    rounds = Schedule(4, 4, "round")
    for asynchronous, synchronous in ((FADAS(), FedAMS()), (FedBuff(), FedAvg())):
        p = make_plan(synchronous, len(task.clients), schedule=rounds)
        assert p.schedule == synchronous.schedule(4, 4)
        one, two = run_simulation(p, task, asynchronous)[1], run_simulation(p, task, synchronous)[1]
        assert torch.equal(one.params, two.params)


def test_fedavg_is_mean_of_client_models(task):
    p = make_plan(FedAvg(), len(task.clients), steps=1, dropout=0.0)
    _, model = run_simulation(p, task, FedAvg())
    flat = FlatModule(task.module(p.seed))
    start = flat.read()
    jobs = [p.job(int(id)) for id in p.arrivals[0]]
    trained = [start.params + train_job(flat, task, LOCAL, p.seed, job, start).delta for job in jobs]
    torch.testing.assert_close(model.params, torch.stack(trained).mean(0))
