"""Jupyter notebooks: the cells become one text that every stage works on as on a script, and cells again.

- `spans`: where the parts of a JSON document lie, so that what was not migrated stays byte for byte;
- `linked`: cells as one text under marks, and IPython's own lines as strings that Python can parse;
- `reading`: a file of cells as a `Source`.

In: the bytes of a notebook. Out: a `Source`. Every room below `files` may import this one.
"""

from __future__ import annotations

from crosstrain_migrate.syntax.program import MARKER as PROGRAM

MARK = "'crosstrain cell "  # how the line above each cell begins, in a linked text


def is_linked(text: str) -> bool:
    """Whether a text is made of a notebook's cells, alone or behind the local modules that they import.

    Asked of every script, so it costs nothing.
    """
    return text.startswith(MARK) or (text.startswith(PROGRAM) and f"\n{MARK}" in text)
