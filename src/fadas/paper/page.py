"""The reproduction page: published and measured values side by side, generated from the files in `results/` alone."""

import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fadas.core.records import TAUS
from fadas.errors import ConfigError, unknown_name
from fadas.paper.agreement import MARKS
from fadas.paper.artefacts import Artefact, all_artefacts, read_paper
from fadas.paper.blocks import Block, render_html, render_markdown, slug
from fadas.paper.claims import judge_figure
from fadas.paper.page_figures import draw_curves
from fadas.paper.page_tables import (
    Readings,
    accuracy_blocks,
    figure_blocks,
    measured_entries,
    reading_labels,
    time_blocks,
)
from fadas.paper.results import Result, require_results, results_of, shown_results
from fadas.runs.same_run import precision

_MIXED_STATISTICS = 2  # the first format of results in which FedAsync mixed the BatchNorm statistics


def write_page(path: Path, results: Path) -> list[Path]:
    """Write the page and its figures. Return the paths of all files.

    For docs/reproduction.md, the HTML page is docs/reproduction.html and the figures are in docs/reproduction/.

    Args:
        path: The Markdown file.
        results: The folder of results.

    Raises:
        ConfigError: There is no such folder of results, or `path` does not end in .md.
    """
    require_results(results)
    if path.suffix != ".md":
        raise ConfigError(f"the page must be a .md file, got {path}; the HTML page is written next to it")
    figures = path.with_suffix("")
    drawn: list[Path] = []
    page: list[Block] = []
    for block in blocks(results):
        if block.kind == "figure":
            title, axis = block.head
            drawn += draw_curves(block.text, title, axis, block.curves, figures)
        page.append(block)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_markdown(page, figures.name), encoding="utf-8")
    html = path.with_suffix(".html")
    html.write_text(render_html(page, figures.name), encoding="utf-8")
    return [path, html, *drawn]


def blocks(results: Path) -> Iterator[Block]:
    """Yield the blocks of the page."""
    texts, remarks = read_paper()["page"], _remarks(results / "remarks.toml")
    yield Block("title", "The paper, reproduced")
    yield Block("text", texts["lead"])
    yield Block("text", texts["decided"])
    yield Block("text", texts["released"])
    yield Block("text", f"{_made(results)} {texts['commits']}")
    if replaced := _replaced_statistics(results):
        yield Block("text", texts["replaced_statistics"].format(results=", ".join(replaced)))
    yield Block("text", texts["overview"])
    yield _overview(results)
    yield Block("text", _delays(results))
    for readings in _all_readings():
        artefact, *released = readings
        text = f"The paper's `{artefact.source}`. To run it: `fadas reproduce {artefact.name}`"
        text += "".join(f"; as in the released code, `fadas reproduce {version.name}`" for version in released)
        yield Block("heading", artefact.title)
        yield Block("text", f"{text}. {artefact.note}".strip())
        make_blocks = {"figure": figure_blocks, "time": time_blocks, "accuracy": accuracy_blocks}[artefact.kind]
        yield from make_blocks(readings, results)
        for paragraph in "\n\n".join(remarks.get(version.name, "") for version in readings).split("\n\n"):
            if paragraph.strip():
                yield Block("text", paragraph.strip())


def _all_readings() -> list[Readings]:
    known = all_artefacts()
    return [
        [artefact, known[f"{name}-released"]] if artefact.released else [artefact]
        for name, artefact in known.items()
        if not artefact.original
    ]


def _made(results: Path) -> str:
    """Return how many results the page shows, and the devices, versions and commits that produced them."""
    found = shown_results(results)
    if not found:
        return "Nothing has been run yet."
    devices = Counter(
        f"{result.device}, {precision(result.config)}, torch {result.versions.get('torch')}" for result in found
    )
    commits = sorted({result.commit for result in found})
    where = "; ".join(f"{device} ({count})" for device, count in devices.items())
    return f"Results: {len(found)}, on {where}; commits {', '.join(commits)}."


def _replaced_statistics(results: Path) -> list[str]:
    """Return the names of FedAsync's results from before it mixed the global BatchNorm statistics."""
    return [
        f"{result.experiment} {result.cell.name}"
        for result in shown_results(results)
        if result.format < _MIXED_STATISTICS and _mixes_models(result)
    ]


def _mixes_models(result: Result) -> bool:
    algorithm = result.config.get("algorithms", {}).get(result.method, {})
    preset, combine = algorithm.get("preset"), algorithm.get("combine", {})
    return "statistics" not in algorithm and (preset == "fedasync" or combine.get("name") == "mixing")


def _remarks(path: Path) -> dict[str, str]:
    """Return the remarks in remarks.toml: texts that people wrote, by the name of the artefact."""
    if not path.exists():
        return {}
    try:
        remarks = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    for name, text in remarks.items():
        if not isinstance(text, str):
            raise ConfigError(f"{path}: {name} must be a string, got {text!r}")
    known = all_artefacts()
    if unknown := remarks.keys() - known.keys():
        raise ConfigError(f"{path}: {unknown_name('artefact', min(unknown), known)}")
    return remarks


def _overview(results: Path) -> Block:
    """Return a table of all artefacts with a summary of their verdicts."""
    rows: list[tuple[str, ...]] = []
    for artefact, *released in _all_readings():
        link = f"[{artefact.title}](#{slug(artefact.title)})"
        rows.append((link, _tally(artefact, results), "".join(_tally(version, results) for version in released)))
    return Block("table", head=("", "as printed", "released code"), rows=tuple(rows))


def _tally(artefact: Artefact, results: Path) -> str:
    """Return how many entries have each verdict; for a figure, how many lines were run and whether its claim holds."""
    counts = Counter(entry.verdict for row in measured_entries(artefact, results).values() for entry in row)
    if artefact.kind == "figure":
        lines, verdict = f"{counts['']} of {counts.total()} lines run", judge_figure(artefact, results).verdict
        return lines if verdict == "is open" else f"{lines}; {verdict}"
    marks = [f"{mark} {counts[verdict]}" for verdict, mark in MARKS.items() if mark and counts[verdict]]
    return ", ".join([*marks, f"{counts['']} not in the paper"] if counts[""] else marks)


def _delays(results: Path) -> str:
    """Return the published and the measured delay statistics."""
    parts = [
        "The paper: "
        + ", ".join(f"{name} {value:g}" for name, value in zip(TAUS, read_paper()["delays"]["published"], strict=True))
    ]
    readings = next(readings for readings in _all_readings() if readings[0].name == "large-cifar10-seeds")
    for artefact, label in zip(readings, reading_labels(readings), strict=True):
        row = next(row for row in artefact.rows if row.method == "fadas")
        seeds = [
            f"seed {result.seed}: " + ", ".join(f"{name} {result.delays[name]:.4g}" for name in TAUS)
            for result in results_of(artefact, row, 0, results)
            if not result.diverged
        ]
        parts.append(f"{label.capitalize()}: {'; '.join(seeds) or 'not run'}")
    return f"Delays under large worst-case delays. {'. '.join(parts)}."
