"""Reading a file: its bytes to text, as Python decodes a script and Jupyter a notebook."""

from __future__ import annotations

import codecs
import io
import re
import tokenize
from pathlib import Path

from crosstrain_migrate.files.notebooks import reading as notebooks

from .sources import LINE_END, NOTEBOOK, STDIN, Source, Unusable, read_bytes, split_mark, unusable


def read(path: Path) -> Source:
    """Reads and decodes a file. Raises `Unusable`."""
    data, target = read_bytes(path)
    return decode(path, data, target)


def decode(path: Path, data: bytes, target: Path | None = None) -> Source:
    """Decodes a file's bytes as Python would, and a notebook's as Jupyter would. Raises `Unusable`."""
    if path.suffix == NOTEBOOK or (path == STDIN and data.startswith(b"{") and b'"nbformat"' in data):
        return notebooks.decode(path, data, target or path)
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        remedy = "Leave it out, or save it as UTF-8 Python text."
        raise unusable(path, "is not text (it holds a zero byte)", remedy, line)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        encoding = "utf-8" if encoding == "utf-8-sig" else encoding
        _, raw = split_mark(data, encoding)
    except UnicodeDecodeError as error:
        raise _not_decodable(path, data, encoding, error) from error
    except (SyntaxError, LookupError) as error:
        raise _bad_encoding(path, data, error) from error
    return Source(path, target or path, data, LINE_END.sub("\n", raw), encoding)


def _not_decodable(path: Path, data: bytes, encoding: str, error: UnicodeDecodeError) -> Unusable:
    offset = error.start + (len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0)
    before = data[:offset]
    start = before.rfind(b"\n") + 1
    return unusable(
        path,
        f"is not {encoding} text (byte 0x{data[offset]:02x})",
        "Save it as UTF-8, or name its encoding in the first line: # -*- coding: latin-1 -*-",
        before.count(b"\n") + 1,
        len(before[start:].decode(encoding, "replace")) + 1,
    )


def _bad_encoding(path: Path, data: bytes, error: SyntaxError | LookupError) -> Unusable:
    cookie = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
    for number, line in enumerate(data.split(b"\n", 2)[:2], 1):
        if found := cookie.match(line.removeprefix(codecs.BOM_UTF8)):
            name = found[1].decode("ascii", "replace")
            return unusable(
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
    return unusable(path, f"is not text: {error}", "Save it as UTF-8.")
