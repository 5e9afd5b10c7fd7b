"""`fadas doctor`."""

import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

import fadas
from fadas.cli.help import doctor
from fadas.executors import EXECUTORS
from helpers.cli import call_fadas, run_fadas


def facts(*arguments) -> dict:
    code, text, err = call_fadas("doctor", "--json", *arguments)
    assert code == 0, err
    return json.loads(text)


def test_doctor_says_what_works(tmp_path, small_data, monkeypatch):
    import torch

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FADAS_DATA", "data")
    (tmp_path / "data" / "RTE").mkdir(parents=True)
    (tmp_path / "data" / "RTE" / "dev.tsv").write_text("")
    found = facts()
    assert found["versions"]["fadas"] == fadas.__version__
    assert found["versions"]["torch"] == version("torch")
    assert found["machine"]["cores"] == os.cpu_count()
    assert list(found["executors"]) == list(EXECUTORS)
    assert found["executors"]["inline"] == "works"
    if not torch.cuda.is_available():
        assert found["executors"]["cuda"] == "needs a CUDA device, and torch sees none"
    assert found["data"]["rte"] == "incomplete: put train.tsv and dev.tsv into data/RTE"
    assert found["data"]["cifar10"] == "not found: run fadas data get cifar10"
    assert found["writing"]["current folder"].startswith("works, ")
    assert facts("--data-dir", small_data)["data"]["cifar10"] == "found"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["RTE", "data", "dev.tsv"], "nothing is left behind"


def test_doctor_explains_what_is_missing(monkeypatch):
    of_fadas = ['ray>=999; extra == "ray"', 'nothere; extra == "odd"', 'rich; extra == "odd"', "rich"]
    of_fadas += ['pytest[gone]; extra == "sim"', 'rich; extra == "sim"']
    needs = {"fadas": of_fadas, "pytest": ["nothere>=2 ; python_version > '3' and extra == 'gone'"]}
    monkeypatch.setattr(doctor, "requires", needs.get)
    monkeypatch.setattr("fadas.executors.processes.can_fork", lambda: False)
    doctor._requirements.cache_clear()
    try:
        found = facts()
    finally:
        doctor._requirements.cache_clear()
    assert found["extras"]["odd"].startswith("incomplete (nothere not installed): run pip install '.[odd]'")
    assert found["extras"]["sim"].startswith("incomplete (pytest[gone] not installed): run pip install '.[sim]'")
    ray = found["executors"]["ray"]
    assert "needs >=999" in ray or "not installed" in ray
    assert found["executors"]["processes"].startswith("needs Linux")
    assert found["versions"]["rich"] == version("rich")


def test_executor_of_missing_package_does_not_work_where_fadas_is_not_installed(monkeypatch):
    monkeypatch.setattr(doctor, "requires", lambda name: None)
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    doctor._requirements.cache_clear()
    try:
        assert facts()["executors"]["ray"] == "needs ray, which is not installed: run pip install ray"
    finally:
        doctor._requirements.cache_clear()


@pytest.mark.parametrize(
    ("installed", "sign", "limit", "fits"),
    [
        ("2.13.0+cpu", ">=", "2.4", True),
        ("2.4", ">=", "2.4.0", True),
        ("1.43.0", "<", "1.43", False),
        ("1.42.9rc1", "<", "1.43", True),
        ("0.9", ">=", "0.12", False),
        ("3.0", "!=", "3.0.0", False),
        ("3.0", "==", "3", True),
    ],
)
def test_versions_are_compared_by_number(installed, sign, limit, fits):
    assert doctor._fits(installed, sign, limit) is fits


def test_doctor_is_quick_and_imports_neither_ray_nor_flower(tmp_path):
    code = (
        "import sys; sys.argv = ['fadas', 'doctor']\nimport fadas.cli\ntry: fadas.cli.main()\nexcept SystemExit: pass\n"
    )
    code += "print([m for m in ('ray', 'flwr', 'transformers', 'matplotlib.pyplot') if m in sys.modules])"
    begin = time.process_time()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
    assert time.process_time() - begin < 5


def test_doctor_hides_home_folder(tmp_path):
    home = tmp_path / "home" / "jane"
    (home / "sets").mkdir(parents=True)
    text = run_fadas("doctor", "--json", HOME=str(home), FADAS_DATA=str(home / "sets"), cwd=home).stdout
    assert "jane" not in text
    assert str(Path("~/sets")) in text
