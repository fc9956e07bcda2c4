"""Where a value comes from: the uses of variables, the calls and the attributes that an expression is computed from."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from crosstrain_migrate.syntax.walks import walk

from .arguments import arguments_of
from .code import Code
from .tensors import is_factor
from .values import FromBatch, code_of

Entered = tuple[ast.AST, int | None]  # a function, and the position of what it returns that is asked for


def slice_of(facts: Code, expressions: Iterable[ast.expr]) -> frozenset[ast.AST]:
    """Every use of a variable, and every call, that the expressions are computed from."""
    found: set[ast.AST] = set()
    entered: set[Entered] = set()
    filled: set[ast.AST] = set()  # what the script puts into containers and attributes on the way
    work: list[ast.AST] = [*expressions]
    while work:
        for name in _walk_without_factors(facts, work.pop()):
            if isinstance(name, ast.Call):
                found.add(name)
                work.extend(_returned_by(facts, name, entered))
            put = [value for value in facts.contents.of(name) if value not in filled]
            filled.update(put)
            work.extend(put)
            if not isinstance(name, ast.Name) or name in found or not isinstance(name.ctx, ast.Load):
                continue
            found.add(name)
            for binding in facts.bindings(name):
                if isinstance(binding, ast.arg):
                    work.extend(facts.given(binding))
                else:
                    work.extend(_assigned_to(facts, binding, entered))
    return frozenset(found)


def attributes_of(facts: Code, expressions: Iterable[ast.expr]) -> frozenset[str]:
    """The names of the attributes that the expressions are computed from, and of those that these are assigned from."""
    found: set[str] = set()
    work = list(expressions)
    while work:
        expression = work.pop()
        used = {d for n in slice_of(facts, [expression]) for d in facts.bindings(n)}
        bound = {facts.table.statement_of(d) for d in used if not isinstance(d, ast.arg)}
        values = [s.value for s in bound if isinstance(s, ast.Assign | ast.AugAssign)]
        nodes = (n for value in (expression, *values) for n in walk(value))
        names = {n.attr for n in nodes if isinstance(n, ast.Attribute) and _holds_share(facts, n)} - found
        found |= names
        work += [
            statement.value
            for statement in (facts.each(ast.Assign) if names else ())
            if any(isinstance(t, ast.Attribute) and t.attr in names for t in statement.targets)
        ]
    return frozenset(found)


def _holds_share(facts: Code, node: ast.Attribute) -> bool:
    return any(isinstance(v, FromBatch) and not v.host for v in facts.of(node))


def _assigned_to(facts: Code, target: ast.AST, entered: set[Entered]) -> list[ast.AST]:
    """What a variable is assigned: of a tuple that is unpacked into several, its own part."""
    for around in facts.table.ancestors(target):
        if isinstance(around, ast.comprehension):
            return [around.iter]
        if isinstance(around, ast.stmt):
            break
    statement = facts.table.statement_of(target)
    value = getattr(statement, "value", None)
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign) or value is None:
        return []
    targets = facts.table.parents.get(target)
    if not isinstance(targets, ast.Tuple) or any(isinstance(t, ast.Starred) for t in targets.elts):
        return [value]
    position = next(i for i, t in enumerate(targets.elts) if t is target)
    if isinstance(value, ast.Tuple) and len(value.elts) == len(targets.elts):
        return [value.elts[position]]
    if not isinstance(value, ast.Call) or not _returned_by(facts, value, set()):
        return [value]
    return [value.func, *arguments_of(value), *_returned_by(facts, value, entered, position)]


def _walk_without_factors(facts: Code, node: ast.AST) -> Iterator[ast.AST]:
    work = [node]
    while work:
        node = work.pop()
        yield node
        factors = _number_factors(facts, node) if isinstance(node, ast.BinOp) else ()
        work.extend(child for child in ast.iter_child_nodes(node) if child not in factors)


def _number_factors(facts: Code, node: ast.BinOp) -> list[ast.expr]:
    """The sides that are Python numbers by which a loss is multiplied or divided."""
    if not isinstance(node.op, ast.Mult | ast.Div):
        return []

    def is_number(side: ast.expr, other: ast.expr) -> bool:
        own, others = ([v for v in facts.of(n) if isinstance(v, FromBatch)] for n in (side, other))
        return bool(own and others) and all(is_factor(a, b) for a in own for b in others)

    sides = (node.left, node.right), (node.right, node.left)
    return [side for side, other in sides if is_number(side, other)]


def _returned_by(
    facts: Code, call: ast.Call, entered: set[Entered], position: int | None = None
) -> list[ast.AST]:
    """What the script's own functions that `call` may run return, or that `position` of it; each function once."""
    found: list[ast.AST] = []
    for function in map(code_of, facts.of(call.func)):
        if (
            isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            and (function, position) not in entered
        ):
            entered.add((function, position))
            found.extend(_part(value, position) for value in facts.returned(function))
    return found


def _part(node: ast.expr, position: int | None) -> ast.expr:
    """One element of a tuple display; anything else is whole."""
    if position is None or not isinstance(node, ast.Tuple) or position >= len(node.elts):
        return node
    return node if any(isinstance(e, ast.Starred) for e in node.elts) else node.elts[position]
