"""Which line of the user's script is running: frames of this package and of torch do not count."""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

_TORCH = Path(torch.__file__).parent
_DEPRECATED = str(_TORCH.with_name("typing_extensions.py"))  # stands around torch's functions of older names
# The folder's name is the beginning of `crosstrain_verify`'s too, whose frames stand around a traced script.
_NOT_USER = (str(Path(__file__).parents[1]), str(_TORCH), _DEPRECATED, contextlib.__file__, "<")
_INSTALLED = {"site-packages", "dist-packages"}
_STANDARD = sysconfig.get_path("stdlib")


@lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Whether a source file is the user's: neither this package's nor torch's."""
    return not file.startswith(_NOT_USER)


@lru_cache(maxsize=4096)
def _is_installed(file: str) -> bool:
    return file.startswith(_STANDARD) or not _INSTALLED.isdisjoint(Path(file).parts)


def users_frame(frame: Any) -> Any:
    """The innermost of the user's frames from ``frame`` outwards; None where there is none.

    Installed libraries between the script and this package (a progress bar around a loader) count only where the
    user's code is installed itself.
    """
    outside: Any = None
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file):
            if not _is_installed(file):
                return frame
            outside = outside or frame
        frame = frame.f_back
    return outside


def caller(frame: Any = None) -> str:
    """The source line of the user's innermost frame (of a thread's ``frame``, or here)."""
    frame = users_frame(frame or sys._getframe())
    return "an unknown line" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
