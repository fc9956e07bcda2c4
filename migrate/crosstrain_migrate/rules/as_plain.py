"""Checks that a second migration would change nothing.

The converted script is made plain again in its tree: each use of the Accelerator becomes what it stands for. Planning the
conversion of that tree must find nothing new: no device, backward pass, clipping or print outside of the lines that name
the Accelerator already.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import understand
from crosstrain_migrate.rules.distribution.requested_options import Requested
from crosstrain_migrate.syntax.nodes import all_arguments, last_name
from crosstrain_migrate.syntax.program import parse
from crosstrain_migrate.syntax.walks import walk

from .access import STATE
from .base import Allows
from .gate import imports, is_migrated
from .planning import plan
from .policy import BESIDE

HOLDER, CLASS = "accelerator", "Accelerator"
# Only these rules are asked again: what another rule has left alone for a reason may look different in the result.
CHECKED = frozenset({"CT103", "CT104", "CT105", "CT202", "CT203", "CT401"})
# Imports do not count: the plain counterparts below use some that the result does not need, and the other way round.
IMPORTS = (ast.Import, ast.ImportFrom)
# The plain counterpart of attributes and methods, as an expression.
PLAIN = {
    "device": "torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
    "device.type": "'cuda' if torch.cuda.is_available() else 'cpu'",
    "print": "print",
    "save": "torch.save",
    "clip_grad_norm_": "torch.nn.utils.clip_grad_norm_",
    "clip_grad_value_": "torch.nn.utils.clip_grad_value_",
}
# Methods that return what they are given.
SAME = frozenset({"prepare", "unwrap_model"})
# Methods whose results depend on no rank any more.
GLOBAL = frozenset({"gather_for_metrics", "gather", "reduce"})


def left_over(text: str, runtime: str, allows: Allows, requested: Requested | None) -> list[str]:
    """What another migration would still do to a result."""
    tree = parse(text)
    plain = _MadePlain()
    plain.visit(tree)
    planned = plan(understand(tree), text, runtime, allows, requested)
    again = {
        (edit.line, edit.rule)
        for edit in planned.edits
        if edit.rule in CHECKED and not isinstance(edit, BESIDE) and not isinstance(edit.node, IMPORTS)
    }
    return [
        f"a second migration would change line {line} again ({rule})"
        for line, rule in sorted(again)
        if line not in plain.lines
    ]


class _MadePlain(ast.NodeTransformer):
    """Rewrites a tree in place. `lines`: those in which something was the Accelerator's."""

    def __init__(self) -> None:
        self.lines: set[int] = set()

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> ast.AST:
        migrated = any(map(is_migrated, imports(ast.Module([node], []))))
        return self._instead(node, ast.Pass()) if migrated else node

    visit_ImportFrom = visit_Import

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        made = node.value
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == _other(CLASS):
            return self._instead(node, ast.Pass())
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = _of_accelerator(node.func)
        if name is not None or any(isinstance(a, ast.Name) and a.id == HOLDER for a in node.args):
            self._touch(node)
        self.generic_visit(node)
        if name == "backward" and node.args:
            loss, *more = node.args
            called = ast.Attribute(loss, "backward", ast.Load())
            return self._instead(node, ast.Call(called, more, node.keywords))
        if name in SAME and node.args:
            same = node.args[0] if len(node.args) == 1 else ast.Tuple(node.args, ast.Load())
            return self._instead(node, same)
        if name in GLOBAL:
            return self._instead(node, ast.Call(ast.Name("_global", ast.Load()), [], []))
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        name = _of_accelerator(node)
        if name in PLAIN:
            plain = ast.parse(PLAIN[name], mode="eval").body
            for part in walk(plain):
                ast.copy_location(part, node)
            return self._instead(node, plain)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        if _is_guard(node.test):
            self._touch(node)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = _other(node.id)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        for argument in all_arguments(node):
            if argument.arg == HOLDER:
                self.lines.add(node.lineno)
                argument.arg = _other(HOLDER)
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        node.arg = _other(node.arg) if node.arg is not None else None
        return self.generic_visit(node)

    def _instead(self, node: ast.stmt | ast.expr, other: ast.AST) -> ast.AST:
        self._touch(node)
        for part in walk(other):
            if isinstance(part, ast.stmt | ast.expr) and not hasattr(part, "lineno"):
                ast.copy_location(part, node)
        return other

    def _touch(self, node: ast.stmt | ast.expr) -> None:
        self.lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _other(name: str) -> str:
    """Another name for what the migration has named, so that planning takes the script for a plain one."""
    return f"{name}_" if name in (HOLDER, CLASS) else name


def _is_guard(test: ast.expr) -> bool:
    return any((_of_accelerator(part) or "").startswith("is_") for part in walk(test))


def _of_accelerator(node: ast.AST) -> str | None:
    """`device` of `accelerator.device` and `self.accelerator.device`; `device.type` is one of its attributes."""
    if not isinstance(node, ast.Attribute):
        return None
    if node.attr == "type" and _of_accelerator(node.value) == "device":
        return "device.type"
    holder = node.value
    made = isinstance(holder, ast.Call) and getattr(holder.func, "id", "") in (STATE, CLASS)
    return node.attr if made or last_name(holder) == HOLDER else None
