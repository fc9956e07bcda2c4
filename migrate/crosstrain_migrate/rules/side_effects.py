"""Code without effects: what may be left out without anybody noticing."""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk


def dumps(body: list[ast.stmt]) -> list[str]:
    return [ast.dump(s) for s in body]


def idle(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(s, ast.Pass) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        for s in body
    )


_HARMLESS = frozenset(
    {
        "is_available",
        "device_count",
        "current_device",
        "int",
        "str",
        "len",
        "max",
        "min",
        "range",
        "list",
        "float",
        "bool",
    }
    | {
        "device",
        "get",
        "getenv",
        "format",
        "dict",
        "tuple",
        "parameters",
        "named_parameters",
        "get_rank",
        "get_world_size",
        "is_initialized",
        "is_nccl_available",
        "is_gloo_available",
        "get_backend",
        "get_default_backend_for_device",
        "current_accelerator",
        "startswith",
        "endswith",
        "lower",
        "hasattr",
        "isinstance",
        "is_tensor",
        "PartialState",
    }
)


def effectless(node: ast.expr) -> bool:
    """Evaluating it changes nothing: names, attributes, arithmetic, tests, and calls that only ask."""
    for inner in walk(node):
        if isinstance(inner, ast.Call):
            if last_name(inner.func) not in _HARMLESS:
                return False
        elif isinstance(inner, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr | ast.Lambda):
            return False
    return True


def is_pure(test: ast.expr) -> bool:
    """A test without side effects: names, attributes, `not`, and, or, cuda.is_available()."""
    for node in walk(test):
        if isinstance(node, ast.Call):
            name = written(node.func)
            if not name.endswith("is_available"):
                return False
        elif not isinstance(node, ast.expr | ast.expr_context | ast.boolop | ast.unaryop | ast.cmpop):
            return False
    return True
