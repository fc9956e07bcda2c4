"""Reading: bytes of a Python file to text and back, so that what was not migrated stays byte for byte.

The tool works on text with "\\n" line ends and no byte order mark. `Source` remembers what the file had
(PEP 263 encoding, mark, line ends, even mixed ones) and `Source.encode` puts it back.
Whatever cannot be read or parsed becomes one `InputError` with a place and a remedy, raised as `Unusable`.
"""

from __future__ import annotations

import codecs
import difflib
import io
import os
import re
import stat
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crosstrain_migrate.frameworks import may_be_imported
from crosstrain_migrate.results import InputError

MAX_BYTES = 10 * 1024 * 1024
NOTEBOOK = ".ipynb"
_PICTURES = 10  # so much larger may a notebook be: it holds what its cells have shown
STDIN = Path("-")

_LINE_END = re.compile("\r\n|\r|\n")
# Testing bytes costs microseconds where parsing costs milliseconds, and understanding seconds.
_BACKWARD = re.compile(rb"backward\s*\(")
_GRADIENT = re.compile(rb"\bautograd\b[^#\n]*\bgrad\b")


class Unusable(Exception):
    """One file cannot be used; the other files go on."""

    def __init__(self, error: InputError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file that is shown by itself. Its line 1 is line `first` of the file's text."""

    label: str
    before: str
    after: str
    first: int = 1


@dataclass(frozen=True, slots=True)
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
        mark, raw = _split_mark(self.data, self.encoding)
        try:
            if self._with_line_ends(self.text, raw).encode(self.encoding) != self.data[len(mark) :]:
                raise Unusable(
                    InputError(
                        self.path,
                        f"decoding and encoding it as {self.encoding} does not give the same bytes",
                        "Save it as UTF-8, then run again.",
                    )
                )
            return mark + self._with_line_ends(text, raw).encode(self.encoding)
        except UnicodeEncodeError as error:
            line = text.count("\n", 0, error.start) + 1
            raise Unusable(
                InputError(
                    self.path,
                    f"the migrated text cannot be written as {self.encoding}",
                    "Save it as UTF-8, then run again.",
                    line,
                )
            ) from error

    @property
    def is_cells(self) -> bool:
        """Whether `text` is made from the cells of a notebook, and is not what the file holds."""
        return False

    @property
    def code(self) -> bytes:
        """The Python in it, as cheap tests ask it: the file's bytes, or those of a notebook's cells."""
        return self.text.encode(errors="surrogatepass") if self.is_cells else self.data

    def pieces(self, after: str) -> list[Piece]:
        """What there is to compare when `text` becomes `after`."""
        return [Piece("", self.text, after)]

    def place(self, line: int, column: int | None = None) -> str:
        """Where a line of `text` is, as it follows the file's name: "3:9"."""
        return f"{line}:{column}" if column else str(line)

    def spoken(self, line: int) -> str:
        """The same in a sentence."""
        return f"line {line}"

    def cell_line(self, line: int) -> tuple[int | None, int]:
        """The cell of a notebook that a line of `text` is in, and its number there."""
        return None, line

    def file_line(self, line: int) -> int:
        """The line of the file itself that holds a line of `text`."""
        return line

    def _with_line_ends(self, text: str, raw: str) -> str:
        ends = _LINE_END.findall(raw)
        styles = set(ends)
        if styles <= {"\n"}:
            return text
        if len(styles) == 1:
            return text.replace("\n", ends[0])
        return _merge_line_ends(self.text.split("\n"), ends, text.split("\n"))


def read(path: Path) -> Source:
    """Reads and decodes a file. Raises `Unusable`."""
    data, target = read_bytes(path)
    return decode(path, data, target)


def read_bytes(path: Path) -> tuple[bytes, Path]:
    """A regular file's bytes, and the file itself behind any symbolic links. Raises `Unusable`."""
    try:
        target = Path(os.path.realpath(path, strict=True))
        status = target.stat()
        limit = MAX_BYTES * (_PICTURES if path.suffix == NOTEBOOK else 1)
        if stat.S_ISREG(status.st_mode) and status.st_size <= limit:
            return target.read_bytes(), target
    except OSError as error:
        raise Unusable(_not_readable(path, error)) from error
    if stat.S_ISREG(status.st_mode):
        megabytes = status.st_size / 1e6
        raise Unusable(
            InputError(
                path,
                f"is {megabytes:.1f} MB; {limit // 1024**2} MB is the limit for such a file",
                "Leave it out, or move the data it holds into a file of its own.",
            )
        )
    raise Unusable(
        InputError(path, "is not a regular file", f"Give its text on standard input: migrate - < {path}")
    )


def may_train(data: bytes) -> bool:
    """The cheap test: a script that calls no backward pass, and nothing that does, is none of our business."""
    return (b"torch" in data and _goes_backward(data)) or may_be_imported(data)


def _goes_backward(data: bytes) -> bool:
    """Whether a text says `.backward(`, or `autograd` and then `grad` in one line. A search for the bare words first is 20
    times as fast as one for the patterns."""
    return any(
        _BACKWARD.match(data, place) and _follows_dot(data, place) for place in _places(b"backward", data)
    ) or any(_GRADIENT.match(data, place) for place in _places(b"autograd", data))


def _places(word: bytes, data: bytes) -> Iterator[int]:
    place = data.find(word)
    while place >= 0:
        yield place
        place = data.find(word, place + 1)


def _follows_dot(data: bytes, place: int) -> bool:
    while place and data[place - 1 : place].isspace():
        place -= 1
    return data[place - 1 : place] == b"."


def decode(path: Path, data: bytes, target: Path | None = None) -> Source:
    """Decodes a file's bytes as Python would, and a notebook's as Jupyter would. Raises `Unusable`."""
    if path.suffix == NOTEBOOK or (path == STDIN and data.startswith(b"{") and b'"nbformat"' in data):
        from crosstrain_migrate.notebooks import reading

        return reading.decode(path, data, target or path)
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise Unusable(
            InputError(
                path,
                "is not text (it holds a zero byte)",
                "Leave it out, or save it as UTF-8 Python text.",
                line,
            )
        )
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        encoding = "utf-8" if encoding == "utf-8-sig" else encoding
        _, raw = _split_mark(data, encoding)
    except UnicodeDecodeError as error:
        raise Unusable(_not_decodable(path, data, encoding, error)) from error
    except (SyntaxError, LookupError) as error:
        raise Unusable(_bad_encoding(path, data, error)) from error
    return Source(path, target or path, data, _LINE_END.sub("\n", raw), encoding)


def syntax_problem(
    path: Path, text: str, error: SyntaxError | ValueError | RecursionError | MemoryError
) -> InputError:
    """What a failed `ast.parse(text)` means for the user: where, what, and the remedy that fits."""
    if not isinstance(error, SyntaxError):
        return InputError(
            path, f"cannot be parsed: {error or 'it is nested too deeply'}", "Simplify it, or leave it out."
        )
    line, column = error.lineno, error.offset or None
    lines = text.split("\n")
    code = lines[line - 1] if line is not None and 0 < line <= len(lines) else ""
    message = error.msg or "invalid syntax"
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if (newer := _newer_python(code, message)) is not None:
        return InputError(
            path,
            f"uses syntax of Python {newer[0]}.{newer[1]}, and this is Python {here}",
            f"Run migrate with Python {newer[0]}.{newer[1]} or newer.",
            line,
            column,
        )
    if _is_python2(code, message):
        return InputError(path, f"is Python 2 ({message})", "Convert it to Python 3 first.", line, column)
    if re.match(r"\s*[%!]", code):
        return InputError(
            path, "holds notebook commands (% or !)", "Remove them, or turn them into Python.", line, column
        )
    return InputError(path, f"does not parse: {message}", "Correct the syntax, then run again.", line, column)


def _split_mark(data: bytes, encoding: str) -> tuple[bytes, str]:
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


def _not_readable(path: Path, error: OSError) -> InputError:
    if isinstance(error, FileNotFoundError):
        if path.is_symlink():
            return InputError(
                path,
                f"is a link to {path.readlink()}, which does not exist",
                "Correct the link, or leave it out.",
            )
        return InputError(path, "does not exist", "Check the name and the directory you are in.")
    reason = error.strerror or str(error)
    return InputError(
        path, f"cannot be read: {reason}", "Correct that (permissions, mount), or leave it out."
    )


def _not_decodable(path: Path, data: bytes, encoding: str, error: UnicodeDecodeError) -> InputError:
    offset = error.start + (len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0)
    before = data[:offset]
    start = before.rfind(b"\n") + 1
    return InputError(
        path,
        f"is not {encoding} text (byte 0x{data[offset]:02x})",
        "Save it as UTF-8, or name its encoding in the first line: # -*- coding: latin-1 -*-",
        before.count(b"\n") + 1,
        len(before[start:].decode(encoding, "replace")) + 1,
    )


def _bad_encoding(path: Path, data: bytes, error: SyntaxError | LookupError) -> InputError:
    cookie = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
    for number, line in enumerate(data.split(b"\n", 2)[:2], 1):
        if found := cookie.match(line.removeprefix(codecs.BOM_UTF8)):
            name = found[1].decode("ascii", "replace")
            return InputError(
                path,
                f"names an encoding that cannot be used: {name}",
                "Name the encoding the file is saved in, or save it as UTF-8 and remove the line.",
                number,
                found.start(1) + 1,
            )
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as undecodable:
        return _not_decodable(path, data, "utf-8", undecodable)
    return InputError(path, f"is not text: {error}", "Save it as UTF-8.")


# What `ast.parse` raises for what is no Python: null bytes are a ValueError, deep nesting the last two.
UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)

_NEWER: tuple[tuple[tuple[int, int], re.Pattern[str]], ...] = (
    ((3, 11), re.compile(r"\s*except\s*\*")),
    ((3, 12), re.compile(r"\s*type\s+\w+\s*(\[.*\])?\s*=")),
    ((3, 12), re.compile(r"\s*(async\s+)?(def|class)\s+\w+\s*\[")),
    ((3, 14), re.compile(r".*\b(t|rt|tr)(\"|')", re.IGNORECASE)),
)
_PYTHON2_MESSAGE = re.compile(
    r"Missing parentheses in call to|multiple exception types must be parenthesized|"
    r"leading zeros in decimal integer|inconsistent use of tabs"
)
_PYTHON2_CODE = re.compile(
    r"\s*(print\s+[^(=\s]|exec\s+[^(=\s]|raise\s+\w+\s*,|except\s+[\w.]+\s*,)|.*(<>|\bur[\"']|`|\d[lL]\b)"
)


def _newer_python(code: str, message: str) -> tuple[int, int] | None:
    """The Python version whose grammar the offending line needs, when this interpreter is older."""
    for version, pattern in _NEWER:
        if sys.version_info < version and pattern.match(code):
            return version
    if (
        "f-string" in message
        and sys.version_info < (3, 12)
        and not message.endswith("empty expression not allowed")
    ):
        return 3, 12
    return None


def _is_python2(code: str, message: str) -> bool:
    return bool(
        _PYTHON2_MESSAGE.match(message) or (message == "invalid syntax" and _PYTHON2_CODE.match(code))
    )
