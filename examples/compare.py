"""FADAS and FedBuff on the same task, with the same delays."""

import fadas
from fadas.tasks import names

task = names(clients=50)
methods = {"fadas": (fadas.FADAS(eta=0.005), 0.35), "fedbuff": (fadas.FedBuff(eta=0.3), 0.5)}
for name, (algorithm, lr) in methods.items():
    schedule = algorithm.schedule(concurrency=25, buffer=5)
    plan = fadas.plan(schedule, clients=50, delays=fadas.Large(), updates=1500, seed=1)
    local = fadas.LocalSGD(lr=lr, steps=10, batch_size=32)
    *_, last = fadas.simulate(plan, task, algorithm, local, executor="batched", eval_every=5)
    print(f"{name}: {last.metrics['accuracy']:.1%} at virtual time {last.time:.0f}")
