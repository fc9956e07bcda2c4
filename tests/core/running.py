"""Conversions that are run: as under plain python, and on two processes as the launcher starts them."""

import contextlib
import io
import runpy
from pathlib import Path

from tests.support.ranks import run_ranks

from .filling import filled
from .projects import become


def plain(folder: Path, text: str, *options: str) -> list[str]:
    """The lines that a script prints under plain python."""
    return _lines(folder, text, options, 1, launched=False)


def launched(folder: Path, text: str, *options: str, processes: int = 2) -> list[str]:
    """The lines that the launcher's processes print on the CPU, sorted."""
    return sorted(_lines(folder, text, options, processes, launched=True))


def _lines(folder: Path, text: str, options: tuple[str, ...], processes: int, *, launched: bool) -> list[str]:
    (folder / "script.py").write_text(filled(text), encoding="utf-8")
    environment = {"ACCELERATE_USE_CPU": "true"} if launched else {}
    said = run_ranks(_printed, processes, str(folder), options, launched, env=environment)
    return [line for one in said for line in one.splitlines() if line.startswith("=")]


def _printed(folder: str, options: tuple[str, ...], launched: bool) -> str:
    become(folder, "script", options, launched)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        runpy.run_path("script.py", run_name="__main__")
    return said.getvalue()
