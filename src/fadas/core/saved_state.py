"""Convert a server to tensors and plain values, and back. Checkpoints of simulations and deployments use this form."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from fadas.core.ledger import Job
from fadas.core.model import Model, ServerState, Update
from fadas.core.server import Server

State = tuple[dict[str, Tensor], dict[str, Any]]  # tensors by name, and values that JSON can hold


def save_server(server: Server) -> State:
    """Return x_t, the optimizer's memory, the buffer and the counters.

    The ledger and the models that running jobs started from are not included.
    """
    tensors = {f"slot.{name}": tensor for name, tensor in server.state.slots.items()}
    tensors |= {"params": server.model.params, "buffers": server.model.buffers}
    updates, buffer = save_updates("buffer", server.buffer)
    values = {
        "version": server.state.version,
        "buffer": buffer,
        "refused": dict(server.refused),
        "spent": list(server.accountant.counts.items()) if server.accountant else [],
        "rules": server.algorithm.rules(),
    }
    return {**tensors, **updates}, values


def load_server(server: Server, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Put a saved state into a server.

    Raises:
        ValueError: The state does not fit the server, which is then unchanged.
    """
    like = server.model
    model = Model(take_tensor(tensors, "params", like.params), take_tensor(tensors, "buffers", like.buffers))
    slots = {name.removeprefix("slot."): tensor for name, tensor in tensors.items() if name.startswith("slot.")}
    buffer = load_updates("buffer", tensors, values["buffer"], like)
    refused = Counter[str]({str(reason): int(count) for reason, count in values["refused"].items()})
    spent = Counter[int]({int(client): int(count) for client, count in values["spent"]})
    algorithm = server.algorithm.with_rules(values["rules"])
    server.state, server.buffer, server.refused = ServerState(int(values["version"]), model, slots), buffer, refused
    server.algorithm = algorithm
    if server.accountant:
        server.accountant.counts = spent


def save_updates(kind: str, updates: Sequence[Update]) -> tuple[dict[str, Tensor], list[Any]]:
    """Return updates as named tensors and plain values."""
    tensors = {f"{kind}.{u.job.id}.{name}": getattr(u, name) for u in updates for name in ("delta", "buffers", "base")}
    return tensors, [[list(u.job), u.examples, {k: float(v) for k, v in u.metrics.items()}] for u in updates]


def load_updates(kind: str, tensors: Mapping[str, Tensor], values: Sequence[Any], like: Model) -> list[Update]:
    """Return the updates that `save_updates` saved."""

    def make_update(job: Job, examples: int, metrics: dict[str, float]) -> Update:
        delta, base = (take_tensor(tensors, f"{kind}.{job.id}.{name}", like.params) for name in ("delta", "base"))
        buffers = take_tensor(tensors, f"{kind}.{job.id}.buffers", like.buffers)
        return Update(job, delta, buffers, base, examples, metrics)

    return [make_update(Job(*job), examples, metrics) for job, examples, metrics in values]


def take_tensor(tensors: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
    """Return the tensor of that name, if it has the expected shape and type."""
    if tensors[name].shape != like.shape or tensors[name].dtype != like.dtype:
        raise ValueError(f"{name} belongs to another model")
    return tensors[name]
