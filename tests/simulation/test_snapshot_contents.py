"""Snapshots with impossible contents are refused, whatever their checksums say."""

import math

import pytest
import torch

from fadas.algorithms.presets import CA2FL, FADAS
from fadas.simulation import snapshot
from helpers.training import make_faulty_simulation, make_task


def some_update(values):
    return f"buffer.{values['buffer'][0][0][0]}"


DAMAGE = {
    "params is not finite": lambda t, v: t["params"].__setitem__(0, math.nan),
    "params belongs to another model": lambda t, v: t.update(params=t["params"].double()),
    "slot.m has the wrong shape or type": lambda t, v: t.update({"slot.m": t["slot.m"].double()}),
    "slot.v has the wrong shape or type": lambda t, v: t.update({"slot.v": t["slot.v"][1:]}),
    "slot.vhat is not finite": lambda t, v: t["slot.vhat"].__setitem__(3, math.inf),
    "delta is not finite": lambda t, v: t[f"{some_update(v)}.delta"].__setitem__(0, math.inf),
    "base is not finite": lambda t, v: t[f"{some_update(v)}.base"].__setitem__(0, math.nan),
    "examples must be a finite number of at least 0, got -3": lambda t, v: v["buffer"][0].__setitem__(1, -3),
    "belongs to another run": lambda t, v: v["buffer"][0][0].__setitem__(1, 7),
    "position must be a whole number of at least 0, got -1": lambda t, v: v["progress"].update(position=-1),
    "updates must be a whole number of at least 0, got 2.5": lambda t, v: v["progress"].update(updates=2.5),
    "refused must be a whole number of at least 0, got -1": lambda t, v: v["refused"].update({"not finite": -1}),
    "spent must be a whole number of at least 0, got -5": lambda t, v: v.update(spent=[[0, -5]]),
    "lengths and examples must be finite": lambda t, v: v["recent"].update(votes=[[0, math.inf, 5]]),
    "version.*params is not finite": lambda t, v: next(
        tensor for name, tensor in t.items() if name.startswith("version.") and name.endswith("params")
    ).fill_(math.nan),
}


def take_copy(simulation):
    tensors, values = snapshot.take(simulation)
    return {name: tensor.clone() for name, tensor in tensors.items()}, values


def stop_with_buffer(algorithm):
    """A simulation with an update in its buffer."""
    simulation = make_faulty_simulation(make_task(), algorithm)
    inner, count = simulation.executor.collect, iter(range(99))
    simulation.executor.collect = lambda job: (next(count) == 13 and simulation.stop(), inner(job))[1]
    list(simulation)
    assert simulation.server.buffer
    return simulation


@pytest.mark.parametrize("message", DAMAGE)
def test_snapshot_with_impossible_contents_is_refused(message):
    tensors, values = take_copy(stop_with_buffer(FADAS()))
    DAMAGE[message](tensors, values)
    other = make_faulty_simulation(make_task(), FADAS())
    before = other.server.state
    with pytest.raises((ValueError, IndexError), match=message):
        snapshot.restore(other, tensors, values)
    assert other.server.state is before
    assert not other.server.updates
    assert len(list(other)) == 10, "it can still run from its beginning"


def test_wrong_cache_of_a_client_is_refused():
    """CA2FL's slots are named after clients, so a trial step knows only some of the names."""
    tensors, values = take_copy(stop_with_buffer(CA2FL()))
    name = max(name for name in tensors if name.startswith("slot.h.") and name != "slot.h.sum")
    tensors[name] = torch.cat([tensors[name], torch.zeros(1)])
    with pytest.raises(ValueError, match=f"{name} has the wrong shape or type"):
        snapshot.restore(make_faulty_simulation(make_task(), CA2FL()), tensors, values)
