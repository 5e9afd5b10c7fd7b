"""fadas where Flower is not installed: everything else works, and what needs Flower says how to install it."""

import pytest

from helpers.forks import run_in_fork

ADVICE = "pip install '.[flower]' in a checkout"
WITHOUT_FLOWER = "import sys; sys.modules['flwr'] = None\n"  # every import of it fails


def run_without_flower(code, *arguments):
    return run_in_fork(arguments, WITHOUT_FLOWER + code)


def test_public_names_without_flower_can_be_listed():
    code = """
import inspect, pydoc, fadas
assert not hasattr(fadas, "AsyncStrategy")
assert {"AsyncStrategy", "flower"}.isdisjoint(dir(fadas))
assert dict(inspect.getmembers(fadas))["FADAS"] is fadas.FADAS
assert "asynchronous federated learning" in pydoc.render_doc(fadas)
"""
    done = run_without_flower(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import fadas; fadas.AsyncStrategy",
        "import fadas; fadas.flower",
        "from fadas import AsyncStrategy",
        "from fadas.flower import AsyncStrategy",
        "import fadas.flower.strategy",
    ],
)
def test_import_of_flower_names_without_flower_says_what_to_install(code):
    done = run_without_flower(code)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(ADVICE)


def test_flower_names_are_listed_where_flower_is_installed():
    pytest.importorskip("flwr")
    import fadas

    assert {"AsyncStrategy", "flower"} <= set(dir(fadas))
    assert fadas.AsyncStrategy is fadas.flower.AsyncStrategy


def test_deploy_init_without_flower_gives_one_line(tmp_path):
    folder = tmp_path / "my-federation"
    done = run_without_flower("from fadas.cli import main; main()", "deploy", "init", folder)
    assert done.returncode == 2
    assert done.stderr == f"fadas: fadas deploy needs Flower: run {ADVICE}\n"
    assert not folder.exists()
