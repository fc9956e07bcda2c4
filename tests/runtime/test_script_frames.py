"""Which line of a script a message names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from crosstrain.utils.script_frames import users_frame

LIBRARY = "import sys\ndef around(call):\n    return call()\n"


def _around(folder: Path) -> Any:
    """A function of a library in this folder, which calls back."""
    names: dict[str, Any] = {}
    exec(compile(LIBRARY, str(folder / "bar.py"), "exec"), names)
    return names["around"]


def _innermost(around: Any) -> str:
    """What is found from a frame of the library, as a loader finds it that a progress bar iterates."""
    frames: list[Any] = []
    around(lambda: frames.append(sys._getframe(1)))
    found = users_frame(frames[0])
    return str(found.f_code.co_filename)


@pytest.mark.parametrize("place", ["venv/lib/python3.11/site-packages", "usr/lib/python3/dist-packages"])
def test_an_installed_library_around_a_call_is_not_the_script(place: str, tmp_path: Path) -> None:
    assert _innermost(_around(tmp_path / place)) == __file__


def test_a_module_of_the_project_is_the_script(tmp_path: Path) -> None:
    assert _innermost(_around(tmp_path)) == str(tmp_path / "bar.py")
