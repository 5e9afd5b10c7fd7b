"""Which settings make a run what it is: those that its results depend on, beyond the rounding of the last bits."""

from collections.abc import Mapping
from typing import Any

from fadas.registry import outside
from fadas.runs.serialization import flatten

Tables = Mapping[str, Any]
_CHOOSE = ("auto", "cuda", "ray")  # executors that train in bf16 on a GPU, unless told otherwise


def same_run(one: Tables, other: Tables) -> bool:
    """Do these settings give the same results?"""
    return identity(one) == identity(other)


def differing_settings(one: Tables, other: Tables) -> list[str]:
    """Where the settings are not the same, in words."""
    there, here = flatten(identity(one)), flatten(identity(other))
    keys = [key for key in {**there, **here} if there.get(key) != here.get(key)]
    return [f"{key} was {there.get(key)!r} and is {here.get(key)!r}" for key in keys]


def code_of(tables: Tables) -> dict[str, str]:
    """A digest of each file of the user's code that settings name ("module:Name"): changed code is another run."""
    texts = [value for value in flatten(tables).values() if isinstance(value, str)]
    names = {text.partition(":")[0] for text in texts if ":" in text}
    return {name: outside[name] for name in sorted(names & outside.keys())}


def identity(tables: Tables) -> dict[str, Any]:
    """What the results depend on: of the executor only its precision, and not on who else is told of them."""
    passing = ["tensorboard", "checkpoint_every"]
    if _section(tables, "task").get("name") == "flower":
        passing.append("steps")  # a deployment that was interrupted may go on for longer than was meant at first
    run = {key: value for key, value in _section(tables, "run").items() if key not in passing}
    return {**tables, "run": run, "executor": {"precision": precision(tables)}}


def precision(tables: Tables) -> str:
    """In which precision the clients train: as the executor is told or, where it is not, as it chooses."""
    executor = _section(tables, "executor")
    on_gpu = executor.get("name", "auto") in _CHOOSE and str(executor.get("device")).startswith("cuda")
    return executor.get("precision") or ("bf16" if on_gpu else "fp32")


def _section(tables: Tables, name: str) -> Tables:
    """Settings are read from disk too, where they may be damaged."""
    section = tables.get(name)
    return section if isinstance(section, Mapping) else {}
