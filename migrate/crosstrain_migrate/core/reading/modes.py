"""Training mode and evaluation mode: below `model.eval()`, what stands under `if model.training:` is not run."""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.nodes import last_name, place_of

from .script import FUNCTIONS, Script, is_method


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


def _is_false(call: ast.Call) -> bool:
    given = call.args[:1] or [keyword.value for keyword in call.keywords]
    return bool(given) and isinstance(given[0], ast.Constant) and given[0].value is False
