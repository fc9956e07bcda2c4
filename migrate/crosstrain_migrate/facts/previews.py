"""Previews: batches that a script draws before training is set up: `images, labels = next(iter(loader))` above the optimizer.

`prepare` comes later, so such a batch is whole and the same on every process, and it is where the data set puts it: no
share of anything. So are those of a loop up there that takes the mean of the data, or breaks after the first. An
iterator that is used later as well is a stream of training batches, and no look.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.scopes import Scope

from . import torch_api as api
from .interpretation import Interpretation
from .values import External, Iterator, Symbol

LOADER = "torch.utils.data.DataLoader"
Preview = ast.For | ast.Call
Setup = dict[Scope, int]  # scope -> the line in it by which the last optimizer is made


def early_previews(interp: Interpretation) -> frozenset[Preview]:
    """The loops, and the calls of `iter`, whose every batch is drawn before the optimizers are made."""
    setup = _setup(interp)
    if not setup:
        return frozenset()
    begun = {
        node
        for node, values in interp.values.items()
        if isinstance(node, ast.Call)
        and _is_iter(interp, node)
        and any(isinstance(v, Iterator) and v.site is node and interp.is_loader(v.of) for v in values)
    }
    previews = {node for node in begun if all(_is_early(interp, use, setup) for use in _uses(interp, node))}
    loops = {
        node
        for node, over in interp.iterations.items()
        if over and isinstance(node, ast.For) and _is_early(interp, node, setup)
    }
    return frozenset(previews | loops)


def previewed_at(node: ast.AST) -> External:
    """The loader of a look: one of its own, which nothing trains on."""
    return External(LOADER, node)


def _is_iter(interp: Interpretation, node: ast.Call) -> bool:
    return any(isinstance(v, Symbol) and v.path == "builtins.iter" for v in interp.of(node.func))


def _setup(interp: Interpretation) -> Setup:
    """For each scope that makes an optimizer, itself or in a function it calls: by which line."""
    found: Setup = {}
    made = {
        v.site
        for values in interp.values.values()
        for v in values
        if isinstance(v, External) and api.is_optimizer_class(v.path)
    }
    work = [site for site in made if isinstance(site, ast.Call)]
    seen: set[ast.AST] = set()
    while work:
        site = work.pop()
        if site in seen:
            continue
        seen.add(site)
        scope = interp.table.of_node[site]
        found[scope] = max(found.get(scope, 0), site.lineno)
        work.extend(interp.call_sites.get(scope.node, ()))
    return found


def _uses(interp: Interpretation, begun: ast.Call) -> list[ast.AST]:
    """Where batches are drawn from an iterator: the call that makes it, `next` of it, loops and others over it."""
    found: list[ast.AST] = [begun]
    for node, values in interp.values.items():
        if isinstance(node, ast.Call) and values:
            arguments = (*node.args, node.func.value) if isinstance(node.func, ast.Attribute) else node.args
            if any(_is_over(interp, a, begun) for a in arguments):
                found.append(node)
    found += [
        n for n, _ in interp.iterations.items() if isinstance(n, ast.For) and _is_over(interp, n.iter, begun)
    ]
    return found


def _is_over(interp: Interpretation, node: ast.expr, begun: ast.Call) -> bool:
    return any(isinstance(v, Iterator) and v.site is begun for v in interp.of(node))


def _is_early(interp: Interpretation, node: ast.AST, setup: Setup, depth: int = 3) -> bool:
    """Whether a place runs once, before all optimizers exist."""
    table = interp.table
    scope = table.of_node[node]
    for around in table.ancestors(node):
        if around is scope.node:
            break
        if isinstance(around, ast.For | ast.AsyncFor | ast.While | ast.Lambda):
            return False
    if scope in setup:
        return getattr(node, "lineno", 0) < setup[scope]
    sites = interp.call_sites.get(scope.node, ())
    return depth > 0 and bool(sites) and all(_is_early(interp, s, setup, depth - 1) for s in sites)
