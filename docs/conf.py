"""The documentation site: Sphinx with MyST-Parser and Furo. `make docs` builds it into site/."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import fadas

project = "fadas"
author = "The fadas developers"
project_copyright = author
version = release = fadas.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "_generate",
]
exclude_patterns = ["demo", "reproduction"]
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence"]
myst_heading_anchors = 4
myst_url_schemes = {"http": None, "https": None, "mailto": None, "source": None}

smartquotes = False  # they turn --json into a dash
default_role = "code"  # docstrings write code between single backticks, as Markdown does
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
toc_object_entries = False  # each class has a heading of its own
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
# Types of signatures that have no page of their own. Links that a page writes by hand are always checked.
nitpick_ignore_regex = [("py:class", r"(?!fadas\.[A-Z]\w*$).*"), ("py:exc", r"\w+")]

html_theme = "furo"
html_title = "fadas"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": False, "top_of_page_buttons": []}
copybutton_exclude = ".linenos, .gp, .go"
