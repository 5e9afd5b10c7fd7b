# The public names of fadas. `__init__.py` imports them on first use.
# In a stub, only `X as X` exports a name to type checkers.

from . import (
    algorithms as algorithms,
    core as core,
    executors as executors,
    experiments as experiments,
    flower as flower,
    paper as paper,
    report as report,
    runs as runs,
    simulation as simulation,
    tasks as tasks,
    training as training,
)
from .algorithms.algorithm import Algorithm as Algorithm
from .algorithms.presets import (
    CA2FL as CA2FL,
    FADAS as FADAS,
    FADAS_DA as FADAS_DA,
    Centralised as Centralised,
    FedAdagrad as FedAdagrad,
    FedAdam as FedAdam,
    FedAMS as FedAMS,
    FedAsync as FedAsync,
    FedAvg as FedAvg,
    FedBuff as FedBuff,
    FedYogi as FedYogi,
    LocalOnly as LocalOnly,
)
from .core.ledger import Job as Job, Ledger as Ledger, Schedule as Schedule, Step as Step
from .core.metrics import Metric as Metric
from .core.model import Model as Model, ServerStep as ServerStep, Update as Update
from .core.records import Record as Record
from .core.server import Server as Server
from .core.update_checks import Checks as Checks
from .errors import ConfigError as ConfigError, Diverged as Diverged
from .experiments.from_python.compare import Results as Results, compare as compare
from .experiments.from_python.simulate import simulate as simulate
from .experiments.sweeps.from_python import sweep as sweep
from .flower.strategy import AsyncStrategy as AsyncStrategy
from .report.frames import (
    load_clients as load_clients,
    load_jobs as load_jobs,
    load_labels as load_labels,
    load_runs as load_runs,
    load_steps as load_steps,
)
from .simulation.delays import Delays as Delays, Large as Large, Mild as Mild
from .simulation.planner import Plan as Plan, plan as plan
from .simulation.simulator import Simulation as Simulation
from .tasks import TASKS as TASKS, metrics as metrics, partition as partition
from .tasks.subsets import Subsets as Subsets
from .tasks.task import Task as Task, accuracy as accuracy, cross_entropy as cross_entropy
from .training.flat_module import FlatModule as FlatModule
from .training.one_job import train_job as train_job
from .training.sgd import LocalSGD as LocalSGD

__version__: str
