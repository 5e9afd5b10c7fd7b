"""The list of all settings: complete, with an example of each that is accepted."""

import tomllib

import pytest

from fadas.algorithms import ALGORITHMS
from fadas.core.update_checks import Checks
from fadas.executors import EXECUTORS
from fadas.experiments.catalog import describe_type, list_settings
from fadas.experiments.resolve import PART_FIELDS, PARTS
from fadas.experiments.settings import RunSettings, ScheduleSettings
from fadas.registry import convert, parameters_of
from fadas.runs.sinks import SINKS
from fadas.simulation.delays import DELAYS
from fadas.simulation.faults import Fault
from fadas.tasks import TASKS
from fadas.training import LOCAL_TRAINERS, RATE_SCHEDULES, STEP_LAWS
from fadas.training.settings import LOCAL_PARTS
from fadas.training.sgd import LocalSGD

GROUPS = list_settings()
SECTIONS = {"schedule": ScheduleSettings, "faults": Fault, "local": LocalSGD, "checks": Checks, "run": RunSettings}
REGISTRIES = {"task": TASKS, "delays": DELAYS, "executor": EXECUTORS, "algorithms": ALGORITHMS}
REGISTRIES |= {"sink": SINKS, "local": LOCAL_TRAINERS, "rate_schedule": RATE_SCHEDULES, "step_law": STEP_LAWS}
REGISTRIES |= dict(zip(PART_FIELDS, [registry for _, registry in PARTS.values()], strict=True))


def is_choice(setting) -> bool:
    """A section's `name`, which chooses an entry of a registry."""
    return setting.key in {f"{section}.name" for section in REGISTRIES}


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: "-".join([group.section, *group.names]))
def test_setting_has_meaning_and_valid_example(group):
    makers = {name: REGISTRIES[group.section][name] for name in group.names} or {"": SECTIONS.get(group.section)}
    for setting in group.settings:
        assert setting.meaning, setting
        assert setting.example != setting.default, setting
        example = tomllib.loads(f"value = {setting.example}")["value"]
        for make in filter(None, makers.values()):
            _, hints = parameters_of(make, group.section)
            hint = hints[setting.name] if setting.name in hints or not is_choice(setting) else str
            convert(example, hint, setting.key, PARTS | LOCAL_PARTS)


def test_every_entry_and_key_is_listed():
    for section, registry in REGISTRIES.items():
        assert [n for group in GROUPS if group.section == section for n in group.names] == list(registry)
    for section, make in SECTIONS.items():
        (group,) = (group for group in GROUPS if group.section == section and not group.names)
        settings = [setting.name for setting in group.settings if not is_choice(setting)]
        assert settings == [
            name for name in parameters_of(make, section)[0] if f"{section}.{name}" != "local.companion"
        ]


def test_concerned_entries_are_named():
    settings = {setting.key: setting for group in GROUPS for setting in group.settings}
    assert settings["schedule.buffer"].concerns == "fadas, fadas-da, fedbuff, ca2fl, scaffold-async, local-only, custom"
    assert settings["executor.streams"].concerns == "cuda"
    assert settings["executor.workers"].concerns == "processes, ray"
    assert settings["delays.dropout"].concerns == ""
    assert settings["task.hidden"].required is False
    assert settings["task.path"].required is True


def test_types_are_words():
    assert describe_type(tuple[float, float] | None) == "list of 2 numbers"
    assert describe_type(dict[str, float]) == "table"
    assert describe_type(tuple[str | dict[str, float], ...]) == "list of strings or tables"
    assert describe_type(str | list[int]) == "string or list of whole numbers"
