"""Small data sets in the official layouts."""

from pathlib import Path

import numpy as np
import torch

from fadas.tasks.files import files
from fadas.tasks.subsets import Subsets
from fadas.tasks.task import Task
from helpers.training import make_task


def choose_options(name: str, data: Path) -> dict:
    """What a task needs beyond its defaults to run on the small data."""
    if name.startswith("cifar"):
        return {"verify": False, "model": "cnn"}
    if name == "files":
        return {"path": str(data / "files"), "model": "helpers.networks:TinyNet"}
    return {} if name in ("digits", "names") else {"encoder": "tiny", "max_length": 20}


def write_cifar(folder: Path, seed: int = 0, images: int = 60) -> None:
    """CIFAR-10 and CIFAR-100: few images, whose colour tells the label."""
    rng = np.random.default_rng(seed)

    def records(n, classes, coarse):
        labels = np.arange(n) % classes
        tint = (labels[:, None] * 2.0).repeat(3072, 1)
        pixels = np.clip(rng.normal(60, 20, (n, 3072)) + tint, 0, 255).astype(np.uint8)
        columns = [labels // 5, labels] if coarse else [labels]
        return np.concatenate([np.stack(columns, 1).astype(np.uint8), pixels], 1).tobytes()

    ten, hundred = folder / "cifar-10-batches-bin", folder / "cifar-100-binary"
    ten.mkdir(parents=True)
    hundred.mkdir()
    for k in range(1, 6):
        (ten / f"data_batch_{k}.bin").write_bytes(records(images, 10, False))
    (ten / "test_batch.bin").write_bytes(records(images, 10, False))
    (hundred / "train.bin").write_bytes(records(5 * images, 100, True))
    (hundred / "test.bin").write_bytes(records(images, 100, True))


def write_glue(folder: Path, examples: int = 120) -> None:
    """RTE, MRPC and SST-2: a few words decide the label. Quotation marks are text."""
    rng = np.random.default_rng(0)
    words = ["the", '"', "cat", "sat", "on", "a", "mat", ",", "naïve", "dogs"]

    def sentence(label):
        return " ".join([*rng.choice(words, 6), "good" if label else "bad"])

    for name, header, row in (
        ("RTE", "index\tsentence1\tsentence2\tlabel", "{i}\t{a}\t{b}\t{name}"),
        ("MRPC", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "{y}\t1\t2\t{a}\t{b}"),
        ("SST-2", "sentence\tlabel", "{a} \t{y}"),
    ):
        (folder / name).mkdir(parents=True)
        for split in ("train", "dev"):
            lines = [header]
            for i in range(examples):
                y = i % 2
                names = ["entailment", "not_entailment"]
                lines.append(row.format(i=i, y=y, name=names[y], a=sentence(y), b=sentence(y)))
            bom = "\ufeff" if name == "MRPC" else ""
            (folder / name / f"{split}.tsv").write_text(bom + "\n".join(lines) + "\n", encoding="utf-8")


def write_client_files(folder: Path, clients: int = 7) -> None:
    """A file per client, as the task `files` reads them."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    task = make_task(clients)
    for client, (x, y) in enumerate(task.clients):
        if client % 2:
            np.savez(folder / f"client{client:03d}.npz", x=x.numpy(), y=y.numpy())
        else:
            save_file({"x": x, "y": y}, folder / f"client{client:03d}.safetensors")
    np.savez(folder / "test.npz", x=task.test[0].numpy(), y=task.test[1].numpy())


def write_arrays(folder: Path, with_test: bool = True, **types) -> Path:
    """The data of `make_task` for 8 clients as arrays of all clients, not in the order of the clients."""
    folder.mkdir(parents=True, exist_ok=True)
    task = make_task(8)
    columns = [torch.cat(column).numpy() for column in zip(*task.clients)]
    owners = np.repeat([f"c{client}" for client in range(8)], task.sizes)
    order = np.random.default_rng(0).permutation(len(owners))
    for name, column in zip(("x", "y", "client"), (*columns, owners)):
        np.save(folder / f"{name}.npy", column[order].astype(types.get(name, column.dtype)))
    if with_test:
        np.save(folder / "test_x.npy", task.test[0].numpy())
        np.save(folder / "test_y.npy", task.test[1].numpy())
    return folder


def load_arrays(folder: Path, **options) -> Task:
    """A task on the arrays of `write_arrays`, which stay on disk."""
    task = files(str(folder), "helpers.networks:TinyNet", 8, **options)
    assert task.mapped
    return task


def in_memory(task: Task) -> Task:
    """The same task with tensors of its own."""
    clients = Subsets([column.clone() for column in task.clients.data], task.clients.parts)
    return Task(task.model, clients, task.loss, list(task.test), task.metrics)
