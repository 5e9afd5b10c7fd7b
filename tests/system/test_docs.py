"""What the documents show is what the code does."""

import re
import subprocess
import sys
import tomllib

import pytest

from fadas.experiments.experiment_file import read_experiment, select_algorithms
from fadas.experiments.resolve import resolve
from helpers.cli import ROOT

EXAMPLE = (ROOT / "examples" / "own_model.py").read_text()


def find_blocks(name, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / name).read_text(), re.S)


def test_readme_example_runs():
    shown, composition = find_blocks("README.md", "python")
    assert shown.strip() in EXAMPLE, "README and examples/own_model.py differ"
    done = subprocess.run([sys.executable, "-c", shown + composition], capture_output=True, text=True, check=True)
    assert "step 60" in done.stdout
    assert done.stderr == "", "the first use of fadas must not warn"
    assert float(re.findall(r"accuracy ([\d.]+)%", done.stdout)[-1]) > 90


def test_python_page_runs_as_script():
    text = "\n".join(
        [*find_blocks("docs/getting-started/your-model.md", "python"), "print(steps == list(range(16, 41)))"]
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-2:] == ["3", "True"]
    assert float(re.findall(r"'accuracy': ([\d.]+)", lines[4])[0]) > 0.7


def test_lazy_names_are_listed_without_torch():
    show = "import fadas, sys; print(*dir(fadas)); print('torch' in sys.modules)"
    names, torch = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True).stdout.splitlines()
    used = set(
        re.findall(
            r"\bfadas\.([A-Z]\w+|plan|simulate)\b", "".join(find_blocks("docs/getting-started/your-model.md", "python"))
        )
    )
    assert len(used) > 8
    assert used <= set(names.split())
    assert torch == "False"


def test_modules_named_in_docs_are_attributes():
    show = "import fadas; print(fadas.executors.Inline, fadas.snapshot.take, fadas.accuracy, fadas.Checks)"
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_commented_experiment_is_valid(tmp_path):
    (text,) = find_blocks("docs/reference/settings.md", "toml")
    path = tmp_path / "shown.toml"
    path.write_text(text)
    tables = read_experiment(path)
    assert [resolve(tables, label, 1).label for label in select_algorithms(tables)] == ["fadas-da", "mine"]
    assert tomllib.loads(text)["run"]["seeds"] == [1, 2]


def test_links_have_targets():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_own_data_example_runs():
    pytest.importorskip("datasets")
    (shown,) = find_blocks("docs/reference/tasks.md", "python")
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["10", "20"]
