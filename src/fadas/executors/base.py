"""The base class of executors."""

import platform
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, cast

import torch

from fadas.core.ledger import Job
from fadas.core.model import Model, Update
from fadas.errors import ConfigError, Unsuitable
from fadas.executors.torch_settings import Precision
from fadas.training.flat_module import FlatModule, MemoryFormat, fastest_format
from fadas.training.sgd import LocalSGD
from fadas.validate import one_of


class ExecutorTraits(Protocol):
    """Facts about an executor that are known before it is made.

    Subclasses of `Executor` have these traits as class attributes and class methods. See there for the attributes.

    Example:
        >>> executor_traits(EXECUTORS["cuda"]).default_precision("cuda")
        'bf16'
    """

    shared_options: ClassVar[tuple[str, ...]]
    is_fallback: ClassVar[bool]

    def default_precision(self, device: str) -> Precision:
        """Return the precision in which clients train, unless the user chooses another.

        Args:
            device: Where clients train.
        """
        ...

    def server_device(self, device: str) -> str:
        """Return where the server's models are.

        Args:
            device: Where clients train.
        """
        ...

    def hardware(self, device: str) -> str:
        """Return the name of the hardware that clients train on.

        Args:
            device: Where clients train.
        """
        ...


class Executor(ABC):
    """Trains jobs in any order, alone or together, as long as an update is there when it is collected.

    An executor is made as `EXECUTORS[name](task, local, seed, device, **options)`.

    Attributes:
        device: Where models are.
        local: What a client does with a job.
        memory_format: How images lie in memory while clients train. A resumed run keeps the format that it began with.
        shared_options: Settings of [executor] that stay when another executor is chosen with `--executor`.
        is_fallback: Does it train every task, with nothing to install? Where another executor refuses a task, the
            message names the fallbacks.
        extra: The extra of fadas with the packages that it needs; "" if it needs none.

    Example:
        >>> executor = Inline(task, LocalSGD(), seed=0)
        >>> executor.submit(job, start, due=0)
        >>> update = executor.collect(job)
    """

    device: str
    local: LocalSGD
    memory_format: MemoryFormat = "contiguous"
    shared_options: ClassVar[tuple[str, ...]] = ("device", "threads")
    is_fallback: ClassVar[bool] = False
    extra: ClassVar[str] = ""

    @classmethod
    def find_obstacle(cls) -> str:
        """Return why this executor cannot run on this machine; "" if it can."""
        return ""

    @classmethod
    def default_precision(cls, device: str) -> Precision:
        """Return the precision in which clients train, unless the user chooses another."""
        return "fp32"

    @classmethod
    def server_device(cls, device: str) -> str:
        """Return where the server's models are, if clients train on `device`."""
        return device

    @classmethod
    def hardware(cls, device: str) -> str:
        """Return the name of the hardware that clients train on."""
        return device_name(device)

    def preflight(self) -> None:  # noqa: B027  most executors refuse nothing
        """Refuse, before the run, what this executor cannot train.

        Raises:
            Unsuitable: The message says what it cannot train. `simulate` adds which executors can.
        """

    def use(self, local: LocalSGD) -> None:
        """Train in this way from now on. `simulate` calls this before the first job if the algorithm adds something.

        Raises:
            ConfigError: This executor must be made with what the algorithm adds.
        """
        if getattr(self, "local", None) != local:
            raise ConfigError(
                f"{type(self).__name__} was made without what the algorithm adds to local training; make it with "
                "algorithm.local_training(local)"
            )

    @abstractmethod
    def submit(self, job: Job, start: Model, due: int) -> None:
        """Train a job from `start`. Jobs with a smaller `due` will be collected first."""

    @abstractmethod
    def collect(self, job: Job) -> Update:
        """Return the update of a submitted job, and forget the job."""

    @abstractmethod
    def evaluate(self, model: Model) -> dict[str, float]:
        """Return the task's metrics of a global model."""

    def evaluate_clients(self, model: Model, clients: Sequence[int] | None = None) -> dict[str, list[float]]:
        """Return the metrics of a model on clients' own test data, see `tasks.task.evaluate_clients`.

        Only called if the task has such data and the run evaluates clients.
        """
        raise self._evaluates_no_clients()

    def require_evaluates_clients(self) -> None:
        """Raise an Unsuitable if this executor does not evaluate clients, as executors of fadas do."""
        if type(self).evaluate_clients is Executor.evaluate_clients:
            raise self._evaluates_no_clients()

    def _evaluates_no_clients(self) -> Unsuitable:
        return Unsuitable(f"{type(self).__name__} does not evaluate clients: it has no method evaluate_clients")

    def finished(self) -> list[Update]:
        """Return updates that are not collected yet and that might be rounded differently if they were trained again.

        A checkpoint keeps them.
        """
        return []

    @abstractmethod
    def close(self) -> None:
        """Release workers, memory and jobs that have not been collected."""


def executor_traits(factory: Any) -> ExecutorTraits:
    """Return an executor factory's traits. A plain function has those of `Executor`."""
    declared = all(hasattr(factory, name) for name in ("default_precision", "server_device", "hardware"))
    return cast(ExecutorTraits, factory if declared else Executor)


def choose_format(given: str, flat: FlatModule) -> MemoryFormat:
    """Return the memory format that a setting stands for.

    Args:
        given: The setting: "contiguous", "channels-last" or "auto".
        flat: The module.
    """
    one_of(("auto", "contiguous", "channels-last"), memory_format=given)
    return cast(MemoryFormat, given) if given != "auto" else fastest_format(flat.module, flat.device)


def device_name(device: str) -> str:
    """Return the name of a device, such as "NVIDIA H200" or "x86_64 cpu"."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} {device}"
