"""MLflow: one MLflow run for each run."""

import hashlib
import os
import re
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from fadas.runs.serialization import flatten, to_json
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

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

_MOST_METRICS, _MOST_PARAMS = 1000, 100  # in one request
_LONGEST = 6000  # characters of a parameter
_RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"


class MLflow(Tracker):
    """Logs settings, losses, metrics, step sizes, delays, figures and the final model to MLflow.

    An MLflow run has the name of the run's folder. Settings become parameters. The results of summary.json become
    metrics that begin with `summary/`. If the tracker is an SQLite file in another folder than the current one, files
    go to the folder `mlruns` beside it.

    Args:
        tracking_uri: The server or database, such as "http://localhost:5000". None: `MLFLOW_TRACKING_URI`, or the file
            mlflow.db in the current folder.
        experiment: MLflow's experiment. None: the experiment's name.
        model: Upload the final model.
        figures: Upload the report's figures of the run when it ends.

    Example:
        >>> writer = Writer(claim, sinks=[MLflow(tracking_uri="sqlite:///mlflow.db", experiment="first", model=False)])
        >>> sink = MLflow(figures=False)
    """

    name = "mlflow"

    def __init__(
        self, tracking_uri: str | None = None, experiment: str | None = None, model: bool = True, figures: bool = True
    ) -> None:
        require_package("mlflow", self.name)
        self.tracking_uri, self.experiment, self.model, self.figures = tracking_uri, experiment, model, figures

    def place(self) -> str:
        """Return the tracking URI, without a password, and the experiment."""
        import mlflow

        uri = re.sub("//[^/@]*@", "//", self.tracking_uri or mlflow.get_tracking_uri())
        return f"{uri} {self.experiment or ''}".rstrip()

    def begin(self, folder: Path, settings: Mapping[str, Any], run: str | None, step: int) -> str:
        """Create an MLflow run with the settings as parameters, or continue one."""
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._folder = folder
        with _one_process(self.place()):
            self._client: Any = MlflowClient(tracking_uri=self.tracking_uri)
        with _few_retries():
            if run is not None:
                self._client.update_run(run, status="RUNNING")
                return run
            experiment = self._find_experiment(self.experiment or settings.get("name") or "fadas")
        tags = {"method": method_of(settings), "folder": str(folder)}
        created: str = self._client.create_run(
            experiment, run_name=name_of_run(folder, settings), tags=tags
        ).info.run_id
        params = [Param(_key(key), _text(value)[:_LONGEST]) for key, value in flatten(settings).items()]
        for begin in range(0, len(params), _MOST_PARAMS):
            self._client.log_batch(created, params=params[begin : begin + _MOST_PARAMS])
        return created

    def _find_experiment(self, name: str) -> str:
        """Return the id of an experiment, which is created if it is missing."""
        from mlflow.exceptions import MlflowException

        if found := self._client.get_experiment_by_name(name):
            return found.experiment_id
        try:
            return self._client.create_experiment(name, artifact_location=self._artifact_location(name))
        except MlflowException:  # another process was faster
            if found := self._client.get_experiment_by_name(name):
                return found.experiment_id
            raise

    def _artifact_location(self, name: str) -> str | None:
        """Return where files go: beside an SQLite file. None: where MLflow wants them.

        MLflow would use the current folder, which for an app of Flower is a folder of its own.
        """
        import mlflow

        uri = self.tracking_uri or mlflow.get_tracking_uri()
        path = Path(uri.removeprefix("sqlite:///").partition("?")[0]).resolve()
        if not uri.startswith("sqlite:///") or path.parent in (Path.cwd(), Path("/")):
            return None
        return (path.parent / "mlruns" / re.sub(r"[^\w\-.]", "_", name)).as_uri()

    def send(self, rows: Sequence[tuple[int, dict[str, float]]]) -> None:
        """Log the values of each step."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(_key(key), value, now, step) for step, values in rows for key, value in values.items()]
        for begin in range(0, len(metrics), _MOST_METRICS):
            self._client.log_batch(self._run_id, metrics=metrics[begin : begin + _MOST_METRICS])

    def send_figures(self, paths: Sequence[Path], step: int) -> None:
        """Upload the figures."""
        for path in paths:
            self._client.log_artifact(self._run_id, str(path), "figures")

    def end(self, summary: Summary | None) -> None:
        """Upload the run's files and its model, and end the MLflow run."""
        if summary is None:
            self._client.set_terminated(self._run_id, "KILLED")
            return
        self.send([(summary.step, {f"summary/{key}": value for key, value in summary_values(summary).items()})])
        for path in result_files(self._folder):
            self._client.log_artifact(self._run_id, str(path))
        if self.model and (model := model_of_run(self._folder)):
            self._client.log_artifact(self._run_id, str(model), "model")
        self._client.set_terminated(self._run_id, "FAILED" if summary.diverged is not None else "FINISHED")


@contextmanager
def _one_process(place: str) -> Generator[None, None, None]:
    """Let one process at a time open a place: two that create the tables of a database would disturb each other."""
    if fcntl is None:
        yield
        return
    digest = hashlib.sha256(place.encode()).hexdigest()[:12]
    with (Path(gettempdir()) / f"fadas-mlflow-{os.getuid()}-{digest}.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _few_retries() -> Generator[None, None, None]:
    """Wait for a server that does not answer for seconds only. MLflow's own default is four minutes."""
    if _RETRIES in os.environ:
        yield
        return
    os.environ[_RETRIES] = "3"
    try:
        yield
    finally:
        del os.environ[_RETRIES]


def _key(name: str) -> str:
    """Return a name with the characters that MLflow allows in names."""
    return re.sub(r"[^\w\-. :/]", "_", name)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value)
