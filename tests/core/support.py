"""Small scripts, converted in the process that tests: which lines come out, and that a second conversion changes nothing."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from crosstrain_migrate.core.conversion import Conversion, convert
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options

from .filling import filled

PRELUDE = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
"""


@dataclass(frozen=True)
class Trap:
    """A script that was once converted wrongly.

    lines: lines of the result, in this order. absent: parts of lines that must not come out. says: part of a note.
    """

    name: str
    script: str
    lines: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    says: str = ""

    @property
    def text(self) -> str:
        return filled(PRELUDE.lstrip() + dedent(self.script))


def cases(text: str) -> list[Trap]:
    """The traps of a text: `== name`, the script, then `-> line`, `!! absent` and `?? says`, as many as there are."""
    return [_case(*part.partition("\n")[::2]) for part in re.split("^== ", text, flags=re.MULTILINE)[1:]]


def each_row(text: str) -> pytest.MarkDecorator:
    r"""Parameters of a test: a line of their names, then a line for each case, `=>` between the cells.

    `\n` ends a line in a cell, `''` is an empty one, and words for truth and None are values. `#` begins a comment. A line that
    begins with `=>` goes on with the case above it.
    """
    lines = text.strip().replace("\n=> ", " => ").splitlines()
    lines = [line.partition("  # ")[0] for line in lines if not line.startswith("# ")]
    names, *rows = [[_value(cell) for cell in line.split(" => ")] for line in lines]
    return pytest.mark.parametrize(",".join(names), rows if len(names) > 1 else [only for (only,) in rows])


def _value(cell: str) -> Any:
    return {"True": True, "False": False, "None": None, "''": ""}.get(cell, cell.replace("\\n", "\n"))


def _case(name: str, text: str) -> Trap:
    told: dict[str, list[str]] = {"->": [], "!!": [], "??": [""], "": []}
    for line in text.splitlines(keepends=True):
        kind = line[:2] if line[:3] in ("-> ", "!! ", "?? ") else ""
        told[kind].append(line[3:].rstrip("\n") if kind else line)
    return Trap(name, "".join(told[""]), tuple(told["->"]), tuple(told["!!"]), told["??"][-1])


def converted(text: str) -> Conversion:
    return convert(filled(text), "crosstrain", lambda rule, node: True)


def check(trap: Trap) -> None:
    """Asserts all that a trap says of its conversion."""
    done = converted(trap.text)
    after = [line.strip() for line in done.text.splitlines()]
    at = 0
    for line in trap.lines:
        assert line in after[at:], f"{line!r} is not in its place:\n{done.text}"
        at = after.index(line, at) + 1
    for part in trap.absent:
        assert part not in done.text, done.text
    if trap.says:
        assert any(trap.says in finding.reason for finding in done.findings), done.findings
    else:
        assert not [one for one in done.findings if one.severity.value == "refused"], done.findings
    again = migrate_text(Path("script.py"), done.text, Options())
    assert again.after == done.text, "a second conversion changes it"


def case_by_case(traps: Sequence[Trap], checked: Callable[[Any], None] = check) -> Callable[[Trap], None]:
    """The test that has these cases."""

    @pytest.mark.parametrize("trap", traps, ids=lambda trap: trap.name)
    def test(trap: Trap) -> None:
        checked(trap)

    return test
