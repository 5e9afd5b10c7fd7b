"""What type checkers find in the source, and what they see of fadas: its public names, from the stub of the wheel."""

import subprocess
import sys
from pathlib import Path

import pytest

import fadas
from helpers.cli import ROOT

CHECKER = Path(sys.executable).parent / "basedpyright"


pytestmark = pytest.mark.skipif(not CHECKER.exists(), reason="needs basedpyright")


def test_source_has_no_type_errors():
    """`make lint` runs the same command. Here it runs beside other tests, as `make test` has no time to spare."""
    done = subprocess.run([CHECKER], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_type_checker_sees_public_names_as_users_import_them(tmp_path):
    names = [*fadas.__all__, "AsyncStrategy"]
    code = "".join(f"from fadas import {name}\n" for name in names)
    (tmp_path / "own_code.py").write_text(code + f"print({', '.join(names)})\n")
    settings = tmp_path / "pyproject.toml"
    settings.write_text(f'[tool.basedpyright]\ntypeCheckingMode = "standard"\nextraPaths = ["{ROOT / "src"}"]\n')
    files = [ROOT / "examples" / "own_model.py", tmp_path / "own_code.py"]
    command = [CHECKER, "--project", settings, "--pythonpath", sys.executable, *files]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
