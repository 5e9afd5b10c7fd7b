"""Old import paths: each name of fadas 0.1 is still found where it was, with a deprecation warning.

`fadas.client` became three modules, so a module of this table is a stand-in that looks names up in the new ones. New
code imports from `fadas` itself, or from the new modules.
"""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Old module -> the new modules that hold its names, each below `fadas`.
MOVED = {
    "batch": "training.batched.many_jobs training.preflight",
    "build": "registry errors",
    "checkpoint": "runs.checkpoint errors",
    "checks": "core.update_checks",
    "client": "training.sgd training.one_job training.preflight",
    "combine": "algorithms.combine",
    "config": "experiments.resolve experiments.settings",
    "corruption": "simulation.faulty_updates",
    "delays": "simulation.delays",
    "experiment": "experiments.run experiments.prepare",
    "faults": "simulation.faults",
    "identity": "runs.same_run registry",
    "ledger": "core.ledger core.records validate",
    "live": "runs.follower cli.terminal",
    "lock": "runs.lock",
    "memory": "core.saved_state",
    "model": "core.model training.flat_module",
    "names": "runs.folder",
    "optim": "algorithms.optimizers core.server_step",
    "parallel": "experiments.parallel_runs",
    "planner": "simulation.planner",
    "privacy": "algorithms.privacy",
    "provenance": "experiments.provenance",
    "records": "core.records",
    "rehearsal": "core.trial_step",
    "robust": "algorithms.robust",
    "server": "core.server",
    "simulator": "simulation.simulator core.records core.progress",
    "snapshot": "simulation.snapshot",
    "stacked": "training.batched.stacked",
    "stacked_losses": "training.batched.stacked_losses",
    "stepsize": "algorithms.step_sizes",
    "summary": "runs.summary",
    "sweep": "experiments.sweeps.points experiments.sweeps.halving experiments.sweeps.ranking",
    "tables": "experiments.experiment_file",
    "task": "tasks.task",
    "terminal": "cli.terminal",
    "toml": "runs.serialization",
    "executors.pool": "executors.worker_pool",
    "executors.precision": "executors.torch_settings",
    "tasks.data": "tasks.downloads",
    "tasks.models": "tasks.networks",
}
# Names that changed when they moved: (old module, old name) -> new name.
RENAMED = {
    ("batch", "_near"): "is_close",
    ("checkpoint", "Behind"): "BackgroundWriter",
    ("checkpoint", "check"): "require_storable",
    ("checkpoint", "read"): "read_checkpoint",
    ("checkpoint", "write"): "write_checkpoint",
    ("checks", "finite"): "all_finite",
    ("client", "check"): "check_local_training",
    ("client", "draws"): "random_devices",
    ("client", "lessons"): "epoch_rows",
    ("client", "train"): "train_job",
    ("config", "seeds"): "experiment_seeds",
    ("corruption", "corrupted"): "apply_faults",
    ("delays", "Table"): "DelayTable",
    ("faults", "check"): "check_clients",
    ("identity", "same"): "same_run",
    ("identity", "differences"): "differing_settings",
    ("ledger", "whole"): "whole_number",
    ("memory", "pack"): "save_server",
    ("memory", "unpack"): "load_server",
    ("rehearsal", "rehearse_step"): "trial_step",
    ("tables", "load"): "read_experiment",
    ("tables", "select"): "select_algorithms",
    ("toml", "dumps"): "to_toml",
    ("executors.precision", "threads"): "torch_threads",
    ("executors.precision", "use"): "use_precision",
    ("tasks.data", "root"): "data_folder",
}
_PUBLIC = {"snapshot", "task"}  # modules whose old path is documented, and stays without a warning

_NOTHING = object()


class _StandIn(ModuleType):
    """Stands for an old module."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        old = self.__name__.removeprefix("fadas.")
        new_name = RENAMED.get((old, name), name)
        homes = [f"fadas.{module}" for module in MOVED[old].split()]
        found = {home: getattr(import_module(home), new_name, _NOTHING) for home in homes}
        found = {home: value for home, value in found.items() if value is not _NOTHING}
        if not found:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        # A module may only have imported the name. The best home is where it is defined.
        defining = [home for home, value in found.items() if getattr(value, "__module__", None) == home]
        home = (defining or [*found])[0]
        if old not in _PUBLIC:
            text = f"{self.__name__}.{name} has moved to {home}.{new_name}"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
        return found[home]

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call the function of the same name, such as `fadas.sweep`, which importing the old module hides."""
        public = import_module("fadas")._load(self.__name__.removeprefix("fadas."))
        return public(*arguments, **options)


class _Finder(MetaPathFinder, Loader):
    """Finds the modules of the table."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "fadas.AsyncStrategy":  # `from fadas import AsyncStrategy` asks for it if Flower is missing
            import_module("fadas.flower")  # the error says what to install
        return ModuleSpec(fullname, self) if fullname.removeprefix("fadas.") in MOVED and "." in fullname else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name, f"Stands for {spec.name}, which has moved.")

    def exec_module(self, module: ModuleType) -> None:
        pass


def install() -> None:
    """Let the import system find old paths."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
