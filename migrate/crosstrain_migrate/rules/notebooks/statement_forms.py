"""Recognizes and writes single statements and lines of a migrated notebook."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from typing import TypeGuard

from crosstrain_migrate.syntax.nodes import last_name

HOLDER = "accelerator"


def is_maker(node: ast.AST) -> bool:
    """`Accelerator()`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Accelerator"


def is_construct(statement: ast.stmt) -> bool:
    """`accelerator = Accelerator()`."""
    if not isinstance(statement, ast.Assign):
        return False
    return targets_of(statement) == [HOLDER] and is_maker(statement.value)


def is_prepare(statement: ast.stmt) -> TypeGuard[ast.Assign]:
    """`model, loader = accelerator.prepare(model, loader)`, or an evaluation's."""
    return _assigns_own(statement, "prepare") or is_evaluation(statement)


def is_evaluation(statement: ast.stmt) -> TypeGuard[ast.Assign]:
    """`loader = accelerator.prepare_evaluation(loader)`."""
    return _assigns_own(statement, "prepare_evaluation")


def is_merge(statement: ast.stmt) -> TypeGuard[ast.Assign]:
    """`total = accelerator.merge(loader, total)`."""
    return _assigns_own(statement, "merge")


def _assigns_own(statement: ast.stmt, method: str) -> TypeGuard[ast.Assign]:
    value = statement.value if isinstance(statement, ast.Assign) else None
    return isinstance(value, ast.Call) and is_own(value.func, method)


def is_device(statement: ast.stmt) -> TypeGuard[ast.Assign]:
    """`device = accelerator.device`."""
    if not isinstance(statement, ast.Assign):
        return False
    return len(targets_of(statement)) == 1 and is_own(statement.value, "device")


def chooses_device(statement: ast.stmt) -> bool:
    """`device = accelerator.device`, also where the author's own test stands around it, and nothing else is bound there."""
    if not isinstance(statement, ast.If):
        return is_device(statement)
    bound = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    assigns = [n for n in ast.walk(statement) if isinstance(n, ast.stmt) and is_device(n)]
    return bool(assigns) and len(bound) == len(assigns)


def makes_plain_loss(statement: ast.stmt) -> bool:
    """`criterion = nn.CrossEntropyLoss().to(device)`: it holds no weights, so that it is on no device."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("to", "cuda")
    ):
        value = value.func.value
    return (
        isinstance(value, ast.Call)
        and last_name(value.func).endswith("Loss")
        and not (value.args or value.keywords)
    )


def is_own(node: ast.AST, attribute: str) -> TypeGuard[ast.Attribute]:
    """Whether it is this attribute of the accelerator."""
    if not isinstance(node, ast.Attribute) or node.attr != attribute:
        return False
    return isinstance(node.value, ast.Name) and node.value.id == HOLDER


def guarded_by(statement: ast.stmt) -> list[ast.stmt]:
    """What stands under `with accelerator.main_process_first():` or `if accelerator.is_main_process:`."""
    match statement:
        case ast.With(items=[ast.withitem(context_expr=ast.Call(func=guard))], body=body):
            return body if is_own(guard, "main_process_first") else []
        case ast.If(test=guard, body=body, orelse=[]):
            return body if is_own(guard, "is_main_process") else []
    return []


def calls_one_of(value: ast.expr, names: Collection[str]) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in names


def calls_method(node: ast.AST, method: str) -> bool:
    """Whether a piece of code calls a method of this name."""
    return any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == method
        for n in ast.walk(node)
    )


def targets_of(statement: ast.Assign) -> list[str]:
    return [n.id for n in _targets(statement) if isinstance(n, ast.Name)]


def prepared_by(statement: ast.Assign) -> list[str]:
    """What a prepare binds: variables, and items of dicts and lists as they are written."""
    return [ast.unparse(n) for n in _targets(statement) if isinstance(n, ast.Name | ast.Subscript)]


def _targets(statement: ast.Assign) -> list[ast.expr]:
    target = statement.targets[0]
    return target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


def base_of(name: str) -> str:
    """The variable that holds what is prepared: the dict or list of an item."""
    return name.partition("[")[0]


def names_in(*nodes: ast.AST) -> set[str]:
    """Every variable that the code mentions."""
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def names_in_order(statements: Sequence[ast.stmt]) -> list[str]:
    nodes = [n for s in statements for n in ast.walk(s) if isinstance(n, ast.Name)]
    return [n.id for n in sorted(nodes, key=lambda n: (n.lineno, n.col_offset))]


def first_of(statement: ast.stmt) -> int:
    """The line of its first decorator, or its own."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(d.lineno for d in decorators)])


def end_of(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def short(statement: ast.stmt) -> str:
    text = ast.unparse(statement).split("\n")[0]
    return text if len(text) <= 60 else f"{text[:57]}..."


def tuple_of(names: Sequence[str]) -> str:
    return f", ({', '.join(names)}{',' if len(names) == 1 else ''})" if names else ""


def string_lines(lines: list[str]) -> set[int]:
    """The indexes of lines that begin inside a string, and must not be indented."""
    nodes = ast.walk(ast.parse("\n".join(lines)))
    strings = [n for n in nodes if isinstance(n, ast.Constant | ast.JoinedStr)]
    return {index for n in strings for index in range(n.lineno, n.end_lineno or n.lineno)}
