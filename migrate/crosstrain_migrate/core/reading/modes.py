"""Training mode and evaluation mode: below `model.eval()`, what stands under `if model.training:` is not run."""

from __future__ import annotations

import ast
from itertools import takewhile

from crosstrain_migrate.syntax.nodes import Function, defaults_by_name, last_name, place_of

from .forms import FUNCTIONS, is_method
from .script import Script


def evaluates(script: Script, node: ast.AST) -> bool | None:
    """Whether the last call above a node in its frame that sets a mode is `.eval()`, or `.train(False)`; None for no call."""
    modes = [
        (place_of(call), last_name(call.func) == "eval" or _is_false(call))
        for call in script.calls_in(script.frame(node))
        if is_method(call, "eval", "train") and place_of(call) <= place_of(node)
    ]
    return max(modes)[1] if modes else None


def is_left_out(script: Script, node: ast.AST, call: ast.AST) -> bool:
    """Whether a function does not come to a node where it is called: `if self.model.training: loss.backward()`."""
    below = node
    for one in script.around(node):
        if isinstance(one, FUNCTIONS):
            break
        if isinstance(one, ast.If) and below in one.body and getattr(one.test, "attr", "") == "training":
            return evaluates(script, call) is True
        below = one
    return False


def opposed(script: Script, one: ast.AST, other: ast.AST) -> set[str]:
    """The tests of which one arm, or `not`, has one node and the other another."""
    there = facts(script, other)
    return {text for text, holds in facts(script, one) if (text, not holds) in there}


def facts(script: Script, node: ast.AST) -> set[tuple[str, bool]]:
    """The tests of a frame around a node, taken apart at `and` and `not`, with whether they hold there."""
    found: set[tuple[str, bool]] = set()
    below = node
    for one in takewhile(lambda n: not isinstance(n, FUNCTIONS), script.around(node)):
        if isinstance(one, ast.If) and (below in one.body or below in one.orelse):
            test, holds = one.test, below in one.body
            is_and = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and holds
            for part in test.values if isinstance(test, ast.BoolOp) and is_and else [test]:
                is_not = isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not)
                of = part.operand if isinstance(part, ast.UnaryOp) and is_not else part
                found.add((ast.unparse(of), holds != is_not))
        below = one
    return found


def told(
    script: Script, wanted: set[tuple[str, bool]], function: Function, call: ast.Call
) -> set[tuple[str, bool]] | None:
    """What a function's flags must be, in the words of a call; None where the call gives another: `step(batch, train=False)`."""
    is_open = any(isinstance(one, ast.Starred) for one in call.args) or any(not k.arg for k in call.keywords)
    found, defaults = set[tuple[str, bool]](), {} if is_open else defaults_by_name(function.args)
    for name, holds in wanted:
        if name in script.parameters(function) and not script.stores(function, name):
            given = script.argument_for(call, function, name) or defaults.get(name)
            if isinstance(given, ast.Constant) and bool(given.value) is not holds:
                return None
            if given is not None:
                found.add((ast.unparse(given), holds))
    return found


def _is_false(call: ast.Call) -> bool:
    given = call.args[:1] or [keyword.value for keyword in call.keywords]
    return bool(given) and isinstance(given[0], ast.Constant) and given[0].value is False
