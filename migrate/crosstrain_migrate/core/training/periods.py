"""CT201 by use: what a loop over the numbers of its rows does every so many of them: `if n % 4 == 0: optimizer.step()`.

A process's own rows have numbers that another process has not, so that it counts its turns: all take a step together, and a
sum over its rows is divided by their number, `total / (n + 1)`.
"""

from __future__ import annotations

import ast
from itertools import takewhile

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import is_method, names_in
from crosstrain_migrate.core.reading.ranges import is_range
from crosstrain_migrate.core.reading.roles import STEPS
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name
from crosstrain_migrate.syntax.walks import walk, walk_all

_NAMES = ("turn", "own_turn", "number_of_turn")


def periods(script: Script, data: Data) -> list[ast.If]:
    """The tests of a dealt number in a loop that let all processes take a step, call a function of the project, or save every
    so many turns."""
    loop = data.loop
    if not isinstance(loop, ast.For) or not is_range(data.node) or not isinstance(loop.target, ast.Name):
        return []
    number = loop.target.id
    tests = [n for n in walk_all(loop.body) if isinstance(n, ast.If)]
    asked = [one for one in tests if number in names_in(one.test)]
    return [one for one in asked if _acts(script, one) or (_saves(one) and _may_count(data, [one]))]


def turns_read(script: Script, data: Data) -> list[ast.Name]:
    """The reads of a dealt number that stand for the turns so far: in these tests, and what divides, in the loop and behind it
    up to what binds the name anew."""
    loop, call = data.loop, data.node
    if not isinstance(loop, ast.For) or not is_range(call) or not isinstance(loop.target, ast.Name):
        return []
    number, places = loop.target.id, [one.test for one in periods(script, data)]
    nodes: list[ast.AST] = []
    if isinstance(call, ast.Call) and len(call.args) == 1 and not call.keywords:
        suite = script.suite_of(loop)
        behind = takewhile(lambda one: number not in _bound(one), suite[suite.index(loop) + 1 :])
        nodes = walk_all((*loop.body, *behind))
    for node in nodes:
        match node:
            case ast.BinOp(op=ast.Div(), right=by) | ast.AugAssign(op=ast.Div(), value=by):
                if names_in(by) == {number} and _is_plain(by):
                    places.append(by)
    return [n for n in walk_all(places) if isinstance(n, ast.Name) and n.id == number]


def _bound(statement: ast.stmt) -> set[str]:
    return {n.id for n in walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _is_plain(node: ast.expr) -> bool:
    """`n`, `n + 1`"""
    match node:
        case ast.Name() | ast.BinOp(op=ast.Add(), right=ast.Constant()):
            return True
    return False


def _acts(script: Script, test: ast.If) -> bool:
    calls = _calls(test)
    return any(is_method(one, *STEPS, "zero_grad") or script.functions(last_name(one.func)) for one in calls)


def _saves(test: ast.If) -> bool:
    """Whether something is saved, which the first process does, with numbers of its own."""
    return any(last_name(one.func).startswith("save") for one in _calls(test))


def _calls(test: ast.If) -> list[ast.Call]:
    return [n for n in walk_all((*test.body, *test.orelse)) if isinstance(n, ast.Call)]


def _may_count(data: Data, tests: list[ast.If]) -> bool:
    """Whether these tests ask for nothing but a period, so that turns can be counted instead: for no end, and no start."""
    loop, call = data.loop, data.node
    assert isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) and isinstance(call, ast.Call)
    number, end = loop.target.id, names_in(call.args[-1]) if call.args else set()
    for one in tests:
        nodes = walk(one.test)
        periodic = [n for n in nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod)]
        asks_end = any(isinstance(n, ast.Call) for n in nodes) or names_in(one.test) & end
        if asks_end or not any(number in names_in(n.left) for n in periodic):
            return False
    return len(call.args) == 1 and not call.keywords


def count_turns(
    plan: Plan, data: Data, reads: list[ast.Name], accelerator: str, rule: str, reason: str
) -> None:
    """Deals the numbers; the loop counts its turns, and these reads are of them."""
    loop = data.loop
    assert isinstance(loop, ast.For) and isinstance(loop.target, ast.Name)
    taken = {n.id for n in plan.script.table.each(ast.Name)}
    turn = next((one for one in _NAMES if one not in taken), f"{_NAMES[0]}_")
    plan.replace(loop.target, rule, reason, f"{turn}, {{it}}", it=loop.target)
    for one in reads:
        plan.replace(one, rule, reason, turn)
    template = f"{accelerator}.prepare({{it}})"
    if loop.iter is data.node:
        template = f"enumerate({template})"
    else:
        plan.replace(loop.iter, rule, reason, "enumerate({it})", it=loop.iter)
    plan.replace(data.node, rule, reason, template, it=data.node)


def stays_whole(plan: Plan, data: Data) -> bool:
    """Says so where a loop over numbers does something at some of them, and not every so many turns."""
    tests = periods(plan.script, data)
    if not tests or _may_count(data, tests):
        return False
    reason = "every process trains on the same data: it takes a step at some numbers of its rows"
    plan.note("CT902", data.node, reason, "iterate a DataLoader, and count the turns of the loop")
    return True
