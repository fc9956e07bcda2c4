"""Statements that only display something: they stay as they are, and no rule needs to see them.

A notebook shows a batch, plots an image, prints a shape, and below its training it draws curves and predictions. All of
that runs in the kernel, on loaders and models as their author made them. Such statements, and functions that only they
use, become strings, as IPython's lines do, while the rest is migrated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence

from crosstrain_migrate.files.notebooks.linked import concealed, revealed
from crosstrain_migrate.syntax.bindings import bindings
from crosstrain_migrate.syntax.nodes import last_name

from .cell_dependencies import Obstacle, Statements
from .local_modules import Definition, Module
from .mutations import changes, is_filled
from .statement_forms import end_of, first_of, names_in

_ASIDE = "'crosstrain aside "
_HIDDEN = re.compile(rf"{_ASIDE}((?:[^'\\]|\\.)*)'(?: \\$)?", re.MULTILINE)  # with the joint to its next line
_MOVES = {"to", "cuda", "cpu", "half", "float", "double", "bfloat16", "type"}  # a module, in place
_DRAWS = {"manual_seed", "seed", "step"}
_DISPLAYS = {"print", "display", "plt", "sns", "pprint"}


def hide(text: str, modules: Sequence[Module] = ()) -> str:
    """The linked text with all that no training needs as strings, on as many lines."""
    try:
        notebook = Statements(text, modules)
    except (SyntaxError, ValueError, Obstacle):
        return text  # the engine reports it
    training = notebook.training
    if not training:
        return text
    lines = text.split("\n")
    for node in _Display(notebook, training).hidden():
        _conceal(lines, node, notebook)
    return "\n".join(lines)


def reveal(text: str) -> str:
    """The text with what `hide` has hidden."""
    return _HIDDEN.sub(lambda found: revealed(found[1]), text)


class _Display:
    """`training`: the statements that train. What they need, statements of other cells may make."""

    def __init__(self, notebook: Statements, training: list[ast.stmt]) -> None:
        self.notebook = notebook
        cells = {notebook.cell(s) for s in training}
        self.first = training[0]
        self.others = [s for s in notebook.running if notebook.cell(s) not in cells]
        self.visible = [s for s in notebook.running if s not in self.others]
        self.shared = {d.name for d in notebook.uses(training)} | notebook.outside.keys()
        self.models = {n for n, d in notebook.defined.items() if is_module(d, notebook)}
        self.needed: set[str] = set()

    def hidden(self) -> list[ast.stmt]:
        while True:
            self.needed = set(self.notebook.read_by(self.visible))
            more = [s for s in self.others if s not in self.visible and not self._only_shows(s)]
            if not more:
                break
            self.visible = sorted([*self.visible, *more], key=lambda s: s.lineno)
        statements = [s for s in self.others if s not in self.visible]
        return [*statements, *self._idle_definitions(statements)]

    def _idle_definitions(self, hidden: Collection[ast.stmt]) -> list[ast.stmt]:
        """Functions and classes that only hidden statements use, or nobody."""
        body = self.notebook.tree.body
        names = names_in(*(s for s in body if not isinstance(s, Definition) and s not in hidden))
        defined = self.notebook.defined.items()
        while more := names_in(*(d for name, d in defined if name in names)) - names:
            names |= more
        return [s for s in body if isinstance(s, Definition) and s.name not in names]

    def _only_shows(self, statement: ast.stmt) -> bool:
        """Whether a statement makes nothing that a visible one needs, and changes nothing."""
        # Code that computes with a model does not depend on how its class is written.
        shared = self.shared - (self.models - names_in(statement))
        # Also what training above bound before.
        below = [s for s in self.visible if s.lineno > statement.lineno]
        if (
            bindings([statement]) & {*self.needed, *self.notebook.read_by(below)}
            or self.notebook.reach([statement]) & shared
        ):
            return False
        used = self.notebook.uses([statement])
        places: list[ast.AST] = [statement, *used]
        known = self.notebook.imported | self.notebook.defined.keys()
        names = (names_in(*places) & self.needed) - known
        if any(self._touches(n, names) for place in places for n in ast.walk(place)):
            return False
        functions = {d.name: [d] for d in used} if statement.lineno < self.first.lineno else {}
        pairs = [(name, place) for name in names for place in places]
        if any(changes(name, place) or is_filled(name, place, functions) for name, place in pairs):
            return False
        return not isinstance(statement, ast.Expr) or self._displays(statement.value)

    def _touches(self, node: ast.AST, names: Collection[str]) -> bool:
        """A seed, a step; and `model.cuda()`, which moves an object that is needed."""
        if not isinstance(node, ast.Attribute) or node.attr not in _MOVES | _DRAWS:
            return False
        return node.attr in _DRAWS or (isinstance(node.value, ast.Name) and node.value.id in names)

    def _displays(self, value: ast.expr) -> bool:
        """Whether an expression by itself shows something; what any other call does cannot be known."""
        if not isinstance(value, ast.Call):
            return True
        if isinstance(value.func, ast.Name) and value.func.id in self.needed - self.notebook.imported:
            return value.func.id not in self.notebook.defined  # a model tried out
        base: ast.expr = value
        while isinstance(base, ast.Call | ast.Attribute | ast.Subscript):
            base = base.func if isinstance(base, ast.Call) else base.value
        if not isinstance(base, ast.Name):
            return True
        return base.id in _DISPLAYS or base.id not in self.needed | self.notebook.imported


def is_module(node: ast.AST, notebook: Statements) -> bool:
    """Whether a class derives from torch's Module, itself or through others of the notebook."""
    if not isinstance(node, ast.ClassDef):
        return False
    for base in node.bases:
        name = last_name(base)
        inner = notebook.defined.get(name)
        if name.endswith("Module") or (
            inner is not None and inner is not node and is_module(inner, notebook)
        ):
            return True
    return False


def _conceal(lines: list[str], statement: ast.stmt, notebook: Statements) -> None:
    first, last = first_of(statement), end_of(statement)
    commented = any("migrate:" in line for line in lines[first - 1 : last])
    if commented or notebook.sharing_lines(statement):
        return
    for index in range(first - 1, last):
        lines[index] = concealed(lines[index], _ASIDE) + (" \\" if index < last - 1 else "")
