"""Loggers for several processes: one process logs, or all of them in the order of their ranks."""

from __future__ import annotations

import logging
import os
from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any

from crosstrain.config import read_place
from crosstrain.run import RUN


class MultiProcessAdapter(logging.LoggerAdapter[logging.Logger]):
    """A logger whose methods take two more keyword arguments.

    ``main_process_only`` (default True): only the main process logs. ``in_order`` (default False): every process logs,
    in the order of the ranks; the call is then collective.
    """

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        main_only = kwargs.pop("main_process_only", True)
        in_order = kwargs.pop("in_order", False)
        if not self.isEnabledFor(level):
            return
        kwargs.setdefault("stacklevel", 2)
        if in_order and RUN.started:
            for rank in range(RUN.comm.world):
                if rank == RUN.comm.rank:
                    self._say(level, msg, args, kwargs)
                RUN.comm.barrier()
        elif not main_only or in_order or _rank() == 0:
            self._say(level, msg, args, kwargs)

    def _say(self, level: int, msg: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        msg, options = self.process(msg, kwargs)
        options["stacklevel"] = options.get("stacklevel", 1) + 1
        self.logger.log(level, msg, *args, **options)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs

    @lru_cache(None)  # noqa: B019 - loggers live as long as the process
    def warning_once(self, *args: Any, **kwargs: Any) -> None:
        """`warning`, once for the same arguments."""
        self.warning(*args, **kwargs)


def _rank() -> int:
    if RUN.started:
        return RUN.comm.rank
    place = read_place()
    return 0 if place is None else place.rank


def get_logger(name: str, log_level: str | None = None) -> MultiProcessAdapter:
    """`logging.getLogger(name)` for several processes.

    The level is ``log_level``, else that of CROSSTRAIN_LOG_LEVEL or ACCELERATE_LOG_LEVEL; the root logger gets it too.
    """
    logger = logging.getLogger(name)
    level = log_level or os.environ.get("CROSSTRAIN_LOG_LEVEL") or os.environ.get("ACCELERATE_LOG_LEVEL")
    if level is not None:
        logger.setLevel(level.upper())
        logger.root.setLevel(level.upper())
    return MultiProcessAdapter(logger, {})
