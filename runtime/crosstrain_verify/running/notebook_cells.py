"""Runs a notebook as a program: its code cells in order, each under its own file name, without IPython's own commands.

Magics and shell commands are left out, and their value is an empty list; `%time` keeps the statement that it times.
`display` and `get_ipython` exist and do nothing. A cell that raised when its author ran it may raise. Lines keep their
numbers in the cell, so a traceback and every message say `train.ipynb:cell 5`, line 3.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import linecache
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstrain.launch.target import Compile, Target, clean_traceback, compile_source, hide_from_tracebacks

hide_from_tracebacks(__file__)

SUFFIX = ".ipynb"
# Cell magics whose body is Python of the notebook itself. Under any other magic the cell is a program of its own.
OVER_PYTHON = ("%%time", "%%capture", "%%prun")
COMMAND = re.compile(r"(?P<space>\s*)[%!?].*")
TIMED = re.compile(r"(?P<space>\s*)%time\s+(?P<statement>\S.*)")
VALUE = re.compile(r"(?P<start>\s*[\w.,\s\[\]'\"()]*=\s*)[%!].*")
QUESTION = re.compile(r"(?P<space>\s*)[\w.%*]+\?\??\s*")
LAUNCH = re.compile(r"\b(notebook|debug)_launcher\s*\(")


def is_notebook(path: str | Path) -> bool:
    """Whether a file's name is that of a notebook."""
    return Path(path).suffix == SUFFIX


def launches(path: Path) -> bool:
    """Whether a notebook calls `notebook_launcher` or `debug_launcher`."""
    return any(LAUNCH.search(cell.source) for cell in cells(path))


@dataclass(frozen=True)
class Cell:
    """A cell with Python that can be compiled. number: among all cells, from 1. raises: it is meant to raise."""

    number: int
    source: str
    raises: bool


def cells(path: Path) -> Iterator[Cell]:
    """The code cells of a notebook that run in its own process."""
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8-sig"))["cells"], 1):
        source = "".join(cell["source"])
        first = source.split(None, 1)[0] if source.strip() else ""
        if cell["cell_type"] == "code" and (not first.startswith("%%") or first in OVER_PYTHON):
            yield Cell(number, plain(source), _is_meant_to_raise(cell))


def _is_meant_to_raise(cell: Mapping[str, Any]) -> bool:
    """Whether its author tagged it so, or left an error in its output."""
    tagged = "raises-exception" in cell.get("metadata", {}).get("tags", ())
    return tagged or any(output.get("output_type") == "error" for output in cell.get("outputs", ()))


def run(target: Target, compiled: Compile = compile_source) -> None:
    """Run a notebook's cells as `__main__`, as `Target.run` runs a script."""
    path = Path(target.name)
    sys.path[0] = str(path.resolve().parent)
    sys.argv[:] = [target.name, *target.arguments]
    module = types.ModuleType("__main__")
    module.__dict__.update(
        __builtins__=builtins, __spec__=None, display=_nothing, get_ipython=lambda: Shell()
    )
    sys.modules["__main__"] = module
    _plain_progress()
    for cell in cells(path):
        name = f"{path}:cell {cell.number}"
        linecache.cache[name] = (len(cell.source), None, cell.source.splitlines(keepends=True), name)
        try:
            exec(compiled(cell.source, name), module.__dict__)
        except Exception as error:
            if not cell.raises:
                raise
            sys.stderr.write(clean_traceback(error))


def plain(source: str) -> str:
    """A cell's source without IPython's commands. Anything else that is no Python stays as it is."""
    lines = source.replace("\r\n", "\n").split("\n")
    opening = next((index for index, line in enumerate(lines) if line.strip()), 0)
    if lines[opening].lstrip().startswith("%%"):
        lines[opening] = ""
    while (wrong := _wrong_line(lines)) is not None and _leave_out(lines, wrong):
        pass
    if wrong is not None:
        # The parser names another line, so every line that looks like a command is taken for one.
        for index, line in enumerate(lines):
            if COMMAND.fullmatch(line):
                _leave_out(lines, index)
    return "\n".join(lines)


class Shell:
    """What `get_ipython()` returns: every method exists and does nothing."""

    def getoutput(self, *args: Any, **kwargs: Any) -> list[str]:
        """The lines that a shell command would have printed."""
        return []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return _nothing


def _nothing(*args: Any, **kwargs: Any) -> None:
    pass


def _plain_progress() -> None:
    """Replace tqdm's notebook bars by plain ones: widgets need a running notebook."""
    try:
        tqdm: Any = importlib.import_module("tqdm")
    except ImportError:
        return
    bars: Any = types.ModuleType("tqdm.notebook")
    bars.tqdm = bars.tqdm_notebook = tqdm.tqdm
    bars.trange = bars.tnrange = tqdm.trange
    sys.modules["tqdm.notebook"] = bars


def _wrong_line(lines: list[str]) -> int | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse("\n".join(lines))
    except SyntaxError as error:
        return min(max((error.lineno or 1) - 1, 0), len(lines) - 1)
    return None


def _leave_out(lines: list[str], index: int) -> bool:
    """Replace a line that is a command of IPython's, and its continuation lines. Returns whether it was one."""
    line = lines[index]
    if found := TIMED.fullmatch(line):
        lines[index] = found["space"] + found["statement"]
        return True
    if found := VALUE.fullmatch(line):
        lines[index] = f"{found['start']}[]"
    elif found := COMMAND.fullmatch(line) or QUESTION.fullmatch(line):
        lines[index] = f"{found['space']}pass"
    else:
        return False
    while line.endswith("\\") and index + 1 < len(lines):
        index += 1
        line, lines[index] = lines[index], ""
    return True
