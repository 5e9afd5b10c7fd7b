"""A run on data that are larger than the memory that this process may take. It is a program: see `test_on_disk.py`.

The limit is on private memory. Files that are mapped for reading do not count, copies of their data do.
"""

import resource
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

import fadas

MB = 1 << 20


def read_status(key: str) -> int:
    """A figure of this process, in MB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) // 1024


def train(task: fadas.Task, executor: str, **options) -> Iterator[fadas.Record]:
    plan = fadas.plan(fadas.Schedule(4, 2), len(task.clients), fadas.Mild(), steps=3, seed=0)
    local = fadas.LocalSGD(batch_size=20, steps=3)
    return iter(fadas.simulate(plan, task, fadas.FADAS(), local, executor=executor, **options))


def main(folder: str, executor: str, validation: str, more: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    data = torch.randn(20, 4), torch.arange(20) % 2
    list(train(fadas.Task(torch.nn.Linear(4, 2), [data] * 4), "inline"))  # loads what a run needs
    resource.setrlimit(resource.RLIMIT_DATA, ((read_status("VmData") + int(more)) * MB,) * 2)
    before = read_status("RssFile")
    task = fadas.TASKS["files"](folder, "linear", 50, float(validation))
    records = train(task, executor, eval_every=100)
    next(records), next(records)
    read = read_status("RssFile") - before  # of the files, before the last step evaluates
    last = next(records)
    counts = task.label_counts()
    assert counts is not None
    try:
        torch.ones(int(more) * MB // 4)
        print("the limit does not work")
    except RuntimeError:
        print(sum(map(sum, counts)), last.metrics["accuracy"], read)


if __name__ == "__main__":
    main(*sys.argv[1:])
