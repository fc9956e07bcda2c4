"""Numbers that are put into a tensor, reduced and written back: one process leaves them as they are."""

from __future__ import annotations

import ast

from .plain import Stage

OF_NUMBERS = frozenset({"torch.tensor", "torch.as_tensor"})
CONVERSIONS = frozenset({"builtins.int", "builtins.float"})
SAME_NUMBERS = frozenset({"tolist", "item", "cpu", "detach", "clone"})


class WrittenBack:
    """Follows the statements of a body in order.

    `t = torch.tensor([self.count, self.total])`, `t = t.tolist()`, `self.count = int(t[0])`: every number goes back to
    where it came from.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.held: dict[str, list[str] | str] = {}  # variables: the expressions in their tensors, by source

    def has_no_effect(self, statement: ast.stmt) -> bool:
        """Whether `statement` fills such a tensor, or writes a number of one back to where it came from."""
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return False
        target, numbers = statement.targets[0], self._numbers(statement.value)
        if numbers is None:
            return False
        if isinstance(target, ast.Tuple | ast.List):
            return numbers == [ast.unparse(t) for t in target.elts]
        if numbers == ast.unparse(target):
            return True
        if isinstance(target, ast.Name):
            self.held[target.id] = numbers
            return True
        return False

    def _numbers(self, node: ast.expr) -> list[str] | str | None:
        """The expressions that `node` has the values of, with one process."""
        if isinstance(node, ast.Name):
            return self.held.get(node.id)
        if isinstance(node, ast.Subscript):
            inner = self._numbers(node.value)
            index = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(inner, list) and isinstance(index, int) and 0 <= index < len(inner):
                return inner[index]
            return None
        if not isinstance(node, ast.Call):
            return None
        paths = self.stage.facts.paths(node.func)
        if paths & OF_NUMBERS and node.args:
            return _written(node.args[0])
        if paths & CONVERSIONS and len(node.args) == 1:
            return self._numbers(node.args[0])
        if isinstance(node.func, ast.Attribute) and node.func.attr in SAME_NUMBERS and not node.args:
            return self._numbers(node.func.value)
        return None


def _written(node: ast.expr) -> list[str] | str | None:
    if isinstance(node, ast.List | ast.Tuple):
        return [ast.unparse(e) for e in node.elts]
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else None
