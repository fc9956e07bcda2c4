"""The line of the script that is running."""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from pathlib import Path
from types import FrameType

import crosstrain
import torch

_HERE = (str(Path(__file__).resolve().parents[1]), str(Path(crosstrain.__file__).resolve().parent))
_NOT_SCRIPT = (
    *_HERE,
    str(Path(torch.__file__).parent),
    contextlib.__file__,
    sysconfig.get_paths()["stdlib"],
    sysconfig.get_paths()["purelib"],
    "<",
)


def script_frame() -> FrameType | None:
    """The innermost frame of the script itself, not of Python, torch, Crosstrain or an installed library."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_script(frame):
        frame = frame.f_back
    return frame


def is_script(frame: FrameType) -> bool:
    """Whether the code of a frame is the script's own."""
    file = frame.f_code.co_filename
    return not file.startswith(_NOT_SCRIPT) and "/site-packages/" not in file


def place() -> str:
    """The place of `script_frame` as "file:line:function"; "" if there is none."""
    frame = script_frame()
    if frame is None:
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}:{frame.f_code.co_name}"
