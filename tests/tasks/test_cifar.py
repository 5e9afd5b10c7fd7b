"""CIFAR-10 and CIFAR-100: files, labels, augmentation."""

import numpy as np
import pytest
import torch

from fadas.core.ledger import Job
from fadas.tasks import TASKS
from fadas.tasks.cifar import ARCHIVES, LAYOUTS, crop_and_flip, records
from fadas.training.sgd import LocalSGD, epoch_rows


def test_official_files_have_published_counts(real_data, monkeypatch):
    """The loaders check the MD5s of the official files and find the published label counts."""
    monkeypatch.setenv("FADAS_DATA", str(real_data))
    ten = TASKS["cifar10"](clients=10, alpha=0.3, seed=1)
    assert sum(ten.sizes) == 50_000
    labels = torch.cat([data[1] for data in ten.clients])
    assert torch.bincount(labels).tolist() == [5000] * 10
    assert torch.bincount(ten.test[1]).tolist() == [1000] * 10
    hundred = TASKS["cifar100"](clients=10, seed=1)
    assert torch.bincount(torch.cat([data[1] for data in hundred.clients])).tolist() == [500] * 100
    assert torch.bincount(hundred.test[1]).tolist() == [100] * 100
    # the first CIFAR-10 training image is a frog, the first test image a cat
    raw = ARCHIVES["cifar10"].read_file("data_batch_1.bin")
    assert raw[0] == 6
    assert ten.test[1][0] == 3
    images, first = records(raw[:3073], 1)
    assert (images[0].flatten().tolist(), first.tolist()) == (list(raw[1:3073]), [6])
    for name, task in (("cifar10", ten), ("cifar100", hundred)):
        pixels = torch.cat([task.clients[c][0] for c in range(10)]).float() / 255
        assert pixels.mean((0, 2, 3)).tolist() == pytest.approx(LAYOUTS[name].mean, abs=6e-4)
        assert pixels.std((0, 2, 3)).tolist() == pytest.approx(LAYOUTS[name].std, abs=6e-4)


def test_records_take_fine_label():
    raw = bytes([7, 42]) + bytes(range(256)) * 12
    images, labels = records(raw, labels=2)
    assert labels.tolist() == [42]
    assert images.shape == (1, 3, 32, 32)
    assert images[0, 0, 0, :4].tolist() == [0, 1, 2, 3]
    assert images[0, 1].flatten()[0] == 1024 % 256
    with pytest.raises(ValueError, match="records of 3,073 bytes, got 3,074 bytes"):
        records(raw, labels=1)


def test_wrong_or_missing_file_is_named(data, monkeypatch, tmp_path):
    with pytest.raises(
        ValueError, match=r"data_batch_1.bin is not the published file: expected MD5 5dd7e0\w+, got \w+"
    ):
        TASKS["cifar10"]()
    monkeypatch.setenv("FADAS_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"cannot read .*train.bin .No such file.*fadas data get"):
        TASKS["cifar100"]()


def slow_crop_and_flip(images, generator, padding=4):
    """Crop and flip image by image, as a data loader would."""
    n = len(images)
    top, left = torch.randint(0, 2 * padding + 1, (2, n), generator=generator)
    flip = torch.rand(n, generator=generator) < 0.5
    result = []
    for i, image in enumerate(images):
        padded = np.zeros((3, 32 + 2 * padding, 32 + 2 * padding), np.uint8)
        padded[:, padding:-padding, padding:-padding] = image.numpy()
        crop = padded[:, top[i] : top[i] + 32, left[i] : left[i] + 32]
        result.append(torch.from_numpy(crop[:, :, ::-1].copy() if flip[i] else crop))
    return torch.stack(result)


def test_augmentation_agrees_with_slow_reference():
    images = torch.randint(0, 256, (200, 3, 32, 32), dtype=torch.uint8)
    one, two = (augment(images, torch.Generator().manual_seed(4)) for augment in (crop_and_flip, slow_crop_and_flip))
    assert torch.equal(one, two)
    assert one.dtype == torch.uint8


def test_augmentation_reaches_every_offset_and_both_sides():
    image = torch.arange(3 * 32 * 32).remainder(251).to(torch.uint8).view(1, 3, 32, 32)
    seen = {crop_and_flip(image, torch.Generator().manual_seed(s)).numpy().tobytes() for s in range(3000)}
    assert len(seen) == 81 * 2


def test_rows_are_normalised_and_augmented_per_epoch_and_job(data):
    task = TASKS["cifar10"](clients=4, verify=False, model="cnn")
    local = LocalSGD(epochs=2, batch_size=16)
    (x, y), steps = epoch_rows(task, local, 0, Job(0, 1, 0), "cpu")
    n = task.sizes[1]
    assert len(x) == len(y) == 2 * n
    assert sorted(torch.cat(steps).tolist()) == list(range(2 * n))
    assert not torch.equal(x[:n], x[n:]), "the second epoch has the same crops"
    (again, _), _ = epoch_rows(task, local, 0, Job(0, 1, 0), "cpu")
    (other, _), _ = epoch_rows(task, local, 0, Job(1, 1, 0), "cpu")
    assert torch.equal(x, again)
    assert not torch.equal(x, other)
    plain = TASKS["cifar10"](clients=4, verify=False, model="cnn", augment=False)
    (same, _), _ = epoch_rows(plain, local, 0, Job(0, 1, 0), "cpu")
    raw = plain.clients[1][0].float() / 255
    layout = LAYOUTS["cifar10"]
    expected = (raw - torch.tensor(layout.mean).view(3, 1, 1)) / torch.tensor(layout.std).view(3, 1, 1)
    torch.testing.assert_close(same[:n], expected)
    torch.testing.assert_close(plain.prepare([plain.clients[1][0]])[0], expected)
