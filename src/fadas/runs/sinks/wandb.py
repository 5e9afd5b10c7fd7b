"""Weights & Biases: one W&B run for each run."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from fadas.runs.sinks.base import (
    Tracker,
    method_of,
    model_of_run,
    name_of_run,
    require_package,
    result_files,
    summary_values,
)
from fadas.runs.summary import Summary

Mode = Literal["online", "offline", "disabled"]


class Wandb(Tracker):
    """Logs settings, losses, metrics, step sizes, delays, figures and the final model to Weights & Biases.

    A W&B run has the name of the run's folder. Its group is the experiment, and its job type the method. The API key
    comes from `wandb login` or `WANDB_API_KEY`.

    Args:
        project: The project. None: `WANDB_PROJECT`, or "fadas".
        entity: The user or team. None: W&B's default.
        group: The group of the run. None: the experiment's name.
        tags: Tags of the run.
        mode: "offline" writes to `wandb/`, which `wandb sync` uploads later. "disabled" logs nothing. None:
            `WANDB_MODE`, or "online".
        model: Upload the final model.
        figures: Upload the report's figures of the run when it ends.

    Example:
        >>> writer = Writer(claim, sinks=[Wandb(project="stragglers", tags=("digits",), mode="offline", model=False)])
        >>> sink = Wandb(entity="my-team", group="first try", figures=False)
    """

    name = "wandb"
    is_late = True

    def __init__(
        self,
        project: str | None = None,
        entity: str | None = None,
        group: str | None = None,
        tags: tuple[str, ...] = (),
        mode: Mode | None = None,
        model: bool = True,
        figures: bool = True,
    ) -> None:
        require_package("wandb", self.name)
        self.project, self.entity, self.group, self.tags = project, entity, group, tags
        self.mode: Mode | None = mode
        self.model, self.figures = model, figures

    def place(self) -> str:
        """Return mode, entity and project."""
        mode = self.mode or os.environ.get("WANDB_MODE", "online")
        return f"{mode}:{self.entity or os.environ.get('WANDB_ENTITY', '')}/{self._project()}"

    def _project(self) -> str:
        return self.project or os.environ.get("WANDB_PROJECT", "fadas")

    def begin(self, folder: Path, settings: Mapping[str, Any], run: str | None, step: int) -> str:
        """Begin a W&B run, or continue one."""
        import wandb

        self._folder = folder
        self._run: Any = wandb.init(
            project=self._project(),
            entity=self.entity,
            id=run,
            name=name_of_run(folder, settings),
            group=self.group or settings.get("name"),
            job_type=method_of(settings),
            tags=list(self.tags),
            config=dict(settings),
            mode=self.mode,
            resume="allow" if run else None,
            reinit="create_new",  # a W&B run of the caller stays open
            settings=wandb.Settings(console="off", quiet=True),
        )
        return self._run.id

    def send(self, rows: Sequence[tuple[int, dict[str, float]]]) -> None:
        """Log the values of each step."""
        for step, values in rows:
            self._run.log(values, step=step)

    def send_figures(self, paths: Sequence[Path], step: int) -> None:
        """Log the figures as images."""
        import wandb

        self._run.log({f"figures/{path.stem}": wandb.Image(str(path)) for path in paths}, step=step)

    def end(self, summary: Summary | None) -> None:
        """Upload the run's files and its model, and finish the W&B run."""
        if summary is not None:
            self._run.summary.update(summary_values(summary))
            self._upload("results", result_files(self._folder))
            if self.model and (model := model_of_run(self._folder)):
                self._upload("model", [model])
        failed = summary is None or summary.diverged is not None
        self._run.finish(exit_code=int(failed))

    def _upload(self, kind: str, paths: Sequence[Path]) -> None:
        import wandb

        artifact = wandb.Artifact(f"{kind}-{self._run.id}", type=kind)
        for path in paths:
            artifact.add_dir(str(path), name=path.name) if path.is_dir() else artifact.add_file(str(path))
        self._run.log_artifact(artifact)
