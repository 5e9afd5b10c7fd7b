"""Data in folders and in Hugging Face data sets."""

import numpy as np
import pytest
import torch

from fadas.tasks.files import files, from_huggingface
from helpers.cli import import_path, run_fadas
from helpers.data_files import write_client_files
from helpers.networks import TinyNet
from helpers.training import make_task, train_briefly


def test_folder_gives_client_per_file(tmp_path):
    write_client_files(tmp_path / "f")
    task = files(str(tmp_path / "f"), "helpers.networks:TinyNet", 7)
    assert task.sizes == make_task(7).sizes
    assert torch.equal(task.clients[1][0], make_task(7).clients[1][0])
    assert isinstance(task.module(), TinyNet)
    with pytest.raises(ValueError, match=r"the number of client files in .* \(7\), got 5"):
        files(str(tmp_path / "f"), "helpers.networks:TinyNet", 5)
    with pytest.raises(ValueError, match="cannot import model"):
        files(str(tmp_path / "f"), "helpers.networks:NoNet", 7)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"x": np.zeros((3, 2))}, "has no array 'y'"),
        ({"x": np.zeros((3, 2)), "y": np.array([{}, {}, {}])}, "cannot read .*a.npz"),
        (b"not a zip", "cannot read .*a.npz"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(3)}, r"y must hold whole numbers, .*got floats of shape \[3\]\."),
        ({"x": np.zeros((3, 2)), "y": np.zeros((3, 1))}, r"got floats of shape \[3, 1\]\."),
    ],
)
def test_bad_client_files_are_refused(tmp_path, content, message):
    path = tmp_path / "a.npz"
    path.write_bytes(content) if isinstance(content, bytes) else np.savez(path, **content)
    with pytest.raises(ValueError, match=message):
        files(str(tmp_path), "helpers.networks:TinyNet", 1)


@pytest.mark.parametrize("kind", ["float16", "float64"])
@pytest.mark.parametrize("probabilities", [False, True])
def test_any_float_type_and_labels_or_probabilities_train(tmp_path, kind, probabilities):
    for name in ("a", "b", "test"):
        x, y = (column.numpy() for column in make_task().clients[1])
        np.savez(tmp_path / f"{name}.npz", x=x.astype(kind), y=np.eye(3)[y].astype(kind) if probabilities else y)
    assert train_briefly(files(str(tmp_path), "helpers.networks:TinyNet", 2))[-1].metrics["loss"] > 0


def test_validation_leaves_small_clients_their_examples(tmp_path):
    for name, size in (("a", 10), ("b", 2), ("c", 1)):
        np.savez(tmp_path / f"{name}.npz", x=np.zeros((size, 6)), y=np.arange(size))
    task = files(str(tmp_path), "helpers.networks:TinyNet", 3, validation=0.2)
    assert list(task.sizes) == [8, 2, 1]
    assert sorted([*task.clients[0][1].tolist(), *task.test[1].tolist()]) == list(range(10))
    with pytest.raises(ValueError, match=r"validation \(0\.04\) splits no client's examples"):
        files(str(tmp_path), "helpers.networks:TinyNet", 3, validation=0.04)
    for share in (1.5, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=f"validation must be above 0 and below 1, got {share}"):
            files(str(tmp_path), "helpers.networks:TinyNet", 3, validation=share)


def test_files_task_runs_from_command_line(tmp_path):
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


def test_huggingface_dataset_is_split_by_client_column():
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
