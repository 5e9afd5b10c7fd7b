"""Which results the reproduction's page shows: those of its artefacts, what was tuned, and others."""

from pathlib import Path

from fadas.paper.artefacts import Cell, Result, artefacts, find_result, read_result
from fadas.paper.results import tuned_cells


def shown_results(results: Path) -> list[Result]:
    """All that the page shows: what has been run of the artefacts, tuned too, and `others` of their experiments."""
    cells = known_cells(results)
    found = [result for result in (find_result(cell, results) for cell in cells) if result]
    experiments = dict.fromkeys(cell.experiment for cell in cells)
    return found + [one for experiment in experiments for one in unlisted_results(experiment, results, cells)]


def unlisted_results(experiment: str, results: Path, known: dict[Cell, None]) -> list[Result]:
    """Results of an experiment that belong to no artefact: other settings, or other seeds.

    Shortened runs are trials, and not shown.
    """
    found = [read_result(path) for path in sorted((results / experiment).glob("*.json"))]
    return [
        one
        for one in found
        if one.cell not in known and not any(change.startswith("rounds=") for change in one.changes)
    ]


def known_cells(results: Path) -> dict[Cell, None]:
    """The cells that have a place of their own on the page."""
    cells: dict[Cell, None] = {}
    for one in artefacts().values():
        cells |= dict.fromkeys(one.all_cells())
        for experiment in one.columns.values():
            for row in one.rows:
                cells |= dict.fromkeys(tuned_cells(one, row, experiment, results))
    return cells
