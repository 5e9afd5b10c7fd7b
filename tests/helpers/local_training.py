"""Ways of local training, and the methods that they go with."""

import itertools

from fadas import training
from fadas.algorithms import AsyncSCAFFOLD, FedBuff, FedLALR, FedNova
from fadas.errors import ConfigError

TRAINERS = {
    "sgd": training.LocalSGD(0.1, 2, 6),
    "momentum, kept": training.Momentum(0.05, 2, 6, keep=True, clip=0.3, mu=0.2, schedule=training.InverseSqrt(2)),
    "nesterov, warm-up": training.Nesterov(0.05, 2, 6, warmup=3),
    "adam, kept": training.Adam(0.01, 2, 6, keep=True, weight_decay=0.01, decoupled=True, eps=1e-3),
    "adamw": training.AdamW(0.01, 2, 6, weight_decay=0.01, eps=1e-3),
    "amsgrad": training.AMSGrad(0.01, 2, 6, eps=1e-3),
    "a law for the steps": training.LocalSGD(0.1, 2, 6, steps=training.Uniform(1, 6), clip=0.5, mu=0.1, warmup=2),
    "torch, kept": training.TorchOptimizer(0.01, 2, 6, optimizer="RMSprop", options={"eps": 1e-3}, keep=True),
}
METHODS = {"fedbuff": FedBuff(0.5), "scaffold-async": AsyncSCAFFOLD(), "fednova": FedNova(), "fedlalr": FedLALR()}


def fits(method, trainer):
    try:
        return bool(METHODS[method].local_training(TRAINERS[trainer]))
    except ConfigError:
        return False


PAIRS = [pair for pair in itertools.product(METHODS, TRAINERS) if fits(*pair)]
