"""Find settings by key, and what an experiment can name: methods, tasks, delay models, executors and their parts."""

import difflib
import re
from collections.abc import Sequence

from fadas.errors import ConfigError
from fadas.experiments.catalog import Group, Setting, list_settings
from fadas.experiments.catalog.app import SECTION as APP, example_key
from fadas.experiments.experiment_file import OWN_SECTIONS
from fadas.experiments.resolve import PART_FIELDS

KINDS = {
    "task": "Task",
    "delays": "Delay model",
    "local": "Local trainer",
    "rate_schedule": "Rate schedule",
    "step_law": "Step law",
    "executor": "Executor",
    "algorithms": "Method",
    "combine": "Combine rule",
    "optimizer": "Optimizer",
    "step_size": "Step size",
    "companion": "Companion",
    "sink": "Sink",
}
LOCAL_PARTS = {
    "rate_schedule": "schedule",
    "step_law": "steps",
}  # parts of local training -> the settings that name them

WHERE = {  # what the settings of a section concern
    "name": "all methods and executors",
    "task": "all methods and executors",
    "local": "all methods and executors",
    "schedule": "all executors, in simulations and deployments",
    "delays": "all methods and executors, in simulations",
    "faults": "all methods and executors, in simulations",
    "checks": "all methods, in simulations and deployments",
    "executor": "all methods, in simulations",
    "run": "all methods and executors, in simulations",
    "algorithms": "all executors, in simulations and deployments",
    "sweep": "`fadas sweep`",
    "profiles": "the option `--profile`",
    APP: "deployments with Flower",
}
HEADINGS = {APP: "App settings"}  # of sections whose heading on the reference page is not their name
_SYMBOLS = {"M": "schedule.buffer", "M_c": "schedule.concurrency"}
_TERMS = {
    "client": "a participant with data of its own. In a deployment it is a node",
    "job": "one piece of work for one client: train from a version of the model, then report an update",
    "plan": "the whole timeline of a simulation, made before training",
    "round": "in a synchronous method, a step that waits for all selected clients. Flower calls every step a round",
    "step": "one change of the server's model, made from M updates",
    "tau": "the staleness of an update: how many server steps were taken while its client trained",
    "tau_max": "the tau of the most stale update; in tables, the largest over all steps",
    "tau_avg": "the mean over the steps of each step's largest tau, which is above the mean over all updates, M_c / M",
    "tau_med": "the median over the steps of each step's largest tau",
    "update": "what a client reports at the end of a job: the change of the model's parameters",
    "version": "the number of server steps that a model has seen",
    "virtual time": "the simulated clock, on which a delay model says how long each job takes",
}
_PAGE = "reference/settings.html"


def find_entries(key: str) -> Sequence[tuple[Group, Setting | None]]:
    """Return what a key means: settings with their groups, or groups alone.

    Args:
        key: A setting such as "schedule.buffer" or "buffer", a section such as "schedule", or a name such as "large".

    Raises:
        ConfigError: Nothing has this key. The message suggests the nearest one.

    Example:
        >>> [(group, setting)] = find_entries("schedule.buffer")
        >>> setting.required
        True
    """
    wanted = _SYMBOLS.get(key) or _without_algorithm(key)
    groups = list_settings()
    settings = [(group, one) for group in groups for one in group.settings]
    named = [(group, None) for group in groups if wanted in (group.names or (group.section,))]
    found = [(group, one) for group, one in settings if _matches(wanted, one.key)] or named
    found = found or [(group, one) for group, one in settings if one.name == wanted]
    found = found or _find_argument(wanted, groups[-1])
    if found:
        return found
    known = [one.key.replace("*", "NAME") for _, one in settings] + [one.name for _, one in settings]
    known += [name for group in groups for name in group.names or (group.section,)]
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "`fadas explain` lists all"
    raise ConfigError(f"unknown setting or name {key!r}; {hint}")


def explain_term(key: str) -> str:
    """Return what a term of the glossary means, in a sentence; "" for what is not a term."""
    return _TERMS.get(key, "")


def _find_argument(key: str, group: Group) -> list[tuple[Group, Setting | None]]:
    """Return the setting of an app that stands for arguments such as `algorithm-tau-c`: the most special one."""
    name = key.removeprefix(f"{APP}.")
    patterns = {one: re.escape(one.name).replace(r"\*", ".+") for one in group.settings if "*" in one.name}
    fitting = [one for one, pattern in patterns.items() if re.fullmatch(pattern, name)]
    return [(group, max(fitting, key=lambda one: len(one.name)))] if fitting else []


def _without_algorithm(key: str) -> str:
    """Return "local.lr" for "algorithms.fadas.local.lr"."""
    first, *rest = key.split(".")
    return ".".join(rest[1:]) if first == "algorithms" and len(rest) > 2 and rest[1] in OWN_SECTIONS else key


def _matches(key: str, pattern: str) -> bool:
    parts, expected = key.split("."), pattern.split(".")
    return len(parts) == len(expected) and all(two in ("*", one) for one, two in zip(parts, expected, strict=True))


def anchor(setting: Setting) -> str:
    """Return the anchor of a section's setting on the reference page."""
    parts = [part.replace("*", "any") for part in setting.key.split(".") if part != "*"]
    return "-".join(parts) if len(parts) > 1 else f"{parts[0]}-key"


def heading(group: Group) -> str:
    """Return the heading of a group that has names on the reference page."""
    return f"{KINDS[group.section]} {', '.join(f'`{name}`' for name in group.names)}"


def page(group: Group, setting: Setting | None = None) -> str:
    """Return the place on the documentation site that describes a setting or a group."""
    if setting and not group.names:
        return f"{_PAGE}#{anchor(setting)}"
    title = heading(group) if group.names else HEADINGS.get(group.section, group.section)
    return f"{_PAGE}#{re.sub(r'[^a-z0-9_ -]', '', title.lower()).replace(' ', '-')}"


def show_example(group: Group, setting: Setting) -> str:
    """Return a line of TOML that sets a setting."""
    if group.section in PART_FIELDS:
        return f'algorithms.NAME.{group.section} = {{name = "{group.names[0]}", {setting.name} = {setting.example}}}'
    if group.section in LOCAL_PARTS:
        place = f"local.{LOCAL_PARTS[group.section]}"
        return f'{place} = {{name = "{group.names[0]}", {setting.name} = {setting.example}}}'
    if group.section == APP:
        return f"{example_key(setting)} = {setting.example}"
    if group.section == "sink":
        return f'run.sinks = [{{name = "{group.names[0]}", {setting.name} = {setting.example}}}]'
    any_key = {"sweep.*.*": "sweep.NAME.eta", "profiles.*.*": "profiles.NAME.run"}
    return f"{any_key.get(setting.key, setting.key.replace('*', 'NAME'))} = {setting.example}"


def list_names() -> dict[str, Sequence[str]]:
    """Return the names of the settings of each section, and the names of each kind of entry."""
    found: dict[str, list[str]] = {}
    for group in list_settings():
        if group.names:
            found.setdefault(KINDS[group.section].lower(), []).extend(group.names)
        else:
            found[f"[{group.section}]"] = [one.key.replace("*", "NAME") for one in group.settings]
    return {name: found[name] for name in sorted(found, key=lambda name: not name.startswith("["))}
