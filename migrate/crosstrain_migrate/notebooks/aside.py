"""What cells before the training only look at: it stays the notebook's own, and no rule needs to see it.

Between its data and its training a notebook shows a batch, plots an image, prints a shape. All of that runs in the kernel
before anything is launched, on loaders and models as they were made. Such statements become strings, as IPython's lines
do, while the rest is migrated; otherwise a loader that is looked at could not be prepared after that.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

from .needs import Obstacle, Statements, assignments, stored
from .outside import Module
from .plainness import changes, is_handed

_ASIDE = "'crosstrain aside "
_HIDDEN = re.compile(rf"{_ASIDE}((?:[^'\\]|\\.)*)'(?: \\$)?", re.MULTILINE)  # with the joint to its next line
_HIDDEN_BLOCK = re.compile(rf"^{_ASIDE}(?:.* \\\n)*.*", re.MULTILINE)  # a whole statement
_MOVES = {"to", "cuda", "cpu", "train", "eval", "manual_seed", "seed", "backward", "step"}
_DEVICE = re.compile(r"cuda|device|mps")
_SPEAKS = {"print", "display", "plt", "sns", "pprint"}


def hide(text: str, modules: Sequence[Module] = ()) -> str:
    """The linked text with the statements that only look as strings, in as many lines."""
    try:
        notebook = Statements(text, modules)
    except (SyntaxError, ValueError, Obstacle):
        return text  # the engine meets it again, and reports it
    training = [s for s in notebook.running if notebook.trains(s)]
    if not training:
        return text
    cell = notebook.cell(training[0])
    earlier = [s for s in notebook.running if notebook.cell(s) < cell]
    looking = _Looking(notebook, training, earlier)
    lines = text.split("\n")
    for statement in earlier:
        if looking.only(statement):
            _conceal(lines, statement, notebook)
    return "\n".join(lines)


def misses(hidden: str, after: str) -> bool:
    """Whether statements that were hidden read what the migrated rest does not make any more."""
    gone = stored(ast.parse(hidden).body) - stored(ast.parse(after).body)
    read = {
        n.id
        for found in _HIDDEN_BLOCK.finditer(hidden)
        for n in ast.walk(ast.parse(reveal(found[0])))
        if isinstance(n, ast.Name)
    }
    return bool(gone & read)


def reveal(text: str) -> str:
    return _HIDDEN.sub(lambda found: re.sub(r"\\(.)", r"\1", found[1]), text)


class _Looking:
    """`training`: the statements that train. What they need, `earlier` ones may make and must not only look at."""

    def __init__(self, notebook: Statements, training: list[ast.stmt], earlier: list[ast.stmt]) -> None:
        self.notebook = notebook
        self.shared = {d.name for d in notebook.uses(training)}
        # Choices of a device may go when nothing that is migrated needs them.
        self.devices = {n for n, v in assignments(earlier) if _DEVICE.search(ast.unparse(v))}
        self.needed = set(notebook.read_by([s for s in notebook.running if s not in earlier]))
        while True:
            more = {n for s in earlier if stored([s]) & self.needed for n in notebook.read_by([s])}
            if more <= self.needed:
                break
            self.needed |= more

    def only(self, statement: ast.stmt) -> bool:
        """Whether a statement makes nothing that the training or a later cell needs, and changes nothing."""
        reach = self.notebook.reach([statement])
        if stored([statement]) & self.needed or reach & (
            self.shared | self.devices | self.notebook.outside.keys()
        ):
            return False
        used = self.notebook.uses([statement])
        for node in (n for place in (statement, *used) for n in ast.walk(place)):
            if isinstance(node, ast.Attribute) and node.attr in _MOVES:
                return False
        places: list[ast.AST] = [statement, *used]
        functions = {d.name for d in used}
        names = self._objects(places)
        if any(
            changes(name, place) or is_handed(name, place, functions) for name in names for place in places
        ):
            return False
        return not isinstance(statement, ast.Expr) or self._speaks(statement.value)

    def _objects(self, places: Iterable[ast.AST]) -> set[str]:
        found = {n.id for place in places for n in ast.walk(place) if isinstance(n, ast.Name)}
        return (found & self.needed) - self.notebook.imported - set(self.notebook.defined)

    def _speaks(self, value: ast.expr) -> bool:
        """A line of its own that shows something; what else a call does for its own sake cannot be known."""
        if not isinstance(value, ast.Call):
            return True
        base: ast.expr = value
        while isinstance(base, ast.Call | ast.Attribute | ast.Subscript):
            base = base.func if isinstance(base, ast.Call) else base.value
        if not isinstance(base, ast.Name):
            return True
        return base.id in _SPEAKS or (base.id not in self.needed and base.id not in self.notebook.imported)


def _conceal(lines: list[str], statement: ast.stmt, notebook: Statements) -> None:
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    shared = any(
        other is not statement and other.lineno <= last and first <= (other.end_lineno or other.lineno)
        for other in notebook.tree.body
    )
    if shared or any("migrate:" in line for line in lines[first - 1 : last]):
        return
    for index in range(first - 1, last):
        lines[index] = f"{_ASIDE}{_escaped(lines[index])}'" + (" \\" if index < last - 1 else "")


def _escaped(line: str) -> str:
    return line.replace("\\", "\\\\").replace("'", "\\'")
