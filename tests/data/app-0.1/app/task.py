"""What is learned, on which data: the one file to change for a task of your own."""

import fadas
from fadas.client import LocalSGD
from fadas.tasks import TASKS


def make_task(config, node=None) -> fadas.Task:
    """Here all nodes and the server build the same task, and a node trains on its own part of the data.

    `node` is what `flower-supernode --node-config` says, None on the server: from it a node may know where its own data
    are. docs/deploy.md shows a task in which nobody sees the data of another.
    """
    return TASKS["digits"](clients=int(config["num-partitions"]), seed=int(config["seed"]))


def local_training(config) -> LocalSGD:
    return LocalSGD(lr=float(config["lr"]), epochs=int(config["epochs"]), batch_size=int(config["batch-size"]))
