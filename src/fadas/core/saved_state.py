"""What a server remembers, as tensors and plain values, and back. Simulation and deployment save it alike."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from fadas.core.ledger import Job
from fadas.core.model import Model, ServerState, Update
from fadas.core.server import Server

State = tuple[dict[str, Tensor], dict[str, Any]]  # tensors by name, and what JSON can hold


def save_server(server: Server) -> State:
    """x_t, the optimizer's memory, the buffer and the counters. Not the ledger, nor what running jobs started from."""
    tensors = {f"slot.{name}": tensor for name, tensor in server.state.slots.items()}
    tensors |= {"params": server.model.params, "buffers": server.model.buffers}
    updates, buffer = save_updates("buffer", server.buffer)
    spent = list(server.spending.counts.items()) if server.spending else []
    values = {"version": server.state.version, "buffer": buffer, "refused": dict(server.refused), "spent": spent}
    return {**tensors, **updates}, values


def load_server(server: Server, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Let a server remember. Where this does not fit it, an error, and nothing has changed."""
    like = server.model
    model = Model(fitting(tensors, "params", like.params), fitting(tensors, "buffers", like.buffers))
    slots = {name.removeprefix("slot."): tensor for name, tensor in tensors.items() if name.startswith("slot.")}
    buffer = load_updates("buffer", tensors, values["buffer"], like)
    refused = Counter[str]({str(reason): int(count) for reason, count in values["refused"].items()})
    spent = Counter[int]({int(client): int(count) for client, count in values["spent"]})
    server.state, server.buffer, server.refused = ServerState(int(values["version"]), model, slots), buffer, refused
    if server.spending:
        server.spending.counts = spent


def save_updates(kind: str, updates: Sequence[Update]) -> tuple[dict[str, Tensor], list[Any]]:
    tensors = {f"{kind}.{u.job.id}.{name}": getattr(u, name) for u in updates for name in ("delta", "buffers", "base")}
    return tensors, [[list(u.job), u.examples, {k: float(v) for k, v in u.metrics.items()}] for u in updates]


def load_updates(kind: str, tensors: Mapping[str, Tensor], values: Sequence[Any], like: Model) -> list[Update]:
    def update(job: Job, examples: int, metrics: dict[str, float]) -> Update:
        delta, base = (fitting(tensors, f"{kind}.{job.id}.{name}", like.params) for name in ("delta", "base"))
        return Update(job, delta, fitting(tensors, f"{kind}.{job.id}.buffers", like.buffers), base, examples, metrics)

    return [update(Job(*job), examples, metrics) for job, examples, metrics in values]


def fitting(tensors: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
    """The tensor of that name, if it is of the right shape and type."""
    if tensors[name].shape != like.shape or tensors[name].dtype != like.dtype:
        raise ValueError(f"{name} belongs to another model")
    return tensors[name]
