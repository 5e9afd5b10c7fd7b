"""Bring your own module, your own clients' data and a loss."""

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale
from torch import nn

import fadas

x, y = load_breast_cancer(return_X_y=True)
x, y = torch.tensor(scale(x)).float(), torch.tensor(y)
order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
test, *clients = [(x[rows], y[rows]) for rows in order.tensor_split(11)]  # 10 clients and a test set

task = fadas.Task(
    model=lambda: nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 2)),
    clients=clients,
    loss=nn.CrossEntropyLoss(reduction="none"),  # one loss per example; a mean works too
    test=test,
)
algorithm = fadas.FADAS_DA(eta=0.01, tau_c=4)  # delay-adaptive FADAS
delays = fadas.Large(shares=(0.6, 0.3, 0.1))  # one client of ten is a straggler
plan = fadas.plan(algorithm.schedule(concurrency=5, buffer=2), clients=10, delays=delays, steps=60)
simulation = fadas.simulate(plan, task, algorithm, fadas.LocalSGD(lr=0.05, epochs=1, batch_size=16), eval_every=20)
for record in simulation:
    if record.metrics:
        print(f"step {record.step}, virtual time {record.time:.1f}: accuracy {record.metrics['accuracy']:.1%}")

model = task.module()
model.load_state_dict(simulation.state_dict())  # a trained nn.Module
