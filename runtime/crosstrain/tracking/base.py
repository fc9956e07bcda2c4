"""The base classes of trackers, and how values become numbers."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from crosstrain.state import PartialState

P = ParamSpec("P")
R = TypeVar("R")


class GeneralTracker:
    """The base class of trackers.

    A subclass sets ``name`` and ``requires_logging_directory``, defines the property ``tracker``, and overrides
    `store_init_configuration`, `log` and, where needed, `start` and `finish`. Only the main process makes and calls a
    tracker, unless ``main_process_only`` is False.
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
        """Start the run. `init_trackers` calls it once; the process group exists by then."""

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Record the hyper-parameters of the run, by name."""

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Record values by name, at ``step`` if it is given; ``kwargs`` are the library's own options."""

    def finish(self) -> None:
        """Write what is pending and close the run."""


def on_main_process(function: Callable[P, R]) -> Callable[P, R | None]:
    """Decorator for a tracker's methods: call the method on the main process only; elsewhere it returns None.

    The methods of a tracker whose ``main_process_only`` is False run on every process.
    """

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
        everywhere = bool(args) and not getattr(args[0], "main_process_only", True)
        return function(*args, **kwargs) if everywhere or PartialState().is_main_process else None

    return guarded


def library(name: str) -> Any:
    """Import the module ``name``; where it is missing, ImportError with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise
        raise ImportError(f"{name} is not installed: pip install {name}") from None


def plain(value: Any) -> Any:
    """The number in a tensor or numpy scalar of one element; a number as it is; the text of any other value."""
    try:
        return value.item()
    except (AttributeError, RuntimeError, ValueError):
        return str(value) if not isinstance(value, (int, float)) else value


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among ``values``; those in nested dictionaries have names such as ``key/inner``."""
    found: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found.update({f"{key}/{inner}": number for inner, number in numbers(value).items()})
        elif isinstance(number := plain(value), (int, float)):
            found[key] = number
    return found


class LibraryTracker(GeneralTracker):
    """The base class of trackers that hold a run object of a library."""

    def __init__(self, run_name: str | None = None, **options: Any) -> None:
        super().__init__()
        self._run_name = run_name
        self._options = options
        self.run: Any = None
        self._left_out: set[str] = set()

    @property
    def tracker(self) -> Any:
        return self.run

    def _numbers(self, values: Mapping[str, Any]) -> dict[str, float]:
        """The numbers among ``values``; warns once for each key whose value is not one."""
        found = numbers(values)
        for key, value in values.items():
            if key in found or key in self._left_out or isinstance(value, Mapping):
                continue
            self._left_out.add(key)
            warnings.warn(
                f"{self.name} records numbers: {key!r}, a {type(value).__name__}, is left out", stacklevel=4
            )
        return found
