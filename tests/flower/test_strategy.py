"""What a strategy refuses before any node trains for it."""

import numpy as np
import pytest

pytest.importorskip("flwr")
from logging import WARNING

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord

import fadas
from fadas.algorithms.presets import ALGORITHMS
from fadas.algorithms.robust import Trimmed
from fadas.core.ledger import Ledger, Schedule
from fadas.core.model import Model
from fadas.core.server import Server
from fadas.errors import ConfigError
from fadas.flower import AsyncStrategy
from fadas.flower.federation import try_one_step
from helpers.flower import ONE, Clock, Node, Nodes, stop_server_after


def test_numpy_numbers_are_accepted(play, tmp_path):
    options = {"concurrency": np.int64(2), "buffer": np.int64(1), "steps": np.int64(12)}
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))}, **options)
    play({ONE: Node()}, **options)
    strategy = fadas.flower.AsyncStrategy(seed=np.int64(3))
    assert type(strategy.options.seed) is int
    with pytest.raises(ValueError, match="seed must be a whole number"):
        fadas.flower.AsyncStrategy(seed=0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reply": "Delta"}, "reply must be one of arrays, delta, got 'Delta'"),
        ({"eval_every": 0}, "eval_every must be at least 1, got 0"),
        ({"deadline": 0.0}, "deadline, patience and poll .* got 0.0, 300.0 and 0.2"),
        ({"deadline": float("nan")}, "deadline, patience and poll"),
        ({"patience": -1.0}, "deadline, patience and poll"),
        ({"poll": 0.0}, "deadline, patience and poll"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AsyncStrategy(**options)


def test_run_config_reads_zero_and_ignores_empty_string(tmp_path):
    options = AsyncStrategy.from_run_config({"patience": 0, "seed": 0, "folder": ""}, seed=3).options
    assert (options.patience, options.seed, options.folder) == (0.0, 3, None)
    assert AsyncStrategy.from_run_config({}).options.patience == 300.0
    with pytest.raises(ValueError, match="eval_every"):
        AsyncStrategy.from_run_config({"eval-every": 0})


def start_strategy(algorithm, folder, steps=1, **options):
    grid = Nodes(Clock(), {11: Node()})
    arrays = ArrayRecord({"w": Array(np.zeros(2, np.float32))})
    try:
        AsyncStrategy(algorithm, Schedule(2, 2), folder=folder, patience=0).start(grid, arrays, steps, **options)
    finally:
        assert not grid.pushed


def test_algorithm_that_cannot_step_is_refused_first(tmp_path):
    with pytest.raises(
        ConfigError, match=r"the algorithm cannot take a step of 2 updates: .*trim must be below half of the buffer"
    ):
        start_strategy(fadas.Algorithm(Trimmed(1)), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_preset_passes_trial_step(name):
    algorithm = ALGORITHMS[name]()
    ledger = Ledger(algorithm.schedule(4, 2), 0, open=True)
    server = Server(algorithm, ledger, Model(torch.ones(3), torch.ones(2)))
    try_one_step(server)
    assert (server.state.version, server.state.slots, server.buffer) == (0, {}, []), "the step is discarded"
    assert server.model.params.tolist() == [1.0, 1.0, 1.0]


def test_zero_rounds_are_refused(tmp_path):
    with pytest.raises(ValueError, match="num_rounds must be at least 1, got 0"):
        start_strategy(fadas.FedBuff(), tmp_path, steps=0)


def test_evaluate_config_is_ignored_with_warning(caplog, tmp_path):
    caplog.set_level(WARNING, "flwr")
    with pytest.raises(ConfigError):
        start_strategy(fadas.Algorithm(Trimmed(1)), tmp_path, evaluate_config=ConfigRecord({"split": "dev"}))
    assert "evaluate_config is ignored" in caplog.text
