"""TensorBoard, Weights & Biases, and a JSON-lines file."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crosstrain.tracking.base import GeneralTracker, LibraryTracker, library, plain


class JSONLTracker(GeneralTracker):
    """Writes one JSON object per line to ``<logging_dir>/<run_name>.jsonl``; it needs no library.

    Each call adds a line: ``{"time": ..., "config": {...}}`` first, then ``{"time": ..., "step": ..., ...values}``, with
    the time in seconds since the epoch. After a crash the file has every line until then.
    """

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
            file.write(json.dumps(record, default=plain) + "\n")

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self._write({"time": time.time(), "config": values})

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self._write({"time": time.time(), "step": step, **values})


class TensorBoardTracker(GeneralTracker):
    """A `torch.utils.tensorboard.SummaryWriter` in ``<logging_dir>/<run_name>``."""

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
                self.writer.add_scalar(key, plain(value), global_step=step, **kwargs)
        self.writer.flush()

    def finish(self) -> None:
        self.writer.close()


class WandBTracker(LibraryTracker):
    """A Weights & Biases run in the project of that name. ``init_kwargs``: of `wandb.init`."""

    name = "wandb"

    def start(self) -> None:
        self.run = library("wandb").init(project=self._run_name, **self._options)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.run.config.update(values, allow_val_change=True)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self.run.log(values, step=step, **kwargs)

    def finish(self) -> None:
        self.run.finish()
