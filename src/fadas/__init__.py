"""fadas: asynchronous federated learning that is exact, fast and deployable."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fadas.algorithms.algorithm import Algorithm
    from fadas.algorithms.presets import (
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
    from fadas.core.ledger import Job, Ledger, Schedule, Step
    from fadas.core.model import Model, Update
    from fadas.core.records import Record
    from fadas.core.server import Server
    from fadas.errors import Diverged
    from fadas.simulation.delays import Delays, Large, Mild
    from fadas.simulation.planner import Plan, plan
    from fadas.simulation.simulator import Simulation, simulate
    from fadas.tasks.task import Task
    from fadas.training.sgd import LocalSGD

# Where each public name lives. They are imported on first use, so that `fadas --help` does not wait for torch.
_HOME = {
    "algorithms.presets": "Algorithm FADAS FADAS_DA FedBuff FedAsync CA2FL FedAvg FedAdam FedAMS FedYogi FedAdagrad",
    "registry": "Diverged",
    "training.sgd": "LocalSGD",
    "simulation.delays": "Delays Large Mild",
    "core.ledger": "Job Ledger Schedule Step",
    "core.model": "Model Update",
    "simulation.planner": "Plan plan",
    "core.server": "Server",
    "simulation.simulator": "Record Simulation simulate",
    "tasks.task": "Task",
}
_MODULE = {name: module for module, names in _HOME.items() for name in names.split()}
__all__ = sorted(_MODULE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in ("executors", "tasks"):  # modules that users name, whatever has been imported before
        return import_module(f"fadas.{name}")
    if name not in _MODULE:
        raise AttributeError(f"module 'fadas' has no attribute {name!r}")
    return getattr(import_module(f"fadas.{_MODULE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
