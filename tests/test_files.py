"""Bring your own data: folders, torch data sets, Hugging Face data sets."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from fadas import Delays, FedBuff, LocalSGD, Mild, plan, simulate
from fadas.tasks.files import files, from_huggingface
from fadas.tasks.task import Task
from helpers.cli import import_path, run_fadas
from helpers.data_files import write_client_files
from helpers.networks import TinyNet
from helpers.training import make_task, train_briefly


def test_a_folder_with_a_file_per_client(tmp_path):
    write_client_files(tmp_path / "f")
    task = files(str(tmp_path / "f"), "helpers.networks:TinyNet", 7)
    assert task.sizes == make_task(7).sizes
    assert torch.equal(task.clients[1][0], make_task(7).clients[1][0])
    assert isinstance(task.module(), TinyNet)
    with pytest.raises(ValueError, match="7 clients, not 5"):
        files(str(tmp_path / "f"), "helpers.networks:TinyNet", 5)
    with pytest.raises(ValueError, match="cannot import model"):
        files(str(tmp_path / "f"), "helpers.networks:NoNet", 7)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"x": np.zeros((3, 2))}, "has no array 'y'"),
        ({"x": np.zeros((3, 2)), "y": np.array([{}, {}, {}])}, "cannot be read"),
        (b"not a zip", "cannot be read"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(3)}, r"y holds \[3\] floats; labels must be whole numbers"),
        ({"x": np.zeros((3, 2)), "y": np.zeros((3, 1))}, r"y holds \[3, 1\] floats"),
    ],
)
def test_bad_files(tmp_path, content, message):
    path = tmp_path / "a.npz"
    path.write_bytes(content) if isinstance(content, bytes) else np.savez(path, **content)
    with pytest.raises(ValueError, match=message):
        files(str(tmp_path), "helpers.networks:TinyNet", 1)


@pytest.mark.parametrize("kind", ["float16", "float64"])
@pytest.mark.parametrize("probabilities", [False, True])
def test_floats_of_any_length_and_labels_or_probabilities(tmp_path, kind, probabilities):
    for name in ("a", "b", "test"):
        x, y = (column.numpy() for column in make_task().clients[1])
        np.savez(tmp_path / f"{name}.npz", x=x.astype(kind), y=np.eye(3)[y].astype(kind) if probabilities else y)
    assert train_briefly(files(str(tmp_path), "helpers.networks:TinyNet", 2))[-1].metrics["loss"] > 0


def test_clients_with_few_examples_keep_them_when_some_are_held_out(tmp_path):
    for name, size in (("a", 10), ("b", 2), ("c", 1)):
        np.savez(tmp_path / f"{name}.npz", x=np.zeros((size, 6)), y=np.arange(size))
    task = files(str(tmp_path), "helpers.networks:TinyNet", 3, validation=0.2)
    assert list(task.sizes) == [8, 2, 1]
    assert sorted([*task.clients[0][1].tolist(), *task.test[1].tolist()]) == list(range(10))
    with pytest.raises(ValueError, match=r"a held-out share of 0\.04 leaves every client"):
        files(str(tmp_path), "helpers.networks:TinyNet", 3, validation=0.04)
    for share in (1.5, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=f"must lie between 0 and 1, not {share}"):
            files(str(tmp_path), "helpers.networks:TinyNet", 3, validation=share)


def test_from_the_command_line(tmp_path):
    write_client_files(tmp_path / "f")
    (tmp_path / "mine.toml").write_text(
        f"""
[task]
name = "files"
path = "{tmp_path / "f"}"
model = "helpers.networks:TinyNet"
clients = 7
[schedule]
concurrency = 4
buffer = 2
[run]
steps = 5
[algorithms.fadas]
"""
    )
    done = run_fadas("run", tmp_path / "mine.toml", "--out", tmp_path / "o", PYTHONPATH=import_path())
    assert "accuracy" in done.stdout


class Squares(Dataset):
    def __len__(self):
        return 9

    def __getitem__(self, i):
        return torch.full((6,), float(i)), i % 3


class Pairs(Dataset):
    """Items as they come out of numpy and Python: doubles and short labels."""

    def __len__(self):
        return 9

    def __getitem__(self, i):
        return np.full(6, i / 9), np.int32(i % 3)


class Masked(Pairs):
    def __getitem__(self, i):
        return np.ma.masked_equal(np.arange(6.0), i), i % 3


@pytest.mark.parametrize("labels", [np.int32, np.uint8])
@pytest.mark.parametrize("executor", ["auto", "inline"])
def test_numpy_arrays(labels, executor):
    pairs = [[column.numpy() for column in data] for data in make_task().clients[:3]]
    given = [(x.astype(float)[::-1], y.astype(labels)[::-1]) for x, y in pairs]
    given[0][0].flags.writeable = False
    task = Task(TinyNet, [*given, Pairs()], test=given[1])
    same = Task(TinyNet, [tuple(torch.tensor(column.copy()) for column in pair) for pair in pairs], test=task.test)
    assert {column.dtype for column in [*task.clients[0], *task.clients[3], *task.test]} == {torch.float32, torch.int64}
    assert torch.equal(task.clients[1][0], same.clients[1][0].flip(0))
    p = plan(FedBuff().schedule(2, 1), 4, Delays(Mild()), steps=4)
    *_, last = simulate(p, task, FedBuff(), LocalSGD(lr=0.01, batch_size=4), executor=executor)
    assert 0 <= last.metrics["accuracy"] <= 1


def squares(outputs, targets):
    return (outputs[:, :1] - targets) ** 2


@pytest.mark.parametrize("executor", ["inline", "batched"])
def test_numpy_arrays_for_regression(executor):
    data = [(x.numpy(), x[:, :1].double().numpy()) for x, _ in make_task().clients]
    task = Task(TinyNet, data, squares, test=data[2])
    p = plan(FedBuff().schedule(4, 2), len(data), Delays(Mild()), steps=20)
    losses = [r.metrics for r in simulate(p, task, FedBuff(), LocalSGD(lr=0.05, batch_size=4), executor=executor)]
    assert losses[0].keys() == {"loss"}
    assert losses[-1]["loss"] < 0.5 * losses[0]["loss"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((3, 6)), "not one array"),
        (torch.zeros(3, 6), "not one array"),
        ((np.zeros((3, 6)), np.array(["a", "b", "c"])), "arrays of numbers: can't convert"),
        (([np.zeros(3), np.zeros(4)], [1, 2]), "arrays of numbers"),
        ((np.zeros((3, 6)), 1), "all of one length"),
        ((np.zeros((3, 6)), np.zeros(2)), "all of one length"),
        (None, "arrays of numbers"),
        ((np.ma.masked_less(np.arange(18.0).reshape(3, 6), 1), np.zeros(3, int)), "a masked array lacks values"),
        ((np.zeros((3, 6)), np.ma.masked_equal([0, 1, 2], 1)), "a masked array lacks values"),
        (Masked(), "a masked array lacks values"),
    ],
)
def test_what_is_no_data_is_refused_at_once(data, message):
    with pytest.raises(ValueError, match=f"client 1: .*{message}"):
        Task(TinyNet, [make_task().clients[0], data])


def test_masked_arrays_that_mask_nothing_are_taken():
    x, y = (np.ma.array(column.numpy()) for column in make_task().clients[0])
    assert torch.equal(Task(TinyNet, [(x, y)]).clients[0][0], make_task().clients[0][0])


def test_torch_datasets():
    task = Task(TinyNet, [Squares(), TensorDataset(*make_task().clients[1]), Squares()], test=Squares())
    assert task.sizes == [9, 17, 9]
    assert task.clients[0][1].dtype == torch.int64
    assert "accuracy" in train_briefly(task)[-1].metrics


def test_huggingface_dataset_with_a_column_that_names_the_client():
    datasets = pytest.importorskip("datasets")
    rng = np.random.default_rng(0)
    table = {
        "features": rng.normal(size=(40, 6)).astype("float32").tolist(),
        "grade": rng.integers(0, 3, 40).tolist(),
        "hospital": [["north", "south", "east"][i % 3] for i in range(40)],
    }
    dataset = datasets.Dataset.from_dict(table)
    task = from_huggingface(TinyNet, dataset, client="hospital", inputs=["features"], target="grade", test=dataset)
    assert task.sizes == [14, 13, 13]
    assert torch.allclose(task.clients[1][0][0], torch.tensor(table["features"][1]))
    assert task.clients[2][1].tolist() == table["grade"][2::3]
    train_briefly(task)
