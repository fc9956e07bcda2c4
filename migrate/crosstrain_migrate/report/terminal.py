"""The diff on a terminal: coloured, rule codes beside the hunks, side by side where 160 columns allow it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from crosstrain_migrate.outcome import Migrated, Outcome

from .diff import Hunk, Line, part_hunks

SIDE_BY_SIDE = 160
_WIDTH = 4  # of line numbers
# Only the terminal's own sixteen colours, and no grounds: it may be light or dark.
_SIGN = {"-": "bold red", "+": "bold green", " ": "dim"}


def print_diff(outcome: Outcome, console: Console | None = None) -> None:
    """Prints every changed file's hunks. Rich honours NO_COLOR, COLUMNS and dumb terminals by itself."""
    console = console or Console(highlight=False)
    for file in outcome.changed:
        console.print(_file(file, wide=console.width >= SIDE_BY_SIDE))


def _file(file: Migrated, *, wide: bool) -> RenderableType:
    shown: list[RenderableType] = []
    for part in file.parts():
        before, after = _highlighted(part.piece.before), _highlighted(part.piece.after)
        name = file.name + (f", {part.piece.label}" if part.piece.label else "")
        shown.append(Rule(Text(name, "bold"), align="left", style="dim"))
        for hunk in part_hunks(part):
            shown += [_reasons(hunk), (_two_columns if wide else _one_column)(hunk, before, after), Text()]
    return Group(*shown)


def _highlighted(text: str) -> list[Text]:
    # The whole file at once: a hunk alone may begin inside a string.
    syntax = Syntax("", "python", theme="ansi_dark", background_color="default")
    highlighted = syntax.highlight(text)
    highlighted.expand_tabs(4)
    return list(highlighted.split("\n", allow_blank=True))


def _reasons(hunk: Hunk) -> Text:
    text = Text()
    for number, change in enumerate(dict.fromkeys((one.rule, one.reason) for one in hunk.changes)):
        text.append("\n" if number else "").append(change[0], "bold cyan").append(f" {change[1]}", "dim")
    return text if hunk.changes else Text(hunk.header, "dim cyan")


def _row(line: Line, numbers: Sequence[int | None], before: list[Text], after: list[Text]) -> list[Text]:
    style = _SIGN[line.sign]
    lines, number = (after, line.new) if line.sign == "+" else (before, line.old)
    assert number is not None
    code = lines[number - 1] if number <= len(lines) else Text(line.text.decode("utf-8", "replace"))
    return [*(Text(str(number or ""), style) for number in numbers), Text(line.sign, style), code]


def _table(numbers: int, sides: int) -> Table:
    table = Table.grid(padding=(0, 1), expand=True)
    for _ in range(sides):
        for _ in range(numbers):
            table.add_column(no_wrap=True, justify="right", width=_WIDTH)
        table.add_column(no_wrap=True, width=1)
        table.add_column(ratio=1, overflow="fold")
    return table


def _one_column(hunk: Hunk, before: list[Text], after: list[Text]) -> Table:
    table = _table(numbers=2, sides=1)
    for line in hunk.lines:
        table.add_row(*_row(line, (line.old, line.new), before, after))
    return table


def _two_columns(hunk: Hunk, before: list[Text], after: list[Text]) -> Table:
    table = _table(numbers=1, sides=2)
    for left, right in (pair for block in hunk.blocks() for pair in itertools.zip_longest(*block)):
        old = _row(left, [left.old], before, after) if left else [Text()] * 3
        new = _row(right, [right.new], before, after) if right else [Text()] * 3
        table.add_row(*old, *new)
    return table
