"""What runs are judged by."""

import math

import pytest

from fadas.core.metrics import ACCURACY, LOSS, Metric, choose_metric, number_text
from fadas.errors import ConfigError
from fadas.validate import InvalidValue


@pytest.mark.parametrize(
    ("name", "better", "format"),
    [
        ("accuracy", "higher", "percent"),
        ("macro-f1", "higher", "percent"),
        ("macro_f1", "higher", "percent"),
        ("AUC", "higher", "percent"),
        ("top5", "higher", "percent"),
        ("top-5", "higher", "percent"),
        ("r2", "higher", "number"),
        ("loss", "lower", "number"),
        ("rmse", "lower", "number"),
        ("mae", "lower", "number"),
        ("perplexity", "lower", "number"),
    ],
)
def test_common_names_have_a_direction_and_a_format(name, better, format):
    metric = Metric(name)
    assert (metric.better, metric.format) == (better, format)


def test_given_direction_and_format_take_precedence():
    metric = Metric("accuracy", "lower", "number")
    assert (metric.better, metric.format) == ("lower", "number")
    assert not metric.is_accuracy
    assert Metric("accuracy").is_accuracy


@pytest.mark.parametrize(("options", "problem"), [((), "better"), (("up",), "better"), (("lower", "%"), "format")])
def test_metric_of_ones_own_needs_a_direction(options, problem):
    with pytest.raises(InvalidValue, match=f"^{problem} must be"):
        Metric("score", *options)


def test_mistyped_metric_gets_the_nearest_name():
    with pytest.raises(InvalidValue, match=r'"higher" or "lower" for the metric "rsme"; or did you mean "rmse"\?$'):
        Metric("rsme")


def test_target_that_the_initial_model_reaches_says_what_to_do():
    assert Metric("rmse").why_reached(9, {"rmse": 8.5}) == (
        "the initial model has rmse 8.500, and lower is better; set a lower target"
    )
    assert (
        Metric("score", "higher")
        .why_reached(0.1, {"score": 0.2})
        .endswith('set a higher target, or the other value of "better"')
    )
    assert Metric("rmse").why_reached(8, {"rmse": 8.5}) is None


def test_direction_decides_what_is_better_and_reached():
    rmse = Metric("rmse")
    assert ACCURACY.is_better(0.6, than=0.5)
    assert rmse.is_better(0.5, than=0.6)
    assert not rmse.is_better(0.5, than=0.5)
    assert [ACCURACY.reaches(value, 0.5) for value in (0.4, 0.5, 0.6)] == [False, True, True]
    assert [rmse.reaches(value, 0.5) for value in (0.4, 0.5, 0.6)] == [True, True, False]
    assert (ACCURACY.best([0.1, 0.3]), ACCURACY.worst([0.1, 0.3])) == (0.3, 0.1)
    assert (rmse.best([0.1, 0.3]), rmse.worst([0.1, 0.3])) == (0.1, 0.3)


def test_values_are_shown_as_percents_or_numbers():
    assert ACCURACY.text(0.4567) == "45.7%"
    assert Metric("rmse").text(104.3333) == "104.3"
    assert Metric("rmse").text(None) == "-"
    assert ACCURACY.with_spread(0.4567, 0.0123) == "45.7% ± 1.2"
    assert Metric("rmse").with_spread(0.45678, 0.01234) == "0.4568 ± 0.0123"
    assert Metric("rmse").with_spread(None, 0.0) == "-"


def test_numbers_of_a_column_have_equally_many_digits():
    texts = [Metric("rmse").text(value) for value in (5.4, -0.054, 5.366, 12345.6, 2.5e7, 1e-7, 0)]
    assert texts == ["5.400", "-0.05400", "5.366", "12,346", "2.5e+07", "1e-07", "0"]
    spreads = [Metric("rmse").with_spread(*pair) for pair in ((5.4, 0.1), (5.4, 1e-6), (1234.5, 31.4), (0.5, 0.0))]
    assert spreads == ["5.400 ± 0.100", "5.400 ± 1e-06", "1,234 ± 31", "0.5000 ± 0.0000"]
    assert number_text(0.054, sign="+") == "+0.05400"


def test_missing_and_infinite_values_are_none():
    assert LOSS.value({"loss": 0.5}) == 0.5
    assert [LOSS.value(metrics) for metrics in (None, {}, {"loss": None}, {"loss": math.nan})] == [None] * 4


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("accuracy", 90, r"above 0 and at most 1 for accuracy, got 90, such as 0.9 for 90%"),
        ("accuracy", 0, "above 0 and at most 1"),
        ("rmse", -1, "at least 0 for rmse, got -1"),
        ("perplexity", 0.5, "at least 1 for perplexity"),
        ("loss", math.nan, "a number for loss"),
        ("rmse", math.inf, "at least 0"),
        ("r2", 1.5, "at most 1 for r2, got 1.5$"),
    ],
)
def test_impossible_target_is_refused(name, target, message):
    with pytest.raises(InvalidValue, match=f"target must be {message}"):
        Metric(name).require_target(target)


def test_possible_targets_are_accepted():
    for name, target in (("accuracy", 1.0), ("rmse", 0.0), ("loss", -2.0), ("r2", 0.9), ("r2", -1.0)):
        assert Metric(name).require_target(target) is None


def test_default_is_accuracy_then_the_first_known_metric_then_the_loss():
    assert choose_metric(["f1", "accuracy"]).name == "accuracy"
    assert choose_metric(["score", "mae", "rmse"]).name == "mae"
    assert choose_metric(["score"]).name == "loss"
    assert choose_metric([]).name == "loss"


def test_metric_that_is_not_measured_is_refused():
    with pytest.raises(ConfigError, match=r"run\.metric: the task does not measure 'rmse'; choose one of: f1, loss"):
        choose_metric(["f1"], "rmse")
    assert choose_metric(["score"], "score", "higher", "percent") == Metric("score", "higher", "percent")
