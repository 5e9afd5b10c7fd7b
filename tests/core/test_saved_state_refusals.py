"""Every value of a saved server that is impossible is named, and everything possible is restored."""

import json
import re
from dataclasses import replace

import pytest
import torch

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.optimizers import Adam, AMSGrad
from fadas.algorithms.presets import CA2FL
from fadas.core.ledger import Ledger, Schedule
from fadas.core.model import Model
from fadas.core.saved_state import load_server, load_updates, save_server, saved_count, saved_number
from fadas.core.server import Server
from fadas.core.update_checks import Checks
from helpers.updates import make_update

INF, NAN = float("inf"), float("nan")
CORRECTED = Algorithm(optimizer=AMSGrad(bias_correction=True))


def make_server(algorithm=CORRECTED, **options):
    options = {"checks": Checks(norm_factor=3.0, examples_factor=4.0), **options}
    return Server(algorithm, Ledger(Schedule(4, 3), 10), Model(torch.zeros(5), torch.zeros(2)), **options)


def save_trained(server, updates=5):
    server.start()
    for _ in range(updates):
        server.receive(make_update(min(server.ledger.running.values()), server.model))
    tensors, values = save_server(server)
    return {name: tensor.clone() for name, tensor in tensors.items()}, json.loads(json.dumps(values))


@pytest.fixture(scope="module")
def saved():
    return save_trained(make_server())


COUNT, NUMBER = "must be a whole number of at least 0, got {}", "must be a finite number of at least 0, got {}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": -1}, f"version {COUNT.format(-1)}"),
        ({"version": 1.0}, f"version {COUNT.format(1.0)}"),
        ({"refused": {"late": -2}}, f"refused {COUNT.format(-2)}"),
        ({"spent": [[-3, 1]]}, f"spent {COUNT.format(-3)}"),
        ({"spent": [[0, 0.5]]}, f"spent {COUNT.format(0.5)}"),
        ({"unjudged": [[-4, 1.0]]}, f"unjudged {COUNT.format(-4)}"),
        ({"unjudged": [[4, -1.0]]}, f"unjudged {NUMBER.format(-1.0)}"),
        ({"failed_early": [-5]}, f"failed_early {COUNT.format(-5)}"),
    ],
    ids=str,
)
def test_impossible_value_is_refused_by_name(saved, change, message):
    tensors, values = saved
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        load_server(make_server(), tensors, {**values, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row.__setitem__(1, 0), "buffer.{id} has 0 examples"),
        (lambda row: row.__setitem__(1, -1), f"buffer.{{id}}.examples {NUMBER.format(-1)}"),
        (lambda row: row[2].pop("loss"), "buffer.{id} has no loss"),
        (lambda row: row[0].__setitem__(1, -2), f"buffer {COUNT.format(-2)}"),
        (lambda row: row[0].__setitem__(2, 2), "the buffer's jobs are impossible"),
    ],
    ids=["no examples", "negative examples", "no loss", "client", "from the future"],
)
def test_impossible_update_is_refused(saved, change, message):
    tensors, values = saved
    values = json.loads(json.dumps(values))
    change(values["buffer"][0])
    message = message.format(id=values["buffer"][0][0][0])
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        load_server(make_server(), tensors, values)


def test_update_that_is_saved_twice_is_refused(saved):
    tensors, values = saved
    with pytest.raises(ValueError, match="the buffer's jobs are impossible"):
        load_server(make_server(), tensors, {**values, "buffer": [values["buffer"][0]] * 2})


def test_one_example_is_possible(saved):
    tensors, values = saved
    values = json.loads(json.dumps(values))
    values["buffer"][0][1] = 1
    load_server(other := make_server(), tensors, values)
    assert other.updates[values["buffer"][0][0][0]].examples == 1


def test_update_that_was_accepted_must_be_finite(saved):
    tensors, values = saved
    id, like = values["buffer"][0][0][0], make_server().model
    for name in ("delta", "buffers"):
        damaged = {**tensors, f"buffer.{id}.{name}": tensors[f"buffer.{id}.{name}"] * INF}
        with pytest.raises(ValueError, match=f"buffer.{id}.{name} is not finite"):
            load_updates("buffer", damaged, values["buffer"], like)
        assert load_updates("buffer", damaged, values["buffer"], like, accepted=False)


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [(CORRECTED, "m"), (CORRECTED, "v"), (CORRECTED, "vhat"), (CORRECTED, "t"), (CA2FL(), "h.sum")],
)
def test_memory_that_every_step_writes_must_be_there(algorithm, name):
    tensors, values = save_trained(make_server(algorithm))
    del tensors[f"slot.{name}"]
    with pytest.raises(ValueError, match=f"slot.{name} is missing"):
        load_server(make_server(algorithm), tensors, values)


@pytest.mark.parametrize("name", ["v", "vhat", "t"])
def test_squares_and_times_are_never_negative(saved, name):
    tensors, values = saved
    zero = tensors[f"slot.{name}"] * 0
    load_server(make_server(), {**tensors, f"slot.{name}": zero}, values)
    with pytest.raises(ValueError, match=f"slot.{name} must not be negative"):
        load_server(make_server(), {**tensors, f"slot.{name}": zero - 1}, values)


def test_memory_may_point_anywhere(saved):
    tensors, values = saved
    load_server(other := make_server(), {**tensors, "slot.m": -tensors["slot.m"]}, values)
    assert other.state.slots["m"].max() < 0


def test_everything_that_was_saved_is_restored():
    server = make_server()
    jobs = server.start()
    server.drop(jobs[0])
    server.receive(make_update(jobs[1], server.model))
    server.receive(make_update(jobs[2], server.model, examples=0))
    tensors, values = save_server(server)
    assert (server.failed_early, len(server.unjudged)) == ({jobs[0].client, jobs[2].client}, 1)
    load_server(other := make_server(), tensors, json.loads(json.dumps(values)))
    for name in ("failed_early", "unjudged", "refused"):
        assert getattr(other, name) == getattr(server, name)
    assert other.recent.state() == server.recent.state()


def test_updates_that_wait_are_restored():
    schedule = Schedule(2, 2, per_client=1)

    def make():
        return Server(CORRECTED, Ledger(schedule, 2), Model(torch.zeros(5), torch.zeros(0)))

    server = make()
    job, _ = server.start()
    for _ in range(2):
        received = server.receive(make_update(job, server.model, examples=7))
        job = (received.jobs or [job])[0]
    assert len(server.waiting) == 1
    tensors, values = save_server(server)
    load_server(other := make(), tensors, json.loads(json.dumps(values)))
    assert other.updates.keys() == server.updates.keys()
    assert [update.examples for update in other.updates.values()] == [7, 7]
    assert any(name.startswith("waiting.") for name in tensors)


def test_state_of_earlier_version_has_fewer_values(saved):
    tensors, values = saved
    missing = ("waiting", "recent", "unjudged", "failed_early")
    load_server(other := make_server(), tensors, {name: v for name, v in values.items() if name not in missing})
    assert (other.recent.state()["votes"], other.unjudged, other.failed_early) == ([], {}, set())
    assert other.state.version == 1


class Watching:
    """A combine rule that remembers what it was given."""

    def __init__(self):
        self.seen = []

    def __call__(self, state, step, updates, clients):
        first = updates[0]
        self.seen.append((state.version, step.index, step.delays, first.examples, first.metrics["loss"], clients))
        return torch.stack([update.delta for update in updates]).sum(0), {}


def test_memory_is_compared_with_a_first_step_of_zeros():
    tensors, values = save_trained(make_server(Algorithm(Watching(), Adam())))
    watching = Watching()
    load_server(make_server(Algorithm(watching, Adam())), tensors, values)
    assert watching.seen == [(0, 0, [0, 0, 0], 1, 0.0, 10)]


def test_rules_of_the_saved_run_are_kept():
    tensors, values = save_trained(make_server(replace(CORRECTED, statistics=0.25)))
    load_server(other := make_server(), tensors, values)
    assert other.algorithm.statistics == 0.25


@pytest.mark.parametrize("value", [True, -1, 0.0, 1.5, "3", None, [1]])
def test_saved_count_is_a_whole_number(value):
    assert saved_count(0, "n") == 0
    assert saved_count(7, "n") == 7
    with pytest.raises(ValueError, match=f"^n {re.escape(COUNT.format(repr(value)))}$"):
        saved_count(value, "n")


@pytest.mark.parametrize("value", [True, -0.5, INF, NAN, "3", None, [1]])
def test_saved_number_is_finite(value):
    assert [saved_number(number, "x") for number in (0, 0.25, 3)] == [0.0, 0.25, 3.0]
    assert type(saved_number(3, "x")) is float
    with pytest.raises(ValueError, match=f"^x {re.escape(NUMBER.format(repr(value)))}$"):
        saved_number(value, "x")
