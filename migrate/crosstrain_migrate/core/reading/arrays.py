"""What is surely an array or a tensor: `prepare` gives one back as it is, whoever iterates it."""

from __future__ import annotations

import ast
import re

from .forms import Frame, is_method
from .script import Script

_KEEPS = (
    "to",
    "cuda",
    "float",
    "double",
    "long",
    "int",
    "view",
    "reshape",
    "unsqueeze",
    "astype",
    "requires_grad_",
)

_MAKES = re.compile(
    r"^(numpy|torch)\.(\w+\.)*(arange|array|asarray|choice|linspace|permutation|randint|randperm|tensor|as_tensor"
    r"|rand|randn|normal|uniform|zeros|ones|full|empty|stack|cat|concatenate)$"
    r"|^torch\.(\w*Tensor|from_numpy)$"
)


def is_array(script: Script, frame: Frame, node: ast.expr) -> bool:
    """Whether an expression is an array, is computed from one, or is a variable that holds nothing else."""
    if isinstance(node, ast.BinOp):
        return any(is_array(script, frame, side) for side in (node.left, node.right))
    if isinstance(node, ast.Call):
        is_made = _MAKES.match(script.dotted(node.func)) is not None
        return is_made or (is_method(node, *_KEEPS) and is_array(script, frame, node.func.value))
    if not isinstance(node, ast.Name):
        return False
    values = script.values(frame, node.id)
    is_bound_otherwise = len(values) != len(script.stores(frame, node.id))
    return bool(values) and not is_bound_otherwise and all(is_array(script, frame, one) for one in values)
