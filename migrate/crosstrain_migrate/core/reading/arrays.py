"""What is surely an array or a tensor: `prepare` gives one back as it is, whoever iterates it."""

from __future__ import annotations

import ast
import re

from .script import Frame, Script

_MAKES = re.compile(
    r"^(numpy|torch)\.(\w+\.)*(arange|array|asarray|choice|linspace|permutation|randint|randperm|tensor|as_tensor)$"
    r"|^torch\.(\w*Tensor|from_numpy)$"
)


def is_array(script: Script, frame: Frame, node: ast.expr) -> bool:
    """Whether an expression is an array, or a variable that holds nothing else."""
    if isinstance(node, ast.Call):
        return _MAKES.match(script.dotted(node.func)) is not None
    if not isinstance(node, ast.Name):
        return False
    values = script.values(frame, node.id)
    is_bound_otherwise = len(values) != len(script.stores(frame, node.id))
    return bool(values) and not is_bound_otherwise and all(is_array(script, frame, one) for one in values)
