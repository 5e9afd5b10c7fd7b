# The public names of fadas. `__init__.py` imports them on first use.

from . import algorithms, core, executors, experiments, flower, paper, report, runs, simulation, tasks, training
from .algorithms.algorithm import Algorithm
from .algorithms.presets import (
    CA2FL,
    FADAS,
    FADAS_DA,
    FedAdagrad,
    FedAdam,
    FedAMS,
    FedAsync,
    FedAvg,
    FedBuff,
    FedYogi,
)
from .core.ledger import Job, Ledger, Schedule, Step
from .core.model import Model, ServerStep, Update
from .core.records import Record
from .core.server import Server
from .core.update_checks import Checks
from .errors import ConfigError, Diverged
from .flower.strategy import AsyncStrategy
from .simulation.delays import Delays, Large, Mild
from .simulation.planner import Plan, plan
from .simulation.simulator import Simulation, simulate
from .tasks import TASKS
from .tasks.task import Task, accuracy, cross_entropy
from .training.flat_module import FlatModule
from .training.one_job import train_job
from .training.sgd import LocalSGD

__version__: str
