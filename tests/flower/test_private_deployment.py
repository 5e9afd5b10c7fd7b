"""Differential privacy in a deployment: nobody can compute the noise, and no noisy model is released twice."""

import json
import sys
from statistics import NormalDist

import pytest

pytest.importorskip("flwr")
pytest.importorskip("dp_accounting")
import torch
from flwr.app import MetricRecord

import fadas
from fadas.algorithms.privacy import Private, SecurePrivate, Spending, epsilon, secure_normal
from fadas.core.ledger import Step
from fadas.runs.checkpoint import read_checkpoint
from fadas.runs.folder import checkpoints
from helpers.flower import AMOUNT, INITIAL, ONE, THREE, TWO, Node, answer_trained, find_lines, stop_server_after

PRIVATE = fadas.Algorithm(Private(clip=10.0, noise=0.5))


def run(play, folder, **options):
    play({ONE: Node()}, algorithm=PRIVATE, steps=1, concurrency=1, check=False, folder=folder / "runs", **options)
    return torch.tensor(play.result.arrays["w"].numpy() - INITIAL - AMOUNT[ONE])


def test_noise_differs_between_deployments_and_from_seeded_noise(play, tmp_path, monkeypatch):
    monkeypatch.setattr(type(play), "read", lambda self: [{}])
    one, two = (run(play, tmp_path / name) for name in ("one", "two"))
    seeded = Private(10.0, 0.5).draw(Step(0, (), 0), torch.zeros(2)) * 5.0
    assert not torch.allclose(one, two)
    assert not torch.allclose(one, seeded)


def test_secure_noise_is_standard_normal_and_never_repeats():
    one, two = secure_normal(1_100_000), secure_normal(1_100_000)
    for sample in (one, two):
        assert abs(sample.mean()) < 0.005
        assert abs(sample.std() - 1) < 0.005
        assert 4.5 < sample.abs().max() < 8.5
        assert abs((sample.abs() < 1).double().mean() - 0.6827) < 0.003
    assert not (one == two).all()
    assert abs((one * two).mean()) < 0.005
    assert len(secure_normal(0)) == 0


@pytest.mark.parametrize("size", [0, 1, 7, 8, 24])
def test_secure_noise_has_as_many_numbers_as_asked_for(size, monkeypatch):
    monkeypatch.setattr("fadas.algorithms.privacy._BLOCK", 8)
    assert secure_normal(size).shape == (size,)


def test_secure_noise_is_the_quantile_of_52_secure_bits(monkeypatch):
    """The other bits of each word do not count. Zero and one, whose quantiles are infinite, cannot occur."""
    words = [0, 1, 2, 3, 2**51, 2**52 - 1, 2**52, 2**53 - 1, 2**64 - 1, 2**63, 0xF00 << 52 | 2**50 + 12345]
    content = b"".join(word.to_bytes(8, sys.byteorder) for word in words)
    monkeypatch.setattr("os.urandom", lambda size: content[:size])
    exact = [NormalDist().inv_cdf(((word & 2**52 - 1) + 0.5) / 2**52) for word in words]
    assert secure_normal(len(words)).tolist() == pytest.approx(exact, rel=1e-5, abs=1e-7)


def test_only_deployments_draw_from_secure_source():
    assert isinstance(PRIVATE.deployed().combine, SecurePrivate)
    assert type(PRIVATE.combine) is Private
    assert fadas.FADAS().deployed() == fadas.FADAS()


def test_noisy_model_is_on_disk_before_it_is_evaluated_or_sent(play, tmp_path):
    """A server that dies afterwards continues with this model, and draws no second noise for it."""
    evaluated, sent = [], []

    def evaluate(step, arrays):
        if step:
            stored, _ = read_checkpoint(checkpoints(tmp_path / "fadas-0")[0])
            assert stored["params"].tolist() == arrays["w"].numpy().tolist()
            evaluated.append((step, arrays["w"].numpy().tolist()))
        if step == 3 and len(evaluated) == 3:
            raise KeyboardInterrupt
        return MetricRecord({"accuracy": 0.5})

    def answer(message):
        sent.append(message.content["arrays"]["w"].numpy().tolist())
        return answer_trained(message)

    options = {"algorithm": PRIVATE, "concurrency": 1, "steps": 6, "check": False, "evaluate": evaluate}
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(answer)}, **options)
    assert len(play.read()) == 2, "the third step is saved, but not recorded"
    play({ONE: Node(answer)}, **options)
    assert [record["step"] for record in play.records] == [1, 2, 3, 4, 5, 6]
    assert evaluated[2] == evaluated[3], "the same model is evaluated again"
    assert [step for step, _ in evaluated] == [1, 2, 3, 3, 4, 5, 6]
    assert all(model in [INITIAL.tolist(), *(model for _, model in evaluated)] for model in sent)
    assert [record["privacy"]["epsilon"] for record in play.records] == [epsilon(0.5, 1e-5, n) for n in range(1, 7)]


def test_log_shows_epsilon_after_every_step(play):
    play({ONE: Node()}, algorithm=PRIVATE, concurrency=1, steps=3, check=False)
    shown = [line.partition("epsilon ")[2] for line in find_lines(play.log, "step ", "epsilon ")]
    assert shown == [f"{epsilon(0.5, 1e-5, n):.4g} at delta 1e-05" for n in (1, 2, 3)]


@pytest.mark.parametrize("buffer", [1, 2])
def test_lost_release_is_charged(play, tmp_path, buffer):
    """If the last checkpoint is damaged, its model may have been sent out."""
    options = {"algorithm": PRIVATE, "steps": 8, "buffer": buffer, "concurrency": 1, "check": False}
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(4 * buffer + buffer))}, **options)
    done = play.read()[-1]["step"]
    newest, older = checkpoints(tmp_path / "fadas-0")
    _, kept = read_checkpoint(older)
    spent = dict(kept["spent"])[0]
    newest.write_bytes(newest.read_bytes()[:-1])
    play({ONE: Node()}, **options)
    assert find_lines(play.log, "a step may have been lost after its model was sent; its privacy is charged")
    lost = (len(kept["buffer"]) + 1) ** 2
    steps = 8 - kept["version"]
    assert play.last["privacy"]["epsilon"] == epsilon(0.5, 1e-5, spent + lost + steps * buffer**2)
    assert play.last["step"] == 8
    assert done >= kept["version"]


def test_interrupted_private_run_of_older_code_continues(play, tmp_path):
    """The secure noise is no setting: the folder's settings are still those of this run."""
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(4)), TWO: Node()}, algorithm=PRIVATE, check=False)
    config = (tmp_path / "fadas-0" / "config.toml").read_text()
    assert "Private(clip=10.0, noise=0.5, delta=1e-05)" in config
    assert "Secure" not in config
    play({ONE: Node(), TWO: Node()}, algorithm=PRIVATE, check=False)
    assert json.loads((tmp_path / "fadas-0" / "summary.json").read_text())["privacy"]["epsilon"] > 0


def test_charge_for_a_lost_release_outlives_another_crash(play, tmp_path):
    """The server dies again before the first update after the damage. The step is charged once."""
    options = {"algorithm": PRIVATE, "steps": 6, "concurrency": 1, "check": False}
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(3))}, **options)
    newest, older = checkpoints(tmp_path / "fadas-0")
    done, spent = (read_checkpoint(older)[1][name] for name in ("version", "spent"))
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(0))}, **options)
    play({ONE: Node()}, **options)
    assert len(find_lines(play.log, "a step may have been lost")) == 1
    assert play.last["privacy"]["epsilon"] == epsilon(0.5, 1e-5, dict(spent)[0] + 1 + 6 - done)


def test_newcomer_is_charged_for_updates_to_come_of_nodes_that_are_away(play, monkeypatch):
    """A node that left during its job may be the newcomer under another name. A node that is present is not."""
    admitted, admit = [], Spending.admit

    def watch(spending, client, waiting, size):
        admitted.append((client, list(waiting), size))
        admit(spending, client, admitted[-1][1], size)

    monkeypatch.setattr(Spending, "admit", watch)
    nodes = {
        ONE: Node(latency=9.0),
        TWO: Node(latency=9.0, spans=((0.0, 2.5),)),
        THREE: Node(latency=1.0, spans=((5.5, 1e9),)),
    }
    play(nodes, algorithm=PRIVATE, steps=3, concurrency=3, buffer=2, check=False, deadline=20.0)
    assert admitted == [(0, [], 2), (1, [], 2), (2, [1], 2)]
