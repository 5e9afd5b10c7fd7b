"""The site builds without a warning and without dead links. Each kind of fault is noticed."""

import re
import shutil
import subprocess
import sys

import pytest

import fadas
from helpers.cli import ROOT
from helpers.pages import ExampleError, check_options, find_dead_html_links, find_dead_links, read_blocks, run_page

pytest.importorskip("sphinx")
DOCS = ROOT / "docs"


def build_site(docs, site, builder="html") -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "sphinx", "-b", builder, "-W", "-n", "--keep-going", "-q", "-E"]
    return subprocess.run([*command, "-d", site / ".doctrees", docs, site], capture_output=True, text=True)


def test_site_builds_without_warning_or_dead_link(tmp_path):
    done = build_site(DOCS, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert find_dead_html_links(tmp_path / "site") == []
    settings = (tmp_path / "site" / "reference" / "settings.html").read_text()
    assert {"schedule-buffer", "delays-dropout", "executor-device"} <= set(re.findall(r'id="([^"]+)"', settings))
    assert "fadas sweep" in (tmp_path / "site" / "reference" / "cli.html").read_text()
    api = "".join(page.read_text() for page in (tmp_path / "site" / "reference" / "api").glob("*.html"))
    documented = set(re.findall(r'<dt [^>]*id="fadas\.([^"]+)"', api))
    assert {name for name in fadas.__all__ if name not in ("TASKS", "metrics", "partition")} <= documented
    assert {"metrics.macro_f1", "metrics.rmse"} <= documented
    assert {f"partition.{name}" for name in fadas.partition.__all__} <= documented
    assert '">Type<' not in api, "the text before a colon of a property was taken for its type"
    assert re.findall(r"&lt;(?:function|factory)", api) == [], "a default of a signature is shown as Python prints it"
    assert "Search" in (tmp_path / "site" / "search.html").read_text()


def test_every_package_has_a_page():
    packages = {path.parent.name for path in (ROOT / "src" / "fadas").glob("*/__init__.py")}
    pages = {path.stem: path.read_text() for path in (DOCS / "reference" / "api").glob("*.md")}
    assert pages.keys() - {"index"} == packages - {"cli"}  # the command line has a page of its own
    assert [name for name, text in pages.items() if f"generated: api {name} -->" not in text] == ["index"]


def test_timeline_picture_is_current(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    import _timeline

    assert _timeline.FILE.read_text() == _timeline.draw(), "run python docs/_timeline.py"


def test_no_page_is_hidden_from_the_navigation():
    hidden = [page for page in DOCS.rglob("*.md") if re.search(r"^(orphan:|:orphan:)", page.read_text(), re.M)]
    assert hidden == []


def test_pages_read_well_as_markdown_too():
    """On GitHub, roles and directives of MyST are shown as they are typed. The home page is for the site alone."""
    pages = [page for page in DOCS.rglob("*.md") if page.name not in ("index.md", "documentation.md")]
    raw = [page.name for page in pages if re.search(r"\{[a-z:]+\}`|^`{3,}\{(?!toctree)|^:::", page.read_text(), re.M)]
    assert raw == []


@pytest.fixture
def small_docs(tmp_path):
    """A site of two pages with the configuration of the real one."""
    docs = tmp_path / "small" / "docs"
    docs.mkdir(parents=True)
    for name in ("conf.py", "_generate.py"):
        shutil.copy(DOCS / name, docs)
    shutil.copytree(DOCS / "_static", docs / "_static")
    (docs / "index.md").write_text("# Home\n\n```{toctree}\nother\n```\n\nSee [](other.md#part).\n")
    (docs / "other.md").write_text("# Other\n\nText.\n\n## Part\n\nText.\n")
    return docs


FAULTS = {
    "a warning": ("other.md", "```{nothing}\n```\n", "Unknown directive type: 'nothing'"),
    "a dead link": ("other.md", "[x](gone.md)\n", "cross-reference target not found: 'gone.md'"),
    "a dead anchor": ("other.md", "[x](index.md#gone)\n", "local id not found in doc 'index': 'gone'"),
    "a dead anchor of the same page": ("other.md", "[x](#gone)\n", "target not found: 'gone'"),
    "a file of the repository that is gone": (
        "other.md",
        "[x](../src/gone.py)\n",
        "target not found: '../src/gone.py'",
    ),
    "a page outside the navigation": ("extra.md", "# Extra\n\nText.\n", "document isn't included in any toctree"),
}


def test_sound_site_builds(small_docs, tmp_path):
    done = build_site(small_docs, tmp_path / "site", "dummy")
    assert done.returncode == 0, done.stderr


def test_every_fault_of_a_site_is_reported(small_docs, tmp_path):
    for name, text, _ in FAULTS.values():
        with (small_docs / name).open("a") as page:
            page.write(f"\n{text}")
    done = build_site(small_docs, tmp_path / "site", "dummy")
    assert done.returncode != 0
    assert [fault for fault, (_, _, message) in FAULTS.items() if message not in done.stderr] == [], done.stderr


def test_dead_links_of_html_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<a href="b.html#x"></a><a href="c.html"></a><img src="https://example.org/x.png">'
    )
    (tmp_path / "b.html").write_text('<p id="y"></p><a href="#y"></a><a href="../outside.html"></a>')
    assert find_dead_html_links(tmp_path) == [
        "a.html: b.html#x: no such place",
        "a.html: c.html: no such file",
        "b.html: ../outside.html: no such file",
    ]


def test_dead_links_of_markdown_are_found(tmp_path):
    (tmp_path / "other.md").write_text("# A heading: `code`\n")
    page = tmp_path / "page.md"
    page.write_text("# Top\n[a](other.md#a-heading-code) [b](#top) [c](gone.md) [d](other.md#gone) ![e](gone.png)\n")
    assert find_dead_links(page) == [
        "page.md: gone.md: no such file",
        "page.md: other.md#gone: no such heading",
        "page.md: gone.png: no such file",
    ]


SOUND = """
<!-- setup: x = 20 -->

```python
print("x =", x + 1)
```

<!-- output: numbers vary -->

```text
x = 22
```

<!-- file: shown.toml -->

```toml
[schedule]
concurrency = 5
buffer = 2
```

```sh
cat shown.toml | head -n 1  # a comment
echo end
```

<!-- output -->

```text
[schedule]
...
```

<!-- not run: takes a week -->

```sh
fadas run big.toml --seed 1
```
"""


def test_examples_of_sound_page_run(tmp_path):
    (tmp_path / "page.md").write_text(SOUND)
    run_page(tmp_path / "page.md", tmp_path)
    assert len(read_blocks(tmp_path / "page.md")) == 7


def test_cd_counts_for_later_blocks(tmp_path):
    page = "```sh\nmkdir a\ncd a\n```\n<!-- file: b.txt -->\n```text\nx\n```\n```sh\ncat b.txt; pwd\n```\n"
    (tmp_path / "page.md").write_text(f"{page}<!-- output -->\n```text\nx\n.../a\n```\n")
    run_page(tmp_path / "page.md", tmp_path)
    assert (tmp_path / "a" / "b.txt").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\n1 / 0\n```\n", "page.md:1: the Python block fails(?s:.*)ZeroDivisionError"),
        ("\n```sh\nfalse\n```\n", "page.md:2: the commands end with 1"),
        ("```toml\n[schedule]\nbufer = 1\n```\n", "unknown key 'schedule.bufer'"),
        ("```toml\n[schedule\n```\n", "page.md:1: Expected"),
        ("```sh\necho a\n```\n<!-- output -->\n```text\nb\n```\n", "page.md:5: the output differs"),
        ("<!-- not run: long -->\n```sh\nfadas run x.toml --sed 1\n```\n", "No such option '--sed'"),
        ("<!-- not run -->\n```sh\nfadas list\n```\n", "say why it is not run"),
        ("<!-- output -->\nNo block.\n", "must stand before a block"),
    ],
)
def test_example_that_does_not_run_is_reported(tmp_path, text, message):
    (tmp_path / "page.md").write_text(text)
    with pytest.raises(ExampleError, match=message):
        run_page(tmp_path / "page.md", tmp_path)


def test_options_of_commands_are_checked_without_running():
    for block in read_blocks(ROOT / "README.md"):
        if block.language == "sh":
            check_options(block)
