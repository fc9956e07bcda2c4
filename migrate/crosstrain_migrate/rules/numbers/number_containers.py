"""Dictionaries and lists of numbers that are added up: `sums[name] += value`."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts

from .bindings import LOOPS, assigned

READING = frozenset({"items", "values", "keys", "get", "copy", "clear"})
COUNTERS = frozenset({"collections.Counter", "builtins.dict"})


def holds_numbers(facts: Facts, mentions: list[ast.Name], loop: ast.AST) -> bool:
    """Whether a container is made of numbers alone, and nobody else has it while a loop adds them up."""
    made = [n for n in mentions if isinstance(n.ctx, ast.Store)]
    values = [assigned(facts, n) for n in made]
    if not made or not all(value is not None and _is_of_numbers(facts, value) for value in values):
        return False
    handed = [n for n in mentions if n not in made and _is_handed_on(facts, n)]
    around = {_loop_around(facts, n) for n in made}
    end = getattr(loop, "end_lineno", 0) or 0
    return all(n.lineno > end and _loop_around(facts, n) in around for n in handed)


def reads_no_number(facts: Facts, mention: ast.Name) -> bool:
    """`name in sums`, `len(sums)`, `for name in sums:`, `sums[name] = 0`."""
    around = facts.table.parents[mention]
    match around:
        case ast.Attribute(attr="keys" | "clear"):
            return True
        case ast.Compare():
            asks = all(isinstance(op, ast.In | ast.NotIn) for op in around.ops)
            return asks and mention in around.comparators
        case ast.For():
            return around.iter is mention
        case ast.Subscript():
            statement = facts.table.parents[around]
            if not isinstance(statement, ast.Assign) or around not in statement.targets:
                return False
            return _is_number(statement.value)
        case ast.Call():
            return facts.paths(around.func) == {"builtins.len"}
    return False


def _is_of_numbers(facts: Facts, value: ast.expr) -> bool:
    match value:
        case ast.Dict():
            return None not in value.keys and all(map(_is_number, value.values))
        case ast.DictComp(value=number) | ast.ListComp(elt=number):
            return _is_number(number)
        case ast.List([_, *_]):
            return all(map(_is_number, value.elts))
        case ast.BinOp(left, ast.Mult(), _):
            return _is_of_numbers(facts, left)
        case ast.Call(function, [factory]) if facts.paths(function) == {"collections.defaultdict"}:
            return _makes_numbers(facts, factory)
        case ast.Call(function, [_, number]) if facts.paths(function) == {"builtins.dict.fromkeys"}:
            return _is_number(number)
        case ast.Call(function, []):
            paths = facts.paths(function)
            return bool(paths) and paths <= COUNTERS and all(_is_number(k.value) for k in value.keywords)
    return False


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
