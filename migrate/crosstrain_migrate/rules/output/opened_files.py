"""Files that a script opens for writing, and keeps open."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import given
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax import edits as e


def opens_for_writing(facts: Facts, node: ast.AST) -> bool:
    """`open(path, "w")`."""
    if not isinstance(node, ast.Call) or "builtins.open" not in facts.paths(node.func):
        return False
    mode = given(node, "mode", 1)
    return isinstance(mode, ast.Constant) and any(c in str(mode.value) for c in "wax+")


def opens_path_for_writing(facts: Facts, node: ast.AST) -> bool:
    """`path.open("w")`, of a pathlib.Path."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "open":
        return False
    if not all(path.startswith("pathlib.") for path in facts.paths(node.func)) or facts.targets(node):
        return False
    mode = given(node, "mode", 0)
    written = mode.value if isinstance(mode, ast.Constant) else None
    return isinstance(written, str) and set(written) <= set("rwaxbt+") and bool(set(written) & set("wax+"))


def writes_into(facts: Facts, block: ast.AST) -> bool:
    """`with open(path, "w") as file:` and `with path.open("w") as file:`"""
    return isinstance(block, ast.With) and any(
        opens_for_writing(facts, i.context_expr) or opens_path_for_writing(facts, i.context_expr)
        for i in block.items
    )


def keeps_a_file_open(facts: Facts, statement: ast.AST) -> bool:
    """`log = open(path, "w")`, which is the null device on the other processes."""
    return isinstance(statement, ast.Assign) and opens_for_writing(facts, statement.value)


def open_null_device(context: Context, path: ast.expr, rule: str, reason: str, process: str) -> None:
    """The file at `path` is the null device on all but the main process; `process` says which this is."""
    template = "{x} if " + process + ".is_main_process else os.devnull"
    context.replace(path, rule, reason, template, x=path)
    import_module(context, path, rule, "os")


def import_module(context: Context, node: ast.AST, rule: str, module: str) -> None:
    """`import os`, where the file of `node` does not have it."""
    scope = context.facts.table.of_node[node]
    if module not in scope.module.names:
        context.edits.append(e.AddImport(scope.file, rule, code=f"import {module}"))
