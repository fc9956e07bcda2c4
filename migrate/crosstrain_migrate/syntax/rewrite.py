"""Carries edits out in the text itself: what no edit concerns stays as it stands, comments and layout included.

Edits name nodes of a tree; an edit whose node is not found in the text is an error, never a guess.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable

from . import edits as e
from . import program
from .blocks import Blocks
from .located import Located
from .new_imports import add_imports


def rewrite(text: str, edits: Iterable[e.Edit]) -> str:
    """Returns `text`, a script or a program, with all `edits` made. Raises EditNotApplied."""
    wanted: dict[int, list[e.Edit]] = defaultdict(list)
    own = program.parts(text)
    firsts = [part.first for part in own]
    for edit in edits:
        wanted[bisect.bisect(firsts, edit.line) - 1].append(edit)
    pieces = (_rewritten(part.text, part.first, wanted.get(number, [])) for number, part in enumerate(own))
    return program.join(text, pieces)


def _rewritten(text: str, first: int, wanted: list[e.Edit]) -> str:
    """One file's text, whose line 1 is the line `first` of its nodes."""
    if not wanted:
        return text
    located = Located(text, first, wanted)
    after = Blocks(located).module()
    imports = located.made(located.tree, e.AddImport)
    if not imports:
        return after
    try:
        return add_imports(after, list(dict.fromkeys(edit.code for edit in imports)))
    except SyntaxError as error:
        raise e.EditNotApplied(imports[0]) from error
