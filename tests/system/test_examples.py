"""The complete examples: a small form of each, and with FADAS_EXAMPLES=1 all that their READMEs say.

`make test-examples` runs the full form, in minutes. The tables that the READMEs show are compared loosely.
"""

import json
import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest

import fadas
from fadas.core.metrics import Metric
from fadas.report.comparison import compare
from fadas.runs.reader import find_runs
from helpers.cli import ROOT, run_fadas
from helpers.pages import find_dead_links, read_blocks, run_page

METRICS = {
    "regression": Metric("rmse"),
    "language": Metric("perplexity"),
    "unbalanced": Metric("macro_f1"),
}
SHORT = ["--allow-code", "--set", "run.updates=50", "--set", "run.eval_every=25 updates"]
CLOSE = 0.1  # another Python has another text, another processor rounds in another way


def copy_example(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(ROOT / "examples" / name, folder / name, ignore=shutil.ignore_patterns("runs", "__*")))


def read_experiment(folder: Path) -> dict:
    return tomllib.loads((folder / "experiment.toml").read_text(encoding="utf-8"))


def flatten(table: dict, name: str = "") -> dict:
    """Tables as dotted keys."""
    found = {}
    for key, value in table.items():
        found |= flatten(value, f"{name}{key}.") if isinstance(value, dict) else {name + key: value}
    return found


def assert_winners_inside(folder: Path) -> None:
    """The rates of the file are values of its grids, and none lies on an edge."""
    tables = read_experiment(folder)
    assert len(tables["algorithms"]) == 5
    assert tables["sweep"].keys() == tables["algorithms"].keys()
    for label, grid in tables["sweep"].items():
        chosen = flatten(tables["algorithms"][label])
        for key, values in flatten(grid).items():
            value = chosen[key]
            assert value in values, f"{label}: {key} = {value}"
            assert min(values) < value < max(values), f"{label}: {key} = {value} lies on an edge"


def assert_shown_by_metric(text: str, metric: Metric) -> None:
    """A table or a page names the metric, and nothing is called an accuracy or has a percent sign that is not one."""
    assert metric.name in text
    if metric.format != "percent":
        assert "accuracy" not in text
        assert not re.search(r"\d%", text), "values stand without a space before the sign, as 43.4%"


@pytest.mark.parametrize("name", METRICS)
def test_small_form_is_compared_by_its_metric(name, tmp_path):
    folder, metric = copy_example(name, tmp_path), METRICS[name]
    assert_winners_inside(folder)
    shown = run_fadas("run", "experiment.toml", *SHORT, "--seed", "1", cwd=folder, FADAS_ALLOW_CODE="").stdout
    assert_shown_by_metric(shown, metric)
    target = read_experiment(folder)["run"]["target"]
    words = " ".join(shown.split())
    assert f"final {metric.name}: mean of the last" in words
    assert (f"{100 * target:g}%" if metric.format == "percent" else f"{target:g}") in words, "the target's column"
    runs = fadas.load_runs(folder / "runs" / name)
    assert (len(runs), set(runs["metric"]), set(runs["better"])) == (5, {metric.name}, {metric.better})
    initial = [run.initial.metrics[metric.name] for run in find_runs(folder / "runs" / name)]
    assert any(metric.is_better(now, than=first) for now, first in zip(runs[metric.name], initial, strict=True))
    assert find_dead_links(folder / "README.md") == []


def rows_of(table: str) -> dict[str, str]:
    """The first numbers of a printed table, by method: the final values."""
    return dict(re.findall(r"^ +([a-z][\w-]+) +([\d.,]+)%? ±", table, re.M))


@pytest.mark.skipif("FADAS_EXAMPLES" not in os.environ, reason="takes minutes: make test-examples")
@pytest.mark.parametrize("name", METRICS)
def test_readme_does_what_it_says(name, tmp_path):
    folder, metric = copy_example(name, tmp_path), METRICS[name]
    run_page(folder / "README.md", folder)
    assert_sweep_ended_well(folder)
    assert_runs_are_ranked(folder / "runs" / name, metric)
    assert_statistics_are_those_of_scipy(folder / "runs" / name)
    assert_exports_agree(folder, name, metric)
    assert_figures_are_whole(folder / "figures")
    page = (folder / "runs" / name / "report.html").read_text(encoding="utf-8")
    tables = re.sub(r"<[^>]+>", " ", "".join(re.findall(r"<table.*?</table>", page, re.S)))
    assert f"{metric.better.capitalize()} {metric.name} is better" in page
    assert_shown_by_metric(tables, metric)
    shown = next(block.code for block in read_blocks(folder / "README.md") if f"final {metric.name}:" in block.code)
    rows = compare(find_runs(folder / "runs" / name)).rows
    scale = 100 if metric.format == "percent" else 1
    measured = {row.algorithm: scale * row.final for row in rows}
    quoted = {label: float(number) for label, number in rows_of(shown).items()}
    assert quoted == pytest.approx(measured, rel=CLOSE), "the table of the README"


def assert_sweep_ended_well(folder: Path) -> None:
    """Finished points are skipped, so this only reads them."""
    done = run_fadas("sweep", "experiment.toml", "--allow-code", "--seed", "100", "--widen", "--json", cwd=folder)
    best = [row for line in done.stdout.splitlines() if (row := json.loads(line))["best"]]
    assert len(best) == 5
    assert [row["edges"] for row in best] == [[]] * 5
    chosen = read_experiment(folder)["algorithms"]
    for row in best:
        assert row["point"].items() <= flatten(chosen[row["label"]]).items()


def assert_runs_are_ranked(folder: Path, metric: Metric) -> None:
    """The best mean, the time to the target and the final values follow from the steps."""
    runs, steps = fadas.load_runs(folder), fadas.load_steps(folder)
    assert len(runs) == 15
    assert not runs["diverged"].notna().any()
    means = runs.groupby("algorithm")["score"].mean()
    first = compare(find_runs(folder)).ranking.leaders[0]
    assert means[first] == (means.max() if metric.better == "higher" else means.min())
    for run in find_runs(folder):
        own = steps[(steps["algorithm"] == run.label) & (steps["seed"] == run.summary.seed)].dropna(subset=metric.name)
        there = own[[metric.reaches(value, run.summary.target) for value in own[metric.name]]]
        reached = run.summary.time_to_target
        assert reached == (None if there.empty else pytest.approx(there["time"].iloc[0]))
        assert run.summary.score == pytest.approx(own[metric.name].iloc[-5:].mean())


def assert_statistics_are_those_of_scipy(folder: Path) -> None:
    from scipy import stats

    scores = fadas.load_runs(folder).pivot(index="seed", columns="algorithm", values="score")
    comparison = compare(find_runs(folder))
    for row in comparison.rows:
        values = scores[row.algorithm]
        assert (row.final, row.final_std) == (pytest.approx(values.mean()), pytest.approx(values.std()))
        interval = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
        assert row.interval == pytest.approx(tuple(map(float, interval)))
    pairs = comparison.ranking.differences
    assert len(pairs) == 10
    for (first, second), found in pairs.items():
        assert found.p == pytest.approx(stats.ttest_rel(scores[first], scores[second]).pvalue)


def assert_exports_agree(folder: Path, name: str, metric: Metric) -> None:
    import pandas

    frame = fadas.load_runs(folder / "runs" / name)
    written = pandas.read_csv(folder / "runs.csv")
    assert written["score"].tolist() == pytest.approx(frame["score"].tolist())
    assert pandas.read_parquet(folder / "runs.parquet")["score"].tolist() == frame["score"].tolist()
    latex = (folder / "table.tex").read_text(encoding="utf-8")
    markdown = (folder / "table.md").read_text(encoding="utf-8")
    assert latex.count(r" \\") == markdown.count("\n") - 1 == 6, "a header and five methods"
    assert_shown_by_metric(markdown, metric)
    assert metric.name.replace("_", r"\_") in latex
    assert (r"\%" in "".join(re.findall(r"&.*", latex))) == (metric.format == "percent")


def assert_figures_are_whole(folder: Path) -> None:
    from PIL import Image

    names = {path.stem for path in folder.iterdir()}
    assert {"time", "updates", "train-loss", "metric-loss", "delays", "timeline"} <= names
    for name in names:
        with Image.open(folder / f"{name}.png") as image:
            assert min(image.size) > 100
        assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert "</svg>" in (folder / f"{name}.svg").read_text(encoding="utf-8")
