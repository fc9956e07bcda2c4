"""For CT103: a move of a model that may come back from the CPU stays, because `prepare` places it only once."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import Value

from .devices import is_cpu, known_values

LOOPS = ast.For | ast.AsyncFor | ast.While


def comes_back(facts: Facts, call: ast.Call) -> bool:
    """Whether the model that `call` moves may have been moved to the CPU before: `net.cpu()`, to save it."""
    moved = _moved(facts, call)
    leaving = [c for c in facts.calls if _goes_to_the_cpu(c) and _moved(facts, c) & moved]
    if not leaving:
        return False
    back = list(_runs_at(facts, call))
    return any(
        _is_before(facts, away, here) for one in leaving for away in _runs_at(facts, one) for here in back
    )


def _moved(facts: Facts, call: ast.Call) -> set[Value]:
    return known_values(facts, call.func.value if isinstance(call.func, ast.Attribute) else call)


def _goes_to_the_cpu(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    to_cpu = call.func.attr == "to" and bool(call.args) and is_cpu(call.args[0])
    return to_cpu or (call.func.attr == "cpu" and not call.args)


def _runs_at(facts: Facts, call: ast.Call) -> Iterator[ast.Call]:
    """A call, and the calls that lead to the function in which it stands."""
    seen: set[ast.AST] = set()
    work = [call]
    while work:
        current = work.pop()
        yield current
        function = facts.enclosing_function(current)
        if function is not None and function not in seen:
            seen.add(function)
            work += facts.callers.get(function, ())


def _is_before(facts: Facts, first: ast.Call, second: ast.Call) -> bool:
    """Whether `first` may run before `second`, if both stand in one function."""
    if facts.enclosing_function(first) is not facts.enclosing_function(second) or first is second:
        return False
    if facts.table.of_node[first].module is not facts.table.of_node[second].module:
        return False
    loops = {around for around in facts.table.ancestors(first) if isinstance(around, LOOPS)}
    return first.lineno < second.lineno or any(a in loops for a in facts.table.ancestors(second))
