"""A simulation's state as tensors and plain values, and back: exact resume.

The ledger is not in it: driving a fresh one along the plan up to the same point gives the same. What is in it is what
cannot be had again for less than training: x_t, the optimizer's memory, the versions that running jobs need,
the buffer, and updates that are trained but not yet due.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor

from fadas.core.ledger import Ledger
from fadas.core.model import Model
from fadas.core.saved_state import State, load_server, load_updates, save_server, save_updates, take_tensor
from fadas.simulation.planner import ARRIVED, Plan, replan
from fadas.simulation.simulator import Simulation, SimulationProgress


def take(simulation: Simulation) -> State:
    """The state after the last record, or where the simulation was stopped."""
    server, progress = simulation.server, simulation.progress
    tensors, values = save_server(server)
    finished, values["finished"] = save_updates("finished", simulation.finished)
    values["progress"] = {**asdict(progress), "losses": [float(loss) for loss in progress.losses]}
    values["late"] = sorted(server.delta_base)
    versions = {
        job.version - (job.id in server.delta_base): server.base[job.id] for job in server.ledger.running.values()
    }
    versions |= {server.ledger.running[id].version: model for id, model in server.delta_base.items()}
    for version, model in versions.items():
        tensors |= {f"version.{version}.params": model.params, f"version.{version}.buffers": model.buffers}
    return {**tensors, **finished}, values


def restore(simulation: Simulation, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Let a fresh simulation go on from there. Where the state does not fit it, an error, and nothing has changed."""
    server, like = simulation.server, simulation.server.model
    tensors = {name: tensor.to(like.params.device) for name, tensor in tensors.items()}
    progress = SimulationProgress(**values["progress"])
    plan, ledger = _replay(simulation.plan, progress.position, set(progress.refusals))
    if ledger.version != values["version"] or [list(job) for job in ledger.buffer] != [u[0] for u in values["buffer"]]:
        raise ValueError("it belongs to another run")
    running, late = ledger.running.values(), set(values["late"])
    versions = {
        version: Model(
            take_tensor(tensors, f"version.{version}.params", like.params),
            take_tensor(tensors, f"version.{version}.buffers", like.buffers),
        )
        for version in {job.version for job in running} | {ledger.running[id].version - 1 for id in late}
    }
    finished = load_updates("finished", tensors, values["finished"], like)
    load_server(server, tensors, values)
    versions[ledger.version] = server.model  # one version is held once
    server.ledger, server.base = ledger, {job.id: versions[job.version - (job.id in late)] for job in running}
    server.delta_base = {id: versions[ledger.running[id].version] for id in late}
    simulation.continue_from(plan, progress, finished)


def _replay(plan: Plan, position: int, refusals: set[int]) -> tuple[Plan, Ledger]:
    """Drive a fresh ledger along the plan up to a position, planning anew wherever that was done before."""
    ledger = plan.ledger()
    ledger.start()
    for place in range(position):
        job = plan.job(int(plan.ended[place]))
        if place in refusals:
            plan = replan(plan, place, ledger, ledger.drop(job))
        elif plan.outcome[job.id] == ARRIVED:
            ledger.arrive(job)
        else:
            ledger.drop(job)
    return plan, ledger
