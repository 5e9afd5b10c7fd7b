"""TOML and JSON of settings and records."""

import json

from fadas.runs.serialization import to_json


def test_json_is_strict():
    text = to_json({"loss": float("nan"), "list": [float("inf"), 1.5], "none": None})
    assert json.loads(text) == {"loss": None, "list": [None, 1.5], "none": None}
