"""Updates of faulty clients, according to the plan's faults."""

from dataclasses import replace

import torch

from fadas.core.model import Update
from fadas.rng import FAULT, mix
from fadas.simulation.planner import Plan


def apply_faults(update: Update, plan: Plan) -> Update:
    """Return the update as a possibly faulty client reports it. Noise is a function of the run's seed and the job."""
    job, delta = update.job, update.delta
    for fault in plan.delays.faults:
        if not fault.hits(job.client, float(plan.start[job.id])):
            continue
        if fault.kind in ("nan", "inf"):
            delta = torch.full_like(delta, float(fault.kind))
        elif fault.kind == "flip":
            delta = delta * -fault.scale
        elif fault.kind == "noise":
            generator = torch.Generator().manual_seed(mix(plan.seed, FAULT, job.id) >> 1)
            delta = delta + fault.scale * torch.randn(delta.shape, generator=generator, dtype=delta.dtype).to(delta)
    return update if delta is update.delta else replace(update, delta=delta)
