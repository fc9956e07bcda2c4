"""Experiment trackers: TensorBoard, Weights & Biases, a JSON-lines file, and trackers of the user's own."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from crosstrain.state import PartialState
from crosstrain.utils.dataclasses import LoggerType

P = ParamSpec("P")
R = TypeVar("R")


class GeneralTracker:
    """What a tracker of your own derives from.

    Set ``name`` and ``requires_logging_directory``, give a ``tracker`` property, and override
    `store_init_configuration`, `log` and, where needed, `finish`. It is called on the main process only, unless
    ``main_process_only`` is False.
    """

    name: str = "tracker"
    requires_logging_directory: bool = False
    main_process_only: bool = True

    def __init__(self, _blank: bool = False) -> None:
        self._blank = _blank

    @property
    def tracker(self) -> Any:
        """The library's own run object."""
        return None

    def start(self) -> None:
        """Called once, by `init_trackers`, when the process group exists."""

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Keep the hyper-parameters."""

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Record numbers."""

    def finish(self) -> None:
        """Flush and close."""


def on_main_process(function: Callable[P, R]) -> Callable[P, R | None]:
    """Decorator for a tracker's methods: run on the main process; None elsewhere."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
        return function(*args, **kwargs) if PartialState().is_main_process else None

    return guarded


class JSONLTracker(GeneralTracker):
    """One JSON object per line in ``<logging_dir>/<run_name>.jsonl``: needs no library, survives a crash."""

    name = "jsonl"
    requires_logging_directory = True

    def __init__(self, run_name: str, logging_dir: str | Path, **kwargs: Any) -> None:
        super().__init__()
        self.path = Path(logging_dir) / f"{run_name}.jsonl"
        self._options = kwargs

    @property
    def tracker(self) -> Path:
        return self.path

    def start(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def _write(self, record: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, default=_plain) + "\n")

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self._write({"time": time.time(), "config": values})

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self._write({"time": time.time(), "step": step, **values})


class TensorBoardTracker(GeneralTracker):
    """torch.utils.tensorboard's SummaryWriter in ``<logging_dir>/<run_name>``."""

    name = "tensorboard"
    requires_logging_directory = True

    def __init__(self, run_name: str, logging_dir: str | Path, **kwargs: Any) -> None:
        super().__init__()
        self._folder = Path(logging_dir) / run_name
        self._options = kwargs
        self.writer: Any = None

    def start(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(self._folder, **self._options)

    @property
    def tracker(self) -> Any:
        return self.writer

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        scalars = {k: v if isinstance(v, (bool, str, float, int)) else str(v) for k, v in values.items()}
        self.writer.add_hparams(scalars, metric_dict={})
        self.writer.flush()

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        for key, value in values.items():
            if isinstance(value, Mapping):
                self.writer.add_scalars(key, dict(value), global_step=step, **kwargs)
            elif isinstance(value, str):
                self.writer.add_text(key, value, global_step=step, **kwargs)
            else:
                self.writer.add_scalar(key, _plain(value), global_step=step, **kwargs)
        self.writer.flush()

    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Batches of images."""
        for key, value in values.items():
            self.writer.add_images(key, value, global_step=step, **kwargs)

    def finish(self) -> None:
        self.writer.close()


class WandBTracker(GeneralTracker):
    """A Weights & Biases run."""

    name = "wandb"

    def __init__(self, run_name: str, **kwargs: Any) -> None:
        super().__init__()
        self._run_name = run_name
        self._options = kwargs
        self.run: Any = None

    def start(self) -> None:
        wandb = importlib.import_module("wandb")
        self.run = wandb.init(project=self._run_name, **self._options)

    @property
    def tracker(self) -> Any:
        return self.run

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.run.config.update(values, allow_val_change=True)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self.run.log(values, step=step, **kwargs)

    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Lists of images."""
        image = importlib.import_module("wandb").Image
        for key, images in values.items():
            self.log({key: [image(each) for each in images]}, step=step, **kwargs)

    def log_table(
        self, table_name: str, columns: list[str] | None = None, data: Any = None, dataframe: Any = None,
        step: int | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """A table from rows or a data frame."""
        table = importlib.import_module("wandb").Table(columns=columns, data=data, dataframe=dataframe)
        self.log({table_name: table}, step=step, **kwargs)

    def finish(self) -> None:
        self.run.finish()


LOGGER_TYPE_TO_CLASS: dict[str, Any] = {
    "jsonl": JSONLTracker,
    "tensorboard": TensorBoardTracker,
    "wandb": WandBTracker,
}
_MODULES = {"tensorboard": "tensorboard", "wandb": "wandb"}


def is_available(name: str) -> bool:
    """Whether the library behind a tracker is installed."""
    module = _MODULES.get(name)
    return module is None or importlib.util.find_spec(module) is not None


def choose(log_with: Any) -> list[str | GeneralTracker]:
    """Names and objects of ``log_with`` (one or several); "all" means every installed one.

    Raises ValueError for an unknown name, ImportError for one that is not installed.
    """
    wanted = log_with if isinstance(log_with, (list, tuple)) else [log_with]
    chosen: list[str | GeneralTracker] = []
    for one in wanted:
        if one is None:
            continue
        if isinstance(one, GeneralTracker):
            chosen.append(one)
            continue
        name = str(one).lower()
        if name == LoggerType.ALL.value:
            return [known for known in LOGGER_TYPE_TO_CLASS if is_available(known)]
        if name not in LOGGER_TYPE_TO_CLASS:
            known = ", ".join(sorted(LOGGER_TYPE_TO_CLASS))
            raise ValueError(f"log_with={name!r} is unknown; choose of {known}, or pass a GeneralTracker.")
        if not is_available(name):
            raise ImportError(f"log_with={name!r} needs its library: pip install {_MODULES[name]}")
        chosen.append(name)
    return chosen


def _plain(value: Any) -> Any:
    """A number out of a tensor or a numpy scalar; text for everything else that JSON does not know."""
    try:
        return value.item()
    except (AttributeError, RuntimeError, ValueError):
        return str(value) if not isinstance(value, (int, float)) else value


def filter_trackers(log_with: Any, logging_dir: Any = None) -> list[str | GeneralTracker]:
    """`choose`, under Accelerate's name."""
    return choose(log_with)
