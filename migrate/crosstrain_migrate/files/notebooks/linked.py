"""Joins the code cells of a notebook into one text that Python parses, and splits that text into cells again.

Each cell stands below a mark, a string that no stage has a reason to change. Lines that only IPython understands
(`%matplotlib inline`, `!pip install x`, `f?`) become strings too, on as many lines; so do imports from `__future__`,
which may stand in any cell, but only at the top of a script. The cells can be read back from the text alone, so a
migration, its cache and its reports need nothing else.
"""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterable

from crosstrain_migrate.files.notebooks import MARK

_MASK = "'crosstrain ipython "

_MARKED = re.compile(rf"{MARK}(\d+)'")
_MASKED = re.compile(rf"{_MASK}((?:[^'\\]|\\.)*)'")
# `%time train(3)` becomes a string and the statement that it times, which is then migrated like any other.
_TIME = "'crosstrain time"
_TIMED = re.compile(rf"{_TIME}(\s+)'; ")
_TIMES = re.compile(r"%time(\s+)(\S.*)")
# What IPython reads before Python does: a command, a value made by a command, a question.
_COMMAND = re.compile(r"(?P<kept>\s*)(?P<own>[%!?].*)")
_VALUE = re.compile(r"(?P<kept>\s*[\w.,\s\[\]'\"()]*=\s*)(?P<own>[%!].*)")
_QUESTION = re.compile(r"(?P<kept>\s*)(?P<own>[\w.%*]+\?\??\s*)")
_FUTURE = re.compile(r"(?P<kept>)(?P<own>from __future__ import [^(\\]*)")
# Cell magics whose body is the notebook's own Python; under any other the cell is another program.
_TRANSPARENT = ("%%time", "%%capture", "%%prun")


def is_python(source: str) -> bool:
    """Whether a code cell holds Python that runs among the other cells."""
    first = source.lstrip().split(None, 1)[0] if source.strip() else ""
    return not first.startswith("%%") or first in _TRANSPARENT


def link(cells: Iterable[tuple[int, str]]) -> str:
    """One text of (number, source) pairs; sources have "\\n" line ends."""
    return "".join(f"{MARK}{number}'\n{mask(source)}\n" for number, source in cells)


def masked_sources(text: str) -> dict[int, str]:
    """The sources of a linked text by number, as they stand in it."""
    lines, cells = text.split("\n"), Cells(text)
    return {one: "\n".join(lines[cells.first(one) - 1 : cells.last(one)]) for one in cells.numbers}


def split(text: str) -> dict[int, str]:
    """The sources of a linked text by number, with IPython's lines as they were."""
    return {number: unmask(source) for number, source in masked_sources(text).items()}


class Cells:
    """In which cell, and in which line of it, a line of a linked text stands. All count from 1."""

    def __init__(self, text: str) -> None:
        lines = text.split("\n")
        found = [(line, _MARKED.fullmatch(content)) for line, content in enumerate(lines, 1)]
        marks = [(line, int(mark[1])) for line, mark in found if mark is not None]
        self._starts, self._end = [line for line, _ in marks], len(lines)
        self.numbers = [number for _, number in marks]

    def __call__(self, line: int) -> tuple[int, int]:
        """(cell, line in it); a mark counts as its cell's first line."""
        index = max(0, bisect_right(self._starts, line) - 1)
        return self.numbers[index], max(1, line - self._starts[index])

    def first(self, cell: int) -> int:
        """The line of the linked text that is the cell's first."""
        return self._starts[self.numbers.index(cell)] + 1

    def last(self, cell: int) -> int:
        """The line of the linked text that is the cell's last."""
        behind = self.numbers.index(cell) + 1
        return (self._starts[behind] if behind < len(self._starts) else self._end) - 1

    def spoken(self, line: int) -> str:
        cell, inner = self(line)
        return f"cell {cell}, line {inner}"

    def told(self, said: str) -> str:
        """A sentence that names lines of the linked text, in cells and their lines."""
        said = re.sub(r"\bline (\d+)", lambda found: self.spoken(int(found[1])), said)

        def several(found: re.Match[str]) -> str:
            return re.sub(r"\d+", lambda number: self.spoken(int(number[0])), found[1])

        return re.sub(r"\blines ((?:\d+(?:, | and )?)+)", several, said)


def mask(source: str) -> str:
    """A cell's source with IPython's own lines as strings; other lines that do not parse stay as they are."""
    lines = source.split("\n")
    opening = next((index for index, line in enumerate(lines) if line.strip()), 0)
    if lines[opening].lstrip().startswith(_TRANSPARENT):
        _hide(lines, opening, _COMMAND)
    for index, line in enumerate(lines):
        if line.startswith("from __future__") and _FUTURE.fullmatch(line):
            _hide(lines, index, _FUTURE)
    while (wrong := _wrong_line(lines)) is not None and _hide(lines, wrong, _COMMAND, _VALUE, _QUESTION):
        pass
    if wrong is not None:  # the parser blames another line: hide every line that begins like a command
        for index in range(len(lines)):
            _hide(lines, index, _COMMAND)
    return "\n".join(lines)


def unmask(text: str) -> str:
    return _MASKED.sub(lambda found: revealed(found[1]), _untimed(text))


def without_time(line: str) -> str:
    """A line without `%time`, which in a function would not assign the function's own variables."""
    found = _TIMED.search(line)
    if found is None or isinstance(ast.parse(line[found.end() :]).body[0], ast.Expr):
        return line
    return line[: found.start()] + line[found.end() :]


def string_of(statement: ast.stmt) -> str | None:
    """The text of a statement that is nothing but a string."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return None


def is_mark(statement: ast.stmt) -> bool:
    """Whether a statement is the string above a cell."""
    return (string_of(statement) or "").startswith(MARK[1:])


def is_time(statement: ast.stmt) -> bool:
    """Whether a statement is the string that stands for `%time`."""
    return (string_of(statement) or "").startswith(_TIME[1:])


def _timed(own: str) -> str | None:
    """`%time` before a simple statement, as Python."""
    found = _TIMES.fullmatch(own)
    if found is None or _wrong_line([found[2]]) is not None:
        return None
    return f"{_TIME}{found[1]}'; {found[2]}"


def _untimed(text: str) -> str:
    """`%time` with its statement again: on one line, which is all that the magic reads."""
    while (found := _TIMED.search(text)) is not None:
        first, *more = text[found.end() :].split("\n")
        while more and _wrong_line([first]) is not None:
            joint = "" if first.endswith(("(", "[", "{")) or more[0].strip()[:1] in ")]}" else " "
            first += joint + more.pop(0).strip()
        text = f"{text[: found.start()]}%time{found[1]}" + "\n".join([first, *more])
    return text


def masked(text: str) -> list[tuple[int, str]]:
    """(line, IPython's own text) of all that is masked."""
    return [(text.count("\n", 0, found.start()) + 1, revealed(found[1])) for found in _MASKED.finditer(text)]


def _wrong_line(lines: list[str]) -> int | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse("\n".join(lines))
    except SyntaxError as error:
        return min(max((error.lineno or 1) - 1, 0), len(lines) - 1)
    except (ValueError, RecursionError, MemoryError):
        return None  # the engine reports it
    return None


def _hide(lines: list[str], index: int, *patterns: re.Pattern[str]) -> bool:
    """Masks a line that matches one of the patterns, and the lines it continues on."""
    found = next((match for one in patterns if (match := one.fullmatch(lines[index]))), None)
    if found is None or any(one in lines[index] for one in (MARK, _MASK, _TIME)):
        return False
    kept, own = found["kept"], found["own"]
    if (timed := _timed(own)) is not None:
        lines[index] = kept + timed
        return True
    while own.endswith("\\") and index + 1 < len(lines):
        lines[index] = f"{kept}{concealed(own[:-1])}\\"
        index += 1
        kept, own = "", unmask(lines[index])
    lines[index] = kept + concealed(own)
    return True


def concealed(line: str, opening: str = _MASK) -> str:
    """A line as a string of Python's that begins with `opening`."""
    return opening + line.replace("\\", "\\\\").replace("'", "\\'") + "'"


def revealed(inner: str) -> str:
    """The line inside such a string."""
    return re.sub(r"\\(.)", r"\1", inner)
