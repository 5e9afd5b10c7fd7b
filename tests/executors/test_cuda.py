"""The CUDA executor on a GPU. test_executors.py tests that it agrees with the others."""

import gc
from functools import partial

import pytest
import torch

from fadas.algorithms.presets import FADAS
from fadas.executors import Cuda, Inline, auto
from fadas.executors.cuda import Bench
from fadas.runs import checkpoint
from fadas.runs.folder import checkpoints
from fadas.simulation import snapshot
from fadas.simulation.delays import Delays, Large
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from fadas.training.sgd import LocalSGD
from helpers.data_files import in_memory, load_arrays, write_arrays
from helpers.local_training import METHODS, PAIRS, TRAINERS
from helpers.networks import Averaging
from helpers.training import LOCAL_LONG, final_model, make_plan, make_task, run_simulation

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def test_capture_survives_garbage_of_earlier_executors(monkeypatch):
    """Destroying a graph invalidates a capture under way, and Python may destroy one at any moment."""
    task, step, collected = make_task(batchnorm=True, sizes=(4, 17, 30, 9)), Bench._step, []

    def collect_and_step(self, batch):
        if torch.cuda.is_current_stream_capturing():
            collected.append(gc.collect())
        step(self, batch)

    monkeypatch.setattr(Bench, "_step", collect_and_step)
    for closed in (True, False, False):
        executor = Cuda(task, LOCAL_LONG, 1, precision="fp32")
        executor.itself = executor  # only the collector can free it now
        if closed:
            executor.close()
        del executor
    assert collected, "nothing was captured"


@pytest.mark.parametrize(("method", "trainer"), [pair for pair in PAIRS if TRAINERS[pair[1]].elementwise])
def test_local_training_agrees_with_inline(method, trainer):
    task, algorithm, local = make_task(sizes=(4, 17, 30, 9)), METHODS[method], TRAINERS[trainer]
    p = make_plan(algorithm, steps=6)
    _, one = run_simulation(p, task, algorithm, local)
    executors = [Cuda(task, local, p.seed, precision="fp32") for _ in range(2)]
    _, two = run_simulation(p, task, algorithm, local, executor=executors[0])
    _, again = run_simulation(p, task, algorithm, local, executor=executors[1])
    torch.testing.assert_close(two.params.cpu(), one.params, rtol=1e-3, atol=1e-4)
    assert torch.equal(two.params, again.params)
    for name, vector in one.vectors.items():
        torch.testing.assert_close(two.vectors[name].cpu(), vector, rtol=1e-2, atol=1e-4)
        assert torch.equal(two.vectors[name], again.vectors[name])


def test_data_on_disk_are_copied_job_by_job(tmp_path):
    task, algorithm = load_arrays(write_arrays(tmp_path / "a")), FADAS()
    p = make_plan(algorithm, steps=6)
    executor = Cuda(task, LOCAL_LONG, p.seed, precision="fp32")
    assert executor.task is task
    records, one = run_simulation(p, task, algorithm, LOCAL_LONG, executor=executor)
    same = Cuda(in_memory(task), LOCAL_LONG, p.seed, precision="fp32")
    expected, two = run_simulation(p, in_memory(task), algorithm, LOCAL_LONG, executor=same)
    assert torch.equal(one.params, two.params)
    assert records[-1].metrics == expected[-1].metrics


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_run_repeats_to_the_bit(compile, precision):
    task = make_task(batchnorm=True, sizes=(4, 17, 30, 9))
    make = partial(Cuda, task, LOCAL_LONG, 3, precision=precision, compile=compile)
    one, *others = [final_model(make(streams=streams), task) for streams in (8, 8, 1)]
    for other in others:
        assert torch.equal(one.params, other.params)
        assert torch.equal(one.buffers, other.buffers)


def test_functional_dropout_repeats():
    class Hidden(torch.nn.Linear):
        def forward(self, x):
            return torch.nn.functional.dropout(super().forward(x), 0.5, self.training)

    task = make_task(sizes=(4, 17, 30, 9))
    task.model = lambda: torch.nn.Sequential(Hidden(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    one, other = (final_model(Cuda(task, LOCAL_LONG, 3), task) for _ in range(2))
    assert torch.equal(one.params, other.params)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_other_gpu_than_current_gives_same_bits():
    task = make_task(batchnorm=True, sizes=(4, 17, 30, 9))
    one, other = (final_model(Cuda(task, LOCAL_LONG, 3, device), task) for device in ("cuda:0", "cuda:1"))
    assert torch.equal(one.params.cpu(), other.params.cpu())


def test_untrained_batch_of_one_is_not_captured():
    """BatchNorm refuses a batch of one. Six examples are batches of five and one, but only one step is trained."""
    task, local = make_task(batchnorm=True, sizes=(6,)), LocalSGD(lr=0.1, batch_size=5, steps=1)
    p = plan(FADAS().schedule(5, 3), 8, Delays(Large()), steps=4, seed=3)
    runs = [
        simulate(p, task, FADAS(), local, executor=executor(task, local, 3, device, precision="fp32"))
        for executor, device in ((Cuda, "cuda"), (Inline, "cpu"))
    ]
    one, other = ([record.train_loss for record in run] for run in runs)
    assert one == pytest.approx(other, rel=1e-4)


def test_close_frees_memory():
    def measure_memory():
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()  # 32 MB for each of torch's streams, allocated once
        return torch.cuda.memory_allocated()

    task = make_task(sizes=(4, 17, 30, 9))
    before = measure_memory()
    for _ in range(3):
        Cuda(task, LOCAL_LONG, 1).close()
    assert measure_memory() <= before + 2**20


def test_checkpoint_waits_for_gpu(tmp_path):
    writer, expected = checkpoint.BackgroundWriter(), {}
    for step in range(3):
        torch.cuda._sleep(200_000_000)  # the values come after a tenth of a second
        tensors = {str(n): torch.full((n,), step + 0.5, device="cuda") for n in (0, 7, 1_000_000)}
        writer.write(tmp_path, step, tensors, {"step": step})
        expected = {name: torch.full((int(name),), step + 0.5) for name in tensors}
        del tensors
    writer.wait()
    writer.close()
    found, values = checkpoint.read_checkpoint(checkpoints(tmp_path)[0])
    assert values == {"step": 2}
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_stopped_run_continues_with_same_bits(tmp_path):
    task = make_task(batchnorm=True, sizes=(4, 17, 30, 9))
    p = plan(FADAS().schedule(5, 3), 8, Delays(Large()), steps=10, seed=3)
    first, second = (simulate(p, task, FADAS(), LOCAL_LONG, executor=Cuda(task, LOCAL_LONG, 3)) for _ in range(2))
    for record in first:
        if record.step == 4:
            first.stop()
    tensors, values = snapshot.take(first)
    snapshot.restore(second, *checkpoint.read_checkpoint(checkpoint.write_checkpoint(tmp_path, 4, tensors, values)))
    list(second)
    assert torch.equal(second.server.model.params, final_model(Cuda(task, LOCAL_LONG, 3), task).params)


def test_auto_compiles_and_falls_back(recwarn):
    class Stubborn(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * float(x.sum().item() < 1e9)  # the host looks at a value

    task = make_task(sizes=(4, 17, 30, 9))
    assert isinstance(auto(task, LOCAL_LONG, 1, "cuda"), Cuda)
    task.model = lambda: torch.nn.Sequential(Stubborn(6, 3))
    assert not isinstance(auto(task, LOCAL_LONG, 1, "cuda"), Cuda)
    assert "cannot be captured" in str(recwarn.pop(UserWarning).message)


def test_failed_capture_leaves_generator_usable():
    """A failed capture must leave the device's generator usable."""

    class Stubborn(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * float(x.sum().item() < 1e9)

    task = make_task(sizes=(4, 17, 30, 9))
    task.model = lambda: torch.nn.Sequential(Stubborn(6, 3), torch.nn.Dropout(0.5))
    with pytest.warns(UserWarning, match="cannot be captured"):
        one, other = (final_model(auto(task, LOCAL_LONG, 1, "cuda"), task) for _ in range(2))
    assert torch.equal(one.params, other.params)


def test_assigned_buffers_are_trained():
    task = make_task(sizes=(4, 17, 30, 9))
    task.model = Averaging
    one, other = (final_model(make(task, LOCAL_LONG, 3, "cuda", "fp32"), task) for make in (Cuda, Inline))
    torch.testing.assert_close(one.params, other.params)
    torch.testing.assert_close(one.buffers, other.buffers)
