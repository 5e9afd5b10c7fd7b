"""What is checked before a deployment opens its folder."""

import torch

from fadas.core.ledger import Job
from fadas.core.model import Update
from fadas.core.server import Server
from fadas.core.trial_step import trial_step
from fadas.errors import ConfigError


def try_one_step(server: Server) -> None:
    """Take one step of M zero updates and discard it, so that an algorithm that cannot work is refused at once."""
    x, jobs = server.model, [Job(k, k, 0) for k in range(server.ledger.schedule.buffer)]
    updates = [Update(job, torch.zeros_like(x.params), x.buffers, x.params, 1) for job in jobs]
    try:
        trial_step(server.algorithm, x, updates, server.ledger.schedule.concurrency + len(jobs))  # as many may come
    except Exception as error:  # the algorithm's parts may be the user's own
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"the algorithm cannot take a step of {len(jobs)} updates: {text}") from error
