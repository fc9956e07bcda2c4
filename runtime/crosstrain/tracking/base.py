"""What every tracker derives from."""

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
    """Decorator for a tracker's methods: run on the main process; None elsewhere.

    The methods of a tracker whose ``main_process_only`` is False run on every process.
    """

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
        everywhere = bool(args) and not getattr(args[0], "main_process_only", True)
        return function(*args, **kwargs) if everywhere or PartialState().is_main_process else None

    return guarded


def library(name: str, package: str | None = None) -> Any:
    """The module ``name``; ImportError with the command that installs its ``package`` where it is missing."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise
        raise ImportError(f"{name} is not installed: pip install {package or name}") from None


def plain(value: Any) -> Any:
    """A number out of a tensor or a numpy scalar; text for everything else that JSON does not know."""
    try:
        return value.item()
    except (AttributeError, RuntimeError, ValueError):
        return str(value) if not isinstance(value, (int, float)) else value


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among ``values``, with those of nested dictionaries as ``key/inner key``."""
    found: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found.update({f"{key}/{inner}": number for inner, number in numbers(value).items()})
        elif isinstance(number := plain(value), (int, float)):
            found[key] = number
    return found


class LibraryTracker(GeneralTracker):
    """A tracker that holds a library's run."""

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
        """The numbers among ``values``; warns once for each key that has none."""
        found = numbers(values)
        for key, value in values.items():
            if key in found or key in self._left_out or isinstance(value, Mapping):
                continue
            self._left_out.add(key)
            warnings.warn(
                f"{self.name} records numbers: {key!r}, a {type(value).__name__}, is left out", stacklevel=4
            )
        return found
