"""Parts of the reference that are made from the code when the site is built.

A page marks the place with a comment: `<!-- generated: settings -->`.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from docutils import nodes

ROOT = Path(__file__).parent.parent
GENERATORS: dict[str, Callable[..., str]] = {
    "settings": lambda: "",
    "cli": lambda: "",
    "api": lambda package="": "",
}


def insert(app: Any, page: str, source: list[str]) -> None:
    """Replace each mark of a page by what its generator makes, and links to files of the repository by `source:...`."""
    text = re.sub(r"<!-- generated: (\w+) ?(.*?) -->", lambda m: GENERATORS[m[1]](*m[2].split()), source[0])
    folder, shown = Path(app.env.doc2path(page)).parent, set()

    def to_source(link: re.Match[str]) -> str:
        path = (folder / link[1]).resolve()
        if path.is_relative_to(app.srcdir) or not path.is_relative_to(ROOT) or not path.is_file():
            return link[0]
        name = path.relative_to(ROOT).as_posix()
        shown.add(name)
        return f"](source:{name})"

    source[0] = re.sub(r"\]\((\.\./[^)\s#]+)\)", to_source, text)
    app.env.metadata[page]["fadas_shown"] = sorted(shown)


def link_sources(app: Any, tree: nodes.document, page: str) -> None:
    """Point `source:...` at the page of that file, relative to this page."""
    for link in tree.findall(nodes.reference):
        scheme, _, path = link.get("refuri", "").partition(":")
        if scheme == "source":
            link["refuri"] = app.builder.get_relative_uri(page, f"source/{path}")
            link["internal"] = True


def show_sources(app: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Make a page of each file of the repository that a page links to."""
    languages = {".py": "python", ".toml": "toml", ".json": "json", ".md": "markdown"}
    for path in sorted({path for data in app.env.metadata.values() for path in data.get("fadas_shown", ())}):
        text = (ROOT / path).read_text(encoding="utf-8")
        code = app.builder.highlighter.highlight_block(text, languages.get(Path(path).suffix, "text"))
        yield f"source/{path}", {"title": path, "body": f"<h1>{path}</h1>{code}", "parents": []}, "page.html"


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", insert)
    app.connect("doctree-resolved", link_sources)
    app.connect("html-collect-pages", show_sources)
    return {"parallel_read_safe": True}
