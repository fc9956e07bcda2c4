"""Loaders that are rebuilt repeatedly: they are the same on all processes only if their data are.

A loader that each epoch makes over one data set is. One over what a policy has just played is not: each process computes
and draws its own data between two loaders, and would take its share of different rows.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import arguments_of, given
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.slices import slice_of
from crosstrain_migrate.facts.values import Member
from crosstrain_migrate.rules.base import refuse
from crosstrain_migrate.rules.sources import sources_of

RULE = "CT201"
MAX_DEPTH = 5
REASON = "this loader is rebuilt repeatedly from data that may differ between processes (a model's recent output, or random draws): each process would train on its part of rows that the others do not have"
REMEDY = "train on one process, or let one process make the data and send it to the others (`broadcast` of crosstrain.utils) before the loader is made"
QUIET = frozenset({"eval", "train", "to", "parameters", "config", "state_dict", "named_parameters"})
LOOPS = ast.For | ast.AsyncFor | ast.While | ast.comprehension


def check_alike(facts: Facts, site: ast.expr) -> None:
    """Raises Refusal where a loader made at `site` may hold other rows on other processes: what a model has just
    computed. No other order of the script's statements would help."""
    if not isinstance(site, ast.Call) or not _repeats(facts, site, MAX_DEPTH):
        return
    data = given(site, "dataset", 0)
    computed_from = slice_of(facts, arguments_of(site) if data is None else [data])
    if any(isinstance(node, ast.Call) and _runs_a_model(facts, node) for node in computed_from):
        raise refuse(RULE, site, REASON, REMEDY)


def _runs_a_model(facts: Facts, call: ast.Call) -> bool:
    """Whether a call runs a module that trains, or a function of the script that makes data with one."""
    called = facts.of(call.func)
    models = set(facts.models)
    if called & models or any(
        isinstance(v, Member) and v.root in models and v.name not in QUIET for v in called
    ):
        return True
    own = [function for function in facts.targets(call) if function in facts.interp.touching]
    return any(isinstance(function, ast.FunctionDef) and bool(facts.returned(function)) for function in own)


def _repeats(facts: Facts, node: ast.AST, depth: int) -> bool:
    """Whether `node` runs several times: in a loop, or in a function that is called there, or from several places."""
    for around in facts.table.ancestors(node):
        if isinstance(around, LOOPS):
            return True
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            sites = sources_of(facts).sites(around)
            return len(sites) > 1 or not depth or any(_repeats(facts, s, depth - 1) for s in sites)
    return False
