"""The page of the reproduction."""

import json
from pathlib import Path

import matplotlib
import pytest

from fadas.errors import ConfigError
from fadas.paper.artefacts import Cell, all_artefacts, read_paper
from fadas.paper.blocks import Block, render_html, render_markdown
from fadas.paper.page import _made, blocks, write_page
from helpers.cli import ROOT
from helpers.paper import RELEASED, TABLE, TIMES, save_method, save_result


def test_released_code_has_own_columns_and_figures(tmp_path):
    save_method(0.7, 0.01, tmp_path)
    cell = next(cell for cell in RELEASED.all_cells() if cell.method == "fadas")
    save_method(0.72, 0.0, tmp_path, changes=cell.changes)
    Cell("cifar10-large-dir0.3", "fadas", 1, cell.changes).path(tmp_path).unlink()
    page = list(blocks(tmp_path))
    delays = "seed 1: tau_max 9, tau_avg 2.5, tau_med 2"
    assert any(f". As printed: {delays}. Released code: {delays}." in block.text for block in page)
    table = next(block for block in page if "Dir(0.1), released code" in block.head)
    row = ("72.00 ± 0.94", "70.0 ± 1.0 ▼", "72.0 ± 0.0 =", "73.27 ± 1.37", "70.0 ± 1.0 ▼", "not run ·")
    assert ("FADAS", *row) in table.rows
    figures = {block.text: list(block.curves) for block in page if block.text.startswith("large-cifar10-")}
    assert list(figures) == ["large-cifar10-1", "large-cifar10-2", "large-cifar10-released-1"]
    names = [row.name for row in TABLE.rows]
    assert list(figures.values()) == [names] * 3, "a method must have one place, and so one colour, in both readings"


def test_missing_results_are_shown_as_not_run(tmp_path):
    with pytest.raises(ConfigError, match="there is no folder"):  # a typo would empty the page
        write_page(tmp_path / "page.md", tmp_path / "none")
    assert not (tmp_path / "page.md").exists()
    (tmp_path / "none").mkdir()
    write_page(tmp_path / "page.md", tmp_path / "none")
    text = (tmp_path / "page.md").read_text()
    assert text.count(" not run · |") == sum(len(one.rows) * len(one.columns) for one in all_artefacts().values()) > 100
    assert "Nothing has been run yet" in text
    assert not list(tmp_path.glob("**/*.png"))


def test_overview_counts_entries_without_published_number(tmp_path):
    for name in ("ca2fl", "fadas"):
        save_method(0.7, 0.01, tmp_path, method=name)
    write_page(tmp_path / "page.md", tmp_path)
    text = (tmp_path / "page.md").read_text()
    assert "large-worst-case-delays) | ▼ 2, · 8, 2 not in the paper | · 8 |" in text
    assert "(#the-concurrency-m_c) | 1 of 6 lines run | 0 of 6 lines run |" in text
    assert "| FADAS, M_c = 25 | 70.0 ± 1.0 | not run · |" in text


def test_lists_are_rendered_in_both_formats():
    page = [Block("text", "Decided:\n\n- `one`\n- two & three\n\nThe end.")]
    assert render_markdown(page, "figures") == "Decided:\n\n- `one`\n- two & three\n\nThe end.\n"
    html = "<p>Decided:</p>\n<ul><li><code>one</code></li><li>two &amp; three</li></ul>\n<p>The end.</p>"
    assert html in render_html(page, "figures")


def test_remarks_stand_below_artefact(tmp_path):
    remarks = tmp_path / "remarks.toml"
    remarks.write_text('time = "One."\ntime-released = """Two.\n\nThree."""')
    texts = [block.text for block in blocks(tmp_path) if block.kind in ("heading", "text")]
    place = texts.index("One.")
    assert texts[place + 1 : place + 3] == ["Two.", "Three."]
    assert texts.index(TIMES.title) < place < texts.index(all_artefacts()["large-cifar100"].title)
    for text, message in (
        ('tim = "x"', "unknown artefact 'tim'; did you mean 'time'"),
        ("time = 3", "time must be a string, got 3"),
        ("time", "remarks.toml: "),
    ):
        remarks.write_text(text)
        with pytest.raises(ConfigError, match=message):
            list(blocks(tmp_path))


def test_page_names_fedasync_results_of_old_statistics_rule(tmp_path):
    preset = {"algorithms": {"fedasync": {"preset": "fedasync"}, "fadas": {"preset": "fadas"}}}
    for method in ("fedasync", "fadas"):
        for experiment, version in (("cifar10-large-dir0.1", 1), ("cifar10-large-dir0.3", 2)):
            save_result(tmp_path, Cell(experiment, method, 1), config=preset, format=version)
    sentence = read_paper()["page"]["replaced_statistics"].format(results="cifar10-large-dir0.1 fedasync-1")
    assert sentence in [block.text for block in blocks(tmp_path)]


def test_page_hides_trials_and_shows_other_settings_and_seeds(tmp_path):
    save_method(0.7, 0.01, tmp_path)
    source = json.loads(Cell("cifar10-large-dir0.1", "fadas", 1).path(tmp_path).read_text())
    kept = {key: source[key] for key in ("accuracy", "accuracy_std", "curve")}

    def add_result(experiment, seed, changes=None, rounds=None):
        save_result(tmp_path, Cell(experiment, "fadas", seed, changes or {}, rounds), **kept, device="a laptop")

    write_page(tmp_path / "page.md", tmp_path)
    before = (tmp_path / "page.md").read_text()
    add_result("cifar10-large-dir0.1", 1, rounds=3)
    add_result("an-experiment-of-ones-own", 1)
    write_page(tmp_path / "page.md", tmp_path)
    assert (tmp_path / "page.md").read_text() == before, "trials are not counted either"
    add_result("cifar10-large-dir0.1", 1, {"algorithms.fadas.eta": 0.003})
    add_result("cifar10-large-dir0.1", 9)
    write_page(tmp_path / "page.md", tmp_path)
    text = (tmp_path / "page.md").read_text()
    assert "a laptop" in text
    assert text.count("| fadas, algorithms.fadas.eta=0.003 | Dir(0.1), seed 1 | 70.0 ± 1.0 |") == 1
    assert text.count("| fadas | Dir(0.1), seed 9 | 70.0 ± 1.0 |") == 1


def test_page_shows_steadiness_of_accuracy(tmp_path):
    save_method(0.7, 0.01, tmp_path)
    path = Cell("cifar10-large-dir0.1", "fadas", 1).path(tmp_path)
    curve = [[step, 5 * step, float(step), step / 100] for step in range(1, 101)]
    path.write_text(json.dumps({**json.loads(path.read_text()), "curve": curve}))
    write_page(tmp_path / "page.md", tmp_path)
    assert "\n| FADAS | 90.5 (81.0 to 100.0) |  | 50.0 (50.0 to 50.0) |  |\n" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize(
    ("executor", "precision"),
    [
        ({"name": "auto", "device": "cuda"}, "bf16"),
        ({"name": "cuda", "device": "cuda", "precision": "tf32"}, "tf32"),
        ({"name": "auto", "device": "cpu"}, "fp32"),
    ],
)
def test_page_names_precision(tmp_path, executor, precision):
    save_method(0.7, 0.01, tmp_path)
    for path in tmp_path.glob("*/*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "config": {"executor": executor}}))
    assert f", {precision}, torch" in _made(tmp_path)


def test_committed_page_matches_results(tmp_path):
    """If this fails, run `fadas reproduce report` and commit what it writes."""
    write_page(tmp_path / "reproduction.md", ROOT / "results")
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.*")}
    assert made >= {Path("reproduction.md"), Path("reproduction.html")}
    pinned = f"matplotlib=={matplotlib.__version__}" in (ROOT / "constraints.txt").read_text().splitlines()
    compared = [".md", ".html", *([".svg"] if pinned else [])]  # another version may draw differently
    for name in sorted(made):
        committed = ROOT / "docs" / name
        assert committed.exists(), name
        if name.suffix in compared:
            assert committed.read_text() == (tmp_path / name).read_text(), name
    left = {path.name for path in (ROOT / "docs/reproduction").glob("*")} - {path.name for path in made}
    assert not left, "unused files: delete them"
