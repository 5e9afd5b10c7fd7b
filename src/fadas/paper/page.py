"""The reproduction's page, published beside measured: made from `results/` alone, as Markdown and as HTML."""

import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fadas.core.records import TAUS
from fadas.errors import ConfigError
from fadas.paper.agreement import MARKS
from fadas.paper.artefacts import Artefact, all_artefacts, read_paper
from fadas.paper.blocks import Block, render_html, render_markdown, slug
from fadas.paper.claims import judge_figure
from fadas.paper.page_figures import draw_curves
from fadas.paper.page_tables import Readings, _accuracies, _figures, _kinds, _measured, _times
from fadas.paper.results import results_of, shown_results
from fadas.runs.same_run import precision


def write_page(path: Path, results: Path) -> list[Path]:
    """The page as Markdown and HTML, and its figures in a folder beside it named like it."""
    if not results.is_dir():
        raise ConfigError(f"there is no folder {results}; --results says where results are kept")
    if path.suffix != ".md":
        raise ConfigError(f"{path}: the page is Markdown, and its name ends in .md; the HTML is written beside it")
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
    beside = path.with_suffix(".html")
    beside.write_text(render_html(page, figures.name), encoding="utf-8")
    return [path, beside, *drawn]


def blocks(results: Path) -> Iterator[Block]:
    """The page, piece by piece."""
    texts, remarks = read_paper()["page"], _remarks(results / "remarks.toml")
    yield Block("title", "The paper, reproduced")
    yield Block("text", texts["lead"])
    yield Block("text", texts["decided"])
    yield Block("text", texts["released"])
    yield Block("text", _made(results))
    yield _overview(results)
    yield Block("text", _delays(results))
    for readings in _all_readings():
        artefact, *released = readings
        text = f"The paper's `{artefact.source}`. To run it: `fadas reproduce {artefact.name}`"
        text += "".join(f"; as in the released code, `fadas reproduce {one.name}`" for one in released)
        yield Block("heading", artefact.title)
        yield Block("text", f"{text}. {artefact.note}".strip())
        show = {"figure": _figures, "time": _times, "accuracy": _accuracies}[artefact.kind]
        yield from show(readings, results)
        for paragraph in "\n\n".join(remarks.get(one.name, "") for one in readings).split("\n\n"):
            if paragraph.strip():
                yield Block("text", paragraph.strip())


def _all_readings() -> list[Readings]:
    known = all_artefacts()
    return [
        [one, known[f"{name}-released"]] if one.released else [one] for name, one in known.items() if not one.original
    ]


def _made(results: Path) -> str:
    """Where the numbers come from."""
    found = shown_results(results)
    if not found:
        return "Nothing has been run yet."
    devices = Counter(f"{one.device}, {precision(one.config)}, torch {one.versions.get('torch')}" for one in found)
    commits = sorted({one.commit for one in found})
    where = "; ".join(f"{device} ({count})" for device, count in devices.items())
    return f"Results: {len(found)}, on {where}; commits {', '.join(commits)}."


def _remarks(path: Path) -> dict[str, str]:
    """What people found worth saying of an artefact, by its name."""
    if not path.exists():
        return {}
    try:
        remarks = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not all(isinstance(text, str) for text in remarks.values()):
        raise ConfigError(f"{path}: a remark is a text")
    if strange := remarks.keys() - all_artefacts().keys():
        raise ConfigError(f"{path}: there is no artefact {min(strange)!r}")
    return remarks


def _overview(results: Path) -> Block:
    rows: list[tuple[str, ...]] = []
    for artefact, *released in _all_readings():
        link = f"[{artefact.title}](#{slug(artefact.title)})"
        rows.append((link, _tally(artefact, results), "".join(_tally(one, results) for one in released)))
    return Block("table", head=("", "as printed", "released code"), rows=tuple(rows))


def _tally(artefact: Artefact, results: Path) -> str:
    counts = Counter(one.verdict for row in _measured(artefact, results).values() for one in row)
    if artefact.kind == "figure":
        lines, verdict = f"{counts['']} of {counts.total()} lines run", judge_figure(artefact, results).verdict
        return lines if verdict == "is open" else f"{lines}; {verdict}"
    marks = [f"{mark} {counts[verdict]}" for verdict, mark in MARKS.items() if mark and counts[verdict]]
    return ", ".join([*marks, f"{counts['']} not in the paper"] if counts[""] else marks)


def _delays(results: Path) -> str:
    parts = [
        "The paper: "
        + ", ".join(f"{name} {value:g}" for name, value in zip(TAUS, read_paper()["delays"]["published"], strict=True))
    ]
    readings = next(readings for readings in _all_readings() if readings[0].name == "large-cifar10-seeds")
    for artefact, kind in zip(readings, _kinds(readings), strict=True):
        row = next(row for row in artefact.rows if row.method == "fadas")
        seeds = [
            f"seed {one.seed}: " + ", ".join(f"{name} {one.delays[name]:.4g}" for name in TAUS)
            for one in results_of(artefact, row, 0, results)
            if not one.diverged
        ]
        parts.append(f"{kind.capitalize()}: {'; '.join(seeds) or 'not run'}")
    return f"Delays under large worst-case delays. {'. '.join(parts)}."
