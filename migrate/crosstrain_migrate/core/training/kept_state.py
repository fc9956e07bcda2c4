"""CT602: a number that a step makes of its own batches, and that later steps train with.

The weight that a BEGAN moves by its losses, the radius of a Deep SVDD, the rows that a backward pass of the author's own writes
into a memory: no gradient makes it, so that nothing averages it, and each process trains with its own. One note says so: whether
its mean is what the author means, the code does not tell.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import pairs
from crosstrain_migrate.core.reading.roles import Backward, Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.walks import texts_in, walk, walk_all

RULE = "CT602"
_REASON = "`{}` is made of one process's batches, and later steps train with it"
GATHER = "gather what it is made of: `accelerator.gather`"
REMEDY = 'take its mean where it is made: `accelerator.reduce(x, "mean")`'
# What a value passes that takes no part in the gradient.
_WITHOUT_GRADIENT = frozenset({"item", "detach", "numpy", "data", "tolist"})


def note_kept_state(plan: Plan, roles: Roles) -> None:
    for backward in roles.backwards:
        for text, statement in _kept(plan.script, backward):
            plan.note(RULE, statement, _REASON.format(text), REMEDY)
    for text, statement in _written_in_backward(plan.script):
        plan.note(RULE, statement, _REASON.format(text), GATHER)


def _written_in_backward(script: Script) -> list[tuple[str, ast.stmt]]:
    """What an `autograd.Function` of the project keeps on its context and writes rows of in its backward pass:
    `ctx.memory[i] = ...`."""
    found: list[tuple[str, ast.stmt]] = []
    for function in script.functions("backward"):
        cls = script.class_of(function)
        bases = map(
            script.dotted, cls.bases if cls is not None and script.is_reached(function.body[0]) else ()
        )
        if any(base.endswith("autograd.Function") for base in bases):
            context = script.parameters(function)[0]
            rows = (n for n in script.within(function) if isinstance(n, ast.Assign))
            kept = ((n, t.value) for n in rows for t in n.targets if isinstance(t, ast.Subscript))
            given = _kept_from_outside(script, cls) if cls is not None else set()
            found += [(written(of), n) for n, of in kept if written(of).removeprefix(f"{context}.") in given]
    return found


def _kept_from_outside(script: Script, cls: ast.ClassDef) -> set[str]:
    """The attributes of the context that hold what `forward` is given, and not a buffer that it makes for this pass."""
    forward = next((one for one in script.methods(cls) if one.name == "forward"), None)
    binds = [n for n in script.within(forward) if isinstance(n, ast.Assign)] if forward is not None else []
    names = script.parameters(forward) if forward is not None else []
    bound = [pair for n in binds for target in n.targets for pair in pairs(target, n.value)]
    return {
        last_name(part)
        for part, value in bound
        if isinstance(part, ast.Attribute) and written(value) in names
    }


def _kept(script: Script, backward: Backward) -> list[tuple[str, ast.stmt]]:
    """What is read on the way to a loss above the place where the same loop, or the same method of a step, binds it."""
    loops = script.loops_around(backward.call)
    nodes = walk_all((loops[0] if loops else backward.frame).body)
    assigned = [n for n in nodes if isinstance(n, ast.Assign | ast.AugAssign)]
    made = {name for one in assigned if isinstance(one, ast.Assign) for name in _bound(one)}
    ways = _on_the_way(assigned, backward.call)
    found: list[tuple[str, ast.stmt]] = []
    for one in assigned:
        for text in _bound(one) if _has_no_gradient(one) and texts_in(one.value) & made - _bound(one) else ():
            named = [n for n in nodes if isinstance(n, ast.Name | ast.Attribute) and written(n) == text]
            first = min([place_of(one), *(place_of(n) for n in named if isinstance(n.ctx, ast.Store))])
            reads = [n for n in named if place_of(n) < first and not ways.isdisjoint(script.around(n))]
            if reads and (loops or text.startswith("self.")):
                found.append((text, one))
    return found


def _bound(statement: ast.Assign | ast.AugAssign) -> set[str]:
    """The variables and attributes that are bound, also by their `.data` or by a part: `R` of `R.data`, `bank` of `bank[i]`."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    found: set[str] = set()
    for target in (one for each in targets for one in (each.elts if isinstance(each, ast.Tuple) else [each])):
        while isinstance(target, ast.Subscript) or (
            isinstance(target, ast.Attribute) and target.attr == "data"
        ):
            target = target.value
        found.add(written(target))
    return found


def _has_no_gradient(statement: ast.Assign | ast.AugAssign) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr in _WITHOUT_GRADIENT for n in walk(statement))


def _on_the_way(assigned: list[ast.Assign | ast.AugAssign], backward: ast.Call) -> set[ast.AST]:
    """The backward pass and the statements that bind what it, or one of them, reads."""
    found: list[ast.AST] = [backward]
    for one in found:  # grows meanwhile
        read = texts_in(one)
        found += [other for other in assigned if other not in found and read & _bound(other)]
    return set(found)
