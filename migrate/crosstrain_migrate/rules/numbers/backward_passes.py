"""For CT202, CT602 and CT604: what gathers and gradients have to do with each other.

What:   Checks that nothing that backward gets is gathered or reduced, whichever rule planned it, and that no gradients by
        parameters are taken past backward: `torch.autograd.grad(loss, model.parameters())`.
Why:    What is gathered has no gradient: the part of the model behind it would silently not be trained. What is done with
        gradients that nothing averages (a step by hand, `p.grad = g`) would make the processes' models differ.
Refuses: the script: for a gather as a fault of the tool. Inner steps that a loss goes through (MAML), and gradients by
        rows, are each process's own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.rules.base import Context, refuse
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import line_of
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values
from .bindings import mentions, receiver
from .opaque_calls import is_trained_from

CONDITIONS = ast.If | ast.IfExp | ast.While | ast.Try | ast.ExceptHandler | ast.BoolOp
LEAVES = ast.Continue | ast.Break | ast.Return


def check_gradients(context: Context) -> None:
    """Raises Refusal where gradients by parameters are each process's own."""
    facts = context.facts
    for call in facts.calls_to("torch.autograd.grad"):
        by_parameters = any(
            s.kind == "other" and call in s.origins and s.loader in context.subject.train_loaders
            for s in batch_values(facts, call)
        )
        if by_parameters and call not in facts.loss_slice and not facts.in_module(call):
            raise refuse(
                "CT202",
                call,
                "these gradients are those of this process's share: nothing averages them over processes",
                "call backward on the loss, and read the gradients from the parameters",
            )


def check_inputs(context: Context) -> None:
    """Raises Refusal where backward would get gathered values; called when everything that communicates is planned."""
    for edit in context.edits:
        if edit.node not in context.collective:
            continue
        for node in _made_global(context.facts, edit):
            if is_trained_from(context.facts, node) and not _is_read(context.facts, node):
                raise refuse(
                    "CT602",
                    node,
                    f"the tool would have to gather `{ast.unparse(node)}`, from which the trained loss is computed, and what is gathered "
                    "has no gradient",
                    "report this script to us; it was left as it was",
                )


def _made_global(facts: Facts, edit: e.Edit) -> Iterator[ast.expr]:
    """The expressions that see what an edit has made global."""
    if isinstance(edit, e.Replace) and isinstance(edit.node, ast.expr):
        yield edit.node
    if isinstance(edit, e.InsertBefore) and isinstance(edit.node, ast.stmt):
        for name in _bound_by(edit.code):
            yield from _uses_after(facts, edit.node, name)


def _bound_by(code: str) -> list[str]:
    targets = [t for s in ast.parse(code).body if isinstance(s, ast.Assign) for t in s.targets]
    return [n.id for target in targets for n in walk(target) if isinstance(n, ast.Name)]


def _uses_after(facts: Facts, statement: ast.stmt, name: str) -> Iterator[ast.Name]:
    """The uses of a variable behind a statement, in the same batch, that see what it was before the statement."""
    loop = facts.batch_loop_around(statement)
    for use in mentions(facts, name, statement):
        if not isinstance(use.ctx, ast.Load) or line_of(use) < line_of(statement):
            continue
        before = any(line_of(d) < line_of(statement) for d in facts.bindings(use))
        if before and (loop is None or facts.table.is_inside(use, loop)):
            yield use


def _is_read(facts: Facts, node: ast.AST) -> bool:
    """Whether the author takes a number from it, which has no gradient anyway: `loss = loss / mask.sum().item()`."""
    for around in facts.table.ancestors(node):
        if isinstance(around, ast.stmt):
            return False
        if isinstance(around, ast.Call) and (
            receiver(around, "detach", *api.HOST_METHODS) is not None
            or facts.paths(around.func) & api.HOST_BUILTINS
        ):
            return True
    return False


def goes_backward_in_every_turn(facts: Facts, loop: ast.AST) -> bool:
    """Whether every turn of a loop goes backward: it then trains on all its loaders, like a function that several
    trainings call."""
    return any(_is_always_run(facts, call, loop, frozenset()) for call, _ in facts.backward_calls)


def _is_always_run(facts: Facts, node: ast.AST, loop: ast.AST, seen: frozenset[ast.AST]) -> bool:
    """Whether every turn of `loop` runs `node`, which stands in it or in a function that it calls."""
    if facts.table.is_inside(node, loop):
        return _is_unconditional(facts, node, loop)
    function = facts.enclosing_function(node)
    if function is None or function in seen or not _is_unconditional(facts, node, function):
        return False
    sites = facts.callers.get(function, ())
    return any(_is_always_run(facts, site, loop, seen | {function}) for site in sites)


def _is_unconditional(facts: Facts, node: ast.AST, outer: ast.AST) -> bool:
    for around in facts.table.ancestors(node):
        if around is outer:
            break
        if isinstance(around, CONDITIONS):
            return False
    return not any(isinstance(n, LEAVES) and n.lineno < line_of(node) for n in walk(outer))
