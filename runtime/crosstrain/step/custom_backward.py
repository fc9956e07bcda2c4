"""Tells whether a backward pass runs inside another one."""

from __future__ import annotations

import sys
from types import FrameType

from torch.autograd.function import BackwardCFunction


def inside_custom_backward() -> bool:
    """Whether the autograd engine is running on behalf of a Python autograd function's backward."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is BackwardCFunction.apply.__code__:
            return True
        frame = frame.f_back
    return False
