"""A notebook as a `Source`: its cells are linked into one text, and written back into the same JSON.

nbformat would sort the keys, re-indent the file and escape other characters than its last editor did: a diff of the
whole file for one changed line. Here only the values that change are replaced in the text: the sources of changed cells,
line by line, and their outputs, which another program made. Everything else stays byte for byte.
"""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstrain_migrate.files.sources import Piece, Source, unusable

from . import spans
from .linked import Cells, is_python, link, split
from .spans import Span

_SAVE = "Save it again in Jupyter."
_UPGRADE = "Save it in Jupyter, or: jupyter nbconvert --to notebook --inplace {}"


@dataclass(frozen=True, slots=True)
class Cell:
    """A code cell with Python in it. `number` counts all cells of the notebook from 1; spans lie in the JSON."""

    number: int
    source: str
    values: dict[str, Span]


@dataclass(frozen=True, slots=True, eq=False)
class Notebook(Source):
    """`text` is the linked text of the cells; `json` the file's own, without its byte order mark."""

    json: str
    cells: tuple[Cell, ...]

    def encode(self, text: str) -> bytes:
        """The file with the cells of `text`: outputs of changed cells cleared, all else as it was."""
        after = split(text)
        pieces: dict[Span, str] = {}
        for cell in self.cells:
            if after[cell.number] == _unix(cell.source):
                continue
            pieces[cell.values["source"]] = self._written(cell, after[cell.number])
            for key, empty in (("outputs", "[]"), ("execution_count", "null")):
                if key in cell.values:
                    pieces[cell.values[key]] = empty
        mark = codecs.BOM_UTF8 if self.data.startswith(codecs.BOM_UTF8) else b""
        return mark + spans.replaced(self.json, pieces).encode()

    @property
    def is_cells(self) -> bool:
        return True

    def pieces(self, after: str) -> list[Piece]:
        """Each changed cell, old and new."""
        old, new, cells = split(self.text), split(after), Cells(self.text)
        return [
            Piece(f"cell {number}", _ended(old[number]), _ended(new[number]), cells.first(number))
            for number in old
            if old[number] != new[number]
        ]

    def cell_line(self, line: int) -> tuple[int | None, int]:
        return Cells(self.text)(line)

    def file_line(self, line: int) -> int:
        """The line of the JSON that holds this line of the linked text."""
        number, inner = Cells(self.text)(line)
        cell = next(one for one in self.cells if one.number == number)
        place, _ = cell.values["source"]
        if self.json[place] == "[":
            lines = spans.items(self.json, place)
            place = lines[min(inner, len(lines)) - 1][0] if lines else place
        return self.json.count("\n", 0, place) + 1

    def _written(self, cell: Cell, source: str) -> str:
        """A source as JSON, in the form of the old one; unchanged lines keep their spelling."""
        if cell.source.count("\r\n") == cell.source.count("\n") > 0:
            source = source.replace("\n", "\r\n")
        start, end = cell.values["source"]
        if self.json[start] != "[":
            return self._string(source)
        spelled = {json.loads(self.json[a:b]): self.json[a:b] for a, b in spans.items(self.json, start)}
        lines = [spelled.get(line) or self._string(line) for line in source.splitlines(keepends=True)]
        before, between, behind = self._spacing(start, end)
        return f"[{before}{between.join(lines)}{behind}]" if lines else "[]"

    def _spacing(self, start: int, end: int) -> tuple[str, str, str]:
        """The text before, between and after the lines of a source."""
        lines = spans.items(self.json, start)
        if not lines:
            return "", ", ", ""
        before = self.json[start + 1 : lines[0][0]]
        behind = self.json[lines[-1][1] : end - 1]
        if len(lines) > 1:
            return before, self.json[lines[0][1] : lines[1][0]], behind
        return before, f",{before}" if before.strip(" ") else ", ", behind

    def _string(self, text: str) -> str:
        return json.dumps(text, ensure_ascii=self.json.isascii() and "\\u" in self.json)


def decode(path: Path, data: bytes, target: Path) -> Notebook:
    """A notebook's cells as one source. Raises `Unusable`."""
    try:
        text = data.decode("utf-8-sig")
        notebook = json.loads(text, strict=False)
    except UnicodeDecodeError as error:
        raise unusable(
            path, f"is not UTF-8 text (byte 0x{data[error.start]:02x})", "Save it in Jupyter."
        ) from error
    except json.JSONDecodeError as error:
        reason = f"is not a notebook: it is not JSON ({error.msg})"
        remedy = "Restore it from version control, or save it again in Jupyter."
        raise unusable(path, reason, remedy, error.lineno, error.colno) from error
    except RecursionError as error:
        raise unusable(path, "is nested too deeply for a notebook", "Leave it out.") from error
    _check(path, notebook)
    cells = tuple(_cells(path, text, notebook["cells"]))
    linked = link((cell.number, _unix(cell.source)) for cell in cells)
    return Notebook(path, target, data, linked, "utf-8", text, cells)


def _check(path: Path, notebook: Any) -> None:
    if not isinstance(notebook, dict) or not ("cells" in notebook or "worksheets" in notebook):
        raise unusable(path, "is not a notebook: it has no cells", "Leave it out, or name the notebook.")
    version = notebook.get("nbformat")
    if version != 4:
        remedy = _UPGRADE.format(path.name)
        raise unusable(path, f"is a notebook of format {version}, and only format 4 is read", remedy)
    if not isinstance(notebook["cells"], list) or not notebook["cells"]:
        raise unusable(path, "is a notebook without cells", "Leave it out, or name one with code.")
    language = _language(notebook.get("metadata"))
    if language not in ("", "python"):
        raise unusable(path, f"is a notebook for {language}, not for Python", "Leave it out.")


def _language(metadata: Any) -> str:
    """The kernel's language in lower case; empty where the notebook does not say."""
    if not isinstance(metadata, dict):
        return ""
    for key, name in (("kernelspec", "language"), ("language_info", "name")):
        about = metadata.get(key)
        if isinstance(about, dict) and isinstance(about.get(name), str):
            return str(about[name]).lower()
    return ""


def _cells(path: Path, text: str, read: list[Any]) -> list[Cell]:
    start, _ = spans.members(text, spans.root(text))["cells"]
    found = []
    for number, (cell, (place, _)) in enumerate(zip(read, spans.items(text, start), strict=True), 1):
        kind = cell.get("cell_type") if isinstance(cell, dict) else None
        if kind not in ("code", "markdown", "raw"):
            raise unusable(path, f"has a cell {number} that is not a cell of a notebook", _SAVE)
        source = _joined(cell.get("source"))
        if source is None:
            raise unusable(path, f"has a cell {number} without a source", _SAVE)
        if kind == "code" and is_python(source):
            found.append(Cell(number, source, spans.members(text, place)))
    return found


def _joined(source: Any) -> str | None:
    if isinstance(source, str):
        return source
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        return "".join(source)
    return None


def _ended(source: str) -> str:
    """A source with a line end after its last line; without, a diff shows that line as changed when another follows."""
    return source + "\n" if source and not source.endswith("\n") else source


def _unix(source: str) -> str:
    return source.replace("\r\n", "\n").replace("\r", "\n")
