"""Function names of the standard library. A small library stands in for it, but for one test."""

import ast
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from fadas.errors import ConfigError
from fadas.experiments.prepare import make_task
from fadas.tasks import TASKS
from fadas.tasks.functions import Function, name_parts, parse_functions, read_sources
from helpers.cli import EXPERIMENTS, run_fadas
from helpers.experiments import resolve_text
from helpers.library import SPECIAL, write_library

module = import_module("fadas.tasks.names")  # fadas.tasks has a function of this name
SMALL = {"clients": 4, "words": 40, "targets": 4, "hidden": 5}


@pytest.fixture
def library(tmp_path, monkeypatch) -> Path:
    """The small library, and an empty data folder."""
    folder = write_library(tmp_path / "lib")
    monkeypatch.setattr(module, "library_folder", lambda: folder)
    monkeypatch.setenv("FADAS_DATA", str(tmp_path / "data"))
    return folder


def parse(text: str, path: str = "copy.py") -> list[Function]:
    return parse_functions({path: text.encode()})


def words_of(text: str) -> set[str]:
    (function,) = parse(text)
    return set(function.words)


def is_same(one, other) -> bool:
    """Do two tasks have the same data?"""
    columns = [[*task.clients.data, *task.clients.parts, *task.test] for task in (one, other)]
    return all(torch.equal(a, b) for a, b in zip(*columns, strict=True))


def test_identifiers_are_divided_into_parts():
    assert name_parts("_readHTTPHeaders_v2") == ["read", "http", "headers", "v", "2"]
    assert name_parts("__init__") == ["init"]
    assert name_parts("__") == []


def test_words_are_those_of_arguments_and_body():
    found = words_of("@cached\ndef f(one: int = two):\n    '''Docstring.'''\n    return self.read_line('text', key=3)")
    names = {word for word in found if not word.startswith("<")}
    assert names == {"one", "int", "two", "self", "read_line", "read", "line", "key"}
    assert {"<Return>", "<Call>", "<Constant>"} <= found
    assert "<Expr>" not in found, "the docstring is no part of the body"
    assert not {"<Load>", "<FunctionDef>"} & found


@pytest.mark.parametrize(
    "text",
    [
        "def climb(n):\n    return climb(n - 1)",
        "def climb(self):\n    return super().climb() + self._climb + Climb",
        "@climb.setter\ndef climb(self, value):\n    self.value = value",
        "def climb():\n    'climb'\n    return 'climb'",
        "def climb():\n    global climb\n    climb = 1",
        "def climb():\n    import climb.climb as climb",
        "def climb(climb):\n    return run(climb=1)",
        "async def climb():\n    async def inner():\n        return climb()",
        "def climb(x):\n    match x:\n        case {'a': 1, **climb}:\n            pass",
    ],
)
def test_own_name_is_not_a_word(text):
    assert not [word for word in parse(text)[0].words if "climb" in word]


def test_own_name_of_several_parts_leaves_none_of_them():
    (down,) = (set(function.words) for function in parse(SPECIAL) if {"self", "unit"} <= {*function.words})
    assert {"count_up", "count", "up"} <= down, "the parts of another name are words"
    assert not {"countdown", "_count_down", "down"} & down


def test_every_definition_belongs_to_outermost_function():
    places = [function.place for function in parse(SPECIAL)]
    assert sorted(places) == ["copy.py:Box.countDown"] * 2 + ["copy.py:Box.size"] * 2


def test_copies_are_kept_once():
    one, other = "def read_{}(file):\n    return file.next()\n", "def write_{}(file):\n    return file.next()\n"
    found = parse_functions({"ast.py": one.format("a").encode(), "copy.py": (one + other).format("b", "c").encode()})
    assert [(f.place, f.target) for f in found] == [("ast.py:read_a", "read"), ("copy.py:write_c", "write")]


def test_only_modules_of_python_itself_are_read(library):
    before = read_sources(library)
    assert list(before) == sorted(before)
    for path in (
        "site-packages/numpy.py",
        "numpy.py",
        "test/test_os.py",
        "email/tests/more.py",
        "email/__pycache__/x.py",
    ):
        (library / path).parent.mkdir(parents=True, exist_ok=True)
        (library / path).write_text("def get_nothing(): return 1")
    (library / "email" / "part0.pyc").write_bytes(b"\0")
    assert read_sources(library) == before


def test_file_that_does_not_parse_is_skipped():
    assert parse("def f(:") == []
    assert parse("def f(x):\n    return '\\d'") != [], "a warning of the parser is no error"


def test_training_validation_and_test_functions_are_disjoint(library, monkeypatch):
    made = []
    split = module._split_clients
    monkeypatch.setattr(module, "_split_clients", lambda *args: made.append(split(*args)) or made[-1])
    full, held = TASKS["names"](**SMALL), TASKS["names"](**SMALL, validation=0.2)
    (first, test), (again, same_test), (train, validation) = made
    assert (first, test) == (again, same_test)
    for one, other in ((first, test), (train, validation), (validation, test)):
        assert one
        assert other
        assert not {(f.module, f.place) for f in one} & {(f.module, f.place) for f in other}
    assert set(train) | set(validation) <= set(first)
    assert len(test) / (len(first) + len(test)) == pytest.approx(1 / 6, abs=0.02)
    assert sum(held.sizes) + len(held.test[1]) == sum(full.sizes)
    assert len(held.test[1]) == pytest.approx(0.2 * sum(full.sizes), abs=4)


def test_words_and_targets_come_from_training_data(library, monkeypatch):
    asked = []
    count = module._most_common
    monkeypatch.setattr(
        module, "_most_common", lambda found, number: asked.append(list(found)) or count(asked[-1], number)
    )
    split, parts = module._split_clients, []
    monkeypatch.setattr(module, "_split_clients", lambda *args: parts.append(split(*args)) or parts[-1])
    TASKS["names"](**SMALL, validation=0.2)
    targets, words = asked
    assert targets == [f.target for f in parts[0][0]]
    assert words == [word for f in parts[1][0] for word in f.words]


def test_share_without_meaning_is_refused(library):
    with pytest.raises(ValueError, match=r"validation must be above 0 and below 1, got 1\.5"):
        TASKS["names"](**SMALL, validation=1.5)
    with pytest.raises(ValueError, match="clients must be at most the number of modules with functions \\(5\\), got 6"):
        TASKS["names"](**{**SMALL, "clients": 6})
    (library / "ast.py").write_text("def fly(): return 1\ndef swim(): return 2")
    with pytest.raises(ValueError, match="1 of 5 clients have no function with one of the 2 commonest first words"):
        TASKS["names"](**{**SMALL, "clients": 5, "targets": 2})
    with pytest.raises(ValueError, match="too few functions to hold any out"):
        TASKS["names"](**SMALL, validation=0.001)


DUMP = """
import hashlib, sys
from importlib import import_module
from pathlib import Path
module = import_module("fadas.tasks.names")
module.library_folder = lambda: Path(sys.argv[1])
task = module.names(clients=4, words=40, targets=4, validation=0.2)
digest = hashlib.sha256()
for tensor in (*task.clients.data, *task.clients.parts, *task.test):
    digest.update(tensor.numpy().tobytes())
print(digest.hexdigest())
"""


def test_data_are_same_whatever_hash_seed_and_order_of_files(library, monkeypatch):
    found = []
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        monkeypatch.setenv("FADAS_DATA", str(library.parent / f"data{seed}"))
        done = subprocess.run([sys.executable, "-c", DUMP, library], capture_output=True, text=True, check=True)
        found.append(done.stdout)
    assert found[0] == found[1]
    texts = [path.read_bytes() for path in sorted((library.parent).glob("data*/cache/*.json"))]
    assert len(texts) == 2
    assert texts[0] == texts[1]


def test_cache_is_written_reused_and_renewed(library, monkeypatch, tmp_path):
    first = TASKS["names"](**SMALL)
    (cache,) = (tmp_path / "data" / "cache").iterdir()
    parsed = []
    monkeypatch.setattr(module, "parse_functions", lambda sources: parsed.append(1) or parse_functions(sources))
    assert is_same(TASKS["names"](**SMALL), first)
    assert not parsed
    content = cache.read_bytes()
    digest, text = content.split(b"\n")
    other = json.dumps({**json.loads(text), "functions": []}).encode()
    for damaged in (b"", content[:-100], content.replace(b"get", b"got"), digest + b"\n" + other, b"\xff" * 50):
        parsed.clear()
        cache.write_bytes(damaged)
        assert is_same(TASKS["names"](**SMALL), first)
        assert parsed
        assert cache.read_bytes() == content
    (library / "json" / "part0.py").write_text("def get(a): return a")
    assert not is_same(TASKS["names"](**SMALL), first), "other sources, other data"
    assert len(list(cache.parent.iterdir())) == 2


def test_data_folder_that_cannot_be_written_is_no_error(library, monkeypatch, tmp_path):
    first = TASKS["names"](**SMALL)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FADAS_DATA", str(tmp_path / "file" / "data"))
    assert is_same(TASKS["names"](**SMALL), first)


def test_missing_sources_are_one_line(library, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "library_folder", lambda: tmp_path / "python311.zip")
    text = '[task]\nname = "names"\nclients = 4\n[schedule]\nconcurrency = 2\nbuffer = 1\n[run]\nsteps = 1\n'
    config = resolve_text(tmp_path, text + "[algorithms.fadas]\n")
    with pytest.raises(
        ConfigError, match=r"^task: the source files of Python's standard library are not in .*zip; use"
    ):
        make_task(config)


def test_parsing_needs_no_torch_and_no_numpy():
    path = Path(read_sources.__code__.co_filename)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names} == {"fadas.errors"}


def test_demo_runs_on_the_real_library(data, tmp_path):
    short = ["--set", "run.updates=25", "--set", "run.eval_every=1", "--seed", "1", "--only", "fadas-da,fedams"]
    short += ["--set", "algorithms.fedams.run.updates=25"]
    done = run_fadas("run", EXPERIMENTS / "demo.toml", *short, "--out", tmp_path / "o", "--json", "--no-report")
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["algorithm"] for result in results] == ["fadas-da", "fedams"]
    assert all(0 < result["metrics"]["accuracy"] < 1 for result in results)
