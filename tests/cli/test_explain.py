"""`fadas explain`."""

import re
import tomllib

import pytest

from fadas.experiments.catalog import list_settings
from fadas.experiments.catalog.lookup import _TERMS, find_entries, heading, page, show_example
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
        "  concerns: fadas, fadas-da, fedbuff, ca2fl, scaffold-async, local-only, custom",
        "  page:     reference/settings.html#schedule-buffer on the site, which `make docs` builds",
    ]
    assert "default: 0.0" in explain("delays.dropout")
    assert "concerns: processes, ray" in explain("executor.workers")


def test_method_shows_summary_and_settings():
    text = explain("fadas-da")
    assert text.startswith("fadas-da: method\n  FADAS with a delay-adaptive step size")
    assert "  tau_c: whole number, default: 8\n" in text
    assert "example: [algorithms.fadas-da]" in text
    assert "reference/settings.html#method-fadas-da on the site" in text


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
    assert explain("tau_avg").splitlines() == [
        "tau_avg: term",
        "  the mean over the steps of each step's largest tau, which is above the mean over all updates, M_c",
        "  / M.",
        "  page: glossary.html on the site, which `make docs` builds",
    ]
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "glossary.md").read_text(), re.M)
    assert _TERMS.keys() <= {term for heading in headings for term in heading.split(", ")}


NOT_SET = {"folder", "sinks", "metric", "better", "target"}  # "" in the template


def test_settings_of_apps_are_those_of_the_template_and_of_the_strategy():
    """A key behind `# ` in the template is not set, and so is one that the template does not show."""
    source = (ROOT / "src" / "fadas" / "flower" / "template" / "pyproject.toml.txt").read_text()
    section = source.partition("[tool.flwr.app.config]\n")[2]
    written = tomllib.loads(section)
    (group,) = (group for group in GROUPS if group.section == "app")
    settings = {one.name: one for one in group.settings}
    unset = {name for name, one in settings.items() if not one.default}
    for name in re.findall(r"^# ([\w-]+) = ", section, re.M):
        assert find_entries(f"app.{name}"), name
    assert settings.keys() - unset - {"local-name"} == written.keys() - NOT_SET
    for name, value in written.items():
        if name not in {"task", *NOT_SET}:
            assert tomllib.loads(f"value = {settings[name].default}")["value"] == value, name


def test_arguments_of_apps_are_explained():
    assert explain("algorithm-tau-c").startswith("app.algorithm-NAME: ")
    assert "example:  algorithm-tau-c = 8" in explain("algorithm-tau-c")
    assert "app.patience: number, default: 300.0" in explain("patience")
    assert {line.split(":")[0] for line in explain("deadline").splitlines() if line[:1] != " "} >= {"app.deadline"}
