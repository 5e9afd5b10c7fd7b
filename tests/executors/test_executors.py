"""What holds for every executor."""

from functools import partial

import pytest
import torch

from fadas.algorithms.presets import ALGORITHMS
from fadas.executors import EXECUTORS
from fadas.simulation.delays import DELAYS, Delays
from fadas.simulation.planner import plan
from helpers.training import local_for, make_task, run_simulation

METHODS = [name for name in ALGORITHMS if name != "centralised"]  # which takes no executor that is made already


@pytest.mark.parametrize("delays", DELAYS)
@pytest.mark.parametrize("name", EXECUTORS)
def test_every_executor_agrees_with_inline(name, delays, tmp_path):
    """All methods with the paper's delays. With other delays, an asynchronous and a synchronous one."""
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    if name == "ray":
        pytest.skip("each run would start processes of its own: see test_ray.py")
    device = "cuda" if name == "cuda" else "cpu"
    precise = {"precision": "fp32"} if name == "cuda" else {}
    table = tmp_path / "t.csv"
    table.write_text("client,low,high\n" + "".join(f"{c},1,{c + 2}\n" for c in range(8)))
    model = DELAYS[delays](path=str(table)) if delays == "table" else DELAYS[delays]()
    for batchnorm in (False, True):
        task = make_task(batchnorm=batchnorm, sizes=(4, 17, 30, 8))
        for method in METHODS if delays == "large" else ("fadas-da", "fedams"):
            algorithm = ALGORITHMS[method]()
            p = plan(algorithm.schedule(5, 3), 8, Delays(model, dropout=0.1), steps=4, seed=3)
            local = local_for(algorithm)
            records, one = run_simulation(p, task, algorithm, local)
            make = partial(EXECUTORS[name], task, local, p.seed, device, **precise)
            others, two = run_simulation(p, task, algorithm, local, executor=make())
            torch.testing.assert_close(two.params.cpu(), one.params, rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(two.buffers.cpu(), one.buffers, rtol=1e-3, atol=1e-5)
            assert [(r.step, r.time, r.jobs) for r in records] == [(r.step, r.time, r.jobs) for r in others]
    again = run_simulation(p, task, algorithm, local, executor=make())[1]
    assert torch.equal(again.params, two.params), "an executor must repeat exactly"
