"""What a task accepts as client data."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from fadas import Delays, FedBuff, LocalSGD, Mild, plan, simulate
from fadas.tasks.task import Task
from helpers.networks import TinyNet
from helpers.training import make_task, train_briefly


class PlainItems(Dataset):
    def __len__(self):
        return 9

    def __getitem__(self, i):
        return torch.full((6,), float(i)), i % 3


class NumpyItems(Dataset):
    """Items of numpy and Python types: doubles and short labels."""

    def __len__(self):
        return 9

    def __getitem__(self, i):
        return np.full(6, i / 9), np.int32(i % 3)


class MaskedItems(NumpyItems):
    def __getitem__(self, i):
        return np.ma.masked_equal(np.arange(6.0), i), i % 3


@pytest.mark.parametrize("labels", [np.int32, np.uint8])
@pytest.mark.parametrize("executor", ["auto", "inline"])
def test_numpy_arrays_train(labels, executor):
    pairs = [[column.numpy() for column in data] for data in make_task().clients[:3]]
    given = [(x.astype(float)[::-1], y.astype(labels)[::-1]) for x, y in pairs]
    given[0][0].flags.writeable = False
    task = Task(TinyNet, [*given, NumpyItems()], test=given[1])
    same = Task(TinyNet, [tuple(torch.tensor(column.copy()) for column in pair) for pair in pairs], test=task.test)
    assert {column.dtype for column in [*task.clients[0], *task.clients[3], *task.test]} == {torch.float32, torch.int64}
    assert torch.equal(task.clients[1][0], same.clients[1][0].flip(0))
    p = plan(FedBuff().schedule(2, 1), 4, Delays(Mild()), steps=4)
    *_, last = simulate(p, task, FedBuff(), LocalSGD(lr=0.01, batch_size=4), executor=executor)
    assert 0 <= last.metrics["accuracy"] <= 1


def squared_error(outputs, targets):
    return (outputs[:, :1] - targets) ** 2


@pytest.mark.parametrize("executor", ["inline", "batched"])
def test_numpy_arrays_train_for_regression(executor):
    data = [(x.numpy(), x[:, :1].double().numpy()) for x, _ in make_task().clients]
    task = Task(TinyNet, data, squared_error, test=data[2])
    p = plan(FedBuff().schedule(4, 2), len(data), Delays(Mild()), steps=20)
    losses = [r.metrics for r in simulate(p, task, FedBuff(), LocalSGD(lr=0.05, batch_size=4), executor=executor)]
    assert losses[0].keys() == {"loss"}
    assert losses[-1]["loss"] < 0.5 * losses[0]["loss"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((3, 6)), "got one array"),
        (torch.zeros(3, 6), "got one array"),
        ((np.zeros((3, 6)), np.array(["a", "b", "c"])), "arrays of numbers: can't convert"),
        (([np.zeros(3), np.zeros(4)], [1, 2]), "arrays of numbers"),
        ((np.zeros((3, 6)), 1), "all of the same length"),
        ((np.zeros((3, 6)), np.zeros(2)), "all of the same length"),
        (None, "arrays of numbers"),
        ((np.ma.masked_less(np.arange(18.0).reshape(3, 6), 1), np.zeros(3, int)), "a masked array has missing values"),
        ((np.zeros((3, 6)), np.ma.masked_equal([0, 1, 2], 1)), "a masked array has missing values"),
        (MaskedItems(), "a masked array has missing values"),
    ],
)
def test_invalid_data_are_refused(data, message):
    with pytest.raises(ValueError, match=f"client 1: .*{message}"):
        Task(TinyNet, [make_task().clients[0], data])


def test_masked_arrays_without_masked_values_are_accepted():
    x, y = (np.ma.array(column.numpy()) for column in make_task().clients[0])
    assert torch.equal(Task(TinyNet, [(x, y)]).clients[0][0], make_task().clients[0][0])


def test_torch_datasets_train():
    task = Task(TinyNet, [PlainItems(), TensorDataset(*make_task().clients[1]), PlainItems()], test=PlainItems())
    assert task.sizes == [9, 17, 9]
    assert task.clients[0][1].dtype == torch.int64
    assert "accuracy" in train_briefly(task)[-1].metrics


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((torch.zeros(0, 2), torch.zeros(0)), "client 1 has no examples"),
        (TensorDataset(torch.zeros(0, 2), torch.zeros(0)), "client 1 has no examples"),
        ((torch.zeros(3, 2), torch.zeros(2)), "client 1: expected"),
        ((torch.zeros(3, 2),), "client 1: expected"),
    ],
)
def test_bad_client_shapes_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        Task(nn.Linear(2, 2), [(torch.zeros(1, 2), torch.zeros(1)), data])
