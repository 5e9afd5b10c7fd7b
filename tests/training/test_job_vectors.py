"""The vectors of a job before its first step and after its last one."""

from dataclasses import dataclass

import pytest
import torch

from fadas.algorithms.companions import Companion, ControlVariates, StepCount
from fadas.core.model import Model
from fadas.errors import ConfigError
from fadas.training import LocalSGD, Momentum
from fadas.training.job_state import final_vectors, initial_state, initial_states, start_of_job, steps_taken

SIZE = 2
PARAMS = torch.tensor([1.0, 2.0])


def make_model(**vectors):
    named = {name.replace("server_", "server.").replace("local_", "local."): v for name, v in vectors.items()}
    return Model(PARAMS, torch.zeros(0), {name: torch.as_tensor(vector) for name, vector in named.items()})


def listed(vectors):
    return {name: vector.tolist() for name, vector in vectors.items()}


def test_start_holds_what_was_sent_and_what_was_kept():
    plain = make_model()
    assert start_of_job(plain, {}) is plain
    start = start_of_job(make_model(c=[1.0, 1.0]), {"c_i": torch.ones(SIZE)})
    assert listed(start.vectors) == {"server.c": [1.0, 1.0], "c_i": [1.0, 1.0]}
    assert start.params is PARAMS
    assert list(start_of_job(plain, {"m": PARAMS}).vectors) == ["m"]


KEEPING = Momentum(0.1, keep=True)
VARIATES = LocalSGD(0.1, companion=ControlVariates())


def test_plain_job_begins_with_no_vectors():
    assert initial_state(LocalSGD(0.1), make_model()) == {}
    assert initial_states(LocalSGD(0.1), [make_model(), make_model()]) == {}


def test_memory_begins_at_zero_or_where_it_was_kept():
    kept = make_model(m=[3.0, 4.0], local_t=torch.tensor(7))
    assert listed(initial_state(Momentum(0.1), kept)) == {"m": [0.0, 0.0]}
    state = initial_state(KEEPING, kept)
    assert listed(state) == {"m": [3.0, 4.0], "local.t": 7}
    state["m"].add_(1)
    assert kept.vectors["m"].tolist() == [3.0, 4.0], "the version that others share is not written to"
    assert listed(initial_state(KEEPING, make_model())) == {"m": [0.0, 0.0]}


def test_companion_begins_with_what_was_sent_and_kept_or_with_zero():
    start = make_model(server_c=[1.0, 2.0], c_i=[3.0, 4.0])
    assert listed(initial_state(VARIATES, start)) == {"server.c": [1.0, 2.0], "c_i": [3.0, 4.0]}
    assert listed(initial_state(VARIATES, make_model())) == {"server.c": [0.0, 0.0], "c_i": [0.0, 0.0]}


def test_many_jobs_begin_as_single_ones_do():
    starts = [make_model(m=[3.0, 4.0], local_t=torch.tensor(7)), make_model()]
    state = initial_states(KEEPING, starts)
    assert listed(state) == {"m": [[3.0, 4.0], [0.0, 0.0]], "local.t": [7.0, 0.0]}
    assert steps_taken(state, 2, 2, 2).tolist() == [[9.0], [2.0]]
    assert steps_taken(state, 2, 3, 1).shape == (1, 1, 1)
    assert steps_taken({}, 2, 2, 2) == 2


def test_kept_memory_counts_its_steps():
    state = {"m": PARAMS, "local.t": torch.tensor(7.0), "server.c": PARAMS}
    vectors, kept = final_vectors(KEEPING, state, PARAMS, 5)
    assert vectors == {}
    assert listed(kept) == {"m": [1.0, 2.0], "local.t": 12}
    assert kept["local.t"].dtype == torch.int64
    _, first = final_vectors(KEEPING, {"m": PARAMS}, PARAMS, 5)
    assert int(first["local.t"]) == 5
    assert final_vectors(Momentum(0.1), {"m": PARAMS}, PARAMS, 5) == ({}, {})


def test_client_returns_and_keeps_what_its_companion_declares():
    state = {"server.c": torch.zeros(SIZE), "c_i": torch.zeros(SIZE)}
    vectors, kept = final_vectors(VARIATES, state, PARAMS, 5)
    assert (list(vectors), list(kept)) == (["dc"], ["c_i"])
    vectors, kept = final_vectors(LocalSGD(0.1, companion=StepCount()), {}, PARAMS, 5)
    assert (listed(vectors), kept) == ({"steps": 5.0}, {})


@dataclass(frozen=True)
class Forgetful(Companion):
    returns = ("b", "a")
    keeps = ("c",)

    def finish(self, state, delta, local, steps):
        return {"b": delta, "c": delta}


def test_companion_that_does_not_return_what_it_declares_is_named():
    with pytest.raises(ConfigError, match=r"^Forgetful.finish must return 'a'$"):
        final_vectors(LocalSGD(0.1, companion=Forgetful()), {}, PARAMS, 5)


def test_companion_and_optimizer_may_both_keep():
    local = Momentum(0.1, keep=True, companion=ControlVariates())
    state = {"server.c": PARAMS, "c_i": PARAMS, "m": PARAMS}
    _, kept = final_vectors(local, state, torch.zeros(SIZE), 1)
    assert set(kept) == {"c_i", "m", "local.t"}
    assert listed(kept)["c_i"] == [0.0, 0.0], "the companion's, and not the one before the job"
