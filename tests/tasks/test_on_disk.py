"""Data that stay on disk: the same results as in memory, and little memory."""

import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import fadas
from fadas.executors.auto import Auto
from fadas.tasks.files import files
from fadas.tasks.subsets import Rows, Subsets
from fadas.tasks.task import Task, on_device
from fadas.training.batched.many_jobs import BatchTrainer
from fadas.training.flat_module import FlatModule
from helpers.cli import ROOT, import_path, run_fadas
from helpers.data_files import in_memory, load_arrays, write_arrays
from helpers.training import LOCAL, run_simulation

PROGRAM = ROOT / "tests" / "helpers" / "limited_memory.py"
CLIENTS = 8


@pytest.mark.parametrize("options", [{}, {"validation": 0.2}])
@pytest.mark.parametrize("executor", ["inline", "batched", "processes", "auto"])
def test_data_on_disk_give_the_results_of_data_in_memory(tmp_path, executor, options):
    task = load_arrays(write_arrays(tmp_path / "a"), **options)
    assert task.mapped
    same = in_memory(task)
    assert not same.mapped
    plan = fadas.plan(fadas.Schedule(4, 2), CLIENTS, fadas.Mild(), steps=6, seed=1)
    (records, model), (expected, other) = (
        run_simulation(plan, each, fadas.FADAS(), executor=executor) for each in (task, same)
    )
    assert torch.equal(model.params, other.params)
    assert [record.metrics for record in records] == [record.metrics for record in expected]
    assert records[-1].metrics["accuracy"] > 0
    assert task.label_counts() == same.label_counts()


def test_clients_of_arrays_are_those_of_the_column(tmp_path):
    task = load_arrays(write_arrays(tmp_path / "a"))
    owners, x = (np.load(tmp_path / "a" / f"{name}.npy") for name in ("client", "x"))
    names = list(dict.fromkeys(owners.tolist()))
    for client, name in enumerate(names):
        assert torch.equal(task.clients[client][0], torch.from_numpy(x[owners == name]))
        assert torch.equal(task.examples(client, slice(2))[0], task.clients[client][0][:2])
        assert torch.equal(task.examples(client, [0, -1])[1], task.clients[client][1][[0, -1]])


@pytest.mark.parametrize("column", [{"y": np.int8}, {"y": np.uint16}, {"client": np.str_}])
def test_labels_and_owners_may_have_any_type(tmp_path, column):
    task = load_arrays(write_arrays(tmp_path / "a", **column))
    assert task.clients.data[-1].dtype == torch.int64
    assert task.label_counts() == load_arrays(write_arrays(tmp_path / "b")).label_counts()


def test_inputs_reach_the_network_as_they_are(tmp_path):
    task = load_arrays(write_arrays(tmp_path / "a", x=np.float16))
    assert task.clients.data[0].dtype == torch.float16
    assert task.mapped


def test_numbers_are_predicted_from_arrays(tmp_path):
    write_arrays(tmp_path / "a", y=np.float64)
    np.save(tmp_path / "a" / "test_y.npy", np.zeros((50, 1)))
    task = files(str(tmp_path / "a"), "mlp", CLIENTS, kind="regression", hidden=8)
    assert task.clients[0][1].shape == (task.sizes[0], 1)
    assert task.label_counts() is None
    assert task.evaluate(task.module()).keys() == {"rmse", "mae", "loss"}


def test_wide_targets_stay_on_disk(tmp_path):
    write_arrays(tmp_path / "a", with_test=False)
    np.save(tmp_path / "a" / "y.npy", np.zeros((len(np.load(tmp_path / "a" / "x.npy")), 6), np.float32))
    task = files(str(tmp_path / "a"), "linear", CLIENTS, kind="regression", test=0.2)
    assert isinstance(task.test, Rows)
    assert task.test.mapped
    assert task.module()(task.clients[0][0]).shape == task.clients[0][1].shape


def test_share_of_arrays_is_held_out(tmp_path):
    folder = write_arrays(tmp_path / "a", with_test=False)
    whole, task = load_arrays(folder), load_arrays(folder, test=0.3)
    assert whole.test is None
    assert sum(task.sizes) + len(task.test[-1]) == sum(whole.sizes)
    assert len(task.test[-1]) > 30
    again = load_arrays(folder, test=0.3, validation=0.3)
    taken = {*again.test.rows.tolist()}
    assert not taken & {*task.test.rows.tolist()}
    assert taken <= {row for part in task.clients.parts for row in part.tolist()}
    with pytest.raises(ValueError, match="test must be above 0 and below 1, got 1"):
        load_arrays(folder, test=1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": None}, "clients must equal the number of client files"),
        ({"y": None}, r"cannot read .*y\.npy \(No such file or directory\)"),
        ({"client": None}, r"cannot read .*client\.npy \(No such file or directory\)"),
        ({"test_y": None}, r"cannot read .*test_y\.npy \(No such file or directory\)"),
        ({"x": b"no array"}, r"cannot read .*x\.npy: "),
        (
            {"client": np.array(["a"])},
            r"client\.npy must hold one value for each of the 116 rows of x\.npy, got an array",
        ),
        ({"client": np.zeros(116)}, r"the number of different values in .*client\.npy \(1\), got 8"),
        (
            {"y": np.zeros(5, int)},
            r"x\.npy and y\.npy must have one row per example, got the shapes \[116, 6\] and \[5\]",
        ),
        ({"y": np.zeros(116)}, r"y\.npy: y must hold whole numbers, .* set task\.kind to \"regression\""),
        ({"x": np.zeros((116, 6))}, r"x\.npy: float64 cannot be read from disk row by row; save the array .* float32"),
        ({"x": np.zeros((6, 116), np.float32).T}, r"x\.npy: float32 in another order cannot be read from disk"),
        ({"x": np.zeros((116, 6), ">f4")}, r"x\.npy: float32 in another order cannot be read from disk"),
        ({"x": np.array([{}] * 116)}, r"cannot read .*x\.npy: "),
    ],
)
def test_unsuitable_arrays_are_refused(tmp_path, change, message):
    folder = write_arrays(tmp_path / "a")
    for name, content in change.items():
        path = folder / f"{name}.npy"
        if content is None:
            path.unlink()
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            np.save(path, content, allow_pickle=True)
    with pytest.raises(ValueError, match=message):
        load_arrays(folder)


def test_shares_and_files_of_test_data_do_not_go_together(tmp_path):
    folder = write_arrays(tmp_path / "a")
    with pytest.raises(ValueError, match="holds test data, so no share can be held out"):
        load_arrays(folder, test=0.2)
    with pytest.raises(ValueError, match="is a folder, so it holds its own test data"):
        load_arrays(folder, test="more.csv")
    with pytest.raises(ValueError, match=r"target is for tables \(\.csv or \.parquet\), and .* is a folder; remove it"):
        load_arrays(folder, target="y")
    with pytest.raises(ValueError, match=r"path must be a folder, or a file that ends in .*, which does not exist"):
        load_arrays(tmp_path / "none")


def test_arrays_in_python_may_stay_on_disk(tmp_path):
    folder = write_arrays(tmp_path / "a")
    x, labels = np.load(folder / "x.npy", mmap_mode="r"), np.load(folder / "y.npy")
    parts = fadas.partition.dirichlet(labels, 5, alpha=0.5, seed=1)
    clients = fadas.Subsets((x, labels), parts)
    task = Task(nn.Linear(6, 3), clients, test=(x[:20], labels[:20]))
    assert task.mapped
    assert task.test.mapped
    assert torch.equal(task.test[0], torch.from_numpy(np.array(x[:20])))
    same = Task(nn.Linear(6, 3), fadas.Subsets((np.array(x), labels), parts), test=(np.array(x[:20]), labels[:20]))
    assert not same.mapped
    module = task.module()
    assert task.evaluate(module, chunk=7) == same.evaluate(module, chunk=7)
    with pytest.raises(ValueError, match="all of the same length"):
        Task(nn.Linear(6, 3), fadas.Subsets((x, labels[:3]), parts))


def test_network_that_changes_its_input_does_not_change_the_file(tmp_path):
    folder = write_arrays(tmp_path / "a")
    before = (folder / "x.npy").read_bytes(), (folder / "test_x.npy").read_bytes()
    task = load_arrays(folder)
    task.model = lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 3))
    plan = fadas.plan(fadas.Schedule(4, 2), CLIENTS, fadas.Mild(), steps=2, seed=1)
    run_simulation(plan, task, fadas.FADAS())
    assert before == ((folder / "x.npy").read_bytes(), (folder / "test_x.npy").read_bytes())


def test_pickle_holds_the_place_of_the_file_and_not_its_content(tmp_path):
    """Ray pickles tasks, for workers that have the same file."""
    big = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (3000, 100))
    big[7] = np.arange(100)
    del big
    x, y = np.load(tmp_path / "x.npy", mmap_mode="r"), torch.arange(3000) % 3
    task = Task(nn.Linear(100, 3), Subsets((x, y), [torch.arange(10), torch.arange(10, 3000)]), test=(x[5:9], y[5:9]))
    text = pickle.dumps(task)
    assert len(text) < 200_000
    again = pickle.loads(text)
    assert again.mapped
    assert torch.equal(again.clients[0][0], torch.from_numpy(np.array(x[:10])))
    assert torch.equal(again.test[0][2], torch.arange(100.0))
    assert torch.equal(pickle.loads(pickle.dumps(again)).test[0], again.test[0])


def test_device_gets_no_copy_of_data_on_disk(tmp_path):
    task = load_arrays(write_arrays(tmp_path / "a"))
    assert on_device(task, "meta") is task
    assert on_device(in_memory(task), "meta").clients.data[0].device.type == "meta"


def test_embedding_of_data_on_disk_is_not_stacked(tmp_path):
    """All data would have to be read to see that they name rows of the embedding."""
    write_arrays(tmp_path / "a", x=np.uint8)
    np.save(tmp_path / "a" / "x.npy", np.abs(np.load(tmp_path / "a" / "x.npy").astype(np.int64)) % 5)

    def model():
        return nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(12, 3))

    for task, is_stacked in ((load_arrays(tmp_path / "a"), False), (in_memory(load_arrays(tmp_path / "a")), True)):
        task.model = model
        trainer = BatchTrainer(FlatModule(task.module()), task, LOCAL, 0)
        assert (trainer.stacked is not None) is is_stacked
        trainer.check_batching()


def test_only_the_first_rows_on_disk_are_searched_for_missing_values(tmp_path, monkeypatch):
    monkeypatch.setattr("fadas.training.preflight._LOOKED_AT", 1000)
    plan = fadas.plan(fadas.Schedule(4, 2), CLIENTS, fadas.Mild(), steps=2, seed=1)
    for row, warns in ((0, True), (100, False)):
        folder = write_arrays(tmp_path / str(row))
        x = np.load(folder / "x.npy")
        x[row] = np.nan
        np.save(folder / "x.npy", x)
        task = load_arrays(folder)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run_simulation(plan, task, fadas.FADAS(), executor="inline")
        assert any("NaN" in str(one.message) for one in caught) is warns


def test_auto_chooses_as_for_data_in_memory(tmp_path):
    task = load_arrays(write_arrays(tmp_path / "a"))
    one, other = (Auto()(each, LOCAL, 0) for each in (task, in_memory(task)))
    assert type(one) is type(other)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Two arrays of 400 MB each, which take next to no space on disk."""
    folder = tmp_path_factory.mktemp("large")
    rows, width = 100_000, 1000
    for name in ("x", "test_x"):
        np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (rows, width))
    np.save(folder / "y.npy", (np.arange(rows) % 4).astype(np.int8))
    np.save(folder / "test_y.npy", (np.arange(rows) % 4).astype(np.int8))
    np.save(folder / "client.npy", np.arange(rows) // (rows // 50))
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on private memory")
@pytest.mark.parametrize(
    ("executor", "validation"), [("inline", "0"), ("inline", "0.2"), ("batched", "0"), ("processes", "0.2")]
)
def test_run_on_data_larger_than_allowed_memory(large, executor, validation):
    """400 MB of training data and as much test data, or 80 MB held out; 200 MB more than without data are allowed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, PROGRAM, large, executor, validation, "200"], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    examples, accuracy, read = map(float, done.stdout.split())
    assert examples == 100_000 * (1 - float(validation))
    assert accuracy == pytest.approx(0.25, abs=0.01)
    assert read < 150, "the jobs train on a few thousand rows of 4 KB, and 64 MB are searched for NaN"


def test_experiment_on_arrays_runs(tmp_path):
    write_arrays(tmp_path / "data")
    (tmp_path / "x.toml").write_text(
        f"""
[task]
name = "files"
path = "data"
model = "mlp"
clients = {CLIENTS}
[schedule]
concurrency = 4
buffer = 2
[run]
steps = 5
[algorithms.fadas]
"""
    )
    done = run_fadas("run", "x.toml", cwd=tmp_path, PYTHONPATH=import_path())
    assert "accuracy" in done.stdout
