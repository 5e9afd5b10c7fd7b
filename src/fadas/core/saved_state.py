"""Convert a server to tensors and plain values, and back. Checkpoints of simulations and deployments use this form."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from fadas.core.ledger import Job, Step
from fadas.core.model import NOTHING, Exchange, Model, ServerState, Update, zero_updates
from fadas.core.recent_updates import RecentUpdates
from fadas.core.records import LATEST
from fadas.core.server import Server
from fadas.core.server_step import take_step
from fadas.core.update_checks import all_finite, vector_lengths

_SQUARES = ("v", "vhat", "t")  # slots that are never negative
_KEPT = ("m", *_SQUARES, "h.sum")  # slots that every step of an optimizer that has them writes
State = tuple[dict[str, Tensor], dict[str, Any]]  # tensors by name, and values that JSON can hold


def save_server(server: Server) -> State:
    """Return x_t, the optimizer's memory, the buffer and the counters.

    The ledger and the models that running jobs started from are not included.
    """
    tensors = {f"slot.{name}": tensor for name, tensor in server.state.slots.items()}
    tensors |= {"params": server.model.params, "buffers": server.model.buffers}  # its vectors are slots
    updates, buffer = save_updates("buffer", server.buffer)
    more, waiting = save_updates("waiting", server.waiting)
    values = {
        "version": server.state.version,
        "buffer": buffer,
        "waiting": waiting,
        "recent": server.recent.state(),
        "recent_vectors": {name: recent.state() for name, recent in server.recent_vectors.items()},
        "unjudged": list(server.unjudged.items()),
        "failed_early": sorted(server.failed_early),
        "refused": dict(server.refused),
        "spent": list(server.accountant.counts.items()) if server.accountant else [],
        "rules": server.algorithm.rules(),
    }
    return {**tensors, **updates, **more}, values


def load_server(server: Server, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Put a saved state into a server. A checksum tells nothing of who wrote the state, so all of it is checked.

    Raises:
        ValueError: The state does not fit the server, which is then unchanged.
    """
    like, version, exchange = server.model, saved_count(values["version"], "version"), server.algorithm.exchange
    model = take_model(tensors, "", like)
    slots = {name.removeprefix("slot."): tensor for name, tensor in tensors.items() if name.startswith("slot.")}
    _check_slots(server, slots, version)
    model = replace(model, vectors=exchange.sent(model, slots))
    updates = load_updates("buffer", tensors, values["buffer"], like, exchange)
    updates += load_updates("waiting", tensors, values.get("waiting", []), like, exchange)
    received = {update.job.id: update for update in updates}
    if len(received) < len(updates) or any(update.job.version > version for update in updates):
        raise ValueError("the buffer's jobs are impossible")
    refused = Counter[str]({str(reason): saved_count(n, "refused") for reason, n in values["refused"].items()})
    spent = Counter[int]({saved_count(client, "spent"): saved_count(n, "spent") for client, n in values["spent"]})
    recent = RecentUpdates()
    if saved := values.get("recent"):
        recent.load_state(saved)
    recent_vectors = _load_recent(values.get("recent_vectors", {}), like, exchange)
    unjudged = {
        saved_count(id, "unjudged"): saved_number(length, "unjudged") for id, length in values.get("unjudged", [])
    }
    failed_early = {saved_count(client, "failed_early") for client in values.get("failed_early", [])}
    server.algorithm = server.algorithm.with_rules(values["rules"])
    server.state, server.updates = ServerState(version, model, slots), received
    server.refused, server.recent, server.unjudged, server.failed_early = refused, recent, unjudged, failed_early
    server.recent_vectors = recent_vectors
    if server.accountant:
        server.accountant.counts = spent


def _check_slots(server: Server, slots: Mapping[str, Tensor], version: int) -> None:
    """Refuse slots that are not as a server step makes them."""
    x, size = server.model, server.ledger.schedule.buffer
    jobs = tuple(Job(k, k, 0) for k in range(size))
    zero = zero_updates(jobs, x, server.algorithm.exchange)
    made = take_step(server.algorithm, ServerState(0, x), Step(0, jobs), zero, max(size, server.ledger.clients)).state
    examples = {name.rpartition(".")[0]: tensor for name, tensor in made.slots.items() if "." in name}
    for name, tensor in slots.items():
        example = made.slots.get(name, examples.get(name.rpartition(".")[0]))  # such as "h.0" for "h.7"
        if example is None:
            continue
        if (tensor.shape, tensor.dtype) != (example.shape, example.dtype):
            raise ValueError(f"slot.{name} has the wrong shape or type")
        if all_finite(example) and not all_finite(tensor):
            raise ValueError(f"slot.{name} is not finite")
    kept = (*_KEPT, *server.algorithm.exchange.sends)
    if missing := [name for name in made.slots if name in kept and version and name not in slots]:
        raise ValueError(f"slot.{missing[0]} is missing")
    squares = {*_SQUARES, *server.algorithm.exchange.squares} & slots.keys()
    if negative := [name for name in sorted(squares) if bool((slots[name] < 0).any())]:
        raise ValueError(f"slot.{negative[0]} must not be negative")


def save_updates(kind: str, updates: Sequence[Update]) -> tuple[dict[str, Tensor], list[Any]]:
    """Return updates as named tensors and plain values."""
    tensors = {f"{kind}.{u.job.id}.{name}": getattr(u, name) for u in updates for name in ("delta", "buffers", "base")}
    for u in updates:
        tensors |= save_vectors(f"{kind}.{u.job.id}.vectors.", u.vectors)
        tensors |= save_vectors(f"{kind}.{u.job.id}.kept.", u.kept)
    return tensors, [[list(u.job), u.examples, {k: float(v) for k, v in u.metrics.items()}] for u in updates]


def load_updates(
    kind: str,
    tensors: Mapping[str, Tensor],
    values: Sequence[Any],
    like: Model,
    exchange: Exchange = NOTHING,
    accepted: bool = True,
) -> list[Update]:
    """Return the updates that `save_updates` saved.

    Args:
        kind: The beginning of their names.
        tensors: Tensors by name.
        values: Their jobs, examples and metrics.
        like: A model of the same size.
        exchange: What must come beside the delta.
        accepted: Has the server accepted them? If not, they may hold anything of the right shape and type.

    Raises:
        ValueError: An update is impossible.
    """

    def make_update(job: Job, examples: int, metrics: dict[str, float]) -> Update:
        where = f"{kind}.{job.id}"
        delta = take_tensor(tensors, f"{where}.delta", like.params, finite=accepted)
        base = take_tensor(tensors, f"{where}.base", like.params)
        buffers = take_tensor(tensors, f"{where}.buffers", like.buffers, like.buffers, finite=accepted)
        if not 0 < saved_number(examples, f"{where}.examples") < LATEST:
            raise ValueError(f"{where} has {examples} examples")
        if "loss" not in metrics:
            raise ValueError(f"{where} has no loss")
        vectors, kept = (load_vectors(f"{where}.{part}.", tensors, like, accepted) for part in ("vectors", "kept"))
        if missing := {*exchange.returns, *exchange.numbers} - set(vectors):
            raise ValueError(f"{where} has no {min(missing)!r}")
        _check_exchanged(where, vectors, exchange, accepted)
        numbers = {str(name): float(value) for name, value in metrics.items()}
        return Update(job, delta, buffers, base, examples, numbers, vectors, kept)

    return [
        make_update(Job(*(saved_count(number, kind) for number in job)), examples, metrics)
        for job, examples, metrics in values
    ]


def _check_exchanged(where: str, vectors: Mapping[str, Tensor], exchange: Exchange, accepted: bool) -> None:
    """Refuse vectors beside a saved delta that the server would not have accepted."""
    if wrong := [name for name in exchange.returns if not vectors[name].dim()]:
        raise ValueError(f"{where}.vectors.{wrong[0]} is a single number")
    if wrong := [name for name in exchange.numbers if vectors[name].dim() or (accepted and not vectors[name] > 0)]:
        raise ValueError(f"{where}.vectors.{wrong[0]} is not a positive number")
    if wrong := [name for name in exchange.squares if accepted and bool((vectors[name] < 0).any())]:
        raise ValueError(f"{where}.vectors.{wrong[0]} must not be negative")


def _load_recent(saved: Mapping[str, Any], like: Model, exchange: Exchange) -> dict[str, RecentUpdates]:
    """Return what recent vectors look like."""
    (example,) = zero_updates([Job(0, 0, 0)], like, exchange)
    loaded = {name: RecentUpdates() for name in saved}
    if unknown := set(loaded) - set(vector_lengths(example, exchange)):
        raise ValueError(f"recent_vectors: there is no {min(unknown)!r}")
    for name, recent in loaded.items():
        recent.load_state(saved[name])
    return loaded


def save_vectors(prefix: str, vectors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return named vectors with a prefix to their names."""
    return {f"{prefix}{name}": vector for name, vector in vectors.items()}


def load_vectors(prefix: str, tensors: Mapping[str, Tensor], like: Model, finite: bool = True) -> dict[str, Tensor]:
    """Return the vectors whose names have this prefix. Each is shaped like the parameters, or a single number.

    Args:
        prefix: The beginning of their names.
        tensors: Tensors by name.
        like: A model of the same size.
        finite: Must all elements be finite?

    Raises:
        ValueError: A vector has another shape or type, or is not finite.
    """
    named = {name: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    return {
        name.removeprefix(prefix): take_tensor(named, name, like.params if tensor.dim() else tensor, finite=finite)
        for name, tensor in named.items()
    }


def take_model(tensors: Mapping[str, Tensor], prefix: str, like: Model) -> Model:
    """Return the model whose tensors have names with this prefix."""
    params = take_tensor(tensors, f"{prefix}params", like.params)
    return Model(params, take_tensor(tensors, f"{prefix}buffers", like.buffers, like.buffers))


def take_tensor(
    tensors: Mapping[str, Tensor], name: str, like: Tensor, infinite: Tensor | None = None, finite: bool = True
) -> Tensor:
    """Return the tensor of that name.

    Args:
        tensors: Tensors by name.
        name: The name.
        like: A tensor of the expected shape and type.
        infinite: A tensor whose infinities (those of a mask) are allowed.
        finite: Must all other elements be finite?

    Raises:
        ValueError: The tensor has another shape or type, or is not finite.
    """
    tensor = tensors[name]
    if tensor.shape != like.shape or tensor.dtype != like.dtype:
        raise ValueError(f"{name} belongs to another model")
    if finite and not all_finite(tensor, infinite):
        raise ValueError(f"{name} is not finite")
    return tensor


def saved_count(value: Any, name: str) -> int:
    """Return a saved number, which must be whole and not negative."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be a whole number of at least 0, got {value!r}")
    return value


def saved_number(value: Any, name: str) -> float:
    """Return a saved number, which must be finite and not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")
    return float(value)
