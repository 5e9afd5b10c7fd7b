"""CIFAR-10 and CIFAR-100 from their official binary files."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fadas.rng import HOLDOUT, PARTITION
from fadas.tasks.downloads import Archive
from fadas.tasks.networks import MODELS
from fadas.tasks.partition import Kind, deal, hold_out_tests, split_off
from fadas.tasks.task import Subsets, Task, send
from fadas.validate import at_least

HOME = "https://www.cs.toronto.edu/~kriz/"
CIFAR10 = Archive(
    HOME + "cifar-10-binary.tar.gz",
    "c32a1d4ab5d03f1284b67883e8d87530",
    "cifar-10-batches-bin",
    {
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
)
CIFAR100 = Archive(
    HOME + "cifar-100-binary.tar.gz",
    "03b5dce01913d631647c71ecec9e9cb8",
    "cifar-100-binary",
    {"train.bin": "6172c7755cfe09b2fe270c85cebc1b15", "test.bin": "4499cfba6c016c1be1438163640a0898"},
)
ARCHIVES = {"cifar10": CIFAR10, "cifar100": CIFAR100}


@dataclass(frozen=True)
class CifarFormat:
    """The layout of a data set's records, and the statistics of its training pixels.

    Args:
        classes: The number of classes.
        labels: The number of label bytes before the pixels. The last one is the label to learn.
        mean: The mean of each channel, for pixels between 0 and 1.
        std: The standard deviation of each channel.
    """

    classes: int
    labels: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


LAYOUTS = {
    "cifar10": CifarFormat(10, 1, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": CifarFormat(100, 2, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


def cifar(
    name: str,
    /,
    clients: int = 50,
    partition: Kind = "dirichlet-capped",
    alpha: float = 0.1,
    shards: int = 2,
    model: Literal["resnet18", "resnet18-gn", "cnn"] = "resnet18",
    augment: bool = True,
    limit: int | None = None,
    verify: bool = True,
    validation: float = 0.0,
    client_test: float | None = None,
    seed: int = 0,
) -> Task:
    """CIFAR from its official binary files (`fadas data get`), with a ResNet-18 or a small network.

    Args:
        name: "cifar10" or "cifar100".
        clients: The number of clients.
        partition: How the training examples are divided among the clients: "dirichlet" (skewed labels and sizes),
            "dirichlet-capped" (sizes differ less), "iid" (equal shares) or "shards" (few labels per client).
        alpha: The concentration of the Dirichlet partitions. Smaller is more skewed.
        shards: The pieces per client of the partition "shards".
        model: "resnet18", "resnet18-gn" (GroupNorm instead of BatchNorm) or "cnn" (small, for CPUs).
        augment: Pad training images by 4, crop them at random, and flip half of them.
        limit: Use only the first `limit` training images and the first `limit` test images. None: all.
        verify: Compare the files with the published checksums.
        validation: Hold out this share of the training images and measure on it instead of the test images, for tuning.
        client_test: Hold out this share of each client's training examples as its own test data, see
            `run.clients_eval_every`. None: clients have none.
        seed: The seed of the partition.

    Example:
        >>> task = cifar("cifar10", clients=20, alpha=0.3, model="cnn", limit=5000, validation=0.1, client_test=0.2)
        >>> task = cifar("cifar100", clients=20, partition="shards", shards=3)
    """
    at_least(1, limit=limit)
    archive, layout = ARCHIVES[name], LAYOUTS[name]
    *train_files, test_file = (archive.read_file(file, verify) for file in archive.files)
    train, test = (
        tuple(tensor[:limit] for tensor in records(raw, layout.labels)) for raw in (b"".join(train_files), test_file)
    )
    if validation:
        kept, held_out = split_off(len(train[1]), validation, np.random.default_rng([1, HOLDOUT]))
        train, test = (tuple(tensor[rows] for tensor in train) for rows in (kept, held_out))
    parts = deal(train[1].numpy(), clients, np.random.default_rng([seed, PARTITION]), partition, alpha, shards)
    mean, std = (torch.tensor(values).view(3, 1, 1) * 255 for values in (layout.mean, layout.std))

    def transform(inputs: list[Tensor], generator: torch.Generator | None) -> list[Tensor]:
        (images,) = inputs
        if generator and augment:
            images = crop_and_flip(images, generator)
        return [images.float().sub_(mean.to(images.device)).div_(std.to(images.device))]

    make = partial(MODELS[model], layout.classes)
    parts, own = hold_out_tests(parts, client_test)
    splits = Subsets(train, own) if own else None
    return Task(make, Subsets(train, parts), test=test, transform=transform, client_test=splits)


def records(raw: bytes, labels: int) -> tuple[Tensor, Tensor]:
    """Return images (uint8 [n, 3, 32, 32]) and labels of official records.

    Args:
        raw: Records of `labels` label bytes and 3 x 32 x 32 pixels.
        labels: The number of label bytes. The last one is the label to return.
    """
    width = labels + 3072
    if not raw or len(raw) % width:
        raise ValueError(f"a CIFAR file must consist of records of {width:,} bytes, got {len(raw):,} bytes")
    table = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(-1, width)
    return table[:, labels:].reshape(-1, 3, 32, 32), table[:, labels - 1].long()


def crop_and_flip(images: Tensor, generator: torch.Generator, padding: int = 4) -> Tensor:
    """Pad each image with black, crop it back to its size at a random place, and flip it with probability 1/2.

    One gather serves all images. The draws are made on the CPU, so that they are the same on every device.
    """
    n, channels, height, width = images.shape
    draws = torch.cat([torch.randint(0, 2 * padding + 1, (2, n), generator=generator), _flip_coins(n, generator)])
    top, left, flip = send(draws, images.device).view(3, n, 1)
    offsets = torch.arange(width, device=images.device)
    columns = left + torch.where(flip.bool(), offsets.flip(0), offsets)
    rows = top + torch.arange(height, device=images.device)
    image = torch.arange(n, device=images.device).view(n, 1, 1, 1)
    channel = torch.arange(channels, device=images.device).view(1, channels, 1, 1)
    padded = F.pad(images, (padding,) * 4)
    return padded[image, channel, rows.view(n, 1, height, 1), columns.view(n, 1, 1, width)]


def _flip_coins(n: int, generator: torch.Generator) -> Tensor:
    return (torch.rand(1, n, generator=generator) < 0.5).long()
