"""The version of the files that fadas writes, and upgrades from earlier versions.

Every file that fadas writes holds its version under the key `format`: config.toml (also for metrics.jsonl,
partition.json and the model beside it), summary.json, checkpoints, and the results and searches of `fadas reproduce`.

| format | written by   | differences                                                                              |
|--------|--------------|------------------------------------------------------------------------------------------|
| 1      | fadas 0.1    | No key `format`. config.toml: no `precision`. Checkpoints: no `rules`.                     |
| 2      | 0.2.0.dev0   | metrics.jsonl does not begin with the initial model. summary.json: always the accuracy.  |
| 3      | this version |                                                                                          |

Upgrades happen here and nowhere else: each reader calls one of these functions first.
"""

from collections.abc import Mapping
from typing import Any

from fadas.errors import Damaged
from fadas.registry import is_table

FORMAT = 3
# Settings that tasks of fadas 0.1 did not have, with the values that do what they did then.
_ADDED: dict[str, dict[str, Any]] = {
    "files": {"one_hot": [], "standardize": False, "kind": "classification", "hidden": 64}
}


def upgrade_config(tables: Mapping[str, Any], what: str = "config.toml") -> dict[str, Any]:
    """Return the settings of a run as this version writes them, without `format`."""
    version, upgraded = _without_format(tables, what)
    if version < 2:
        upgraded.setdefault("precision", _precision_in_format_1(upgraded))
    if is_table(run := upgraded.get("run")):
        upgraded["run"] = {"keep": "last", **run}  # formats 1 and 2 knew no other
    task = upgraded.get("task")
    if is_table(task) and isinstance(name := task.get("name"), str) and name in _ADDED:
        upgraded["task"] = {**_ADDED[name], **task}
    return upgraded


def upgrade_table(table: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return a summary, result or search as this version writes it, without `format`."""
    upgraded = _without_format(table, what)[1]
    if "metric" in table and isinstance(shown := table.get("format"), str):
        upgraded.setdefault("metric_format", shown)  # for some days, summary.json had the metric's format there
    return upgraded


def upgrade_checkpoint(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint's values as this version writes them, without `format`."""
    version, upgraded = _without_format(values, "the checkpoint")
    if version < 2:
        # BatchNorm statistics were always replaced by the mean over the step, also by FedAsync.
        upgraded["rules"] = {"statistics": 1.0}
    return upgraded


def format_of(table: Mapping[str, Any]) -> int:
    """Return the format of a table. Tables of format 1 do not name it."""
    version = table.get("format", 1)
    return version if isinstance(version, int) else 1


def _without_format(table: Mapping[str, Any], what: str) -> tuple[int, dict[str, Any]]:
    version = format_of(table)
    if version > FORMAT:
        raise Damaged(f"{what} has format {version}, written by a newer fadas; update fadas to read it")
    return version, {key: value for key, value in table.items() if key != "format"}


def _precision_in_format_1(tables: Mapping[str, Any]) -> str:
    """Return the precision of a run in format 1, where executors that chose bf16 on a GPU did not record it."""
    section = tables.get("executor")
    executor: Mapping[str, Any] = section if is_table(section) else {}
    chose = executor.get("name", "auto") in ("auto", "cuda", "ray")
    on_gpu = chose and str(executor.get("device")).startswith("cuda")
    return executor.get("precision") or ("bf16" if on_gpu else "fp32")
