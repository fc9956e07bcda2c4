"""Code without effects: what may be left out without anybody noticing."""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk

# Functions and methods that only ask: of Python, of strings and modules, of torch.
_ASKING = frozenset(
    {
        *("int", "str", "float", "bool", "list", "dict", "tuple", "len", "max", "min", "range"),
        *("hasattr", "isinstance", "is_tensor", "get", "getenv", "format", "startswith", "endswith", "lower"),
        *("parameters", "named_parameters", "device", "device_count", "current_device"),
        *("is_available", "is_initialized", "is_nccl_available", "is_gloo_available", "get_backend"),
        *("get_rank", "get_world_size", "get_default_backend_for_device", "current_accelerator"),
        "PartialState",
    }
)


def same_code(body: list[ast.stmt], other: list[ast.stmt]) -> bool:
    return [ast.dump(s) for s in body] == [ast.dump(s) for s in other]


def does_nothing(body: list[ast.stmt]) -> bool:
    """Whether the statements are nothing but `pass`, docstrings and `...`."""
    return all(
        isinstance(s, ast.Pass) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        for s in body
    )


def effectless(node: ast.expr) -> bool:
    """Evaluating it changes nothing: names, attributes, arithmetic, tests, and calls that only ask."""
    for inner in walk(node):
        if isinstance(inner, ast.Call):
            if last_name(inner.func) not in _ASKING:
                return False
        elif isinstance(inner, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr | ast.Lambda):
            return False
    return True


def is_pure(test: ast.expr) -> bool:
    """A test without side effects: names, attributes, `not`, and, or, cuda.is_available()."""
    for node in walk(test):
        if not isinstance(node, ast.expr):
            return False
        if isinstance(node, ast.Call) and not written(node.func).endswith("is_available"):
            return False
    return True
