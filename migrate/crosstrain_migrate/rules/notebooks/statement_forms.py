"""What single statements and lines of a migrated notebook are, and how new ones are written."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TypeGuard

HOLDER = "accelerator"
WIDTH = 88


def is_maker(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Accelerator"


def is_construct(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Assign) and targets_of(statement) == [HOLDER] and is_maker(statement.value)
    )


def is_prepare(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Assign) else None
    called = value.func if isinstance(value, ast.Call) else None
    return is_own(called, "prepare")


def is_device(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Assign)
        and len(targets_of(statement)) == 1
        and is_own(statement.value, "device")
    )


def is_print(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return is_own(node, "print")


def is_own(node: ast.AST | None, attribute: str) -> TypeGuard[ast.Attribute]:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == attribute
        and isinstance(node.value, ast.Name)
        and node.value.id == HOLDER
    )


def guarded_by(statement: ast.stmt) -> list[ast.stmt]:
    """What stands under `with accelerator.main_process_first():` or `if accelerator.is_main_process:`."""
    if isinstance(statement, ast.With) and len(statement.items) == 1:
        context = statement.items[0].context_expr
        if isinstance(context, ast.Call) and is_own(context.func, "main_process_first"):
            return statement.body
    if isinstance(statement, ast.If) and is_own(statement.test, "is_main_process") and not statement.orelse:
        return statement.body
    return []


def calls_one_of(value: ast.expr, names: Sequence[str]) -> bool:
    called = value.func if isinstance(value, ast.Call) else None
    return getattr(called, "attr", getattr(called, "id", "")) in names


def has_parameter(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and any(a.arg == name for a in node.args.args)


def targets_of(statement: ast.stmt) -> list[str]:
    assert isinstance(statement, ast.Assign)
    target = statement.targets[0]
    elements = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return [n.id for n in elements if isinstance(n, ast.Name)]


def prepared_by(statement: ast.stmt) -> list[str]:
    """What a prepare binds: variables, and items of dicts and lists as they are written."""
    assert isinstance(statement, ast.Assign)
    target = statement.targets[0]
    elements = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return [ast.unparse(n) for n in elements if isinstance(n, ast.Name | ast.Subscript)]


def base_of(name: str) -> str:
    """The variable that holds what is prepared: the dict or list of an item."""
    return name.partition("[")[0]


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


def wrapped(start: str, names: Sequence[str], end: str, unit: str) -> list[str]:
    line = f"{start}{', '.join(names)}{end}"
    if len(line) <= WIDTH:
        return [line]
    return [start, *(f"{unit}{name}," for name in names), end.lstrip(",")]


def put_at(line: str, node: ast.expr, text: str) -> str:
    """The line with what stands at the node replaced; columns of the tree count bytes."""
    data = line.encode()
    before, behind = data[: node.col_offset], data[node.end_col_offset :]
    return before.decode() + text + behind.decode()


def string_lines(lines: list[str]) -> set[int]:
    """Indexes of lines that begin inside a string, whose blanks are the string's."""
    nodes = ast.walk(ast.parse("\n".join(lines)))
    strings = [n for n in nodes if isinstance(n, ast.Constant | ast.JoinedStr)]
    return {index for n in strings for index in range(n.lineno, n.end_lineno or n.lineno)}
