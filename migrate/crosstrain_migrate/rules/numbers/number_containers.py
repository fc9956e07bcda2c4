"""Dictionaries and lists of numbers that are added up: `sums[name] += value`."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts

from .bindings import LOOPS

READING = frozenset({"items", "values", "keys", "get", "copy", "clear"})
COUNTERS = frozenset({"collections.Counter", "builtins.dict"})


def holds_numbers(facts: Facts, mentions: list[ast.Name], loop: ast.AST) -> bool:
    """Whether a container is made of numbers alone, and nobody else has it while a loop adds them up."""
    made = [n for n in mentions if isinstance(n.ctx, ast.Store)]
    statements = [facts.table.statement_of(n) for n in made]
    if not made or not all(
        isinstance(s, ast.Assign) and s.targets == [n] and _is_of_numbers(facts, s.value)
        for n, s in zip(made, statements, strict=True)
    ):
        return False
    handed = [n for n in mentions if n not in made and _is_handed_on(facts, n)]
    around = {_loop_around(facts, s) for s in statements}
    return all(n.lineno > loop_end(loop) and _loop_around(facts, n) in around for n in handed)


def loop_end(loop: ast.AST) -> int:
    return getattr(loop, "end_lineno", 0) or 0


def reads_no_number(facts: Facts, mention: ast.Name) -> bool:
    """`name in sums`, `len(sums)`, `for name in sums:`, `sums[name] = 0`."""
    around = facts.table.parents[mention]
    if isinstance(around, ast.Attribute) and around.attr in {"keys", "clear"}:
        return True
    if isinstance(around, ast.Compare):
        return mention in around.comparators and all(isinstance(op, ast.In | ast.NotIn) for op in around.ops)
    if isinstance(around, ast.For):
        return around.iter is mention
    if isinstance(around, ast.Subscript):
        statement = facts.table.parents[around]
        return (
            isinstance(statement, ast.Assign) and around in statement.targets and _is_number(statement.value)
        )
    return isinstance(around, ast.Call) and facts.paths(around.func) == {"builtins.len"}


def _is_of_numbers(facts: Facts, value: ast.expr) -> bool:
    if isinstance(value, ast.Dict):
        return all(key is not None for key in value.keys) and all(map(_is_number, value.values))
    if isinstance(value, ast.DictComp):
        return _is_number(value.value)
    if isinstance(value, ast.ListComp):
        return _is_number(value.elt)
    if isinstance(value, ast.List):
        return bool(value.elts) and all(map(_is_number, value.elts))
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.Mult) and _is_of_numbers(facts, value.left)
    if not isinstance(value, ast.Call):
        return False
    paths = facts.paths(value.func)
    if paths == {"collections.defaultdict"}:
        return len(value.args) == 1 and _makes_numbers(facts, value.args[0])
    if paths == {"builtins.dict.fromkeys"}:
        return len(value.args) == 2 and _is_number(value.args[1])
    return (
        paths <= COUNTERS
        and bool(paths)
        and not value.args
        and all(_is_number(k.value) for k in value.keywords)
    )


def _makes_numbers(facts: Facts, factory: ast.expr) -> bool:
    if isinstance(factory, ast.Lambda):
        return _is_number(factory.body)
    return facts.paths(factory) in ({"builtins.float"}, {"builtins.int"})


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _is_handed_on(facts: Facts, mention: ast.Name) -> bool:
    """Whether somebody else may get the container itself, or change it."""
    around = facts.table.parents[mention]
    if isinstance(around, ast.Subscript):
        return around.value is not mention
    if isinstance(around, ast.Attribute):
        return around.attr not in READING
    return not reads_no_number(facts, mention)


def _loop_around(facts: Facts, node: ast.AST) -> ast.AST | None:
    return next((a for a in facts.table.ancestors(node) if isinstance(a, LOOPS)), None)
