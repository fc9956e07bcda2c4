"""Calls of a `functools.partial` of an imported name: `make = partial(DataLoader, batch_size=64)`."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.interpretation import Interpretation
from crosstrain_migrate.facts.values import NOTHING, External, Symbol, Values

from .imported import call_symbol

PATH = "functools.partial"


def is_partial(function: External) -> bool:
    return function.path == PATH and isinstance(function.site, ast.Call) and bool(function.site.args)


def call_partial(interp: Interpretation, function: External, node: ast.Call) -> Values:
    """What an imported name returns for the arguments of both calls; of the script's own functions, nothing."""
    assert isinstance(function.site, ast.Call)
    whole = _whole(interp, function.site, node)
    names = [v for v in interp.of(function.site.args[0]) if isinstance(v, Symbol)]
    found = NOTHING.union(*(call_symbol(interp, name.path, whole) for name in names))
    interp.merge(interp.values.cell(whole), found)
    return found


def _whole(interp: Interpretation, bound: ast.Call, node: ast.Call) -> ast.Call:
    """`DataLoader(data, batch_size=64)`, where `make(data)` stands: the same node each time that it is asked for."""
    known = interp.partials.get((bound, node))
    if known is None:
        later = {k.arg for k in node.keywords}
        keywords = [*(k for k in bound.keywords if k.arg not in later), *node.keywords]
        known = ast.copy_location(ast.Call(bound.args[0], [*bound.args[1:], *node.args], keywords), node)
        interp.partials[bound, node] = known
        interp.table.of_node[known] = interp.table.of_node[node]
        interp.table.parents[known] = interp.table.parents[node]
    return known
