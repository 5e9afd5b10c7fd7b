import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests run side by side, and the models are tiny
os.environ["HF_HUB_OFFLINE"] = "1"  # no test looks for a model on a hub
# Flower, Ray and the trackers read these when they are imported: no test reports that it ran
os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_UPDATE_CHECK": "0", "RAY_USAGE_STATS_ENABLED": "0"}
os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false", "WANDB_MODE": "offline"}

import gc
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from fadas.executors.processes import can_fork
from fadas.tasks.task import Task

pytest.register_assert_rewrite("helpers")
from helpers.data_files import write_cifar, write_client_files, write_glue  # noqa: E402
from helpers.downloads import serve_archives  # noqa: E402
from helpers.training import make_task  # noqa: E402

torch.set_num_threads(1)
try:
    from hypothesis import HealthCheck, Phase, settings
except ImportError:  # borrowed machines with a GPU may have little but torch: the tests of CUDA need no more
    pass
else:  # no deadline: on a busy machine any example may pause
    same = "FADAS_FUZZ" not in os.environ  # the same examples every time, unless new ones are looked for
    settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=same)
    settings.register_profile("mutants", settings.get_profile("ours"), phases=[Phase.explicit, Phase.generate])
    settings.load_profile("mutants" if "FADAS_MUTANTS" in os.environ else "ours")  # mutants.py wants no small example

os.environ["COLUMNS"] = "80"  # what is printed does not depend on where the tests run
for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "TTY_COMPATIBLE"):  # these force colours in rich and typer
    os.environ.pop(name, None)
os.environ["FADAS_COMMIT"] = "of the tests"  # a run asks git otherwise
os.environ["FADAS_ALLOW_CODE"] = "1"  # experiment files name code of the tests; one test checks that it is refused
ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "data" / "datasets.py"  # rebuilds the official data sets, where it exists


def pytest_collection_modifyitems(items):
    """Skip tests of the processes executor where processes cannot be forked."""
    if can_fork():
        return
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {}).values()
        named = any(isinstance(one, str) and one == "processes" for one in params)  # arrays compare by element
        if named or item.get_closest_marker("forks"):
            item.add_marker(pytest.mark.skip(reason="processes are forked on Linux only, and without a GPU"))


def pytest_collection_finish():
    """What is imported now is never garbage: leave it out of every search for garbage."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def private_ray():
    """Ray joins a cluster that a file in its folder names, which Cluster writes. The tests have their own folder."""
    made = tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True)  # sockets need a short path
    with made as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.delenv("RAY_ADDRESS", raising=False)
        yield


@pytest.fixture
def task() -> Task:
    return make_task()


@pytest.fixture
def one_thread():
    """One torch thread, as workers have. The number is restored, whatever a test does to it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def small_data(tmp_path_factory) -> Path:
    """Small data sets in the official layouts."""
    folder = tmp_path_factory.mktemp("data")
    write_cifar(folder)
    write_glue(folder)
    write_client_files(folder / "files")
    return folder


@pytest.fixture
def data(small_data, monkeypatch) -> Path:
    monkeypatch.setenv("FADAS_DATA", str(small_data))
    return small_data


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory) -> str:
    """A tiny BERT with a word-piece vocabulary, saved as transformers saves any checkpoint."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "a", "mat", "good", "bad", "dogs"]
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def archive_server(tmp_path, monkeypatch):
    """A server of archives. Downloads go to a folder of this test."""
    monkeypatch.setenv("FADAS_DATA", str(tmp_path / "data"))
    with serve_archives() as server:
        yield server


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The official data sets. They are rebuilt from the workplace's copies where these exist, and kept."""
    if not SHARED.exists():
        pytest.skip("the official data sets are not at hand")
    from filelock import FileLock

    folder = ROOT / "build" / "data"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        for name, proof in (
            ("glue", "SST-2/dev.tsv"),
            ("cifar100", "cifar-100-binary/test.bin"),
            ("cifar10", "cifar-10-batches-bin/test_batch.bin"),
        ):
            if not (folder / proof).exists():
                done = subprocess.run([sys.executable, SHARED, name, folder], capture_output=True, text=True)
                if done.returncode:
                    pytest.skip(f"{name} could not be rebuilt: {done.stderr[-200:]}")
    return folder


@pytest.fixture
def small_paper(tmp_path) -> Path:
    """The paper's large CIFAR-10 experiments under their own names, but on digits and short."""
    folder = tmp_path / "experiments"
    folder.mkdir()
    for path in (ROOT / "experiments").glob("cifar10-large-*.toml"):
        text = path.read_text().replace('name = "cifar10"', 'name = "digits"').replace('model = "resnet18"\n', "")
        (folder / path.name).write_text(text.replace("updates = 2500", "updates = 100"))
    return tmp_path


@pytest.fixture
def play(monkeypatch, tmp_path, caplog):
    """Run a Flower strategy against nodes that follow a script."""
    from helpers.flower import Play

    return Play(tmp_path, monkeypatch, caplog)


@pytest.fixture
def start_superlink(tmp_path):
    """Start a SuperLink. It ends with the test."""
    from helpers.superlink import Superlink

    made = []

    def start(*options, **more):
        made.append(Superlink(tmp_path, *options, **more))
        return made[-1]

    yield start
    for one in made:
        one.close()
