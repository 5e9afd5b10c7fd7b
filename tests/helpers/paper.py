"""`fadas reproduce`, and results of the paper's cells written without training."""

import json
from pathlib import Path

from fadas.paper.artefacts import Cell, all_artefacts
from fadas.paper.results import written_changes
from fadas.runs.formats import FORMAT

TABLE, RELEASED, TIMES = (all_artefacts()[name] for name in ("large-cifar10", "large-cifar10-released", "time"))
FADAS_ROW = next(row for row in TABLE.rows if row.method == "fadas")


def reproduce(folder: Path, *words):
    """`fadas reproduce` with the experiments of the fixture `small_paper`."""
    from typer.testing import CliRunner

    from fadas.cli.app import app

    experiments, results = ["--experiments", folder / "experiments"], ["--results", folder / "results"]
    places = {"list": results, "report": [*results, "--page", folder / "page.md"]}
    places = places.get(words[0], [*experiments, *results, "--work", folder / "runs"])
    return CliRunner().invoke(app, ["reproduce", *map(str, (*words, *places))])


def save_result(results: Path, cell: Cell, **fields) -> Path:
    """Write the result of a cell. `fields` replace the values given here."""
    path = cell.path(results)
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {
        "experiment": cell.experiment,
        "method": cell.method,
        "seed": cell.seed,
        "changes": written_changes(cell),
        "accuracy": 0.5,
        "accuracy_std": 0.0,
        "time_to_target": None,
        "target": None,
        "curve": [[1, 5, 2.0, 0.5]],
        "delays": {"tau_max": 9, "tau_avg": 2.5, "tau_med": 2},
        "config": {},
        "device": "",
        "versions": {},
        "wall": 1.0,
        "commit": "",
        "format": FORMAT,
    }
    path.write_text(json.dumps({**values, **fields}))
    return path


def save_method(mean, spread, results: Path, time=None, end=900.0, method="fadas", changes=None) -> None:
    """Write results of a method for every column of the tables of accuracies and times."""
    targets = dict(zip(TIMES.columns.values(), TIMES.targets, strict=True))
    for experiment in (*TABLE.columns.values(), *TIMES.columns.values()):
        fields = {"accuracy": mean, "accuracy_std": spread, "time_to_target": time, "curve": [[1, 5, end, 0.5]]}
        save_result(results, Cell(experiment, method, 1, changes or {}), target=targets.get(experiment), **fields)
