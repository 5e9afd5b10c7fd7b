"""What is refused, or warned of, before a run."""

import re
import warnings

import pytest
import torch
from torch import nn

import fadas
from fadas.algorithms.robust import Trimmed
from fadas.errors import ConfigError, FadasWarning
from fadas.experiments import prepare
from helpers.experiments import BASE, resolve_text
from helpers.training import LOCAL, make_plan, make_task


def make_regression(loss, column: bool, output_column: bool = True) -> fadas.Task:
    generator = torch.Generator().manual_seed(0)

    def data():
        inputs = torch.randn(12, 3, generator=generator)
        targets = inputs[:, 0]
        return inputs, targets[:, None] if column else targets

    def model():
        layers = [nn.Linear(3, 1)] + ([] if output_column else [nn.Flatten(0)])
        return nn.Sequential(*layers)

    return fadas.Task(model, [data() for _ in range(8)], loss=loss)


def simulate(task, **options):
    algorithm = fadas.FedBuff()
    return fadas.simulate(make_plan(algorithm), task, algorithm, LOCAL, executor="inline", **options)


def squared(outputs, targets):
    return (outputs - targets) ** 2


@pytest.mark.parametrize("loss", [squared, lambda outputs, targets: squared(outputs, targets).mean()])
def test_loss_that_broadcasts_outputs_is_refused_with_both_shapes(loss):
    with pytest.raises(ConfigError, match=r"outputs of shape \[B, 1\] and targets of shape \[B\] broadcast"):
        simulate(make_regression(loss, column=False))


def test_refused_broadcast_comes_without_warnings_of_torch():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ConfigError, match="broadcast"):
            simulate(make_regression(nn.MSELoss(reduction="none"), column=False))
    assert [warning for warning in caught if warning.category is not FadasWarning] == []


@pytest.mark.parametrize(
    ("loss", "column", "output_column"),
    [
        (squared, True, True),
        (squared, False, False),
        (lambda outputs, targets: squared(outputs[:, 0], targets), False, True),
        (lambda outputs, targets: squared(outputs.squeeze(1), targets).mean().sqrt(), False, True),
        (lambda outputs, targets: outputs.square().mean(), False, True),  # needs no targets
    ],
)
def test_loss_that_pairs_outputs_with_targets_is_accepted(loss, column, output_column):
    assert len(list(simulate(make_regression(loss, column, output_column)))) == 12


def test_target_without_test_data_is_refused():
    with pytest.raises(ConfigError, match=r"target = 0\.9 is never reached: the task has no test data"):
        simulate(make_regression(squared, column=True), target=0.9)


def test_metric_that_is_not_measured_is_refused():
    with pytest.raises(ConfigError, match="the task does not measure 'rmse'; choose one of: loss"):
        simulate(make_regression(squared, column=True), metric="rmse")


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
@pytest.mark.parametrize("executor", ["inline", "batched", "processes", "auto"])
def test_labels_of_wrong_type_are_refused_on_one_line(dtype, executor):
    data = [(torch.randn(6, 3), torch.arange(6) % 2) for _ in range(8)]
    data[2] = (data[2][0], data[2][1].to(dtype))
    task = fadas.Task(nn.Linear(3, 2), data)
    algorithm = fadas.FedBuff()
    with pytest.raises(
        ConfigError, match=f"client 2: .*needs labels of type torch.int64, got {dtype}; convert"
    ) as error:
        fadas.simulate(make_plan(algorithm), task, algorithm, LOCAL, executor=executor)
    assert "\n" not in str(error.value)


def fail(step):
    raise ValueError("this does not work")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"step_size": lambda step: "much"}, "a step size must return a number, got str"),
        ({"combine": Trimmed(trim=2)}, "trim must be below half of the buffer (3 updates), got 2"),
        ({"step_size": fail}, "cannot be trained: ValueError: this does not work (test_preflight.py:95)"),
    ],
)
def test_refusal_names_exception_type_only_of_foreign_errors(task, parts, message):
    algorithm = fadas.Algorithm(**parts)
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        fadas.simulate(make_plan(algorithm), task, algorithm, LOCAL, executor="inline")


def test_cap_that_never_acts_is_warned_of_with_numbers(task):
    algorithm = fadas.FADAS_DA(eta=0.001, tau_c=1, form="capped")
    plan = make_plan(algorithm)
    text = rf"^seed 3: .*eta = 0.001, and the largest delay of the plan is {plan.tau.max()}"
    with pytest.warns(FadasWarning, match=text):
        fadas.simulate(plan, task, algorithm, LOCAL, executor="inline")


def test_cap_warning_of_an_experiment_names_algorithm_and_seed(tmp_path):
    text = BASE.replace("[algorithms.fadas]", "[algorithms.mine]") + "preset = 'fadas-da'\ntau_c = 1\nform = 'capped'\n"
    config = resolve_text(tmp_path, text, "mine", seed=4)
    task = prepare.make_task(config)
    with pytest.warns(FadasWarning, match=r"^mine, seed 4: the step size's form \"capped\""):
        prepare.make_simulation(config, task, prepare.make_plan(config, task))


@pytest.mark.parametrize(("form", "eta"), [("scaled", 0.001), ("capped", 5.0)])
def test_step_size_that_acts_gives_no_warning(task, form, eta):
    algorithm = fadas.FADAS_DA(eta=eta, tau_c=1, form=form)
    plan = make_plan(algorithm)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fadas.simulate(plan, task, algorithm, LOCAL, executor="inline")
    assert not [warning.message for warning in caught if warning.category is FadasWarning]


def test_plan_for_other_number_of_clients_is_refused(task):
    algorithm = fadas.FedBuff()
    with pytest.raises(ConfigError, match="the plan is for 9 clients, the task has 8"):
        fadas.simulate(make_plan(algorithm, clients=9), task, algorithm, LOCAL)


def test_error_in_own_code_names_its_line():
    def combine(state, step, updates, clients):
        return updates[0].tau, {}

    p = make_plan(fadas.FedBuff(), steps=2)
    line = combine.__code__.co_firstlineno + 1
    with pytest.raises(ConfigError, match=rf"AttributeError: 'Update' object has no .* \(test_preflight.py:{line}\)$"):
        fadas.simulate(p, make_task(), fadas.Algorithm(combine), LOCAL)
