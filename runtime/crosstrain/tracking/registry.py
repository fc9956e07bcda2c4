"""Trackers by name: Crosstrain's own, and those that a script registers."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

from crosstrain.tracking.base import GeneralTracker
from crosstrain.tracking.libraries import (
    AimTracker,
    ClearMLTracker,
    CometMLTracker,
    DVCLiveTracker,
    MLflowTracker,
    SwanLabTracker,
    TrackioTracker,
)
from crosstrain.tracking.trackers import JSONLTracker, TensorBoardTracker, WandBTracker
from crosstrain.utils.dataclasses import LoggerType

LOGGER_TYPE_TO_CLASS: dict[str, type[GeneralTracker]] = {
    "jsonl": JSONLTracker,
    "tensorboard": TensorBoardTracker,
    "wandb": WandBTracker,
    "aim": AimTracker,
    "clearml": ClearMLTracker,
    "comet_ml": CometMLTracker,
    "dvclive": DVCLiveTracker,
    "mlflow": MLflowTracker,
    "swanlab": SwanLabTracker,
    "trackio": TrackioTracker,
}
# Trackers that need a library, whose module has the tracker's name.
_LIBRARIES = frozenset(LOGGER_TYPE_TO_CLASS) - {"jsonl"}


def is_available(name: str) -> bool:
    """Whether the library that a tracker needs is installed."""
    return name not in _LIBRARIES or importlib.util.find_spec(name) is not None


def get_available_trackers() -> list[str]:
    """The names of the trackers whose libraries are installed, and of those that a script has registered."""
    return [name for name in LOGGER_TYPE_TO_CLASS if is_available(name)]


def register_tracker(name: str, tracker_class: type[GeneralTracker]) -> None:
    """Make a tracker of your own known, for ``Accelerator(log_with=name)``; call this before that.

    `init_trackers` calls ``tracker_class`` with the project's name, the logging directory if the class has
    ``requires_logging_directory``, and the options for ``name`` in ``init_kwargs``. An instance needs no registration:
    give it to ``log_with``.

    Raises TypeError for anything but a subclass of `GeneralTracker`, ValueError for an empty name or "all"; warns where
    it replaces another tracker.
    """
    if not (isinstance(tracker_class, type) and issubclass(tracker_class, GeneralTracker)):
        raise TypeError(
            f"a tracker is registered by its class, a subclass of GeneralTracker, not {tracker_class!r}"
        )
    name = str(name).lower()
    if not name or name == LoggerType.ALL.value:
        raise ValueError(f"a tracker cannot have the name {name!r}")
    if LOGGER_TYPE_TO_CLASS.get(name, tracker_class) is not tracker_class:
        warnings.warn(
            f"the tracker {name!r} is registered already; {tracker_class.__name__} replaces it", stacklevel=2
        )
    LOGGER_TYPE_TO_CLASS[name] = tracker_class


def register_tracker_class(tracker_class: type[GeneralTracker]) -> None:
    """Register a tracker under its class's ``name``: see `register_tracker`."""
    register_tracker(getattr(tracker_class, "name", ""), tracker_class)


def choose(log_with: Any) -> list[str | GeneralTracker]:
    """The trackers in ``log_with`` (None, one or several names or objects), each once; "all" is every installed one.

    Raises ValueError for an unknown name, ImportError for a tracker whose library is not installed.
    """
    wanted = log_with if isinstance(log_with, (list, tuple)) else [log_with]
    chosen: list[str | GeneralTracker] = []
    for one in wanted:
        for name in _names(one):
            if name not in chosen:
                chosen.append(name)
    return chosen


def _names(one: Any) -> list[str] | list[GeneralTracker]:
    if one is None:
        return []
    if isinstance(one, GeneralTracker):
        return [one]
    name = str(one).lower()
    if name == LoggerType.ALL.value:
        return get_available_trackers()
    if name not in LOGGER_TYPE_TO_CLASS:
        known = ", ".join(sorted(LOGGER_TYPE_TO_CLASS))
        raise ValueError(
            f"log_with={name!r} is unknown; choose one of {known}, pass a GeneralTracker, or call register_tracker."
        )
    if not is_available(name):
        raise ImportError(f"log_with={name!r} needs its library: pip install {name}")
    return [name]


def filter_trackers(log_with: Any, logging_dir: Any = None) -> list[str | GeneralTracker]:
    """The same as `choose`: kept for compatibility with Accelerate."""
    return choose(log_with)
