"""`migrate --explain-roles`: what each value of a script is in training, where, and how that is known."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from pathlib import Path

from crosstrain_migrate.core.conversion import roles_in
from crosstrain_migrate.files.project import Unit, units
from crosstrain_migrate.files.reading import read
from crosstrain_migrate.files.sources import Unusable
from crosstrain_migrate.outcome import display_name
from crosstrain_migrate.syntax.problems import UNPARSABLE, syntax_problem
from crosstrain_migrate.syntax.program import parts

NO_ROLES = "nothing here trains, as far as the tool can see"


def explain_roles(paths: Iterable[Path]) -> str:
    """One line a role: file, line, name, role, evidence. Raises `Unusable` for a file that cannot be read or parsed."""
    blocks = [_of_unit(unit) for unit in units(read(path) for path in paths)]
    return "\n".join(blocks)


def _of_unit(unit: Unit) -> str:
    whole = unit.whole
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes and the like are the author's
            roles = roles_in(whole.text)
    except UNPARSABLE as error:
        raise Unusable(syntax_problem(whole.path, whole.text, error)) from error
    rows = [(_place(unit, r.line), r.name, r.role, _evidence(unit, r.evidence)) for r in roles]
    if not rows:
        return f"{display_name(whole.path)}: {NO_ROLES}\n"
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = (
        "  ".join([*(t.ljust(w) for t, w in zip(row, widths, strict=False)), row[3]]).rstrip() for row in rows
    )
    return "".join(f"{line}\n" for line in lines)


def _evidence(unit: Unit, text: str) -> str:
    """Lines of a program are spoken of in their files."""
    if len(unit.files) == 1:
        return text
    return re.sub(r"\bline (\d+)", lambda m: _place(unit, int(m[1])), text)


def _place(unit: Unit, line: int) -> str:
    """`folder/model.py:12`, for a line of the program that the script and its imports make together."""
    own = parts(unit.whole.text)
    number = next((n for n, part in enumerate(own) if part.first <= line <= part.last), len(own) - 1)
    return f"{display_name(unit.files[number].path)}:{line - own[number].first + 1}"
