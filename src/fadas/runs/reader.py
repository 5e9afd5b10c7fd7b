"""Do a run's files hold what a run writes? What readers rely on is checked; anything else raises."""

from typing import Any

from fadas.core.records import LATEST, TAUS

_NUMBER = int | float
# what files that make no sense lead to
DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def check_settings(config: Any) -> None:
    for name in ("task", "run"):
        _need({name: {}, **config}, name, dict)


def check_summary(summary: Any) -> None:
    for name in ("experiment", "algorithm"):
        _need(summary, name, str)
    _need(summary, "seed", int)
    for name in ("step", "place"):
        _number(summary, name, int)
    for name in TAUS:
        _number(summary, name)
    _need({"diverged": None, **summary}, "diverged", str | None)
    for name in ("accuracy", "target", "time_to_target"):
        _number({name: None, **summary}, name, _NUMBER | None)


def check_records(records: list[Any], summary: dict[str, Any]) -> None:
    for record in records:
        for name in ("step", "updates", "dropped", "expired"):
            _number(record, name, int)
        for reason in _need(record, "refused", dict):
            _number(record["refused"], reason, int)
        for name in ("time", "eta"):
            _number(record, name)
        _number({"accuracy": None, **(_need(record, "metrics", dict | None) or {})}, "accuracy", _NUMBER | None)
        for job in _need(record, "jobs", list):
            for name in ("client", "tau"):
                _number(job, name, int)
            for name in ("start", "end"):
                _number(job, name)
    if not (records or summary.get("diverged")) or (records[-1]["step"] if records else 0) != summary["step"]:
        raise ValueError("it does not end where summary.json says")


def check_counts(counts: Any) -> None:
    labels = {len(_need({"client": client}, "client", list)) for client in _need({"counts": counts}, "counts", list)}
    if len(labels) != 1 or not all(type(n) is int and 0 <= n < 2**53 for client in counts for n in client):
        raise ValueError("it holds something other than counts")


def _need(table: Any, name: str, kind: Any) -> Any:
    if not isinstance(table[name], kind):
        raise TypeError(f"{name} is {table[name]!r}")
    return table[name]


def _number(table: Any, name: str, kind: Any = _NUMBER) -> None:
    value = _need(table, name, kind)
    if value is not None and not abs(value) < (2**63 if isinstance(value, int) else LATEST):
        raise ValueError(f"{name} is no number that can be drawn")
