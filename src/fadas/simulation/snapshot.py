"""Snapshots of a simulation as tensors and plain values, for exact resume.

A snapshot holds what only training could reproduce:

- x_t and the optimizer's memory
- the versions that running jobs start from
- the buffer
- updates that are trained but not yet due
- what clients keep between jobs

The ledger is not included. `restore` drives a new ledger along the plan up to the same position.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
from torch import Tensor

from fadas.core.ledger import Ledger
from fadas.core.model import Exchange, Model, Vectors
from fadas.core.saved_state import (
    State,
    load_server,
    load_updates,
    load_vectors,
    save_server,
    save_updates,
    save_vectors,
    saved_count,
    saved_number,
    take_model,
)
from fadas.simulation.planner import ARRIVED, DROPPED, EXPIRED, Plan, replan
from fadas.simulation.simulator import Simulation, SimulationProgress
from fadas.training.sgd import TAKEN, LocalSGD


def take(simulation: Simulation) -> State:
    """Return the state of a simulation after its last record, or at the point where it was stopped.

    Args:
        simulation: The simulation, which may continue afterwards.

    Returns:
        Tensors by name, and values that JSON can hold.

    Example:
        >>> tensors, values = fadas.snapshot.take(simulation)
        >>> fadas.snapshot.restore(other, tensors, values)
    """
    server, progress = simulation.server, simulation.progress
    tensors, values = save_server(server)
    finished, values["finished"] = save_updates("finished", simulation.finished)
    values["progress"] = {**asdict(progress), "retractions": list(progress.retractions.items())}
    values["late"] = sorted(server.delta_base)
    values["memory_format"] = simulation.executor.memory_format
    versions = {
        job.version - (job.id in server.delta_base): server.base[job.id] for job in server.ledger.running.values()
    }
    versions |= {server.ledger.running[id].version: model for id, model in server.delta_base.items()}
    for version, model in versions.items():
        tensors |= {f"version.{version}.params": model.params, f"version.{version}.buffers": model.buffers}
        tensors |= save_vectors(f"version.{version}.vectors.", model.vectors)
    for client, vectors in simulation.kept.items():
        tensors |= save_vectors(f"client.{client}.", vectors)
    own = simulation.own.to_tensors() if simulation.own else {}
    return {**tensors, **own, **finished}, values


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
    server, like, exchange = simulation.server, simulation.server.model, simulation.server.algorithm.exchange
    tensors = {name: tensor.to(like.params.device) for name, tensor in tensors.items()}
    progress = _load_progress(values["progress"])
    plan, ledger = _replay(simulation.plan, progress)
    held, waiting = ([list(job) for job in jobs] for jobs in (ledger.buffer, ledger.waiting))
    _require_consistent(progress, plan, ledger)
    saved = values["version"], *([u[0] for u in values.get(kind, [])] for kind in ("buffer", "waiting"))
    if saved != (ledger.version, held, waiting):
        raise ValueError("the snapshot belongs to another run")
    running, late = ledger.running.values(), set(values["late"])
    versions = {
        version: _take_version(tensors, version, like, exchange)
        for version in {job.version for job in running} | {ledger.running[id].version - 1 for id in late}
    }
    finished = load_updates("finished", tensors, values["finished"], like, exchange, accepted=False)
    kept = _load_kept(tensors, like, plan.clients)
    _require_whole(kept, getattr(simulation.executor, "local", None))
    if simulation.own:
        simulation.own.take_tensors(tensors)
    load_server(server, tensors, values)
    versions[ledger.version] = server.model  # the current version is held only once
    server.ledger, server.base = ledger, {job.id: versions[job.version - (job.id in late)] for job in running}
    server.delta_base = {id: versions[ledger.running[id].version] for id in late}
    simulation.continue_from(plan, progress, finished)
    simulation.kept = kept
    if values.get("memory_format", "contiguous") == "contiguous":  # earlier versions knew no other
        simulation.executor.memory_format = "contiguous"


def _take_version(tensors: Mapping[str, Tensor], version: int, like: Model, exchange: Exchange) -> Model:
    """Return an earlier version of the model, with what the server sent beside it."""
    vectors = load_vectors(f"version.{version}.vectors.", tensors, like)
    if set(vectors) != set(exchange.sends):
        raise ValueError(f"version {version} has other vectors than the algorithm sends")
    for name, vector in vectors.items():
        if not vector.dim() or (name in exchange.squares and bool((vector < 0).any())):
            raise ValueError(f"version.{version}.vectors.{name} has values that the algorithm never sends")
    return replace(take_model(tensors, f"version.{version}.", like), vectors=vectors)


def _load_kept(tensors: Mapping[str, Tensor], like: Model, clients: int) -> dict[int, Vectors]:
    """Return what each client keeps."""
    named = {name: tensor for name, tensor in tensors.items() if name.startswith("client.")}
    holders = {int(name.split(".", 2)[1]) for name in named}
    if any(not 0 <= client < clients for client in holders):
        raise ValueError("a client that does not exist keeps vectors")
    return {client: load_vectors(f"client.{client}.", named, like) for client in sorted(holders)}


def _require_whole(kept: Mapping[int, Vectors], local: LocalSGD | None) -> None:
    """Refuse what a client keeps if a part of it is missing: local training would begin with zeros in its place."""
    companion = local and local.companion
    names = (*(companion.keeps if companion else ()), *(local.memory if local and local.keep else ()))
    for client, vectors in kept.items():
        if wrong := [name for name in names if name not in vectors or not vectors[name].dim()]:
            raise ValueError(f"client.{client}.{wrong[0]} is missing, or not a vector")
        if local and local.keep:
            saved_count(vectors[TAKEN].item() if TAKEN in vectors else None, f"client.{client}.{TAKEN}")


def _load_progress(saved: Mapping[str, Any]) -> SimulationProgress:
    """Return the counters of a snapshot."""
    known = {field.name for field in fields(SimulationProgress)}
    progress = SimulationProgress(**{name: value for name, value in saved.items() if name in known})
    progress.retractions = {int(position): list(ids) for position, ids in saved.get("retractions", [])}
    for name in ("updates", "removed", "dropped", "expired", "position", "since", "recorded"):
        saved_count(getattr(progress, name), name)
    saved_number(progress.wall, "wall")
    return progress


def _require_consistent(progress: SimulationProgress, plan: Plan, ledger: Ledger) -> None:
    """Refuse counters that do not follow from the plan."""
    ended = np.bincount(plan.outcome[plan.ended[: progress.position]], minlength=4)
    accepted = ledger.version * plan.schedule.buffer + len(ledger.buffer) + len(ledger.waiting)
    counters = (progress.dropped, progress.expired, progress.updates - progress.removed)
    if counters != (ended[DROPPED], ended[EXPIRED], accepted):
        raise ValueError("the counters do not fit the plan")


def _replay(plan: Plan, progress: SimulationProgress) -> tuple[Plan, Ledger]:
    """Drive a new ledger along the plan up to a position. Plan again after each refusal, as the first run did."""
    ledger = plan.ledger()
    ledger.start()
    refusals = set(progress.refusals)
    for index in range(progress.position):
        job, step = plan.job(int(plan.ended[index])), None
        retracted = progress.retractions.get(index, [])
        jobs = [started for id in retracted for started in ledger.retract(plan.job(id))]
        if index in refusals or plan.outcome[job.id] != ARRIVED:
            jobs += ledger.drop(job)
        else:
            arrived, step = ledger.arrive(job)
            jobs += arrived
        if index in refusals or retracted:
            refused = [*retracted, job.id] if index in refusals else retracted
            plan = replan(plan, index, ledger, jobs, refused, step)
    return plan, ledger
