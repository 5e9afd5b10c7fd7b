import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests run side by side, and the models are tiny
os.environ["HF_HUB_OFFLINE"] = "1"  # no test looks for a model on a hub
# nor tells anybody that it ran: Flower reads this when it is imported
os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_UPDATE_CHECK": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fadas.tasks.task import Task

torch.set_num_threads(1)
try:
    from hypothesis import HealthCheck, settings
except ImportError:  # borrowed machines with a GPU may have little but torch: tests/test_cuda.py needs no more
    pass
else:  # what an example does is tested, not how fast: on a busy machine any of them may pause
    same = "FADAS_FUZZ" not in os.environ  # the same examples every time, unless new ones are looked for
    settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=same)
    settings.load_profile("ours")

os.environ["COLUMNS"] = "80"  # what is printed does not depend on where the tests run
for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "TTY_COMPATIBLE"):  # by which rich and typer are forced
    os.environ.pop(name, None)
os.environ["FADAS_ALLOW_CODE"] = "1"  # tests name code of their own; one checks that it is refused otherwise
SHARED = Path(__file__).parent.parent.parent / "shared" / "data" / "datasets.py"  # rebuilds real data, where it exists


def make_task(
    clients: int = 8, batchnorm: bool = False, seed: int = 0, sizes: tuple[int, ...] = (3, 17, 30, 8)
) -> Task:
    """A small task with clients of unequal size, none a multiple of the batch size."""
    generator = torch.Generator().manual_seed(seed)

    def data(n: int):
        x = torch.randn(n, 6, generator=generator)
        return x, (x[:, 0] > x[:, 1]).long() + (x[:, 2] > 0).long()

    def model() -> nn.Module:
        middle = [nn.BatchNorm1d(5)] if batchnorm else []
        return nn.Sequential(nn.Linear(6, 5), *middle, nn.ReLU(), nn.Linear(5, 3))

    return Task(model, [data(sizes[c % len(sizes)]) for c in range(clients)], test=data(50))


def plain_task(clients: int) -> Task:
    """As users write their first one."""
    return make_task(clients)


def clientless() -> Task:
    return make_task()


def make_wide_task() -> Task:
    """Large enough that torch rounds differently with two threads than with one."""
    generator = torch.Generator().manual_seed(0)
    data = [(torch.randn(40, 64, generator=generator), torch.arange(40) % 10) for _ in range(8)]
    return Task(lambda: nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 10)), data, test=data[0])


@pytest.fixture(scope="session", autouse=True)
def own_ray():
    """No Ray of others is met: unasked, Ray joins the cluster that a file in its folder names; Cluster writes it."""
    made = tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True)  # sockets need a short path
    with made as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.delenv("RAY_ADDRESS", raising=False)
        yield


@pytest.fixture
def task() -> Task:
    return make_task()


# The command line, but before a given step it waits to be interrupted or killed.
WAITING = """
import sys, time
from fadas.cli import main
from fadas.simulation.simulator import Simulation
step, play = int(sys.argv.pop(1)), Simulation._play
def wait(self):
    for record in play(self):
        while record.step == step and not self.stopped:
            time.sleep(0.01)
        yield record
Simulation._play = wait
main()
"""


def waiting(step: int, *arguments) -> list[str]:
    """A command that does not get beyond a step: however late a test looks, its run is still at work."""
    return [sys.executable, "-c", WAITING, str(step), *map(str, arguments)]


class TinyNet(nn.Module):
    """A network that experiments can name: "conftest:TinyNet"."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x)


def write_cifar(folder: Path, seed: int = 0, images: int = 60) -> None:
    """CIFAR-10 and CIFAR-100 in their official layouts: few images, whose colour tells the label."""
    rng = np.random.default_rng(seed)

    def records(n, classes, coarse):
        labels = np.arange(n) % classes
        tint = (labels[:, None] * 2.0).repeat(3072, 1)
        pixels = np.clip(rng.normal(60, 20, (n, 3072)) + tint, 0, 255).astype(np.uint8)
        columns = [labels // 5, labels] if coarse else [labels]
        return np.concatenate([np.stack(columns, 1).astype(np.uint8), pixels], 1).tobytes()

    ten, hundred = folder / "cifar-10-batches-bin", folder / "cifar-100-binary"
    ten.mkdir(parents=True)
    hundred.mkdir()
    for k in range(1, 6):
        (ten / f"data_batch_{k}.bin").write_bytes(records(images, 10, False))
    (ten / "test_batch.bin").write_bytes(records(images, 10, False))
    (hundred / "train.bin").write_bytes(records(5 * images, 100, True))
    (hundred / "test.bin").write_bytes(records(images, 100, True))


def write_glue(folder: Path, examples: int = 120) -> None:
    """RTE, MRPC and SST-2 in their official layouts: a few words decide the label. Quotes are text, never quoting."""
    rng = np.random.default_rng(0)
    words = ["the", '"', "cat", "sat", "on", "a", "mat", ",", "naïve", "dogs"]

    def sentence(label):
        return " ".join([*rng.choice(words, 6), "good" if label else "bad"])

    for name, header, row in (
        ("RTE", "index\tsentence1\tsentence2\tlabel", "{i}\t{a}\t{b}\t{name}"),
        ("MRPC", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "{y}\t1\t2\t{a}\t{b}"),
        ("SST-2", "sentence\tlabel", "{a} \t{y}"),
    ):
        (folder / name).mkdir(parents=True)
        for split in ("train", "dev"):
            lines = [header]
            for i in range(examples):
                y = i % 2
                names = ["entailment", "not_entailment"]
                lines.append(row.format(i=i, y=y, name=names[y], a=sentence(y), b=sentence(y)))
            bom = "\ufeff" if name == "MRPC" else ""
            (folder / name / f"{split}.tsv").write_text(bom + "\n".join(lines) + "\n", encoding="utf-8")


def write_files(folder: Path, clients: int = 7) -> None:
    """A folder with a file per client, as the task `files` reads it."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    task = make_task(clients)
    for client, (x, y) in enumerate(task.clients):
        if client % 2:
            np.savez(folder / f"client{client:03d}.npz", x=x.numpy(), y=y.numpy())
        else:
            save_file({"x": x, "y": y}, folder / f"client{client:03d}.safetensors")
    np.savez(folder / "test.npz", x=task.test[0].numpy(), y=task.test[1].numpy())


@pytest.fixture(scope="session")
def small_data(tmp_path_factory) -> Path:
    """Small data sets of the test's own, in the official layouts."""
    folder = tmp_path_factory.mktemp("data")
    write_cifar(folder)
    write_glue(folder)
    write_files(folder / "files")
    return folder


@pytest.fixture
def data(small_data, monkeypatch) -> Path:
    monkeypatch.setenv("FADAS_DATA", str(small_data))
    return small_data


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The official data sets, rebuilt from the workplace's copies where they exist and kept for the next time."""
    if not SHARED.exists():
        pytest.skip("the official data sets are not at hand")
    from filelock import FileLock

    folder = Path(__file__).parent.parent / "build" / "data"
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
def small(tmp_path) -> Path:
    """The paper's large CIFAR-10 experiments under their own names, but on digits and short."""
    folder = tmp_path / "experiments"
    folder.mkdir()
    for path in (Path(__file__).parents[1] / "experiments").glob("cifar10-large-*.toml"):
        text = path.read_text().replace('name = "cifar10"', 'name = "digits"').replace('model = "resnet18"\n', "")
        (folder / path.name).write_text(text.replace("updates = 2500", "updates = 100"))
    return tmp_path


def reproduce(where: Path, *words):
    """`fadas reproduce` with the experiments of `small`."""
    from typer.testing import CliRunner

    from fadas.cli import app

    folders = ["--experiments", where / "experiments", "--results", where / "results", "--work", where / "runs"]
    return CliRunner().invoke(app, ["reproduce", *map(str, (*words, *folders, "--page", where / "page.md"))])
