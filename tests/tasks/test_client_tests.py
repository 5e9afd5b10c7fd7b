"""Local test splits: each client's own test data."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from fadas.errors import ConfigError
from fadas.tasks.digits import digits
from fadas.tasks.files import files
from fadas.tasks.names import names
from fadas.tasks.partition import hold_out_tests
from fadas.tasks.task import Subsets, Task, evaluate_clients
from helpers.data_files import write_arrays, write_client_files
from helpers.training import make_task


def make_split(n, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 6, generator=generator), torch.randint(0, 3, (n,), generator=generator)


SIZES = (4, 0, 9, 1, 30, 2, 2, 5)


@pytest.fixture
def split_task():
    return replace(make_task(), client_test=[make_split(n, seed) for seed, n in enumerate(SIZES)])


@pytest.mark.parametrize("chunk", [1000, 7, 1])
def test_clients_are_measured_as_if_each_were_the_test_data(split_task, chunk):
    module = split_task.module()
    measured = evaluate_clients(split_task, module, chunk)
    assert set(measured) == {"accuracy", "loss"}
    for client, data in enumerate(split_task.client_test):
        values = {name: row[client] for name, row in measured.items()}
        if SIZES[client]:
            assert values == pytest.approx(replace(split_task, test=data, client_test=None).evaluate(module))
        else:
            assert all(value != value for value in values.values()), "NaN without examples"


def test_subsets_and_lists_of_data_are_measured_alike(split_task):
    columns = [torch.cat(column) for column in zip(*split_task.client_test, strict=True)]
    parts = list(torch.arange(sum(SIZES)).split(SIZES))
    same = replace(split_task, client_test=Subsets(columns, parts))
    one, other = (evaluate_clients(task, task.module()) for task in (split_task, same))
    assert repr(one) == repr(other)


def test_clients_with_examples_of_other_shapes_are_measured():
    texts = [(torch.zeros(3, length, dtype=torch.long), torch.zeros(3, dtype=torch.long)) for length in (2, 2, 5)]

    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(4, 2)

        def forward(self, tokens):
            return self.table(tokens).sum(1)

    task = Task(Sum, texts, client_test=texts)
    measured = evaluate_clients(task, task.module())
    assert len(measured["loss"]) == 3
    assert measured["loss"][0] == measured["loss"][1] != measured["loss"][2]
    assert set(measured["accuracy"]) <= {0.0, 1.0}, "the labels say what is measured, without test data of the server"


def test_metric_that_refuses_some_clients_is_undefined_there(split_task):
    def of_both_classes(outputs, targets):
        if len(targets) < 3:
            raise ValueError("too few")
        return outputs.mean()

    task = replace(split_task, metrics={"strange": of_both_classes})
    measured = evaluate_clients(task, task.module())
    assert [value == value for value in measured["strange"]] == [size >= 3 for size in SIZES]
    assert [value == value for value in measured["loss"]] == [size > 0 for size in SIZES]


@pytest.mark.parametrize("kind", [ValueError, ConfigError])
def test_metric_that_refuses_all_clients_is_an_error(split_task, kind):
    def refuse(outputs, targets):
        raise kind("not like this")

    with pytest.raises(kind, match="not like this"):
        task = replace(split_task, metrics={"strange": refuse})
        evaluate_clients(task, task.module())


def test_task_without_splits_measures_no_clients():
    task = make_task()
    assert evaluate_clients(task, task.module()) == {}


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ([make_split(2, 0)] * 3, "client_test has 3 splits for 8 clients"),
        ([make_split(0, 0)] * 8, "client_test has no examples"),
        ([(torch.zeros(2, 6), torch.zeros(3))] * 8, "client_test of client 0: expected .*, all of the same length"),
        ([torch.zeros(2, 6)] * 8, "client_test of client 0: expected"),
    ],
)
def test_impossible_splits_are_refused(splits, message):
    with pytest.raises(ValueError, match=message):
        replace(make_task(), client_test=splits)


def test_held_out_examples_and_the_rest_are_the_clients_examples():
    parts = [torch.arange(10), torch.arange(10, 12), torch.tensor([12])]
    kept, tests = hold_out_tests(parts, 0.3)
    assert [len(part) for part in tests] == [3, 1, 0]
    for part, rest, test in zip(parts, kept, tests, strict=True):
        assert sorted([*rest.tolist(), *test.tolist()]) == part.tolist()
    assert [part.tolist() for part in hold_out_tests(parts, 0.3)[1]] == [part.tolist() for part in tests]
    assert hold_out_tests(parts, None) == (parts, None)


@pytest.mark.parametrize(
    ("share", "message"),
    [(0.0, "client_test must be above 0"), (1.0, "below 1, got 1.0"), (0.01, "leaves every client without test")],
)
def test_impossible_shares_are_refused(share, message):
    with pytest.raises(ValueError, match=message):
        hold_out_tests([torch.arange(10)], share)


def test_digits_hold_out_a_share_of_each_client():
    plain, task = digits(clients=10), digits(clients=10, client_test=0.25)
    assert plain.client_test is None
    for client, size in enumerate(plain.sizes):
        held_out = len(task.client_test[client][-1])
        assert held_out == min(round(0.25 * size), size - 1)
        assert task.sizes[client] + held_out == size
    assert torch.equal(plain.test[0], task.test[0])


@pytest.mark.parametrize("write", [write_arrays, write_client_files], ids=["arrays on disk", "file per client"])
def test_files_hold_out_a_share_of_each_client(tmp_path, write):
    write(tmp_path / "data")
    clients = 8 if write is write_arrays else 7
    plain, task = (files(str(tmp_path / "data"), "linear", clients, client_test=share) for share in (None, 0.4))
    assert plain.client_test is None
    assert task.mapped == plain.mapped
    for client in range(clients):
        both = torch.cat([task.clients[client][0], task.client_test[client][0]])
        assert sorted(both.tolist()) == sorted(plain.clients[client][0].tolist())
        assert len(task.client_test[client][0]) == min(round(0.4 * len(both)), len(both) - 1)
    assert len(evaluate_clients(task, task.module())["accuracy"]) == clients


def test_names_divide_the_test_functions_among_the_modules():
    task = names(clients=20)
    sizes = [len(task.client_test[client][-1]) for client in range(20)]
    assert sum(sizes) == len(task.test[-1])
    assert min(sizes) >= 0
    both = evaluate_clients(task, task.module())["loss"]
    whole = sum(size * loss for size, loss in zip(sizes, both, strict=True) if size) / sum(sizes)
    assert whole == pytest.approx(task.evaluate(task.module())["loss"])
