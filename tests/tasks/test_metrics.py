"""Ready metrics, against hand-computed values and scikit-learn."""

import math

import pytest
import torch
from sklearn import metrics as reference

import fadas
from fadas.core.metrics import Metric
from fadas.errors import ConfigError
from fadas.tasks.metrics import METRICS, auc, choose_metrics, macro_f1, mae, perplexity, r2, rmse, top_k
from helpers.training import make_task

SCORES = torch.tensor([[3.0, 1, 0], [0, 2, 1], [1, 0, 2], [2, 1, 0], [0, 3, 1]])
LABELS = torch.tensor([0, 1, 1, 2, 1])


def test_macro_f1_weighs_classes_alike():
    # class 0: precision 1/2, recall 1; class 1: precision 1, recall 2/3; class 2: none is found
    assert macro_f1(SCORES, LABELS) == pytest.approx((2 / 3 + 4 / 5 + 0) / 3)


def test_top_k_counts_the_k_largest_outputs():
    assert [float(top_k(k)(SCORES, LABELS)) for k in (1, 2, 3)] == pytest.approx([0.6, 0.6, 1.0])
    assert float(fadas.accuracy(SCORES, LABELS)) == float(top_k(1)(SCORES, LABELS))


def test_auc_of_two_classes_takes_one_or_two_outputs():
    scores, labels = torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1])
    assert auc(scores, labels) == pytest.approx(0.75)
    two = torch.stack([torch.zeros(4), scores], 1)
    assert auc(two, labels) == pytest.approx(0.75)


def test_auc_of_several_classes_is_that_of_scikit_learn():
    expected = reference.roc_auc_score(LABELS.numpy(), SCORES.double().softmax(1).numpy(), multi_class="ovr")
    assert auc(SCORES, LABELS) == pytest.approx(expected)


def test_auc_without_one_of_the_classes_is_nan():
    assert math.isnan(auc(SCORES, torch.tensor([0, 1, 1, 0, 1])))


def test_regression_metrics_take_a_column_or_a_vector():
    predicted, targets = torch.tensor([1.0, 3.0, 5.0]), torch.tensor([1.0, 1.0, 4.0])
    for outputs in (predicted, predicted[:, None]):
        assert rmse(outputs, targets) == pytest.approx(math.sqrt(5 / 3))
        assert mae(outputs, targets) == pytest.approx(1.0)
        assert r2(outputs, targets) == pytest.approx(1 - 5 / 6)


@pytest.mark.parametrize("metric", [rmse, mae, r2])
def test_regression_metrics_of_a_diverged_model_are_nan(metric):
    assert math.isnan(metric(torch.tensor([1.0, math.inf]), torch.tensor([1.0, 2.0])))


def test_perplexity_is_the_exponential_of_the_mean_loss():
    generator = torch.Generator().manual_seed(0)
    outputs, targets = torch.randn(4, 6, 9, generator=generator), torch.randint(0, 9, (4, 6), generator=generator)
    expected = torch.nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten()).exp()
    assert float(perplexity(outputs, targets)) == pytest.approx(float(expected))
    assert float(perplexity(outputs.transpose(1, 2), targets)) == pytest.approx(float(expected))
    assert float(perplexity(torch.zeros(3, 10), torch.tensor([1, 2, -100]))) == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("name", "outputs", "targets"),
    [
        ("accuracy", torch.zeros(4), torch.zeros(4).long()),
        ("macro_f1", torch.zeros(4, 1), torch.zeros(4).long()),
        ("rmse", torch.zeros(4, 2), torch.zeros(4)),
        ("perplexity", torch.zeros(4, 5), torch.zeros(4, 3).long()),
    ],
)
def test_wrong_shapes_give_a_clear_error(name, outputs, targets):
    with pytest.raises(ConfigError, match=rf"{name} needs .* got outputs of shape"):
        METRICS[name](outputs, targets)
    with pytest.raises(ConfigError, match="top5 needs at least 5 classes, got 3"):
        top_k(5)(SCORES, LABELS)


def test_names_of_ready_metrics_are_enough_for_a_task():
    clients = make_task().clients
    task = fadas.Task(torch.nn.Linear(6, 3), clients, test=clients[0], metrics=["accuracy", "macro-f1", "top2"])
    assert task.evaluate(task.module()).keys() == {"accuracy", "macro-f1", "top2", "loss"}


def test_unknown_metric_names_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown metric 'acuracy'; did you mean 'accuracy'\?"):
        choose_metrics(["acuracy"])


@pytest.mark.parametrize("name", [*METRICS, "top5"])
def test_every_ready_metric_has_a_known_direction(name):
    assert Metric(name).better in ("higher", "lower")
