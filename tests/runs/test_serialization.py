"""TOML and JSON of settings and records."""

import json
import tomllib

from hypothesis import example, given, strategies as st

from fadas.runs.serialization import to_json, to_toml

keys = st.text(min_size=1)


values = st.recursive(
    st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text()),
    lambda inner: st.lists(inner | st.dictionaries(keys, inner, max_size=3), max_size=3),
)


tables_ = st.recursive(
    st.dictionaries(keys, values, max_size=3), lambda inner: st.dictionaries(keys, inner | values, max_size=3)
)


@given(tables_)
@example({"task": {"layers": [{"width": 8}, {"width": 4, "of": {"a b": []}}]}})
def test_toml_round_trip(tables):
    assert tomllib.loads(to_toml(tables)) == tables


def test_json_is_strict():
    text = to_json({"loss": float("nan"), "list": [float("inf"), 1.5], "none": None})
    assert json.loads(text) == {"loss": None, "list": [None, 1.5], "none": None}
