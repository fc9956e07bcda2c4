"""MLflow, Comet, ClearML, Aim, DVCLive, Trackio and SwanLab: each library is imported when its tracker starts.

The options in ``init_kwargs`` go to the call that starts the library's run. Numbers may be tensors of one element;
values that a library cannot record are left out with a warning.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crosstrain.config import parse_flag
from crosstrain.tracking.base import LibraryTracker, library, numbers, plain


class MLflowTracker(LibraryTracker):
    """An MLflow run, in the experiment with the project's name and at MLflow's own tracking URI.

    ``init_kwargs`` may have ``run_id``, ``run_name``, ``tags`` (a dictionary, or its JSON), ``nested_run``,
    ``description``, and ``logging_dir`` for the artifacts of a new experiment. The environment variables
    MLFLOW_EXPERIMENT_NAME, MLFLOW_RUN_ID, MLFLOW_TAGS and MLFLOW_NESTED_RUN have priority.
    """

    name = "mlflow"

    def __init__(
        self,
        experiment_name: str | None = None,
        logging_dir: str | Path | None = None,
        run_id: str | None = None,
        tags: dict[str, Any] | str | None = None,
        nested_run: bool | str = False,
        run_name: str | None = None,
        description: str | None = None,
    ) -> None:
        super().__init__(run_name, description=description)
        said = os.environ.get
        self._experiment = said("MLFLOW_EXPERIMENT_NAME", experiment_name)
        self._artifacts = None if logging_dir is None else str(logging_dir)
        self._run_id = said("MLFLOW_RUN_ID", run_id)
        tags = said("MLFLOW_TAGS", tags)
        self._tags = json.loads(tags) if isinstance(tags, str) else tags
        nested = said("MLFLOW_NESTED_RUN", nested_run)
        self._nested = parse_flag(nested, "MLFLOW_NESTED_RUN") if isinstance(nested, str) else nested

    def start(self) -> None:
        self._mlflow = mlflow = library("mlflow")
        experiment = mlflow.get_experiment_by_name(self._experiment)
        self.run = mlflow.start_run(
            run_id=self._run_id,
            experiment_id=self._create_experiment() if experiment is None else experiment.experiment_id,
            run_name=self._run_name,
            nested=self._nested,
            tags=self._tags,
            **self._options,
        )

    def _create_experiment(self) -> str:
        created: str = self._mlflow.create_experiment(
            self._experiment, artifact_location=self._artifacts, tags=self._tags
        )
        return created

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Record parameters in requests of MLflow's largest size; warns about values that are too long for it."""
        limits = library("mlflow.utils.validation")
        fitting = {}
        for key, value in values.items():
            if len(str(value)) <= limits.MAX_PARAM_VAL_LENGTH:
                fitting[key] = value
            else:
                warnings.warn(
                    f"mlflow takes {limits.MAX_PARAM_VAL_LENGTH} characters a parameter: {key!r} is left out",
                    stacklevel=3,
                )
        items, most = list(fitting.items()), limits.MAX_PARAMS_TAGS_PER_BATCH
        for first in range(0, len(items), most):
            self._mlflow.log_params(dict(items[first : first + most]))

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self._mlflow.log_metrics(self._numbers(values), step=step, **kwargs)

    def finish(self) -> None:
        self._mlflow.end_run()


class CometMLTracker(LibraryTracker):
    """A Comet experiment in the project of that name.

    ``init_kwargs``: of `comet_ml.start`, such as ``online=False``.
    """

    name = "comet_ml"

    def start(self) -> None:
        self.run = library("comet_ml").start(project_name=self._run_name, **self._options)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.run.log_parameters(values)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        if step is not None:
            self.run.set_step(step)
        for key, value in values.items():
            if isinstance(value, Mapping):
                self.run.log_metrics(numbers(value), step=step, **kwargs)
            elif isinstance(value, str):
                self.run.log_other(key, value, **kwargs)
            else:
                for name, number in self._numbers({key: value}).items():
                    self.run.log_metric(name, number, step=step, **kwargs)

    def finish(self) -> None:
        self.run.end()


class ClearMLTracker(LibraryTracker):
    """A ClearML task. A task that the script has initialised itself is used, and stays open.

    The ClearML project and task have the project's name, unless ``init_kwargs`` or the environment variables
    CLEARML_PROJECT and CLEARML_TASK name them. A key such as ``eval_loss`` becomes the series "eval" of the title
    "loss"; the same goes for ``train_`` and ``test_``.
    """

    name = "clearml"

    def start(self) -> None:
        task = library("clearml").Task
        self.run = task.current_task()
        self._is_own = not self.run
        if self._is_own:
            project, name = (
                os.environ.get(f"CLEARML_{word}", self._run_name) for word in ("PROJECT", "TASK")
            )
            self.run = task.init(**{"project_name": project, "task_name": name, **self._options})

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.run.connect_configuration(values)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        report = self.run.get_logger()
        for key, number in self._numbers(values).items():
            if step is None:
                report.report_single_value(name=key, value=number, **kwargs)
            else:
                title, series = _title_and_series(key)
                report.report_scalar(title=title, series=series, value=number, iteration=step, **kwargs)

    def finish(self) -> None:
        if self._is_own:
            self.run.close()


class AimTracker(LibraryTracker):
    """An Aim run with the project's name, in the repository in the logging directory."""

    name = "aim"
    requires_logging_directory = True

    def __init__(self, run_name: str, logging_dir: str | Path = ".", **options: Any) -> None:
        super().__init__(run_name, **options)
        self._repository = str(logging_dir)

    def start(self) -> None:
        self._aim = library("aim")
        self.run = self._aim.Run(repo=self._repository, **self._options)
        self.run.name = self._run_name

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.run["hparams"] = values

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        for key, number in self._numbers(values).items():
            self.run.track(number, name=key, step=step, **kwargs)

    def finish(self) -> None:
        self.run.close()


class DVCLiveTracker(LibraryTracker):
    """A `dvclive.Live` object: the one in ``init_kwargs["live"]``, or one made with the other options there.

    The project's name is not used.
    """

    name = "dvclive"

    def __init__(self, run_name: str | None = None, live: Any = None, **options: Any) -> None:
        super().__init__(run_name, **options)
        self.run = live

    def start(self) -> None:
        if self.run is None:
            self.run = library("dvclive").Live(**self._options)

    @property
    def live(self) -> Any:
        """The `dvclive.Live` object."""
        return self.run

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.run.log_params(values)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Record numbers and texts, and end the step."""
        if step is not None:
            self.run.step = step
        texts = {key: value for key, value in values.items() if isinstance(value, str)}
        others = {key: value for key, value in values.items() if key not in texts}
        for key, value in {**self._numbers(others), **texts}.items():
            self.run.log_metric(key, value, **kwargs)
        self.run.next_step()

    def finish(self) -> None:
        self.run.end()


class TrackioTracker(LibraryTracker):
    """A Trackio run in the project of that name. ``init_kwargs``: of `trackio.init`."""

    name = "trackio"

    def start(self) -> None:
        self.run = library("trackio").init(project=self._run_name, **self._options)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.run.config.update(values)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self.run.log({key: _loggable(value) for key, value in values.items()}, step=step, **kwargs)

    def finish(self) -> None:
        self.run.finish()


class SwanLabTracker(LibraryTracker):
    """A SwanLab run in the project of that name. ``init_kwargs``: of `swanlab.init`, such as ``mode="offline"``."""

    name = "swanlab"

    def start(self) -> None:
        self._swanlab = library("swanlab")
        self.run = self._swanlab.init(project=self._run_name, **self._options)
        self._swanlab.config["FRAMEWORK"] = "crosstrain"

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self._swanlab.config.update(values)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Record numbers, texts, and objects of SwanLab's own types."""
        known = {
            key: self._swanlab.Text(value) if isinstance(value, str) else _loggable(value)
            for key, value in values.items()
        }
        self.run.log(known, step=step, **kwargs)

    def finish(self) -> None:
        self._swanlab.finish()


def _loggable(value: Any) -> Any:
    """The value with tensors of one element as numbers, also in dictionaries; any other value as it is."""
    if isinstance(value, Mapping):
        return {key: _loggable(inner) for key, inner in value.items()}
    return plain(value) if getattr(value, "ndim", None) == 0 else value


def _title_and_series(key: str) -> tuple[str, str]:
    series, _, rest = key.partition("_")
    return (rest, series) if rest and series in ("eval", "test", "train") else (key, "train")
