"""A simulation's state as tensors and plain values, and back: exact resume.

The ledger is not in it: driving a fresh one along the plan up to the same point gives the same. What is in it is what
cannot be had again for less than training: x_t, the optimizer's memory, the versions that running jobs started from,
the buffer, and updates that are trained but not yet due.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor

from fadas.ledger import Job, Ledger
from fadas.model import Model, ServerState, Update
from fadas.planner import ARRIVED, EXPIRED, Plan, replan
from fadas.simulator import Progress, Simulation

_KINDS = ("buffer", "finished")


def take(simulation: Simulation) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state after the last record, or where the simulation was stopped."""
    server, progress = simulation.server, simulation.progress
    tensors = {f"slot.{name}": tensor for name, tensor in server.state.slots.items()}
    versions = {job.version: server.base[job.id] for job in server.ledger.running.values()}
    for version, model in {**versions, server.state.version: server.model}.items():
        tensors |= {f"version.{version}.params": model.params, f"version.{version}.buffers": model.buffers}
    values: dict[str, Any] = {
        "version": server.state.version,
        "progress": {**asdict(progress), "losses": [float(loss) for loss in progress.losses]},
        "refused": dict(server.refused),
    }
    for kind, updates in zip(_KINDS, (server.buffer, simulation.finished), strict=True):
        values[kind] = [[u.job.id, u.examples, {k: float(v) for k, v in u.metrics.items()}] for u in updates]
        for u in updates:
            tensors |= {f"{kind}.{u.job.id}.{name}": getattr(u, name) for name in ("delta", "buffers", "base")}
    return tensors, values


def restore(simulation: Simulation, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Let a fresh simulation go on from there. Where the state does not fit it, an error, and nothing has changed."""
    server, expected = simulation.server, simulation.server.model
    tensors = {name: tensor.to(expected.params.device) for name, tensor in tensors.items()}
    progress = Progress(**values["progress"])
    plan, ledger, ended = _replay(simulation.plan, progress.position, set(progress.refusals))

    def tensor(name: str, like: Tensor) -> Tensor:
        if tensors[name].shape != like.shape or tensors[name].dtype != like.dtype:
            raise ValueError(f"{name} belongs to another model")
        return tensors[name]

    def update(kind: str, id: int, examples: int, metrics: dict[str, float]) -> Update:
        delta, base = (tensor(f"{kind}.{id}.{name}", expected.params) for name in ("delta", "base"))
        return Update(plan.job(id), delta, tensor(f"{kind}.{id}.buffers", expected.buffers), base, examples, metrics)

    buffer, finished = ([update(kind, *item) for item in values[kind]] for kind in _KINDS)
    if ledger.version != values["version"] or [u.job for u in buffer] != ledger.buffer:
        raise ValueError("it belongs to another run")
    versions = {
        version: Model(
            tensor(f"version.{version}.params", expected.params), tensor(f"version.{version}.buffers", expected.buffers)
        )
        for version in {job.version for job in ledger.running.values()} | {ledger.version}
    }
    slots = {name.removeprefix("slot."): value for name, value in tensors.items() if name.startswith("slot.")}
    refused = Counter[str]({str(reason): int(count) for reason, count in values["refused"].items()})

    server.ledger, server.buffer, server.refused = ledger, buffer, refused
    server.state = ServerState(ledger.version, versions[ledger.version], slots)
    server.base = {job.id: versions[job.version] for job in ledger.running.values()}
    for job, reason in ended:
        server.end(job, reason)
    simulation.continue_from(plan, progress, finished)


def _replay(plan: Plan, position: int, refusals: set[int]) -> tuple[Plan, Ledger, list[tuple[Job, str]]]:
    """Drive a fresh ledger along the plan up to a position, planning anew wherever that was done before."""
    ledger = plan.ledger()
    ledger.start()
    ended: list[tuple[Job, str]] = []
    for place in range(position):
        job = plan.job(int(plan.ended[place]))
        outcome = int(plan.outcome[job.id])
        if place in refusals:
            plan = replan(plan, place, ledger, ledger.drop(job))
        elif outcome == ARRIVED:
            ledger.arrive(job)
        else:
            ledger.drop(job)
        ended.append((job, {ARRIVED: "already reported", EXPIRED: "expired"}.get(outcome, "dropped")))
    return plan, ledger, ended
