"""The vectors of a job by name: what the server sent, what the client has kept, the memory of the local optimizer.

| vector                           | before the first local step          | after the last one                     |
|----------------------------------|--------------------------------------|----------------------------------------|
| `server.NAME`, sent by the server | in `start.vectors`                  |                                        |
| memory of the local optimizer    | zero; with `keep` in `start.vectors` | with `keep` in `Update.kept`           |
| what the companion keeps         | in `start.vectors`, or zero          | in `Update.kept`                       |
| what the companion returns       |                                      | in `Update.vectors`                    |
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fadas.core.model import Model
from fadas.errors import ConfigError
from fadas.training.sgd import TAKEN, LocalSGD

SERVER = "server."  # begins the names of what the server sent


def start_of_job(model: Model, kept: Mapping[str, Tensor]) -> Model:
    """Return the model that a job starts from, with the vectors that the job needs.

    Args:
        model: The version of the model, with what the server sends beside it.
        kept: What the client has kept from its last job.

    Example:
        >>> start_of_job(Model(params, buffers, {"c": c}), {"c_i": c_i}).vectors.keys()
        dict_keys(['server.c', 'c_i'])
    """
    if not model.vectors and not kept:
        return model
    sent = {f"{SERVER}{name}": vector for name, vector in model.vectors.items()}
    return Model(model.params, model.buffers, {**sent, **kept})


def initial_state(local: LocalSGD, start: Model) -> dict[str, Tensor]:
    """Return a job's vectors before its first local step. The companion has changed the memory where it wants to.

    Args:
        local: What a client does with the job.
        start: The model that the job starts from.
    """
    return _initial(local, start.params, start.vectors)


def initial_states(local: LocalSGD, starts: Sequence[Model]) -> dict[str, Tensor]:
    """Return the vectors of many jobs before their first local step: tensors [B, P], and numbers [B].

    Args:
        local: What the clients do, with an elementwise optimizer.
        starts: The models that the jobs start from.
    """
    if not local.memory and not local.companion:
        return {}
    like = torch.stack([start.params for start in starts])
    given: dict[str, Tensor] = {}
    for name in {name: None for start in starts for name in start.vectors}:
        zero = like.new_zeros(()) if name == TAKEN else torch.zeros_like(like[0])
        given[name] = torch.stack([start.vectors.get(name, zero).to(zero.dtype) for start in starts])
    return _initial(local, like, given)


def steps_taken(state: Mapping[str, Tensor], t: int, dims: int, jobs: int) -> int | Tensor:
    """Return the number of a local step for the local optimizer, which may have taken steps in earlier jobs.

    Args:
        state: The vectors of many jobs.
        t: The number of the step within the jobs.
        dims: The number of dimensions of a tensor with one row for each job.
        jobs: How many jobs take part.
    """
    return t + state[TAKEN][:jobs].view(-1, *[1] * (dims - 1)) if TAKEN in state else t


def _initial(local: LocalSGD, params: Tensor, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    companion = local.companion
    zero = torch.zeros_like(params) if companion else params
    state: dict[str, Tensor] = {}
    if companion:
        for name in (*(f"{SERVER}{name}" for name in companion.receives), *companion.keeps):
            state[name] = given.get(name, zero)
    if local.keep:
        own = {name: vector for name, vector in given.items() if name not in state and not name.startswith(SERVER)}
        state |= {name: vector.clone() for name, vector in own.items()}
    for name in local.memory:
        if name not in state:
            state[name] = torch.zeros_like(params)
    if companion:
        companion.begin(state)
    return state


def final_vectors(
    local: LocalSGD, state: Mapping[str, Tensor], delta: Tensor, steps: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return what a client returns beside its delta, and what it keeps until its next job.

    Args:
        local: What the client did.
        state: The job's vectors after the last local step. With `keep`, the local optimizer's memory is among them.
        delta: The change of the parameters.
        steps: How many local steps the job took.

    Raises:
        ConfigError: The companion does not return what it declares.
    """
    vectors: dict[str, Tensor] = {}
    kept: dict[str, Tensor] = {}
    if companion := local.companion:
        made = companion.finish(dict(state), delta, local, steps)
        declared = (*companion.returns, *companion.numbers, *companion.keeps)
        if missing := set(declared) - set(made):
            raise ConfigError(f"{type(companion).__name__}.finish must return {min(missing)!r}")
        for name in declared:
            like = "a single number" if name in companion.numbers else "shaped like the parameters"
            shape = () if name in companion.numbers else delta.shape
            if not isinstance(value := made[name], Tensor) or value.shape != shape:  # pyright: ignore
                got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__  # pyright: ignore
                raise ConfigError(f"{type(companion).__name__}.finish: {name!r} must be a tensor, {like}; got {got}")
        vectors = {name: made[name] for name in (*companion.returns, *companion.numbers)}
        kept = {name: made[name] for name in companion.keeps}
    if local.keep:
        others = set(companion.keeps) if companion else set[str]()
        kept |= {n: v for n, v in state.items() if n != TAKEN and n not in others and not n.startswith(SERVER)}
        before = state.get(TAKEN, delta.new_zeros((), dtype=torch.int64))
        kept[TAKEN] = before.to(torch.int64) + steps  # not as a number, which would wait for a GPU
    return vectors, kept
