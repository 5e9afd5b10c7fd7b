"""What a run is judged by: a metric, which direction is better, and how it is shown. Needs no torch."""

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from fadas.errors import ConfigError
from fadas.validate import InvalidValue, one_of

Better = Literal["higher", "lower"]
Format = Literal["percent", "number"]
# What is known of common names: the better direction, the format, and the smallest and largest possible value.
_SHARE = ("higher", "percent", 0.0, 1.0)
_ERROR = ("lower", "number", 0.0, math.inf)
_KNOWN: dict[str, tuple[Better, Format, float, float]] = {
    **dict.fromkeys(("accuracy", "f1", "macro_f1", "micro_f1", "auc", "precision", "recall"), _SHARE),
    "r2": ("higher", "number", -math.inf, 1.0),
    **dict.fromkeys(("loss", "train_loss"), ("lower", "number", -math.inf, math.inf)),
    **dict.fromkeys(("rmse", "mse", "mae"), _ERROR),
    "perplexity": ("lower", "number", 1.0, math.inf),
}
_TOP = re.compile(r"top_?\d+(_accuracy)?")


@dataclass(frozen=True)
class Metric:
    """A metric that runs are judged by.

    Args:
        name: Its name among the task's metrics, or "loss".
        better: Which direction is better. None: what is usual for the name.
        format: How values are shown: "percent" or "number". None: what is usual for the name, else "number".

    Example:
        >>> Metric("rmse").is_better(0.5, than=0.7)
        True
        >>> Metric("accuracy").text(0.4567)
        '45.7%'
    """

    name: str
    better: Better = None  # pyright: ignore[reportAssignmentType]  # replaced below
    format: Format = None  # pyright: ignore[reportAssignmentType]

    def __post_init__(self) -> None:
        known = _known(self.name)
        if self.better is None and known is None:  # pyright: ignore[reportUnnecessaryComparison]
            near = difflib.get_close_matches(self.name.lower(), _KNOWN, n=1)
            hint = f'; or did you mean "{near[0]}"?' if near else ""
            raise InvalidValue("better", f'must be "higher" or "lower" for the metric "{self.name}"{hint}')
        object.__setattr__(self, "better", self.better or (known or _ERROR)[0])
        object.__setattr__(self, "format", self.format or (known[1] if known else "number"))
        one_of(get_args(Better), better=self.better)
        one_of(get_args(Format), format=self.format)

    @property
    def is_accuracy(self) -> bool:
        """Whether this is the accuracy, as tasks with labels measure it by default."""
        return self == ACCURACY

    def is_better(self, value: float, than: float) -> bool:
        """Return whether a value is better than another."""
        return value > than if self.better == "higher" else value < than

    def reaches(self, value: float, target: float) -> bool:
        """Return whether a value is as good as the target, or better."""
        return value >= target if self.better == "higher" else value <= target

    def best(self, values: Iterable[float]) -> float:
        """Return the best of some values."""
        return max(values) if self.better == "higher" else min(values)

    def worst(self, values: Iterable[float]) -> float:
        """Return the worst of some values."""
        return min(values) if self.better == "higher" else max(values)

    def value(self, metrics: Mapping[str, float | None] | None) -> float | None:
        """Return this metric of an evaluation, if it was measured and is a number."""
        value = (metrics or {}).get(self.name)
        return value if value is not None and math.isfinite(value) else None

    def require_target(self, target: float) -> None:
        """Raise an error if no run could have this target, or if every run would reach it."""
        _, _, low, high = _known(self.name) or ("", "", -math.inf, math.inf)
        every = low if self.better == "higher" else high  # the worst value that is possible
        if not math.isfinite(target) or not low <= target <= high or target == every:
            percents = self.format == "percent" and high < target <= 100
            hint = f", such as {target / 100:g} for {target:g}%" if percents else ""
            least, most = (f"above {low:g}", f"at most {high:g}") if every == low else (f"at least {low:g}", "")
            limits = " and ".join(limit for limit in (least, most) if limit and "inf" not in limit)
            raise InvalidValue("target", f"must be {limits or 'a number'} for {self.name}, got {target:g}{hint}")

    def why_reached(self, target: float, initial: Mapping[str, float | None] | None) -> str | None:
        """Return why a target says nothing: the initial model reaches it already, as if the direction were mistaken.

        Args:
            target: The target.
            initial: The metrics of the initial model.

        Returns:
            The reason and what to do, or None if the initial model does not reach the target.
        """
        value = self.value(initial)
        if value is None or not self.reaches(value, target):
            return None
        advice = f"set a {self.better} target" + ("" if _known(self.name) else ', or the other value of "better"')
        return f"the initial model has {self.name} {self.text(value)}, and {self.better} is better; {advice}"

    def text(self, value: float | None) -> str:
        """Return a value as text: "45.7%" or "0.4567"; "-" for None."""
        if value is None:
            return "-"
        return f"{value:.1%}" if self.format == "percent" else number_text(value)

    def with_spread(self, value: float | None, spread: float) -> str:
        """Return a value and its spread as text: "45.7% ± 1.2" or "0.4567 ± 0.0120"."""
        if value is None:
            return "-"
        share = self.format == "percent"
        return f"{self.text(value)} ± {f'{100 * spread:.1f}' if share else number_text(spread, beside=value)}"


def number_text(value: float, beside: float | None = None, sign: str = "") -> str:
    """Return a number with four significant digits: "5.400", "0.05400", "12,345".

    Args:
        value: The number.
        beside: The number whose decimals it gets: a spread has those of its mean, unless nothing would be left of it.
        sign: "+" to show the sign of positive numbers, too.
    """
    size = abs(value if beside is None else beside)
    if not 1e-4 <= size < 1e6:
        return f"{value:{sign}.4g}" if beside is None else f"{value:.2g}"
    decimals = max(0, 3 - math.floor(math.log10(size)))
    text = f"{value:{sign},.{decimals}f}"
    return text if beside is None or not value or float(text.replace(",", "")) else f"{value:.2g}"


def number_format(spread: float) -> str:
    """Return the format of differences that vary by so much: two digits of the spread. Empty: no decimals would do.

    Args:
        spread: A standard deviation, or the width of an interval.

    Example:
        >>> f"{0.45678:{number_format(0.01234)}}"
        '0.457'
    """
    if not 1e-6 <= spread < 1e6:
        return ""
    return f".{max(1 - math.floor(math.log10(spread)), 0)}f"


def _known(name: str) -> tuple[Better, Format, float, float] | None:
    name = name.lower().replace("-", "_")
    return _SHARE if _TOP.fullmatch(name) else _KNOWN.get(name)


def usual_direction(name: str) -> Better | None:
    """Return which direction is better, as far as it is known of a metric's name."""
    known = _known(name)
    return known[0] if known else None


ACCURACY = Metric("accuracy")
LOSS = Metric("loss")


def choose_metric(
    measured: Iterable[str], name: str | None = None, better: Better | None = None, format: Format | None = None
) -> Metric:
    """Return the metric that a run is judged by.

    Args:
        measured: What the task measures beside the loss.
        name: The metric that the user asks for. None: the accuracy if it is measured, else the first metric whose
            better direction is known, else the loss.
        better: Which direction is better. None: what is usual for the name.
        format: How values are shown. None: what is usual for the name.

    Raises:
        ConfigError: The task does not measure the metric.

    Example:
        >>> choose_metric(["mae", "rmse"]).name
        'mae'
    """
    names = [*measured]
    if name is None:
        known = [one for one in names if _known(one)]
        name = "accuracy" if "accuracy" in names else known[0] if known else "loss"
    elif name not in (*names, "loss"):
        choices = ", ".join([*names, "loss"])
        raise ConfigError(f"run.metric: the task does not measure {name!r}; choose one of: {choices}")
    return Metric(name, better, format)  # pyright: ignore[reportArgumentType]
