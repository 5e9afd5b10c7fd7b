"""The batched executor."""

import pytest

from fadas.algorithms.presets import FADAS
from fadas.executors import Batched
from helpers.training import LOCAL, make_plan, run_simulation


def test_batched_trains_pending_jobs_in_one_call(task):
    """Pending jobs train in one call when the first is needed, whatever version they start from."""
    p = make_plan(FADAS(), len(task.clients), steps=20, dropout=0.0)
    executor = Batched(task, LOCAL, p.seed)
    calls, inner = [], executor._trainer.train
    executor._trainer.train = lambda work: calls.append(work) or inner(work)
    run_simulation(p, task, FADAS(), executor=executor)
    sizes = [len(work) for work in calls]
    assert sum(sizes) == 60, "only needed jobs are trained, each once"
    assert sizes[0] == sum(p.needed[:5])
    assert any(len({job.version for job, _ in work}) > 1 for work in calls)
    with pytest.raises(ValueError, match="size"):
        Batched(task, LOCAL, 0, size=0)
