"""Local training, one job at a time: the reference for all executors."""

import torch
from torch import Tensor

from fadas.core.ledger import Job
from fadas.core.model import Model, Update
from fadas.tasks.task import Task
from fadas.training.flat_module import FlatModule
from fadas.training.job_state import final_vectors, initial_state
from fadas.training.sgd import LocalSGD, epoch_rows, job_seed


def train_job(
    flat: FlatModule, task: Task, local: LocalSGD, seed: int, job: Job, start: Model, autocast: bool = False
) -> Update:
    """Run one job: local SGD from `start` on the client's data.

    Args:
        flat: The module to train in. Its contents are overwritten.
        task: Model, data and loss.
        local: What a client does with a job.
        seed: The run's seed.
        job: The job. Its id seeds the order of the examples and the module's random numbers.
        start: The model to start from.
        autocast: Train under torch's autocast to bfloat16.

    Returns:
        The client's update.

    Example:
        >>> flat = FlatModule(task.module(seed=0))
        >>> update = train_job(flat, task, LocalSGD(lr=0.1), 0, Job(0, client=2, version=0), flat.read())
    """
    local = local.for_job(job, task.sizes[job.client], seed)
    data, epochs = epoch_rows(task, local, seed, job, flat.device)
    flat.load(start)
    flat.module.train()
    state = initial_state(local, start)
    addition = local.companion.addition(state) if local.has_addition and local.companion else None
    mover = local.mover(flat, state)
    losses: list[Tensor] = []
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        # Modules such as dropout draw from torch's global generator. On the CPU only that generator is seeded:
        # `torch.manual_seed` seeds every device, which costs more than a step of a small network.
        set_seed = torch.default_generator.manual_seed if flat.device == "cpu" else torch.manual_seed
        set_seed(job_seed(seed, job))
        for t, index in enumerate((batch for rows in epochs for batch in rows.split(local.batch_size)), 1):
            *inputs, targets = (column.index_select(0, index.to(column.device)) for column in data)
            inputs = flat.arrange(inputs)
            flat.grads.zero_()
            with torch.autocast(torch.device(flat.device).type, torch.bfloat16, enabled=autocast):
                value = task.loss(flat.module(*inputs), targets).mean()
            value.backward()
            with torch.no_grad():
                local.prepare(flat.params, flat.grads, start.params)
                if addition is not None:
                    flat.grads.add_(addition)
                mover.move(t)
            losses.append(value.detach())
    metrics = {"loss": float(torch.stack(losses).mean())}
    trained = flat.read()
    delta = trained.params.sub_(start.params)
    if local.keep:  # else it may be of any shape and type
        state.update(mover.keep())
    vectors, kept = final_vectors(local, state, delta, len(losses))
    return Update(job, delta, trained.buffers, start.params, task.sizes[job.client], metrics, vectors, kept)
