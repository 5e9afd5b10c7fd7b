"""Worker processes: the same bits as in-process, whatever happens to a worker."""

import os
import signal
import sys
import time
from dataclasses import replace

import pytest
import torch

from fadas.algorithms.presets import FADAS
from fadas.algorithms.robust import Clipped
from fadas.core.update_checks import Checks
from fadas.executors import Inline, Processes
from fadas.experiments.experiment_file import read_experiment
from fadas.experiments.prepare import (
    make_plan as prepare_plan,
    make_simulation as prepare_simulation,
    make_task as prepare_task,
)
from fadas.experiments.resolve import resolve
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from fadas.training.sgd import LocalSGD
from helpers.cli import DEMO, run_fadas
from helpers.processes import has_ended, is_gone, wait_until
from helpers.training import (
    LOCAL,
    assert_same_model,
    make_plan,
    make_task,
    make_wide_task,
    measure_steps,
    run_simulation,
)

pytestmark = pytest.mark.usefixtures("one_thread")
TIMELINE = make_plan(FADAS())


def train_on(executor, task, algorithm=None, checks=None):
    """The measurements of every step, and the last model."""
    records, model = run_simulation(TIMELINE, task, algorithm or FADAS(), executor=executor, checks=checks)
    return measure_steps(records), model


@pytest.mark.forks
@pytest.mark.parametrize(
    "server", [{}, {"algorithm": replace(FADAS(), combine=Clipped())}, {"checks": Checks(0.1, "clip")}]
)
def test_bits_do_not_depend_on_threads_of_parent(server):
    """Neither in training nor when the server sums over a whole delta."""
    task = make_wide_task()
    records, model = train_on(Inline(task, LOCAL, TIMELINE.seed), task, **server)
    torch.set_num_threads(2)
    for executor in ("inline", Processes(task, LOCAL, TIMELINE.seed, workers=2)):
        others, other = train_on(executor, task, **server)
        assert torch.equal(other.params, model.params)
        assert [loss for _, loss, _ in others] == [loss for _, loss, _ in records]
        assert torch.get_num_threads() == 2


@pytest.mark.forks
@pytest.mark.parametrize("batchnorm", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
def test_processes_agree_with_inline_and_end(batchnorm, workers):
    task = make_task(batchnorm=batchnorm, sizes=(4, 17, 30, 8))
    executor = Processes(task, LOCAL, TIMELINE.seed, workers=workers)
    pids = []
    start = executor.submit
    executor.submit = lambda *a: (start(*a), pids.extend(w.pid for w in executor.workers if w.pid not in pids))
    records, model = train_on(executor, task)
    expected_records, expected = train_on("inline", task)
    assert_same_model(model, expected)
    assert records == expected_records
    assert len(pids) == workers
    assert all(map(is_gone, pids))


@pytest.mark.forks
def test_killed_workers_are_replaced():
    task = make_task(sizes=(4, 17, 30, 8))
    executor = Processes(task, LOCAL, TIMELINE.seed, workers=2)
    simulation = simulate(TIMELINE, task, FADAS(), LOCAL, executor=executor)
    killed = 0
    for record in simulation:
        if record.step % 3 == 1:
            os.kill(executor.workers[killed % 2].pid, signal.SIGKILL)
            killed += 1
            time.sleep(0.05)
    assert killed == 4
    assert torch.equal(simulation.server.model.params, train_on("inline", task)[1].params)


@pytest.mark.forks
def test_job_that_always_kills_worker_ends_run():
    task = make_task()
    inner, parent = task.loss, os.getpid()
    task.loss = lambda outputs, targets: inner(outputs, targets) if os.getpid() == parent else os._exit(9)
    with pytest.raises(RuntimeError, match="crashed its worker process 3 times"):
        train_on(Processes(task, LOCAL, 0, workers=2), task)


@pytest.mark.forks
def test_error_in_worker_is_reported():
    task = make_task(sizes=(17,))  # 6, 6 and 5
    inner = task.loss

    def fail_on_five(outputs, targets):
        if len(targets) == 5:
            raise ArithmeticError("five is too few")
        return inner(outputs, targets)

    task.loss = fail_on_five
    executor = Processes(task, LOCAL, 0, workers=2)
    with pytest.raises(RuntimeError, match="five is too few"):
        train_on(executor, task)
    assert not executor.workers


@pytest.mark.forks
def test_workers_end_with_killed_parent(tmp_path):
    parent = os.fork()
    if not parent:
        try:
            executor = Processes(make_task(), LOCAL, 0, workers=2)
            simulation = iter(simulate(TIMELINE, executor.task, FADAS(), LOCAL, executor=executor))
            next(simulation)
            (tmp_path / "pids").write_text(" ".join(str(w.pid) for w in executor.workers))
        finally:  # even after an error: a second pytest must not continue here
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(parent, 0)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    wait_until(lambda: all(map(has_ended, pids)), timeout=120, what="the workers did not end")


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        Processes(make_task(), LOCAL, 0, workers=0)
    with pytest.raises(ValueError, match="device must be \"cpu\" for the processes executor, got 'cuda'"):
        Processes(make_task(), LOCAL, 0, device="cuda")


@pytest.mark.forks
@pytest.mark.parametrize("threads", [1, 3])
def test_threads_setting_decides_number_of_workers(threads):
    tables = read_experiment(DEMO, [f"executor.threads={threads}"], executor="processes")
    config = resolve(tables, "fadas", 0)
    task = prepare_task(config)
    simulation = prepare_simulation(config, task, prepare_plan(config, task))
    for _ in simulation:
        assert len(simulation.executor.workers) == threads
        break


@pytest.mark.forks
def test_evaluation_starts_no_workers():
    task = make_task()
    executor = Processes(task, LOCAL, 0, workers=2)
    threads = torch.get_num_threads()
    model = train_on("inline", task)[1]
    assert executor.evaluate(model)["accuracy"] > 0
    assert torch.get_num_threads() == threads
    assert not executor.workers
    executor.close()


BROKEN = """
from fadas.tasks import TASKS
def task(clients: int, seed: int):
    made = TASKS["digits"](clients=clients, seed=seed)
    clients = [made.clients[client] for client in range(clients)]
    for inputs, targets in clients[1:]:  # the preflight tries the first one
        targets[:] = -5
    made.clients = clients
    return made
"""


@pytest.mark.forks
def test_worker_failure_gives_one_line_or_traceback(tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "x.toml").write_text(
        """
        task = { name = "broken:task", clients = 6 }
        schedule = { concurrency = 3, buffer = 2 }
        delays.name = "uniform"
        run.steps = 20
        [algorithms.fadas]
        """
    )
    command = ["run", "x.toml", "--allow-code", "--executor", "processes"]
    command += ["--set", "executor.workers=1"]  # with two, it is chance which one fails first
    (line,) = run_fadas(*command, cwd=tmp_path, code=2).stderr.splitlines()
    assert line.endswith("failed in its worker process: IndexError: Target -5 is out of bounds.")
    debug = run_fadas(*command, cwd=tmp_path, code=2, FADAS_DEBUG="1")
    assert debug.stderr.splitlines()[-1] == line
    assert "in cross_entropy" in debug.stderr, "the worker's own traceback"
    assert "in execute" in debug.stderr


class LockedStream:
    """The stream of a progress display whose lock was held when the worker was forked."""

    def write(self, text):
        raise AssertionError("a worker must not wait here")

    def flush(self):
        pass


@pytest.mark.forks
def test_workers_print_past_display_of_parent(monkeypatch, capfd):
    task = make_task(clients=4)
    loss = task.loss

    def print_and_measure(outputs, targets):
        if os.getpid() != parent:
            print("hello from a worker")
        return loss(outputs, targets)

    parent = os.getpid()
    timeline = plan(FADAS().schedule(2, 1), 4, steps=2)
    with monkeypatch.context() as patch:
        simulation = simulate(
            timeline, replace(task, loss=print_and_measure), FADAS(), LocalSGD(steps=1), executor="processes"
        )
        patch.setattr(sys, "stdout", LockedStream())
        assert len(list(simulation)) == 2
    assert "hello from a worker\n" in capfd.readouterr().out


@pytest.mark.forks
def test_exit_in_worker_is_reported():
    task = make_task(clients=4)
    parent = os.getpid()

    def exit_worker(outputs, targets):
        if os.getpid() != parent:
            sys.exit("my reason")
        return task.loss(outputs, targets)

    with pytest.raises(RuntimeError, match="failed in its worker process: SystemExit: my reason"):
        list(
            simulate(
                plan(FADAS().schedule(2, 1), 4, steps=2),
                replace(task, loss=exit_worker),
                FADAS(),
                LocalSGD(),
                executor="processes",
            )
        )
