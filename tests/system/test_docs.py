"""What the documents show is what the code does."""

import re
import subprocess
import sys

import pytest

from helpers.cli import ROOT
from helpers.pages import DATA, find_dead_links, read_blocks, run_page

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]
WITH_EXAMPLES = [path for path in PAGES if read_blocks(path)]
LONGEST = 1500  # words of a page
LONGER = ("docs/reproduction.md", "docs/reference/")


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_examples_of_page_run(page, tmp_path):
    if "datasets" in page.read_text():
        pytest.importorskip("datasets")
    run_page(page, tmp_path)


def test_readme_example_is_the_shipped_one():
    shown = next(block.code for block in read_blocks(ROOT / "README.md") if block.language == "python")
    assert shown.strip() in (ROOT / "examples" / "compare.py").read_text(), "README and examples/compare.py differ"


def test_readme_example_does_not_warn(monkeypatch):
    """In a new process, which imports everything for the first time. A third of the updates will do."""
    shown = next(block.code for block in read_blocks(ROOT / "README.md") if block.language == "python")
    shorter = shown.replace("updates=1500", "updates=500")
    assert shorter != shown
    monkeypatch.setenv("FADAS_DATA", str(DATA))
    done = subprocess.run([sys.executable, "-c", shorter], capture_output=True, text=True, check=True)
    assert done.stderr == "", "the first use of fadas must not warn"
    fadas, fedbuff = (float(number) for number in re.findall(r": ([\d.]+)%", done.stdout))
    assert fadas > fedbuff > 20


def test_names_in_docs_are_listed_without_torch():
    show = "import fadas, sys; print(*dir(fadas)); print('torch' in sys.modules)"
    names, torch = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True).stdout.splitlines()
    code = "".join(block.code for page in PAGES for block in read_blocks(page) if block.language == "python")
    used = set(re.findall(r"\bfadas\.([A-Z]\w+|plan|simulate)\b", code))
    assert len(used) > 8
    assert used <= set(names.split())
    assert torch == "False"


def test_modules_named_in_docs_are_attributes():
    show = "import fadas; print(fadas.executors.Inline, fadas.snapshot.take, fadas.accuracy, fadas.Checks)"
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", "examples/README.md"]
)
def test_links_of_document_have_targets(name):
    assert find_dead_links(ROOT / name) == []


def test_pages_are_short():
    words = {name: len(path.read_text().split()) for name, path in zip(NAMES, PAGES, strict=True)}
    assert {n: count for n, count in words.items() if count > LONGEST and not n.startswith(LONGER)} == {}
