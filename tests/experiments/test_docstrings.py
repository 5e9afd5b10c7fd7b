"""Docstrings as data."""

from functools import partial

import fadas
from fadas.executors import EXECUTORS
from fadas.experiments.catalog.docstrings import read_docstring


def scale(x, *, by=2, **rest):
    """Scale a number,
    or a list.

    More about it: a list
    is scaled in place.

    Args:
        x: The number.
        by: The factor.
            None: two.
        **rest: Not used.

    Returns:
        The result.

    Example:
        >>> scale(3,
        ...       by=4)
        12
        >>> scale(1)
    """


def test_docstring_is_split_into_its_parts():
    found = read_docstring(scale)
    assert found.summary == "Scale a number, or a list."
    assert found.description == "More about it: a list\nis scaled in place."
    assert found.arguments == {"x": "The number.", "by": "The factor. None: two.", "rest": "Not used."}
    assert found.examples == ["scale(3,\n      by=4)", "scale(1)"]


def test_docstring_of_partial_and_callable_object():
    assert read_docstring(partial(scale, 1)) == read_docstring(scale)
    assert read_docstring(EXECUTORS["auto"]).arguments["compile"].startswith("Compile the network")
    assert read_docstring(fadas.Checks).arguments["norm"] == "The largest norm that a delta may have. None: no limit."


def test_missing_docstring_is_empty():
    assert read_docstring(lambda: 0) == ("", "", {}, [])


def test_subclass_has_the_arguments_of_its_bases():
    arguments = read_docstring(fadas.training.AdamW).arguments
    assert arguments["lr"] == read_docstring(fadas.LocalSGD).arguments["lr"]
    assert arguments["beta1"] == read_docstring(fadas.training.Adam).arguments["beta1"]
    assert arguments["decoupled"] != read_docstring(fadas.LocalSGD).arguments["decoupled"], "its own comes first"
