"""A converted script as if it were plain: what the Accelerator does stands as what it was done to.

A second migration is asked about this tree, and must find nothing to do but what the first has done: no device to move
to, no backward pass, nothing to clip and no print but in lines where the Accelerator is named already.
"""

from __future__ import annotations

import ast
from typing import cast

from crosstrain_migrate.facts.facts import understand
from crosstrain_migrate.rules.distribution.requested_options import Requested
from crosstrain_migrate.syntax.nodes import all_arguments
from crosstrain_migrate.syntax.program import parse
from crosstrain_migrate.syntax.walks import walk

from .base import Allows
from .gate import MIGRATED
from .planning import plan
from .policy import BESIDE

HOLDER, CLASS, STATE = "accelerator", "Accelerator", "PartialState"
# The rules that are asked again: what another rule leaves alone for a reason may look different in the result.
CHECKED = frozenset({"CT103", "CT104", "CT105", "CT202", "CT203", "CT401"})
# An import is used by what stands here in the Accelerator's place, and no longer by what became `save_model`.
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
# Methods that give back what they are given.
SAME = frozenset({"prepare", "unwrap_model"})
# Methods whose results depend on no rank any more.
GLOBAL = frozenset({"gather_for_metrics", "gather", "reduce"})


def left_over(text: str, runtime: str, allows: Allows, requested: Requested | None) -> list[str]:
    """What a migration would do to a result that it takes for a plain script, beyond what is done."""
    tree = parse(text)
    plainly = _Plainly()
    plainly.visit(tree)
    planned = plan(understand(tree), text, runtime, allows, requested)
    again = sorted(
        {
            (e.line, e.rule)
            for e in planned.edits
            if e.rule in CHECKED and not isinstance(e, BESIDE) and not isinstance(e.node, IMPORTS)
        }
    )
    return [
        f"a second migration would change line {line} again ({rule})"
        for line, rule in again
        if line not in plainly.lines
    ]


class _Plainly(ast.NodeTransformer):
    """Rewrites a tree in place. `lines`: those in which something was the Accelerator's."""

    def __init__(self) -> None:
        self.lines: set[int] = set()

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        return self._imported(node, [alias.name for alias in node.names])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        return self._imported(node, [node.module or ""] if not node.level else [])

    def _imported(self, node: ast.Import | ast.ImportFrom, names: list[str]) -> ast.stmt:
        if not any(name.split(".")[0] in MIGRATED for name in names):
            return node
        return cast(ast.stmt, self._instead(node, ast.Pass()))

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        made = node.value
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == _other(CLASS):
            return self._instead(node, ast.Pass())
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = _of_accelerator(node.func)
        if name == "backward" and node.args:
            self.generic_visit(node)
            loss, *more = node.args
            called = ast.Attribute(loss, "backward", ast.Load())
            return self._instead(node, ast.Call(called, more, node.keywords))
        if name in SAME and node.args:
            self.generic_visit(node)
            return self._instead(
                node, node.args[0] if len(node.args) == 1 else ast.Tuple(node.args, ast.Load())
            )
        if name in GLOBAL:
            self.generic_visit(node)
            return self._instead(node, ast.Call(ast.Name("_global", ast.Load()), [], []))
        if name is not None or any(isinstance(a, ast.Name) and a.id == HOLDER for a in node.args):
            self._touch(node)
        return self.generic_visit(node)

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
    """A name that a first migration does not give: its own is taken."""
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
    if (
        isinstance(holder, ast.Call)
        and isinstance(holder.func, ast.Name)
        and holder.func.id in (STATE, CLASS)
    ):
        return node.attr
    name = (
        holder.id
        if isinstance(holder, ast.Name)
        else holder.attr
        if isinstance(holder, ast.Attribute)
        else ""
    )
    return node.attr if name == HOLDER else None
