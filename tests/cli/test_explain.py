"""`fadas explain`."""

import re
import tomllib

import pytest

from fadas.errors import ConfigError
from fadas.experiments.catalog import list_settings
from fadas.experiments.catalog.lookup import find_entries, heading, page, show_example
from helpers.cli import ROOT, call_fadas
from helpers.pages import slug

GROUPS = list_settings()
SETTINGS = [(group, one) for group in GROUPS for one in group.settings]
NAMES = [name for group in GROUPS for name in group.names]


def explain(*key) -> str:
    code, text, err = call_fadas("explain", *key)
    assert code == 0, err
    return text


def test_setting_shows_type_default_example_methods_and_page():
    assert explain("schedule.buffer").splitlines() == [
        "schedule.buffer: whole number, required",
        "  M, the number of updates per server step. FedAsync always takes 1, and synchronous methods take",
        "  M_c.",
        "  example:  schedule.buffer = 5",
        "  concerns: fadas, fadas-da, fedbuff, ca2fl, scaffold-async, custom",
        "  page:     docs/reference/settings.md#schedule-buffer",
    ]
    assert "default: 0.0" in explain("delays.dropout")
    assert "concerns: processes, ray" in explain("executor.workers")


def test_method_shows_summary_and_settings():
    text = explain("fadas-da")
    assert text.startswith("fadas-da: method\n  FADAS with a delay-adaptive step size")
    assert "  tau_c: whole number, default: 8\n" in text
    assert "example: [algorithms.fadas-da]" in text
    assert "docs/reference/settings.md#method-fadas-da" in text


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_explained(name):
    groups = [group for group, setting in find_entries(name) if setting is None]
    assert any(name in group.names for group in groups)


@pytest.mark.parametrize(("group", "setting"), SETTINGS, ids=[f"{g.section}-{s.key}" for g, s in SETTINGS])
def test_every_setting_is_explained_with_valid_example(group, setting):
    found = find_entries(setting.key.replace("*", "mine"))
    assert (group, setting) in found
    tomllib.loads(show_example(group, setting))


def test_section_own_override_and_short_name_are_found():
    assert explain("local").startswith("[local]: section\n")
    assert explain("algorithms.fadas.local.lr") == explain("local.lr")
    assert "delays.gamma" in explain("gamma")
    assert explain("faults.broken.kind").startswith("faults.NAME.kind: ")


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("schedule.bufer", "did you mean 'schedule.buffer'?"),
        ("scheduel.buffer", "did you mean 'schedule.buffer'?"),
        ("fadasda", "did you mean 'fadas-da'?"),
        ("zzz", "`fadas explain` lists all"),
    ],
)
def test_unknown_key_suggests_nearest(key, hint):
    code, out, err = call_fadas("explain", key)
    assert (code, out) == (2, "")
    assert err == f"fadas: unknown setting or name {key!r}; {hint}\n"


def test_without_key_everything_is_listed():
    words = set(re.findall(r"[\w.-]+", explain()))
    assert {one.key.replace("*", "NAME") for group in GROUPS if not group.names for one in group.settings} <= words
    assert set(NAMES) <= words


def test_page_exists_in_generated_reference(monkeypatch):
    pytest.importorskip("docutils")
    monkeypatch.syspath_prepend(ROOT / "docs")
    import _generate

    text = _generate.write_settings()
    anchors = set(re.findall(r"\{#([\w-]+)\}", text)) | {slug(title) for title in re.findall(r"^#+ (.+)$", text, re.M)}
    for group in GROUPS:
        if group.names:
            assert f"### {heading(group)}" in text
            assert page(group).partition("#")[2] in anchors
        else:
            assert {page(group, one).partition("#")[2] for one in group.settings} <= anchors


def test_symbols_are_settings_and_terms_are_in_the_glossary():
    assert find_entries("M") == find_entries("schedule.buffer")
    assert find_entries("M_c") == find_entries("schedule.concurrency")
    with pytest.raises(ConfigError, match=r"'tau' is no setting but a term, which docs/glossary\.md explains"):
        find_entries("tau")
