"""Notebooks for tests, written as text: `# %%` begins a code cell, `# %% [markdown]` one of prose."""

import json
import re
from pathlib import Path
from typing import Any

from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.files.notebooks.linked import split
from crosstrain_migrate.files.reading import decode
from crosstrain_migrate.files.sources import Source
from crosstrain_migrate.results import FileResult, Options

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
SHOWN = [{"name": "stdout", "output_type": "stream", "text": ["as it was\n"]}]
NAME = Path("train.ipynb")


def cells(text: str) -> list[tuple[str, str]]:
    """(kind, source) of each cell."""
    parts = re.split(r"^# %%(.*)\n", text, flags=re.MULTILINE)
    kinds = ["markdown" if "markdown" in mark else "code" for mark in parts[1::2]]
    return [(kind, source.rstrip("\n")) for kind, source in zip(kinds, parts[2::2], strict=True)]


def document(text: str) -> dict[str, Any]:
    """A notebook as Jupyter writes it, every code cell run once."""
    found: list[dict[str, Any]] = []
    for number, (kind, source) in enumerate(cells(text), 1):
        lines = source.splitlines(keepends=True)
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": lines}
        if kind == "code":
            cell |= {"execution_count": number, "outputs": SHOWN}
        found.append(dict(sorted(cell.items())))
    return {"cells": found, "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}


def notebook(text: str, **dump: Any) -> bytes:
    options = {"indent": 1, "ensure_ascii": False} | dump
    return (json.dumps(document(text), **options) + "\n").encode()


def read(text: str) -> Source:
    return decode(NAME, notebook(text))


def migrate(text: str, options: Options | None = None) -> FileResult:
    return migrate_text(NAME, read(text).text, options or Options())


def after(result: FileResult) -> dict[int, str]:
    """The migrated cells by number."""
    return split(result.after)
