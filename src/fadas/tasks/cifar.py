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
from fadas.tasks.partition import Kind, deal, split_off
from fadas.tasks.task import Subsets, Task, send

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
    """How a data set's records are laid out, and the mean and deviation of its training pixels, per channel."""

    classes: int
    labels: int  # label bytes before the pixels; the last of them is the one to learn
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
    seed: int = 0,
) -> Task:
    """CIFAR from its official binary files (`fadas data get`), with a ResNet-18 or a small network.

    Training images are padded by 4, cropped and flipped at random unless `augment` is off. `limit` uses only so many
    training and test images. `verify` compares the files with the published checksums.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    archive, layout = ARCHIVES[name], LAYOUTS[name]
    *train_files, test_file = (archive.read(file, verify) for file in archive.files)
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
    return Task(make, Subsets(train, parts), test=test, transform=transform)


def records(raw: bytes, labels: int) -> tuple[Tensor, Tensor]:
    """Official records (label bytes, then 3 x 32 x 32 pixels) -> (uint8 images [n, 3, 32, 32], the last label)."""
    width = labels + 3072
    if not raw or len(raw) % width:
        raise ValueError(f"a CIFAR file of {len(raw):,} bytes is not made of records of {width} bytes")
    table = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(-1, width)
    return table[:, labels:].reshape(-1, 3, 32, 32), table[:, labels - 1].long()


def crop_and_flip(images: Tensor, generator: torch.Generator, padding: int = 4) -> Tensor:
    """Each image padded with black, cropped back to its size at a random place, and flipped with probability 1/2.

    One gather for all images. The draws are made on the CPU, so that they are the same on every device.
    """
    n, channels, height, width = images.shape
    draws = torch.cat([torch.randint(0, 2 * padding + 1, (2, n), generator=generator), _coins(n, generator)])
    top, left, flip = send(draws, images.device).view(3, n, 1)
    across = torch.arange(width, device=images.device)
    columns = left + torch.where(flip.bool(), across.flip(0), across)
    rows = top + torch.arange(height, device=images.device)
    image = torch.arange(n, device=images.device).view(n, 1, 1, 1)
    channel = torch.arange(channels, device=images.device).view(1, channels, 1, 1)
    padded = F.pad(images, (padding,) * 4)
    return padded[image, channel, rows.view(n, 1, height, 1), columns.view(n, 1, 1, width)]


def _coins(n: int, generator: torch.Generator) -> Tensor:
    return (torch.rand(1, n, generator=generator) < 0.5).long()
