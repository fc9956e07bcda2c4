"""What the rules of this room ask of variables and calls: what binds a variable, and whose method a call is."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import keyword_of
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import Value
from crosstrain_migrate.syntax.walks import walk

LOOPS = ast.For | ast.AsyncFor | ast.While
SAME = ("item", "detach", "cpu", "float", "double", "clone")  # methods that keep a number what it is


def assigned(facts: Facts, definition: ast.AST) -> ast.expr | None:
    """The value of an assignment that binds one variable and nothing else; None for any other binding."""
    match facts.table.statement_of(definition):
        case ast.Assign([target], value) if target is definition:
            return value
    return None


def targets_of(statement: ast.Assign | ast.AugAssign) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]


def mentions(facts: Facts, name: str, at: ast.AST) -> list[ast.Name]:
    """Every place that reads or binds the variable that a name stands for at a node."""
    scope = facts.table.of_node[at].resolve(name)
    return facts.mentions(scope, name) if scope is not None else []


def receiver(node: ast.AST | None, *methods: str) -> ast.expr | None:
    """`x` of `x.method(...)`, where the method has one of these names; None for anything else."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.value if isinstance(function, ast.Attribute) and function.attr in methods else None


def number_read(facts: Facts, node: ast.AST) -> ast.expr | None:
    """`x` of `x.item()`, `x.detach()` and `float(x)`, which all are the same number."""
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    if not node.args:
        return receiver(node, *SAME)
    return node.args[0] if len(node.args) == 1 and facts.paths(node.func) == {"builtins.float"} else None


def option(loader: Value, name: str) -> ast.expr | None:
    """What the call that makes a loader gives it by this name."""
    site = getattr(loader, "site", None)
    return keyword_of(site, name) if isinstance(site, ast.Call) else None


def names_in(node: ast.AST) -> list[ast.Name]:
    return [n for n in walk(node) if isinstance(n, ast.Name)]
