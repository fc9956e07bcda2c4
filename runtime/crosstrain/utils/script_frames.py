"""Finds the line of the user's script that is running. Frames of this package and of torch do not count."""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

_TORCH = Path(torch.__file__).parent
_DEPRECATED = str(_TORCH.with_name("typing_extensions.py"))  # wraps torch's deprecated functions
# The folder's path is also a prefix of `crosstrain_verify`'s, whose frames are around a traced script.
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
    """The innermost frame of the user's, from ``frame`` outwards; None if there is none.

    Installed libraries between the script and this package (a progress bar around a loader) count only if there is no frame
    that is not installed, so that the user's code is installed itself.
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


def users_lines(frame: Any) -> list[str]:
    """The lines of the user's own code from the script to ``frame``, innermost first, as "file:line"."""
    lines = []
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file) and not _is_installed(file):
            lines.append(f"{file}:{frame.f_lineno}")
        frame = frame.f_back
    return lines


def caller(frame: Any = None) -> str:
    """The source line of the user's innermost frame, as "file:line". frame: of another thread; None: the calling one."""
    frame = users_frame(frame or sys._getframe())
    return "an unknown line" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
