"""Clients in the report: how well each is served by the global model, and how often each took part.

The statistics are in `fairness.py`. Evaluations come from clients.jsonl, participation from the jobs in metrics.jsonl.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev

import numpy as np

from fadas.core.metrics import Metric
from fadas.report.fairness import (
    Spread,
    divide_by_duration,
    mean_by_tier,
    measure_participation,
    measure_spread,
)
from fadas.runs.reader import Run, group_runs

Groups = Mapping[str, Sequence[Run]]
_MOST_CLIENTS = 1_000_000  # the settings may name any number


def client_tiers(run: Run) -> dict[str, list[int]]:
    """Return the clients of each delay tier, from the fastest to the slowest.

    Without tiers in the delay model these are thirds of the clients by the mean duration of their jobs.

    Args:
        run: A finished run.
    """
    if run.baseline == "centralised" and run.tiers is None:
        return {}  # its jobs are no client's
    if run.tiers is not None:
        return {name: members for name, members in run.tiers.items() if members}
    if run.clients > _MOST_CLIENTS:
        return {}
    totals: dict[int, list[float]] = {}
    for record in run.records:
        for job in record.jobs:
            totals.setdefault(job.client, []).append(job.end - job.start)
    return divide_by_duration({client: fmean(times) for client, times in totals.items()}, run.clients)


def count_arrivals(run: Run, until: float = math.inf) -> list[int]:
    """Return the number of updates of each client that reached a server step.

    Args:
        run: A finished run. In a deployment only clients that were seen are counted. Of more than a million clients
            nothing is counted.
        until: The last server step that counts.
    """
    if run.clients > _MOST_CLIENTS:
        return []
    seen = [job.client for record in run.records if record.step <= until for job in record.jobs]
    return np.bincount(seen, minlength=run.clients).tolist() if seen or run.clients else []


def last_values(run: Run, metric: Metric) -> list[float | None]:
    """Return a metric of the last evaluation of the clients, one value per client. Empty: there is none.

    Args:
        run: A finished run.
        metric: The metric.
    """
    return run.clients_evaluations[-1].metrics.get(metric.name, []) if run.clients_evaluations else []


def clients_table(runs: Sequence[Run], metric: Metric | None = None) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of a table: the last model of each method on the clients' own test data.

    Values are means over the seeds, and the number after ± is their sample standard deviation. Methods that did not
    evaluate clients are left out, and so are diverged runs.

    Args:
        runs: Finished runs.
        metric: The metric. None: the one that the first method is judged by.

    Returns:
        The column titles, where a newline marks where a title may break, and the rows as text. No rows: no run
        evaluated its clients.

    Example:
        >>> header, rows = clients_table(find_runs(Path("runs/demo")))
    """
    complete = _complete_groups(runs)
    evaluated = [run for group in complete.values() for run in group if run.clients_evaluations]
    if not evaluated:
        return [], []
    metric = metric or evaluated[0].metric
    groups = {name: group for name, group in complete.items() if any(last_values(run, metric) for run in group)}
    names = _tier_names(groups)
    rows: list[list[str]] = []
    for name, group in groups.items():
        spreads = [spread for run in group if (spread := measure_spread(last_values(run, metric), metric))]
        tiers = [mean_by_tier(last_values(run, metric), client_tiers(run)) for run in group]
        rows.append(
            [
                name,
                _whole([spread.clients for spread in spreads]),
                _with_spread(metric, [spread.mean for spread in spreads]),
                _with_spread(metric, [spread.worst_decile for spread in spreads]),
                _jain_text(spreads),
                *(_mean_text([tier.get(one) for tier in tiers], metric.text) for one in names),
            ]
        )
    return [
        "algorithm",
        "clients",
        f"{metric.name}\nmean",
        "worst\n10 %",
        "Jain's\nindex",
        *_tier_titles(groups, names),
    ], rows


def participation_table(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of a table: how often clients took part, against uniform arrivals.

    Values are means over the seeds. "least" and "most" are the smallest and largest number of updates of a client,
    relative to equal shares. The columns of tiers say how often the tier took part, relative to equal shares.

    Args:
        runs: Finished runs.

    Returns:
        The column titles and the rows as text, as for `clients_table`.

    Example:
        >>> header, rows = participation_table(find_runs(Path("runs/demo")))
    """
    groups = {name: group for name, group in _complete_groups(runs).items() if any(map(arrival_shares, group))}
    if not groups:
        return [], []
    names = _tier_names(groups)
    rows: list[list[str]] = []
    for name, group in groups.items():
        found = [one for run in group if (one := measure_participation(count_arrivals(run)))]
        tiers = [mean_by_tier(arrival_shares(run), client_tiers(run)) for run in group]
        rows.append(
            [
                name,
                _whole([one.clients for one in found]),
                f"{fmean(one.expected for one in found):.1f}",
                *(_mean_text([getattr(one, key) for one in found], _times) for key in ("least", "most")),
                *(_mean_text([getattr(one, key) for one in found], "{:.2f}".format) for key in ("distance", "chance")),
                *(_mean_text([tier.get(one) for tier in tiers], _times) for one in names),
            ]
        )
    head = ["algorithm", "clients", "updates\nper client", "least", "most", "distance\nto uniform", "by\nchance"]
    return [*head, *_tier_titles(groups, names)], rows


def _complete_groups(runs: Sequence[Run]) -> dict[str, list[Run]]:
    return group_runs([run for run in runs if not run.diverged])


def arrival_shares(run: Run) -> list[float]:
    """Return each client's number of updates, relative to equal shares. Nothing if data are pooled.

    Args:
        run: A finished run.
    """
    counts = [] if run.baseline == "centralised" else count_arrivals(run)
    total = sum(counts)
    return [len(counts) * count / total for count in counts] if total else []


def _tier_names(groups: Groups) -> list[str]:
    return list(dict.fromkeys(name for group in groups.values() for run in group for name in client_tiers(run)))


def _tier_titles(groups: Groups, names: Sequence[str]) -> list[str]:
    """Return the column titles of tiers. A tier "small" is one of small delays."""
    given = {name for group in groups.values() for run in group for name in run.tiers or ()}
    return [f"{name}\ndelays" if name in given else name.replace(" ", "\n", 1) for name in names]


def _with_spread(metric: Metric, values: Sequence[float]) -> str:
    if len(values) < 2:
        return metric.text(values[0] if values else None)
    return metric.with_spread(fmean(values), stdev(values))


def _mean_text(values: Sequence[float | None], text: Callable[[float], str]) -> str:
    """Return the mean over the seeds that have a value; "-" if none has."""
    known = [value for value in values if value is not None]
    return text(fmean(known)) if known else "-"


def _jain_text(spreads: Sequence[Spread]) -> str:
    """Return the mean of Jain's index; "-" if a seed has none, because the mean of the others would mislead."""
    known = [spread.jain for spread in spreads if spread.jain is not None]
    return f"{fmean(known):.3f}" if known and len(known) == len(spreads) else "-"


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x"


def _whole(values: Sequence[int]) -> str:
    return f"{min(values)} to {max(values)}" if len(set(values)) > 1 else f"{next(iter(values), 0)}"
