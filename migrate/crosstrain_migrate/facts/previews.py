"""Previews: batches that a script draws before training is set up: `images, labels = next(iter(loader))` above the optimizer.

`prepare` comes later, so such a batch is whole and the same on every process: it is nobody's share, and it stays on the
device where the data set puts it. The same holds for a loop up there that takes the mean of the data, or breaks after
the first batch. An iterator that is used later as well is a stream of training batches, and no preview.
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
    previews: set[Preview] = {
        node
        for node, values in interp.values.items()
        if isinstance(node, ast.Call)
        if Symbol("builtins.iter") in interp.of(node.func)
        if any(isinstance(v, Iterator) and v.site is node and interp.is_loader(v.of) for v in values)
        if all(_is_early(interp, use, setup) for use in _uses(interp, node))
    }
    for node, over in interp.iterations.items():
        if over and isinstance(node, ast.For) and _is_early(interp, node, setup):
            previews.add(node)
    return frozenset(previews)


def previewed_at(node: ast.AST) -> External:
    """The loader of a preview: one of its own, which nothing trains on."""
    return External(LOADER, node)


def _setup(interp: Interpretation) -> Setup:
    """The scopes that make an optimizer, themselves or in a function that they call, each with the line of the last one."""
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
        if site not in seen:
            seen.add(site)
            scope = interp.table.of_node[site]
            found[scope] = max(found.get(scope, 0), site.lineno)
            work.extend(interp.call_sites.get(scope.node, ()))
    return found


def _uses(interp: Interpretation, begun: ast.Call) -> list[ast.AST]:
    """Where batches are drawn from an iterator: the call that makes it, `next` of it, loops over it."""

    def is_over(node: ast.expr) -> bool:
        return any(isinstance(v, Iterator) and v.site is begun for v in interp.of(node))

    found: list[ast.AST] = [begun]
    for node, values in interp.values.items():
        if isinstance(node, ast.Call) and values:
            arguments = (*node.args, node.func.value) if isinstance(node.func, ast.Attribute) else node.args
            if any(map(is_over, arguments)):
                found.append(node)
    loops = (node for node, _ in interp.iterations.items() if isinstance(node, ast.For))
    return [*found, *(loop for loop in loops if is_over(loop.iter))]


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
