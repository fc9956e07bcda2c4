"""A file's text and its bytes, so that what was not migrated stays byte for byte.

The tool works on text with "\\n" line ends and no byte order mark. `Source` remembers what the file had
(PEP 263 encoding, mark, line ends, even mixed ones) and `Source.encode` puts it back.
Whatever cannot be read becomes one `InputError` with a place and a remedy, raised as `Unusable`.
"""

from __future__ import annotations

import codecs
import contextlib
import difflib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from crosstrain_migrate.results import InputError

MAX_BYTES = 10 * 1024 * 1024
NOTEBOOK = ".ipynb"
_PICTURES = 10  # times larger may a notebook be: it holds the output of its cells
STDIN = Path("-")
_AS_UTF8 = "Save it as UTF-8, then run again."

LINE_END = re.compile("\r\n|\r|\n")


class Unusable(Exception):
    """One file cannot be used; the other files go on."""

    def __init__(self, error: InputError) -> None:
        super().__init__(str(error))
        self.error = error


def unusable(
    path: Path, reason: str, remedy: str, line: int | None = None, column: int | None = None
) -> Unusable:
    return Unusable(InputError(path, reason, remedy, line, column))


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file that is shown by itself. Its line 1 is line `first` of the file's text."""

    label: str
    before: str
    after: str
    first: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One file as read. `path` is the name it was given by; `target` is the file itself, links resolved."""

    path: Path
    target: Path
    data: bytes
    text: str
    encoding: str

    def encode(self, text: str) -> bytes:
        """Gives `text` this file's mark, line ends and encoding.

        Raises `Unusable` where the encoding lacks a character of `text`, or does not reproduce the original.
        """
        mark, raw = split_mark(self.data, self.encoding)
        try:
            if self._with_line_ends(self.text, raw).encode(self.encoding) != self.data[len(mark) :]:
                reason = f"decoding and encoding it as {self.encoding} does not give the same bytes"
                raise unusable(self.path, reason, _AS_UTF8)
            return mark + self._with_line_ends(text, raw).encode(self.encoding)
        except UnicodeEncodeError as error:
            reason = f"the migrated text cannot be written as {self.encoding}"
            line = text.count("\n", 0, error.start) + 1
            raise unusable(self.path, reason, _AS_UTF8, line) from error

    @property
    def is_cells(self) -> bool:
        """Whether `text` is made from the cells of a notebook, and is not what the file holds."""
        return False

    @property
    def code(self) -> bytes:
        """Its Python code as bytes, for cheap tests: the file itself, or the cells of a notebook."""
        return self.text.encode(errors="surrogatepass") if self.is_cells else self.data

    def pieces(self, after: str) -> list[Piece]:
        """What there is to compare when `text` becomes `after`."""
        return [Piece("", self.text, after)]

    def place(self, line: int, column: int | None = None) -> str:
        """A position in `text` as it is written after a file's name: "3:9", in a notebook "cell 2:3:9"."""
        cell, inner = self.cell_line(line)
        parts = (f"cell {cell}" if cell is not None else "", str(inner), str(column or ""))
        return ":".join(filter(None, parts))

    def spoken(self, line: int) -> str:
        """A line of `text` as a sentence names it."""
        cell, inner = self.cell_line(line)
        return f"line {inner}" if cell is None else f"cell {cell}, line {inner}"

    def cell_line(self, line: int) -> tuple[int | None, int]:
        """The cell of a notebook that a line of `text` is in, and its number there."""
        return None, line

    def file_line(self, line: int) -> int:
        """The line of the file itself that holds a line of `text`."""
        return line

    def _with_line_ends(self, text: str, raw: str) -> str:
        ends = LINE_END.findall(raw)
        styles = set(ends)
        if styles <= {"\n"}:
            return text
        if len(styles) == 1:
            return text.replace("\n", ends[0])
        return _merge_line_ends(self.text.split("\n"), ends, text.split("\n"))


@dataclass(frozen=True, slots=True, eq=False)
class Broken(Source):
    """A script that cannot run, for what it imports."""

    problem: InputError


def read_bytes(path: Path) -> tuple[bytes, Path]:
    """A regular file's bytes, and the file itself behind any symbolic links. Raises `Unusable`."""
    try:
        target = Path(os.path.realpath(path, strict=True))
        status = target.stat()
        limit = MAX_BYTES * (_PICTURES if path.suffix == NOTEBOOK else 1)
        if stat.S_ISREG(status.st_mode) and status.st_size <= limit:
            return target.read_bytes(), target
    except OSError as error:
        raise _not_readable(path, error) from error
    if stat.S_ISREG(status.st_mode):
        reason = f"is {status.st_size / 1e6:.1f} MB; {limit // 1024**2} MB is the limit for such a file"
        raise unusable(path, reason, "Leave it out, or move the data it holds into a file of its own.")
    remedy = f"Give its text on standard input: migrate - < {path}"
    raise unusable(path, "is not a regular file", remedy)


def write_whole(file: Path, text: str) -> None:
    """Writes a file so that nobody reads half of it, also when several processes do. Raises OSError."""
    partial = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def split_mark(data: bytes, encoding: str) -> tuple[bytes, str]:
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    return mark, data[len(mark) :].decode(encoding)


def _merge_line_ends(before: list[str], ends: list[str], after: list[str]) -> str:
    """Line ends for a file that mixes them: kept lines keep theirs, a new line takes its predecessor's."""
    given: list[str | None] = [None] * len(after)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag in ("equal", "replace"):
            for i, j in zip(range(i1, i2), range(j1, j2), strict=False):
                given[j] = ends[i] if i < len(ends) else None
    parts: list[str] = []
    end = ends[0]
    for line, own in zip(after, given, strict=True):
        end = own or end
        parts += [line, end]
    return "".join(parts[:-1])  # text after the last line end has none


def _not_readable(path: Path, error: OSError) -> Unusable:
    if not isinstance(error, FileNotFoundError):
        reason = f"cannot be read: {error.strerror or error}"
        return unusable(path, reason, "Correct that (permissions, mount), or leave it out.")
    if path.is_symlink():
        reason = f"is a link to {path.readlink()}, which does not exist"
        return unusable(path, reason, "Correct the link, or leave it out.")
    return unusable(path, "does not exist", "Check the name and the directory you are in.")
