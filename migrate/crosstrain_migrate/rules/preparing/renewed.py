"""Loaders that are made anew again and again: alike on all processes only where what they are made of is.

A loader of each epoch over one data set is. One over what a policy has just played is not: what processes compute and
draw between two of them is their own, and each would take its share of other rows.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.roles.arguments import given
from crosstrain_migrate.roles.facts import Facts
from crosstrain_migrate.roles.values import Class
from crosstrain_migrate.roles.walks import walk
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.sources import Sources

MAX_DEPTH = 5
RENEWED = (
    "this loader is made anew again and again, of data that may be other data on every process (what a model has just "
    "computed, or what is drawn meanwhile): each would train on its share of rows that the others do not have",
    "train it on one process; or let one process make the data and send it to all of them (`broadcast` of "
    "crosstrain.utils) before the loader is made",
)
LOOPS = ast.For | ast.AsyncFor | ast.While | ast.comprehension


def may_differ(context: Context, site: ast.expr) -> bool:
    """Whether a loader made at `site` may hold other rows on other processes."""
    if not isinstance(site, ast.Call) or not _repeats(context.facts, site, MAX_DEPTH):
        return False
    data = given(site, "dataset", 0)
    return data is None or _runs_between(context) or not _stays(Sources(context.facts), data, MAX_DEPTH)


def _repeats(facts: Facts, node: ast.AST, depth: int) -> bool:
    """Whether `node` runs several times: in a loop, or in a function that is called there, or from several places."""
    for around in facts.table.ancestors(node):
        if isinstance(around, LOOPS):
            return True
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            sites = Sources(facts).sites(around)
            return len(sites) > 1 or not depth or any(_repeats(facts, s, depth - 1) for s in sites)
    return False


def _runs_between(context: Context) -> bool:
    """Whether a model runs on anything but batches of loaders, so that data may come of it."""
    facts, models = context.facts, set(context.subject.models)
    return any(
        facts.of(call.func) & models
        and facts.batch_loop_around(call) is None
        and not facts.in_batch_loop(call)
        and not facts.in_module(call)
        for call in facts.calls
    )


def _stays(sources: Sources, node: ast.expr, depth: int) -> bool:
    """Whether an expression is made of nothing that changes from one run of its statement to the next."""
    return bool(depth) and all(_part_stays(sources, part, depth) for part in walk(node))


def _part_stays(sources: Sources, part: ast.AST, depth: int) -> bool:
    if isinstance(part, ast.Call):
        return _makes_data(sources.facts, part)
    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
        return all(_is_settled(sources, d, depth - 1) for d in sources.definitions(part))
    if isinstance(part, ast.Attribute):
        return not any(_repeats(sources.facts, store, depth) for store in sources.definitions(part))
    return True


def _makes_data(facts: Facts, call: ast.Call) -> bool:
    """Whether a call makes a data set of what it is given: a class of the script's own, or one of torch's."""
    own = any(isinstance(v, Class) for v in facts.of(call.func))
    return own or any(path.startswith("torch.utils.data.") for path in facts.paths(call.func))


def _is_settled(sources: Sources, definition: ast.AST, depth: int) -> bool:
    """Whether a variable's definition gives it the same value each time."""
    facts = sources.facts
    if not isinstance(definition, ast.Name | ast.arg) or not _repeats(facts, definition, MAX_DEPTH):
        return True
    if isinstance(definition, ast.arg):
        function = facts.table.of_node[definition].node
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        passed = [facts.passed(site, function, definition.arg) for site in sources.sites(function)]
        return bool(passed) and all(p is not None and _stays(sources, p, depth) for p in passed)
    statement = facts.table.statement_of(definition)
    return isinstance(statement, ast.Assign) and _stays(sources, statement.value, depth)
