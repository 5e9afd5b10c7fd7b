"""Broken input, tried systematically: success, one line and exit code 2, or diverged runs and exit code 3."""

import contextlib
import json
import os
import shutil
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fadas.runs.serialization import to_toml
from helpers.cli import DEMO, ROOT
from helpers.data_files import write_client_files
from helpers.fuzz import EXAMPLES, FUZZ, check_fadas

scalars = st.one_of(
    st.integers(-3, 60),
    st.integers(-(2**70), 2**70).filter(lambda n: abs(n) > 2**31),
    st.floats(),
    st.booleans(),
    st.text(max_size=8),
    st.sampled_from(["large", "digits", "fadas", "mean", "inline", "cpu", "nan", "clip", "os:system", "../x", "a.b:c"]),
)


values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=6), v, max_size=3), max_leaves=4
)


SECTIONS = {
    "task": ("name", "clients", "alpha", "partition", "hidden", "shards", "path"),
    "schedule": ("concurrency", "buffer", "refill"),
    "delays": ("name", "gamma", "dropout", "deadline", "scale_by_data", "path"),
    "faults": ("one", "two"),
    "local": ("lr", "epochs", "steps", "batch_size", "weight_decay"),
    "checks": ("norm", "excess"),
    "executor": ("name", "device", "threads", "workers", "size", "address", "precision"),
    "run": ("steps", "updates", "time", "eval_every", "target", "seeds", "checkpoint_every"),
    "algorithms": ("fadas", "x"),
    "sweep": ("fadas",),
    "colour": ("red",),
}


keys = st.sampled_from([(s, k) for s, names in SECTIONS.items() for k in names]) | st.tuples(
    st.sampled_from(sorted(SECTIONS)), st.text(max_size=5)
)


BASE = {
    "name": "x",
    "task": {"name": "digits", "clients": 10},
    "schedule": {"concurrency": 4, "buffer": 2},
    "run": {"steps": 2},
    "algorithms": {"fadas": {}},
}


@FUZZ
@given(st.lists(st.tuples(keys, values), min_size=1, max_size=3), st.booleans())
def test_random_experiment_files(tmp_path, changes, drop):
    tables = {key: dict(value) if isinstance(value, dict) else value for key, value in BASE.items()}
    for (section, key), value in changes:
        if drop and section in tables:
            tables.pop(section)
        elif isinstance(tables.setdefault(section, {}), dict):
            tables[section][key] = value
    path = tmp_path / "x.toml"
    try:
        path.write_text(to_toml(tables), encoding="utf-8")
    except (ValueError, TypeError, UnicodeEncodeError):
        return
    with mock.patch.dict(os.environ, {"FADAS_ALLOW_CODE": "0"}):
        limits = ["--set", "run.updates=8", "--set", "run.time=1000.0"]
        check_fadas("plan", path, *limits)


@FUZZ
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_random_bytes_as_experiment(tmp_path, content):
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    check_fadas("plan", path)


@FUZZ
@given(
    st.lists(
        st.text(max_size=12) | st.builds(lambda k, v: f"{k[0]}.{k[1]}={v}", keys, scalars | st.text(max_size=6)),
        max_size=2,
    )
)
def test_random_overrides(overrides):
    overrides = [o for o in overrides if "\x00" not in o]
    with mock.patch.dict(os.environ, {"FADAS_ALLOW_CODE": "0"}):
        options = [part for o in overrides for part in ("--set", o)]
        check_fadas("plan", DEMO, "--only", "fadas", *options, "--set", "run.updates=50", "--set", "run.time=1000.0")


@FUZZ
@given(st.text(max_size=120) | st.binary(max_size=120) | st.lists(st.lists(scalars, max_size=4), max_size=12))
def test_random_delay_tables(tmp_path, content):
    path = tmp_path / "d.csv"
    if isinstance(content, list):
        content = "client,low,high\n" + "\n".join(",".join(map(str, row)) for row in content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    table = ["--set", 'delays.name="table"', "--set", f'delays.path="{path}"']
    check_fadas("plan", DEMO, "--only", "fadas", *table, "--set", "run.updates=50", "--set", "run.time=1000.0")


def mutate(content, data):
    """Cut, flip, insert, or replace bytes."""
    kind = data.draw(st.sampled_from(["cut", "flip", "insert", "other", "empty"] if content else ["insert", "other"]))
    place = int(data.draw(st.floats(0, 0.999)) * len(content))  # a share, because lengths differ with measured times
    if kind == "cut":
        return content[:place]
    if kind == "flip":
        return content[:place] + bytes([content[place] ^ data.draw(st.integers(1, 255))]) + content[place + 1 :]
    if kind == "insert":
        return content[:place] + data.draw(st.binary(min_size=1, max_size=9)) + content[place:]
    return data.draw(st.binary(max_size=50)) if kind == "other" else b""


@pytest.fixture(scope="module")
def good_data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz") / "files"
    write_client_files(folder)
    return folder


def write_experiment_on(folder):
    """Write an experiment that reads this folder."""
    path = folder.parent / "x.toml"
    path.write_text(
        f'[task]\nname = "files"\npath = "{folder}"\nclients = 7\nmodel = "helpers.networks:TinyNet"\n'
        "[schedule]\nconcurrency = 4\nbuffer = 2\n[run]\nsteps = 2\n[algorithms.fadas]\n"
    )
    return path


@FUZZ
@given(data=st.data())
def test_damaged_data_folders(tmp_path, good_data, data):
    folder = tmp_path / "files"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(good_data, folder)
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(sorted(folder.iterdir())))
        path.write_bytes(mutate(path.read_bytes(), data))
    experiment = write_experiment_on(folder)
    check_fadas("run", experiment, "--executor", "inline", "--out", tmp_path / "o", "--overwrite", "--no-report")


@pytest.fixture(scope="module")
def good_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz") / "run"
    small = ["--set", "run.updates=50", "--executor", "batched"]
    assert check_fadas("run", DEMO, "--only", "fadas,fedavg", "--seed", "1", *small, "--out", folder) == 0
    return folder


@settings(FUZZ, max_examples=max(15, EXAMPLES // 2))  # drawing takes long
@given(data=st.data())
def test_damaged_run_folders(tmp_path, good_run, data):
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(good_run, folder)
    name = data.draw(st.sampled_from(["config.toml", "metrics.jsonl", "summary.json", "partition.json"]))
    path = folder / "fadas-1" / name
    if name == "config.toml" or data.draw(st.booleans()):
        path.write_bytes(mutate(path.read_bytes(), data))
    else:  # still JSON, but with wrong content
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        line = data.draw(st.sampled_from(lines))
        line[data.draw(st.sampled_from(sorted(line)))] = data.draw(
            st.none()
            | st.integers()
            | st.text(max_size=5)
            | st.lists(st.integers(), max_size=3)
            | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)
        )
        path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    check_fadas("report", folder)


@settings(FUZZ, max_examples=max(10, EXAMPLES // 4))
@given(data=st.data())
def test_resume_after_damage_gives_unbroken_results(tmp_path, good_run, data):
    """Whatever happens to the folder of an interrupted run, --resume ends with the results of an unbroken run."""
    folder = tmp_path / "o" / "fadas-1"
    shutil.rmtree(tmp_path / "o", ignore_errors=True)
    command = ["run", DEMO, "--only", "fadas", "--seed", "1", "--executor", "batched", "--out", tmp_path / "o"]
    command += ["--set", "run.updates=50", "--set", "run.checkpoint_every=3", "--no-report"]
    full = mock.patch("fadas.experiments.run._save_model", side_effect=OSError(28, "No space left on device"))
    with (
        full,
        mock.patch("fadas.runs.checkpoint.BackgroundWriter.ready", return_value=True),
    ):  # even if the disk is busy
        assert check_fadas(*command) == 2
    assert len(list(folder.glob("*.ckpt"))) == 2
    for _ in range(data.draw(st.integers(0, 3))):
        path = data.draw(st.sampled_from(sorted(p for p in folder.iterdir() if p.suffix in (".ckpt", ".jsonl"))))
        path.write_bytes(mutate(path.read_bytes(), data))
    assert check_fadas(*command, "--resume") == 0
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (folder / name).read_bytes() == (good_run / "fadas-1" / name).read_bytes()


@pytest.mark.parametrize("length", [2**62, 10**6, 3])
def test_false_safetensors_header_is_refused(tmp_path, length):
    folder = tmp_path / "files"
    write_client_files(folder)
    path = folder / "client000.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])
    assert check_fadas("run", write_experiment_on(folder), "--out", tmp_path / "o") == 2


def test_pickles_in_numpy_files_are_not_loaded(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.system, (f"touch {tmp_path / 'pwned'}",))

    folder = tmp_path / "files"
    write_client_files(folder)
    np.savez(folder / "client001.npz", x=np.array([Evil()], dtype=object), y=np.zeros(1))
    experiment = write_experiment_on(folder)
    assert check_fadas("run", experiment, "--out", tmp_path / "o") == 2
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("section", ["task", "delays", "executor", "algorithms.fadas.optimizer"])
def test_outside_code_runs_only_when_allowed(tmp_path, section):
    name = f"evil_{section.replace('.', '_')}"
    (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'pwned')!r}, 'w')\ndef run(): pass\n")
    experiment = tmp_path / "x.toml"
    experiment.write_text(
        '[task]\nclients = 10\nname = "digits"\n[schedule]\nconcurrency = 4\nbuffer = 2\n[run]\nsteps = 2\n'
        "[algorithms.fadas]\n"
    )
    override = ["--set", f'{section}.name="{name}:run"']
    with mock.patch.dict(os.environ, {"FADAS_ALLOW_CODE": "0"}), contextlib.chdir(tmp_path):
        assert check_fadas("plan", experiment, *override) == 2
    assert not (tmp_path / "pwned").exists()
    with mock.patch.dict(os.environ), contextlib.chdir(tmp_path):
        check_fadas("plan", experiment, *override, "--allow-code")
    assert (tmp_path / "pwned").exists()


def test_source_never_unpickles_or_evaluates():
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text()
        for word in (
            "pickle.load",
            "torch.load",
            "allow_pickle=True",
            "eval(",
            "exec(",
            "yaml.load",
            "shell=True",
            "os.system",
        ):
            assert not any(word in line.replace(".eval()", "") for line in text.splitlines()), f"{path}: {word}"
