"""Which line of the user's script is running: frames of this package and of torch do not count."""

from __future__ import annotations

import contextlib
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

_TORCH = Path(torch.__file__).parent
_DEPRECATED = str(_TORCH.with_name("typing_extensions.py"))  # stands around torch's functions of older names
# The folder's name is the beginning of `crosstrain_verify`'s too, whose frames stand around a traced script.
_NOT_USER = (str(Path(__file__).parents[1]), str(_TORCH), _DEPRECATED, contextlib.__file__, "<")


@lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Whether a source file is the user's: neither this package's nor torch's."""
    return not file.startswith(_NOT_USER)


def caller(frame: Any = None) -> str:
    """The innermost source line (of a thread's ``frame``, or here) outside this package and torch: the user's."""
    frame = frame or sys._getframe()
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return "an unknown line" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
