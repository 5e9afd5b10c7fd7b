"""Sinks: how they are chosen, sinks of one's own, and sinks that fail."""

import sys

import pytest

from fadas.errors import ConfigError, FadasWarning
from fadas.runs.folder import claim
from fadas.runs.sinks import SINKS, Tracker, make_sinks
from fadas.runs.sinks.base import require_package
from fadas.runs.writer import Writer
from helpers.cli import run_fadas
from helpers.experiments import BASE, execute_in, prepare_run, resolve_text, write_experiment
from helpers.folders import TABLES, make_record, make_summary, read_files, read_records
from helpers.forks import run_in_fork

OWN = """
class Lines:
    def __init__(self, path: str, every: int = 1):
        self.path, self.every = path, every
    def open(self, folder, settings):
        self.file = open(self.path, "a")
        print(folder.name, settings["name"], file=self.file)
    def record(self, record):
        if record.step % self.every == 0:
            print(record.step, file=self.file)
    def close(self, summary):
        print(summary.step, file=self.file)
        self.file.close()

class Deaf:
    def open(self, folder, settings): ...

class Bad:
    def __init__(self):
        raise OSError("no route to host")
"""

RESULTS = ("metrics.jsonl", "model.safetensors", "config.toml")


class Listening:
    """A sink that remembers what it is told, and fails where it is asked to."""

    def __init__(self, fails=""):
        self.told, self.fails = [], fails

    def _hear(self, method, *what):
        self.told.append((method, *what))
        if method == self.fails:
            raise ConnectionError("no route to https://me:secret@host/a\nsecond line")

    def open(self, folder, settings):
        self._hear("open")

    def record(self, record):
        self._hear("record", record.step)

    def add_figures(self, paths):
        self._hear("add_figures", *(path.stem for path in paths if path.read_bytes().startswith(b"\x89PNG")))

    def close(self, summary):
        self._hear("close", summary and summary.step)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The files of a run without sinks."""
    folder = tmp_path_factory.mktemp("plain") / "o"
    execute_in(folder, *prepare_run(0.1))
    return read_files(folder, RESULTS)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module with sinks of the user's own."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ownsinks.py").write_text(OWN)
    yield
    sys.modules.pop("ownsinks", None)


def test_own_sink_is_named_in_toml(own, tmp_path):
    file = write_experiment(tmp_path, BASE.replace("[run]", '[run]\nsinks = [{name = "ownsinks:Lines", path = "l"}]'))
    command = ["run", file, "--out", "o", "--no-report"]
    refused = run_fadas(*command, cwd=tmp_path, code=2, FADAS_ALLOW_CODE="0").stderr
    assert "sink 'ownsinks:Lines' is code outside fadas, which runs only with --allow-code" in refused
    run_fadas(*command, cwd=tmp_path)
    assert (tmp_path / "l").read_text().split() == ["fadas-0", "experiment", "0", "1", "2", "3", "4", "4"]
    (kept,) = tmp_path.glob("o/*/config.toml")
    assert 'sinks = [\n    { name = "ownsinks:Lines", path = "l", every = 1 },\n]' in kept.read_text()
    run_fadas("run", kept, "--out", "again", "--no-report", cwd=tmp_path)  # it is an experiment file, too
    assert len((tmp_path / "l").read_text().split()) == 16


def test_own_sink_is_an_object_in_python(tmp_path):
    config, simulation = prepare_run(0.1)
    sink = Listening()
    execute_in(tmp_path / "o", config, simulation, sinks=[sink])
    (figures,) = [names for method, *names in sink.told if method == "add_figures"]
    assert {"delays", "time", "updates"} <= set(figures)
    others = [told for told in sink.told if told[0] != "add_figures"]
    assert others == [("open",), *(("record", step) for step in range(5)), ("close", 4)]


@pytest.mark.parametrize(
    ("fails", "heard"),
    [
        ("open", ["open"]),
        ("record", ["open", "record"]),
        ("add_figures", ["open", *["record"] * 5, "add_figures"]),
        ("close", ["open", *["record"] * 5, "add_figures", "close"]),
    ],
)
def test_failing_sink_warns_once_and_run_goes_on(tmp_path, plain, fails, heard):
    good, bad = Listening(), Listening(fails)
    config, simulation = prepare_run(0.1)
    with pytest.warns(FadasWarning) as warned:
        execute_in(tmp_path / "o", config, simulation, sinks=[bad, good])
    expected = rf"the sink Listening failed in {fails}(): ConnectionError: no route to https://host/a (test_sinks.py:"
    (text,) = [str(one.message) for one in warned if "sink" in str(one.message)]
    assert text.startswith(expected)
    assert text.endswith("); the run continues without this sink")
    assert [method for method, *_ in bad.told] == heard
    assert [method for method, *_ in good.told] == ["open", *["record"] * 5, "add_figures", "close"]
    assert read_files(tmp_path / "o", RESULTS) == plain


def test_figures_that_cannot_be_drawn_are_a_warning(tmp_path):
    def draw(run, folder):
        raise ValueError("nothing to draw")

    sink = Listening()
    writer = Writer(claim(tmp_path / "a-0", TABLES), sinks=[sink], draw=draw)
    writer.append(make_record(1))
    with pytest.warns(FadasWarning, match="a-0: no figures for the sinks: ValueError: nothing to draw"):
        writer.finish(make_summary([make_record(1)]))
    assert sink.told == [("open",), ("record", 1), ("close", 1)]


def test_figures_are_drawn_only_for_sinks_that_take_them(tmp_path):
    drawn = []
    without, sink = Listening(), Listening()
    without.figures = False
    for folder, sinks in (("a-0", [without]), ("b-0", [without, sink])):
        writer = Writer(claim(tmp_path / folder, TABLES), sinks=sinks, draw=lambda run, to: drawn.append((run, to)))
        writer.append(make_record(1))
        writer.finish(make_summary([make_record(1)]))
    ((run, to),) = drawn
    assert run == tmp_path / "b-0"
    assert not to.exists()


def test_interrupted_sink_releases_folder(tmp_path):
    class Hanging(Listening):
        def close(self, summary):
            raise KeyboardInterrupt

    writer = Writer(claim(tmp_path / "a-0", TABLES), sinks=[Hanging()])
    with pytest.raises(KeyboardInterrupt):
        writer.close()
    claim(tmp_path / "a-0", TABLES).release()


@pytest.mark.parametrize(
    ("sinks", "message"),
    [
        ('["tensorbord"]', "unknown sink 'tensorbord'; did you mean 'tensorboard'?"),
        (
            '[{name = "wandb", projct = "x"}]',
            "unknown key 'run.sinks.wandb.projct'; did you mean 'run.sinks.wandb.project'?",
        ),
        ('[{name = "wandb", model = 1}]', "run.sinks.wandb.model must be true or false, got 1"),
        (
            '[{project = "x"}]',
            "run.sinks holds names, or tables with a name, got {'project': 'x'}; known: tensorboard, wandb, mlflow",
        ),
        ('["mlflow", {name = "mlflow"}]', "run.sinks names 'mlflow' twice; name it once"),
        ("wandb", "run.sinks must be a list, got 'wandb'"),
        ('[{name = "ownsinks:Lines"}]', "run.sinks.ownsinks:Lines.path is missing"),
    ],
)
def test_mistake_in_settings_is_named(own, tmp_path, sinks, message):
    with pytest.raises(ConfigError) as refused:
        resolve_text(tmp_path, overrides=[f"run.sinks={sinks}"])
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ("ownsinks:Deaf", "run.sinks: Deaf is not a sink: it has no method record()"),
        ("ownsinks:Bad", r"run.sinks.ownsinks:Bad: OSError: no route to host (ownsinks.py:"),
    ],
)
def test_own_class_that_is_no_sink_is_refused(own, sink, message):
    with pytest.raises(ConfigError) as refused:
        make_sinks([sink], "run.sinks")
    assert str(refused.value).startswith(message)


def test_short_form_adds_tensorboard_once(tmp_path):
    short = resolve_text(tmp_path, overrides=["run.tensorboard=true"])
    long = resolve_text(tmp_path, overrides=["run.sinks=['tensorboard']"])
    both = resolve_text(tmp_path, overrides=["run.tensorboard=true", "run.sinks=['tensorboard']"])
    assert short.run.sinks == long.run.sinks == both.run.sinks == ({"name": "tensorboard", "figures": True},)
    assert "sinks" not in resolve_text(tmp_path).tables["run"]


def test_halving_runs_with_sinks(own, tmp_path):
    sinks = f'run.sinks=[{{name="ownsinks:Lines", path="{tmp_path}/l"}}]'
    file = write_experiment(tmp_path, BASE + "[sweep.fadas]\neta = [0.01, 0.02]\n")
    run_fadas("sweep", file, "--halving", "--set", "run.steps=8", "--set", sinks, "--out", tmp_path / "s", cwd=tmp_path)
    heard = (tmp_path / "l").read_text().split()
    assert heard.count("eta=0.01-0") + heard.count("eta=0.02-0") > 2, "each rung opens the sink again"


@pytest.mark.parametrize("name", SINKS)
def test_missing_extra_says_what_to_install(tmp_path, monkeypatch, name):
    file = write_experiment(tmp_path, BASE.replace("[run]", f"[run]\nsinks = [{name!r}]"))
    monkeypatch.setitem(sys.modules, name, None)
    code = f"import sys; sys.modules[{name!r}] = None; from fadas.cli import main; main()"
    with pytest.raises(ConfigError) as refused:
        make_sinks([name], "run.sinks")
    assert str(refused.value) == f"the sink {name!r} needs an extra: run pip install '.[{name}]' in a checkout"
    done = run_in_fork(["run", file, "--out", tmp_path / "o"], code)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"fadas: {refused.value}")
    assert not (tmp_path / "o").exists()


def test_folder_of_the_same_name_is_no_package(tmp_path, monkeypatch):
    """W&B writes into a folder `wandb`, which Python would import where W&B is not installed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "only_a_folder").mkdir()
    with pytest.raises(ConfigError, match="the sink 'wandb' needs an extra"):
        require_package("only_a_folder", "wandb")


class Notebook(Tracker):
    """A tracker in memory."""

    name = "notebook"

    def __init__(self):
        self.batches, self.runs = [], []

    def begin(self, folder, settings, run, step):
        self.runs.append((run, step))
        return run or f"run {len(self.runs)}"

    def send(self, rows):
        self.batches.append([(step, dict(values)) for step, values in rows])

    def end(self, summary): ...


@pytest.fixture
def seconds(monkeypatch):
    """The time of trackers, which a test sets."""
    now = [100.0]
    monkeypatch.setattr("fadas.runs.sinks.base.time.monotonic", lambda: now[0])
    return now


def test_tracker_gets_records_in_batches(tmp_path, seconds):
    sink = Notebook()
    writer = Writer(claim(tmp_path / "a-0", TABLES), sinks=[sink])
    for step in range(1, 7):
        writer.append(make_record(step))
        seconds[0] += 0.3
    writer.close()
    assert [[step for step, _ in rows] for rows in sink.batches] == [[1], [2, 3, 4, 5], [6]]


def test_tracker_gets_late_evaluation_of_last_step_once(tmp_path, seconds):
    sink = Notebook()
    writer = Writer(claim(tmp_path / "a-0", TABLES), sinks=[sink])
    writer.append(make_record(1))
    writer.replace_last(make_record(1, 0.75))
    writer.close()
    first, second = [values for rows in sink.batches for _, values in rows]
    assert "test/accuracy" not in first
    assert second == {"test/accuracy": 0.75}
    assert len(read_records(tmp_path / "a-0")) == 1


def test_damaged_notes_cost_the_sink_only(tmp_path):
    writer = Writer(claim(tmp_path / "a-0", TABLES), sinks=[Notebook()])
    writer.append(make_record(1))
    kept, _ = writer.mark()
    writer.close()
    (tmp_path / "a-0" / "sinks.json").write_text("{")
    with pytest.warns(FadasWarning, match=r"the sink Notebook failed in open\(\): Damaged"):
        Writer(claim(tmp_path / "a-0", TABLES, "resume"), kept, [Notebook()]).close()
