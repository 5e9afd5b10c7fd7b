"""Hostile and odd run folders: what `fadas report` and `fadas watch` make of them."""

import json
import re
import shutil
import tomllib
import warnings
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings, strategies as st

from fadas.runs.serialization import to_toml
from helpers.folders import TABLES, make_record, make_summary, open_writer
from helpers.fuzz import EXAMPLES, FUZZ, check_fadas, find_raw, numbers, odd_values, texts

NAMES = ("a-0", "b-0")


@pytest.fixture(scope="module")
def good_runs(tmp_path_factory):
    """An experiment of two short runs that a report draws every figure of."""
    folder = tmp_path_factory.mktemp("folders") / "runs"
    tables = {**TABLES, "task": {"name": "digits", "clients": 5}}
    for name in NAMES:
        writer = open_writer(folder / name, tables)
        records = [make_record(k, 0.1 * k, eta=0.1 / k, refused={"not finite": k}) for k in (1, 2, 3)]
        for record in records:
            writer.append(record)
        writer.write_json("partition.json", {"counts": [[3, 0], [1, 2], [0, 9], [1, 1], [2, 2]]})
        writer.finish(make_summary(records, label=name[0], target=0.25))
    return folder


def copy_runs(good_runs, tmp_path):
    folder = tmp_path / "runs"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(good_runs, folder)
    return folder


OWN_SCRIPTS = ['<script type="application/json" id="data">', '<script type="text/plain" id="plotly">', "<script>"]


def check_folder(folder):
    """Report and watch a folder of runs. Every line and every page they write can be shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib's would be printed
        code = check_fadas("report", folder)
        assert check_fadas("watch", folder, "--once") == 0
    page = folder / "report.html"
    if page.exists():
        text = page.read_text(encoding="utf-8")
        assert find_raw(text) == set()
        assert re.findall("<script[^>]*>", text) in ([], OWN_SCRIPTS)
        for figure in text.split("<svg")[1:]:
            ElementTree.fromstring("<svg" + figure.split("</svg>")[0] + "</svg>")
    return code


def replace_somewhere(value, data, new):
    """A copy of a plain value in which one item, at any depth, is another, missing, or added."""
    if isinstance(value, dict) and value and data.draw(st.integers(0, 9)):
        key = data.draw(st.sampled_from(sorted(value)))
        return {**value, key: replace_somewhere(value[key], data, new)}
    if isinstance(value, list) and value and data.draw(st.integers(0, 9)):
        index = data.draw(st.integers(0, len(value) - 1))
        return [*value[:index], replace_somewhere(value[index], data, new), *value[index + 1 :]]
    return data.draw(new)


@settings(FUZZ, max_examples=max(15, EXAMPLES // 2))  # drawing takes long
@given(data=st.data())
def test_report_and_watch_survive_odd_values(tmp_path, good_runs, data):
    folder = copy_runs(good_runs, tmp_path)
    for _ in range(data.draw(st.integers(1, 2))):
        name = data.draw(st.sampled_from(["metrics.jsonl", "summary.json", "partition.json", "config.toml"]))
        path = folder / "a-0" / name
        if name == "config.toml":
            tables = replace_somewhere(tomllib.loads(path.read_text()), data, odd_values)
            try:
                path.write_text(to_toml(tables), encoding="utf-8")
            except (TypeError, AttributeError, UnicodeEncodeError, ValueError):
                return  # no TOML
        else:
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            lines = replace_somewhere(lines, data, numbers | odd_values)
            path.write_text("".join(json.dumps(line) + "\n" for line in lines) if isinstance(lines, list) else "")
    assert check_folder(folder) in (0, 2)


@settings(FUZZ, max_examples=max(10, EXAMPLES // 4))
@given(data=st.data())
def test_hostile_texts_in_good_folders_are_shown(tmp_path, good_runs, data):
    folder = copy_runs(good_runs, tmp_path)
    for name in NAMES:
        path = folder / name / "summary.json"
        summary = json.loads(path.read_text())
        summary |= {key: data.draw(texts) for key in ("experiment", "algorithm", "device", "commit")}
        if data.draw(st.booleans()):
            summary["diverged"] = data.draw(texts.filter(bool))
        path.write_text(json.dumps(summary))
        path = folder / name / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[-1]["refused"] = data.draw(st.dictionaries(texts, st.integers(0, 9), max_size=3))
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        path = folder / name / "config.toml"
        words = data.draw(st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=2))
        path.write_text(path.read_text() + to_toml({"more": words}), encoding="utf-8")
    assert check_folder(folder) == 0
