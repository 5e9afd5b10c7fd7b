"""A trial before a run."""

from dataclasses import replace

from fadas.core.ledger import Job
from fadas.core.trial_step import trial_step
from fadas.errors import ConfigError
from fadas.experiments.settings import RunConfig
from fadas.runs import checkpoint
from fadas.tasks.task import Task
from fadas.training.flat_module import FlatModule
from fadas.training.one_job import train_job


def rehearse(config: RunConfig, task: Task) -> None:
    """One local step, one server step and one evaluation on a little data, so that what does not fit shows now."""
    if config.run.target is not None and "accuracy" not in task.measured:
        raise ConfigError("run.target is an accuracy, which the task does not measure")
    jobs = [Job(k, k % config.clients, 0) for k in range(config.schedule.buffer)]
    local = replace(config.local, steps=1)
    few = None if task.test is None else [tensor[:2] for tensor in task.test]
    try:
        flat = FlatModule(task.module(config.seed), config.device)
        start = flat.read()
        update = train_job(flat, task, local, config.seed, jobs[0], start)
        after = trial_step(config.algorithm, start, [replace(update, job=job) for job in jobs], config.clients)
        checkpoint.require_storable(after.slots)
        flat.load(after.model)
        replace(task, test=few).evaluate(flat.module)
    except Exception as error:  # the module, the loss and the algorithm's parts may be the user's own
        text = (str(error) or "no reason given").splitlines()[0]
        raise ConfigError(f"{config.label} cannot be trained: {type(error).__name__}: {text}") from error
