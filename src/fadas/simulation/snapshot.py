"""Snapshots of a simulation as tensors and plain values, for exact resume.

A snapshot holds what only training could reproduce:

- x_t and the optimizer's memory
- the versions that running jobs start from
- the buffer
- updates that are trained but not yet due

The ledger is not included. `restore` drives a new ledger along the plan up to the same position.
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
    """Return the state of a simulation after its last record, or at the point where it was stopped.

    Returns:
        Tensors by name, and values that JSON can hold.

    Example:
        >>> tensors, values = fadas.snapshot.take(simulation)
        >>> fadas.snapshot.restore(other, tensors, values)
    """
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
    """Continue from a snapshot with a new simulation of the same run.

    Args:
        simulation: A simulation that has not started.
        tensors: The tensors that `take` returned.
        values: The values that `take` returned.

    Raises:
        ValueError: The snapshot does not fit the simulation, which is then unchanged.

    Example:
        >>> tensors, values = fadas.snapshot.take(simulation)
        >>> fadas.snapshot.restore(other, tensors, values)
    """
    server, like = simulation.server, simulation.server.model
    tensors = {name: tensor.to(like.params.device) for name, tensor in tensors.items()}
    progress = SimulationProgress(**values["progress"])
    plan, ledger = _replay(simulation.plan, progress.position, set(progress.refusals))
    if ledger.version != values["version"] or [list(job) for job in ledger.buffer] != [u[0] for u in values["buffer"]]:
        raise ValueError("the snapshot belongs to another run")
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
    versions[ledger.version] = server.model  # the current version is held only once
    server.ledger, server.base = ledger, {job.id: versions[job.version - (job.id in late)] for job in running}
    server.delta_base = {id: versions[ledger.running[id].version] for id in late}
    simulation.continue_from(plan, progress, finished)


def _replay(plan: Plan, position: int, refusals: set[int]) -> tuple[Plan, Ledger]:
    """Drive a new ledger along the plan up to a position. Plan again after each refusal, as the first run did."""
    ledger = plan.ledger()
    ledger.start()
    for index in range(position):
        job = plan.job(int(plan.ended[index]))
        if index in refusals:
            plan = replan(plan, index, ledger, ledger.drop(job))
        elif plan.outcome[job.id] == ARRIVED:
            ledger.arrive(job)
        else:
            ledger.drop(job)
    return plan, ledger
