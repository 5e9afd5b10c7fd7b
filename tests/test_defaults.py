"""The documented default of every parameter, and the values that it may have.

One table for all registered parts and for the settings of the engine. A changed default is a changed result for users
who rely on it: change it here, in the docs and in the changelog.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from fadas.algorithms import ALGORITHMS, COMBINES, COMPANIONS, OPTIMIZERS, SGD, STEP_SIZES, Algorithm, Constant, Mean
from fadas.core.ledger import Schedule
from fadas.core.update_checks import Checks
from fadas.simulation.delays import DELAYS, Delays, Large
from fadas.simulation.faults import Fault
from fadas.training import RATE_SCHEDULES, STEP_LAWS
from fadas.training.sgd import LocalSGD

NAN, INF = math.nan, math.inf
TINY, HUGE = 5e-324, 1.7e308


@dataclass(frozen=True)
class Rule:
    """Values that are refused, and values up to the bounds that are accepted."""

    bad: tuple[Any, ...]
    good: tuple[Any, ...]
    message: str = "{name} must be "


POSITIVE = Rule((0.0, -0.0, -1.0, NAN, INF, -INF), (TINY, 1, HUGE), "{name} must be a positive number, got {value}$")
NOT_NEGATIVE = Rule((-TINY, -1, NAN, INF, -INF), (0.0, 0, TINY, HUGE), "{name} must be at least 0, got {value}$")
BELOW_ONE = math.nextafter(1, 0)
FRACTION = Rule((-TINY, -0.5, 1.0, 1, 1.5, NAN, INF), (0.0, TINY, BELOW_ONE), "{name} must be at least 0 and below 1")
RANGE = Rule(
    ((0.0, 1.0), (-1.0, 2.0), (2.0, 1.0), (1.0, INF), (NAN, 1.0), (1.0, NAN)), ((1.0, 1.0), (TINY, HUGE)),
    r"{name} must be a range 0 < low <= high, got \[",
)  # fmt: skip
FLAG, ANYTHING = Rule((), (True, False)), Rule((), ())


def whole(least: int) -> Rule:
    """Whole numbers from this one on."""
    return Rule(
        (least - 1, -1, 2.5, NAN, INF, True, "3"),
        (least, 10**6),
        "{name}( and buffer)? must be (at least|a whole number)",
    )


def words(*choices: str) -> Rule:
    """One of these words."""
    return Rule(("", "other", choices[0].upper()), choices, "{name} must be one of ")


SHARE = Rule((0.0, -0.1, math.nextafter(1, 2), NAN, INF), (TINY, 0.5, 1.0), "{name} must be above 0 and at most 1, got")
OPEN_SHARE = Rule((0.0, 1.0, -0.1, NAN, INF), (TINY, BELOW_ONE), "{name} must be above 0 and below 1, got")
ETA = {"eta": (1e-3, POSITIVE)}
MOMENTS = {"beta1": (0.9, FRACTION), "beta2": (0.99, FRACTION), "eps": (1e-8, POSITIVE)}
CORRECTED = {**MOMENTS, "bias_correction": (False, FLAG)}
REFILL = words("arrival", "update", "round", "released")
FORM = words("scaled", "capped")
ONE = {"eta": (1.0, POSITIVE)}
TIERS = {"small": ((1.0, 2.0), RANGE), "medium": ((3.0, 5.0), RANGE)}
SHARES = Rule(
    ((0.6, 0.3, 0.2), (1.2, -0.1, -0.1), (0.5, 0.5), (NAN, 0.5, 0.5), (0.6, 0.3, 0.1 + 1.2e-6)),
    ((1.0, 0.0, 0.0), (0.6, 0.3, 0.1), (0.6, 0.3, 0.1 + 5e-7)), "shares must be three numbers that add up to 1",
)  # fmt: skip
REQUIRED = inspect.Parameter.empty

# part -> parameter -> its default and what it may be
TABLE: dict[str, dict[str, tuple[Any, Rule]]] = {
    "algorithm fadas": {**ETA, **MOMENTS},
    "algorithm fadas-da": {**ETA, "tau_c": (8, whole(0)), "form": ("scaled", FORM), **MOMENTS},
    "algorithm fedbuff": {**ONE, "staleness_weights": (False, FLAG)},
    "algorithm fedasync": {
        "alpha": (0.6, Rule(POSITIVE.bad, POSITIVE.good, "must be a positive number, got {value}$")),
        "staleness": ("polynomial", words("constant", "hinge", "polynomial")),
        "a": (None, POSITIVE),
        "b": (4, NOT_NEGATIVE),
    },
    "algorithm ca2fl": ONE,
    "algorithm fedavg": ONE,
    "algorithm fedadam": {**ETA, **MOMENTS},
    "algorithm fedams": {**ETA, **MOMENTS},
    "algorithm fedyogi": {**ETA, **MOMENTS},
    "algorithm fedadagrad": {**ETA, "beta1": (0.0, FRACTION), "eps": (1e-8, POSITIVE)},
    "algorithm fedprox": {**ONE, "mu": (0.01, NOT_NEGATIVE)},
    "algorithm fednova": {**ONE, "examples": (False, FLAG)},
    "algorithm scaffold": ONE,
    "algorithm scaffold-async": ONE, "algorithm centralised": {}, "algorithm local-only": {},
    "algorithm fedlalr": ONE,
    "algorithm custom": {
        "combine": (Mean(), ANYTHING), "optimizer": (SGD(), ANYTHING), "step_size": (Constant(1.0), ANYTHING),
        "refill": ("arrival", ANYTHING), "buffer": (None, ANYTHING), "statistics": (None, SHARE),
        "companion": (None, ANYTHING), "baseline": (None, words("centralised", "local-only")),
    },
    "combine mean": {},
    "combine examples": {},
    "combine staleness": {"normalize": (False, FLAG)},
    "combine normalized": {"examples": (False, FLAG)},
    "combine mixing": {},
    "combine calibrated": {},
    "combine median": {},
    "combine trimmed": {"trim": (1, whole(0))},
    "combine clipped": {"norm": (None, POSITIVE)},
    "combine private": {"clip": (1.0, POSITIVE), "noise": (1.0, POSITIVE), "delta": (1e-5, OPEN_SHARE)},
    "optimizer sgd": {"momentum": (0.0, FRACTION)},
    "optimizer adam": CORRECTED,
    "optimizer amsgrad": {**CORRECTED, "floor": (0.0, NOT_NEGATIVE)},
    "optimizer yogi": CORRECTED,
    "optimizer adagrad": {"beta1": (0.0, FRACTION), "eps": (1e-8, POSITIVE)},
    "optimizer torch": {
        "optimizer": ("Adam", Rule(("Nothing", "Optimizer", ""), ("SGD", "RMSprop"), "cannot serve as the server opt")),
        "options": (None, Rule(({"lr": 1.0}, {"size": 1}, {"eps": -1.0}), ({"eps": 1e-3},), "cannot serve as the ser")),
    },
    "step size constant": ONE,
    "step size delay-adaptive": {
        "eta": (REQUIRED, POSITIVE), "tau_c": (REQUIRED, whole(0)), "form": ("scaled", FORM),
    },
    "step size hinge": {"eta": (0.6, POSITIVE), "a": (10.0, POSITIVE), "b": (4.0, NOT_NEGATIVE)},
    "step size polynomial": {"eta": (0.6, POSITIVE), "a": (0.5, POSITIVE)},
    "step size warmup": {"steps": (REQUIRED, whole(1)), "then": (Constant(1.0), ANYTHING)},
    "step size cosine": {
        "steps": (REQUIRED, whole(1)), **ONE, "floor": (0.0, FRACTION), "then": (Constant(1.0), ANYTHING),
    },
    "step size inverse-sqrt": {"steps": (1, whole(1)), **ONE, "then": (Constant(1.0), ANYTHING)},
    "companion proximal": {"mu": (0.01, NOT_NEGATIVE)},
    "companion step-count": {},
    "companion control-variates": {},
    "companion shared-moments": {},
    "law table": {"counts": (REQUIRED, Rule(((), (0,), (3, -1), (2.5,)), ((1,), (1, 10**6)), "counts must "))},
    "law uniform": {
        "low": (REQUIRED, Rule((0, -1, 2.5, True), (1, 5), "low must be")), "high": (REQUIRED, whole(1)),
        "per": ("job", words("job", "client")),
    },
    "law lognormal": {
        "median": (REQUIRED, whole(1)), "sigma": (0.5, NOT_NEGATIVE), "per": ("job", words("job", "client")),
        "most": (None, Rule((0, 9, -1, 2.5), (10, 10**6), "most must be")),
    },
    "rates steps": {"every": (REQUIRED, whole(1)), "factor": (0.1, POSITIVE)},
    "rates cosine": {
        "steps": (REQUIRED, whole(1)),
        "floor": (0.01, Rule((0.0, -0.5, 1.0, NAN), (TINY, BELOW_ONE), "floor must be")),
    },
    "rates sqrt": {"after": (1, whole(1))},
    "delays large": {
        "gamma": (1.0, POSITIVE), **TIERS, "large": ((50.0, 80.0), RANGE), "shares": (None, SHARES),
    },
    "delays mild": {"gamma": (1.0, POSITIVE), **TIERS, "large": ((5.0, 8.0), RANGE), "shares": (None, SHARES)},
    "delays uniform": {
        "low": (1.0, Rule((0.0, -1.0, 2.5, NAN, INF), (TINY, 2.0), "low, high must be a range")),
        "high": (2.0, Rule((0.0, 0.9, -1.0, NAN, INF), (1.0, HUGE), "low, high must be a range")),
    },
    "delays lognormal": {"median": (1.0, POSITIVE), "sigma": (1.0, POSITIVE)},
    "delays exponential": {"mean": (1.0, POSITIVE)},
    "delays pareto": {"scale": (1.0, POSITIVE), "shape": (1.5, POSITIVE)},
    "delays table": {"path": (REQUIRED, ANYTHING), "digest": (None, ANYTHING)},
    "engine delays": {
        "model": (Large(), ANYTHING), "dropout": (0.0, FRACTION), "deadline": (None, POSITIVE),
        "scale_by_data": (False, FLAG), "faults": ((), ANYTHING),
    },
    "engine fault": {
        "kind": (REQUIRED, words("fail", "nan", "inf", "flip", "noise")), "clients": (None, ANYTHING),
        "start": (0.0, Rule((-TINY, -1.0, NAN, INF), (0.0, HUGE), "start and end must be a range 0 <= start < end")),
        "end": (INF, Rule((0.0, -1.0, NAN), (TINY, HUGE, INF), "start and end must be a range 0 <= start < end")),
        "scale": (1.0, POSITIVE),
    },
    "engine local": {
        "lr": (0.01, POSITIVE), "epochs": (2, whole(1)), "batch_size": (50, whole(1)),
        "weight_decay": (1e-4, NOT_NEGATIVE), "steps": (None, whole(1)), "mu": (None, NOT_NEGATIVE),
        "clip": (None, POSITIVE), "schedule": (None, ANYTHING), "warmup": (0, whole(0)), "decoupled": (False, FLAG),
        "keep": (False, Rule((True,), (False,), "keep has no effect")), "companion": (None, ANYTHING),
    },
    "engine schedule": {
        "concurrency": (REQUIRED, whole(1)), "buffer": (REQUIRED, whole(1)), "refill": ("arrival", REFILL),
        "per_client": (None, whole(0)), "excess": ("wait", words("wait", "replace")),
    },
    "engine checks": {
        "norm": (None, POSITIVE), "excess": ("refuse", words("refuse", "clip")), "norm_factor": (None, NOT_NEGATIVE),
        "examples": (None, whole(1)), "examples_factor": (None, NOT_NEGATIVE),
    },
}  # fmt: skip
REGISTRIES = {
    "algorithm": ALGORITHMS, "combine": COMBINES, "optimizer": OPTIMIZERS, "step size": STEP_SIZES, "delays": DELAYS,
    "companion": COMPANIONS, "law": STEP_LAWS, "rates": RATE_SCHEDULES,
    "engine": {"delays": Delays, "fault": Fault, "local": LocalSGD, "schedule": Schedule, "checks": Checks},
}  # fmt: skip
NEEDED: dict[str, dict[str, Any]] = {  # what a part cannot be made without
    "step size delay-adaptive": {"eta": 0.1, "tau_c": 4},
    "step size warmup": {"steps": 5},
    "step size cosine": {"steps": 5},
    "law uniform": {"low": 1, "high": 10},
    "law lognormal": {"median": 10},
    "rates steps": {"every": 5},
    "rates cosine": {"steps": 5},
    "engine fault": {"kind": "noise"},
    "engine schedule": {"concurrency": 1, "buffer": 1},
}
PARAMETERS = [(part, name) for part, row in TABLE.items() for name in row]
NUMBERS = [(part, name) for part, name in PARAMETERS if TABLE[part][name][1] is not ANYTHING]


def maker_of(part: str) -> Callable[..., Any]:
    kind = next(kind for kind in REGISTRIES if part.startswith(f"{kind} "))
    return REGISTRIES[kind][part.removeprefix(f"{kind} ")]


def make_part(part: str, **changes: Any) -> Any:
    if part == "combine private":
        pytest.importorskip("dp_accounting")
    return maker_of(part)(**{**NEEDED.get(part, {}), **changes})


def test_every_registered_part_is_in_the_table():
    registered = {f"{kind} {name}" for kind, registry in REGISTRIES.items() for name in registry}
    assert registered == set(TABLE)


@pytest.mark.parametrize("part", TABLE)
def test_every_parameter_of_a_registered_part_is_in_the_table(part):
    assert set(inspect.signature(maker_of(part)).parameters) == set(TABLE[part])


@pytest.mark.parametrize(("part", "name"), PARAMETERS)
def test_default_is_the_documented_one(part, name):
    expected, _ = TABLE[part][name]
    default = inspect.signature(maker_of(part)).parameters[name].default
    assert default == expected
    assert type(default) is type(expected) or default == 4  # FedAsync's b may be written as a whole number


@pytest.mark.parametrize(("part", "name"), NUMBERS)
def test_impossible_value_is_refused_by_name(part, name):
    _, rule = TABLE[part][name]
    for value in rule.bad:
        with pytest.raises(ValueError, match=rule.message.format(name=name, value=value)):
            make_part(part, **{name: value})


@pytest.mark.parametrize(("part", "name"), NUMBERS)
def test_bounds_are_accepted(part, name):
    _, rule = TABLE[part][name]
    for value in rule.good:
        made = make_part(part, **{name: value})
        if hasattr(made, name) and not isinstance(made, Algorithm):
            assert getattr(made, name) == value


def test_fedasync_has_a_default_for_each_form():
    make = ALGORITHMS["fedasync"]
    assert make().step_size == STEP_SIZES["polynomial"](0.6, 0.5)
    assert make(staleness="hinge").step_size == STEP_SIZES["hinge"](0.6, 10.0, 4)
    assert make(staleness="constant").step_size == Constant(0.6)


def test_presets_pass_their_parameters_on():
    """Each parameter has a value of its own here, so that no two can be mixed up."""
    moments = {"beta1": 0.1, "beta2": 0.2, "eps": 0.3}
    for name, optimizer in (("fadas", "amsgrad"), ("fedadam", "adam"), ("fedams", "amsgrad"), ("fedyogi", "yogi")):
        made = ALGORITHMS[name](eta=0.4, **moments)
        assert (made.step_size, made.optimizer) == (Constant(0.4), OPTIMIZERS[optimizer](**moments))
    adaptive = ALGORITHMS["fadas-da"](eta=0.4, tau_c=5, form="capped", **moments)
    assert adaptive.step_size == STEP_SIZES["delay-adaptive"](0.4, 5, "capped")
    assert adaptive.optimizer == OPTIMIZERS["amsgrad"](**moments)
    adagrad = ALGORITHMS["fedadagrad"](eta=0.4, beta1=0.1, eps=0.3)
    assert (adagrad.step_size, adagrad.optimizer) == (Constant(0.4), OPTIMIZERS["adagrad"](0.1, 0.3))
    for name in ("fedbuff", "ca2fl", "fedavg", "fedprox", "fednova", "scaffold", "scaffold-async", "fedlalr"):
        assert ALGORITHMS[name](eta=0.4).step_size == Constant(0.4)
    assert ALGORITHMS["fedbuff"](staleness_weights=True).combine == COMBINES["staleness"]()
    assert ALGORITHMS["fedprox"](mu=0.3).companion == COMPANIONS["proximal"](0.3)
    assert ALGORITHMS["fednova"](examples=True).combine == COMBINES["normalized"](True)
    rounds = {name: ALGORITHMS[name]().refill for name in ALGORITHMS}
    assert {name for name, refill in rounds.items() if refill == "round"} == {
        "fedavg", "fedadam", "fedams", "fedyogi", "fedadagrad", "fedprox", "fednova", "scaffold", "fedlalr",
        "centralised",
    }  # fmt: skip


def test_strategy_options_have_documented_defaults():
    pytest.importorskip("flwr")
    from fadas.flower import AsyncStrategy

    options = AsyncStrategy().options
    assert options.algorithm == ALGORITHMS["fadas"]()
    assert options.schedule == Schedule(8, 4, "arrival")
    assert (options.seed, options.reply, options.folder, options.name) == (0, "arrays", None, "fadas")
    assert (options.eval_every, options.deadline, options.patience, options.poll) == (1, 600.0, 300.0, 0.2)
    assert AsyncStrategy.from_run_config({}).options == options


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("reply", words("arrays", "delta")),
        (
            "eval_every",
            Rule((0, -1, 0.5, NAN, "3", "0 updates", True), (1, 7, "50 updates", "2.5 time"), "eval_every "),
        ),
        ("deadline", Rule((0.0, -1.0, NAN), (TINY, HUGE, INF), "deadline, patience and poll are seconds")),
        ("patience", Rule((-TINY, -1.0, NAN), (0.0, HUGE, INF), "deadline, patience and poll are seconds")),
        ("poll", Rule((0.0, -1.0, NAN, INF), (TINY, 60.0), "deadline, patience and poll are seconds")),
        ("seed", Rule((0.5, NAN, "3", True), (0, 2**40), "seed must be a whole number")),
    ],
)
def test_strategy_options_refuse_impossible_values(name, rule):
    pytest.importorskip("flwr")
    from fadas.flower import AsyncStrategy

    for value in rule.bad:
        with pytest.raises(ValueError, match=rule.message.format(name=name, value=value)):
            AsyncStrategy(**{name: value})
    for value in rule.good:
        assert getattr(AsyncStrategy(**{name: value}).options, name) == value
