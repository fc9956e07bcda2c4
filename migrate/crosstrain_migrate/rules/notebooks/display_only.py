"""What cells only look at: it stays the notebook's own, and no rule needs to see it.

A notebook shows a batch, plots an image, prints a shape, and below its training it draws curves and predictions. All of
that runs in the kernel, on loaders and models as their author made them. Such statements, and functions that only they
use, become strings, as IPython's lines do, while the rest is migrated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Sequence

from .cell_dependencies import Obstacle, Statements, stored
from .local_modules import Definition, Module
from .mutations import changes, is_filled
from .statement_forms import end_of, first_of

_ASIDE = "'crosstrain aside "
_HIDDEN = re.compile(rf"{_ASIDE}((?:[^'\\]|\\.)*)'(?: \\$)?", re.MULTILINE)  # with the joint to its next line
_MOVES = {"to", "cuda", "cpu", "half", "float", "double", "bfloat16", "type"}  # a module, in place
_DRAWS = {"manual_seed", "seed", "step"}
_SPEAKS = {"print", "display", "plt", "sns", "pprint"}


def hide(text: str, modules: Sequence[Module] = (), known: Collection[str] = ()) -> str:
    """The linked text with what no training needs as strings, in as many lines.

    `known`: functions and classes whose uses must not be hidden.
    """
    try:
        notebook = Statements(text, modules)
    except (SyntaxError, ValueError, Obstacle):
        return text  # the engine meets it again, and reports it
    training = notebook.training
    if not training:
        return text
    lines = text.split("\n")
    for node in _Looking(notebook, training, known).hidden():
        _conceal(lines, node, notebook)
    return "\n".join(lines)


def reveal(text: str) -> str:
    return _HIDDEN.sub(lambda found: re.sub(r"\\(.)", r"\1", found[1]), text)


class _Looking:
    """`training`: the statements that train. What they need, statements of other cells may make."""

    def __init__(self, notebook: Statements, training: list[ast.stmt], known: Collection[str]) -> None:
        self.notebook = notebook
        cells = {notebook.cell(s) for s in training}
        self.first = training[0]
        self.others = [s for s in notebook.running if notebook.cell(s) not in cells]
        self.visible = [s for s in notebook.running if s not in self.others]
        self.shared = {d.name for d in notebook.uses(training)} | notebook.outside.keys()
        self.models = {n for n, d in notebook.defined.items() if is_module(d, notebook)} - {*known}
        self.needed: set[str] = set()

    def hidden(self) -> list[ast.stmt]:
        while True:
            self.needed = set(self.notebook.read_by(self.visible))
            more = [s for s in self.others if s not in self.visible and not self._only(s)]
            if not more:
                break
            self.visible = sorted([*self.visible, *more], key=lambda s: s.lineno)
        statements = [s for s in self.others if s not in self.visible]
        return [*statements, *self._idle_definitions(statements)]

    def _idle_definitions(self, hidden: Collection[ast.stmt]) -> list[ast.stmt]:
        """Functions and classes that only hidden statements use, or nobody."""
        places: list[ast.stmt] = [s for s in self.notebook.tree.body if not isinstance(s, Definition)]
        names = {n for s in places if s not in hidden for n in _named(s)}
        while True:
            more = {n for name, d in self.notebook.defined.items() if name in names for n in _named(d)}
            if more <= names:
                break
            names |= more
        return [s for s in self.notebook.tree.body if isinstance(s, Definition) and s.name not in names]

    def _only(self, statement: ast.stmt) -> bool:
        """Whether a statement makes nothing that a visible one needs, and changes nothing."""
        # Who computes with a model does not ask how its class is written.
        shared = self.shared - (self.models - _named(statement))
        if stored([statement]) & self.needed or self.notebook.reach([statement]) & shared:
            return False
        used = self.notebook.uses([statement])
        places: list[ast.AST] = [statement, *used]
        names = self._objects(places)
        if any(self._touches(n, names) for place in places for n in ast.walk(place)):
            return False
        functions = {d.name: [d] for d in used} if statement.lineno < self.first.lineno else {}
        if any(
            changes(name, place) or is_filled(name, place, functions) for name in names for place in places
        ):
            return False
        return not isinstance(statement, ast.Expr) or self._speaks(statement.value)

    def _touches(self, node: ast.AST, names: Collection[str]) -> bool:
        """A seed, a step; and `model.cuda()`, which moves an object that is needed."""
        if not isinstance(node, ast.Attribute) or node.attr not in _MOVES | _DRAWS:
            return False
        return node.attr in _DRAWS or (isinstance(node.value, ast.Name) and node.value.id in names)

    def _objects(self, places: Iterable[ast.AST]) -> set[str]:
        found = {n for place in places for n in _named(place)}
        return (found & self.needed) - self.notebook.imported - set(self.notebook.defined)

    def _speaks(self, value: ast.expr) -> bool:
        """A line of its own that shows something; what else a call does for its own sake cannot be known."""
        if not isinstance(value, ast.Call):
            return True
        if isinstance(value.func, ast.Name) and value.func.id in self.needed - self.notebook.imported:
            return value.func.id not in self.notebook.defined  # a model tried out
        base: ast.expr = value
        while isinstance(base, ast.Call | ast.Attribute | ast.Subscript):
            base = base.func if isinstance(base, ast.Call) else base.value
        if not isinstance(base, ast.Name):
            return True
        return base.id in _SPEAKS or (base.id not in self.needed and base.id not in self.notebook.imported)


def is_module(node: ast.AST, notebook: Statements) -> bool:
    """Whether a class derives from torch's Module, itself or through others of the notebook."""
    if not isinstance(node, ast.ClassDef):
        return False
    for base in node.bases:
        name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
        inner = notebook.defined.get(name)
        if name.endswith("Module") or (
            inner is not None and inner is not node and is_module(inner, notebook)
        ):
            return True
    return False


def resigned(before: Statements, after: Statements) -> set[str]:
    """Functions and classes that are called in another way than before."""
    return {
        name
        for name, node in after.defined.items()
        if name in before.defined and _signatures(node) != _signatures(before.defined[name])
    }


def _signatures(node: ast.AST) -> list[tuple[str, str]]:
    return [(n.name, ast.dump(n.args)) for n in ast.walk(node) if isinstance(n, ast.FunctionDef)]


def _named(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _conceal(lines: list[str], statement: ast.stmt, notebook: Statements) -> None:
    first, last = first_of(statement), end_of(statement)
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
