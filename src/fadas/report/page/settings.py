"""The settings in a report: those that all runs share, by section, and those of each method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fadas.report.text import html_text
from fadas.runs.reader import Run
from fadas.runs.same_run import identity
from fadas.runs.serialization import flatten

_EXPLAINED = {"schedule.concurrency": "concurrency (M_c)", "schedule.buffer": "buffer (M)"}
_SEED = "run.seed"
_RESULTS = ("steps", "metric", "better", "format", "target")  # of [run]; a deployment may continue with others
_ORDER = ("task", "schedule", "delays", "local", "run", "faults", "checks", "algorithms")


@dataclass(frozen=True)
class Settings:
    """The settings of the runs in a report.

    Attributes:
        shared: What all runs share: key -> value, for example {"task.clients": "50"}.
        own: The other settings of each method: method -> key -> value. Those of its algorithm have no section.
    """

    shared: dict[str, str]
    own: dict[str, dict[str, str]]


def compare_settings(groups: Mapping[str, Sequence[Run]]) -> Settings:
    """Return which settings are shared by all runs, and which are a method's own.

    Args:
        groups: The runs, by method.
    """
    flat = {name: [_flatten(run) for run in runs] for name, runs in groups.items()}
    everyone = [settings for runs in flat.values() for settings in runs]
    first = everyone[0]
    shared = {key: value for key, value in first.items() if all(settings.get(key) == value for settings in everyone)}
    joined = {name: _join(runs) for name, runs in flat.items()}
    if len({settings[_SEED] for settings in joined.values()}) == 1:
        shared["run.seeds"] = next(iter(joined.values()))[_SEED]
        shared.pop(_SEED, None)
    own = {
        name: {
            key.removeprefix("algorithms."): value
            for key, value in settings.items()
            if key not in shared
            and not (key == _SEED and "run.seeds" in shared)
            and shared.get(key.removeprefix("algorithms.")) != value  # a schedule like everyone's
            and (key, value) != ("algorithms.preset", name)
        }
        for name, settings in joined.items()
    }
    own = {name: dict(sorted(settings.items(), key=lambda item: "." in item[0])) for name, settings in own.items()}
    shared = {
        key: value
        for key, value in shared.items()
        if shared.get(key.removeprefix("algorithms."), "") != value or not key.startswith("algorithms.")
    }
    return Settings(dict(sorted(shared.items(), key=lambda item: _place(item[0]))), own)


def _flatten(run: Run) -> dict[str, str]:
    """Return the settings of a run as text. Those of its algorithm stand under "algorithms"."""
    tables = {key: value for key, value in run.config.items() if key not in ("algorithms", "format", "name")}
    algorithms = run.config.get("algorithms")
    own = next(iter(algorithms.values()), {}) if isinstance(algorithms, dict) else {}
    shown = {*identity(run.config)["run"], *_RESULTS} - {"seeds"}  # no result depends on the others
    tables["run"] = {key: value for key, value in tables.get("run", {}).items() if key in shown}
    flat = flatten({**tables, "algorithms": own})
    if "precision" in flat:
        flat["executor.precision"] = flat.pop("precision")
    if flat.get("local.steps"):  # the number of steps replaces that of epochs
        flat.pop("local.epochs", None)
    return {key: _text(value) for key, value in {**flat, _SEED: run.summary.seed}.items()}


def _join(runs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the settings of a method. A setting whose values differ between its runs has all of them."""
    keys = dict.fromkeys(key for settings in runs for key in settings)
    return {key: ", ".join(dict.fromkeys(run[key] for run in runs if key in run)) for key in keys}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _place(key: str) -> tuple[int, str]:
    section = key.partition(".")[0] if "." in key else ""
    return (_ORDER.index(section) if section in _ORDER else len(_ORDER)), section


def draw_shared(settings: Settings) -> str:
    """Return the shared settings as an HTML table, one row per section."""
    sections: dict[str, list[str]] = {}
    for key, value in settings.shared.items():
        section, _, name = key.rpartition(".") if "." in key else ("", "", key)
        top, _, rest = section.partition(".")
        name = _EXPLAINED.get(key) or f"{rest}.{name}".lstrip(".")
        sections.setdefault(top or "other", []).append(_pair(name, value))
    rows = "".join(
        f"<tr><th>{html_text(section)}</th><td>{' '.join(pairs)}</td></tr>" for section, pairs in sections.items()
    )
    return f'<table class="settings">{rows}</table>'


def draw_own(settings: Settings, names: Mapping[str, str]) -> str:
    """Return the settings of each method as an HTML table with its heading. A lone method has none of its own.

    Args:
        settings: The settings.
        names: The name of each method, as HTML.
    """
    if len(settings.own) == 1 and not any(settings.own.values()):
        return ""
    rows = ""
    for name, own in settings.own.items():
        pairs = [_pair(_EXPLAINED.get(key, key), value) for key, value in own.items()]
        rows += f"<tr><th>{names[name]}</th><td>{' '.join(pairs) or 'nothing'}</td></tr>"
    heading = "What differs between the methods" if len(settings.own) > 1 else "The method"
    return f'<h2 id="methods">{heading}</h2>\n<table class="settings">{rows}</table>'


def _pair(key: str, value: str) -> str:
    return f"<span><i>{html_text(key)}</i> {html_text(value)}</span>"
