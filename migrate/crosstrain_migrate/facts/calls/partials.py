"""`functools.partial` of an imported name: `make = partial(DataLoader, batch_size=64)`, and the calls of it."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.interpretation import Interpretation
from crosstrain_migrate.facts.values import External, Symbol, Values

from .imported import call_symbol

PATH = "functools.partial"


def is_partial(function: External) -> bool:
    return function.path == PATH and isinstance(function.site, ast.Call) and bool(function.site.args)


def call_partial(interp: Interpretation, function: External, node: ast.Call) -> Values:
    """What the imported names return for the arguments of both calls; nothing is known of the script's own functions."""
    assert isinstance(function.site, ast.Call)
    whole = _whole(interp, function.site, node)
    found = {
        value
        for name in interp.of(function.site.args[0])
        if isinstance(name, Symbol)
        for value in call_symbol(interp, name.path, whole)
    }
    interp.merge(interp.values.cell(whole), found)
    return frozenset(found)


def _whole(interp: Interpretation, bound: ast.Call, node: ast.Call) -> ast.Call:
    """`DataLoader(data, batch_size=64)` of `make(data)`, in its place; one node for both calls, however often asked."""
    known = interp.partials.get((bound, node))
    if known is None:
        later = {k.arg for k in node.keywords}
        keywords = [*(k for k in bound.keywords if k.arg not in later), *node.keywords]
        known = ast.copy_location(ast.Call(bound.args[0], [*bound.args[1:], *node.args], keywords), node)
        interp.partials[bound, node] = known
        interp.table.of_node[known] = interp.table.of_node[node]
        interp.table.parents[known] = interp.table.parents[node]
    return known
