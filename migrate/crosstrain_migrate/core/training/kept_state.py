"""CT602 and CT201: what a step leaves to later ones.

A number that a step makes of its own batches, and that later steps train with: the weight that a BEGAN moves by its losses, the radius of a Deep SVDD, the rows that a backward pass of the author's own writes
into a memory: no gradient makes it, so that nothing averages it, and each process trains with its own. One note says so: whether
its mean is what the author means, the code does not tell.

State that the model carries from batch to batch, as in truncated backpropagation through a long text: `output, hidden =
model(x, hidden)` goes on where the batch before it ended. Such batches are dealt like others, so that a process carries its state
over those that the others have: every weight still learns from all the data, but from shorter contexts. To share the text by
columns, as an expert would, is a change of the author's data code; a loader that is not dealt would train every process on the
same. So nothing is refused, and one note says what the state misses.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import is_method, names_in, pairs
from crosstrain_migrate.core.reading.roles import Backward, Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.walks import names_stored_in, texts_in, walk, walk_all

RULE = "CT602"
_REASON = "`{}` is made of one process's batches, and later steps train with it"
GATHER = "gather what it is made of: `accelerator.gather`"
REMEDY = 'take its mean where it is made: `accelerator.reduce(x, "mean")`'
# What a value passes that takes no part in the gradient.
_WITHOUT_GRADIENT = frozenset({"item", "detach", "numpy", "data", "tolist"})
CARRIED = "CT201"
PARTS = "give each process a contiguous part, or train on one process"


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
    forward = next(iter(script.methods(cls, "forward")), None)
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
        attributes = {n.attr for n in walk(one) if isinstance(n, ast.Attribute)}
        is_number = attributes & _WITHOUT_GRADIENT and texts_in(one.value) & made - _bound(one)
        for text in _bound(one) if is_number else ():
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


def _on_the_way(assigned: list[ast.Assign | ast.AugAssign], backward: ast.Call) -> set[ast.AST]:
    """The backward pass and the statements that bind what it, or one of them, reads."""
    found: list[ast.AST] = [backward]
    for one in found:  # grows meanwhile
        read = texts_in(one)
        found += [other for other in assigned if other not in found and read & _bound(other)]
    return set(found)


def note_carried_state(plan: Plan, dealt: Iterable[Data]) -> None:
    """Says where state goes from batch to batch of what is dealt."""
    for data in dealt:
        name, call = _carried(plan.script, data)
        if call is not None:
            reason = f"`{name}` is carried from batch to batch, and each process skips the others' batches"
            plan.note(CARRIED, call, reason, PARTS)


def _carried(script: Script, data: Data) -> tuple[str, ast.Call | None]:
    """The variable that a model is given and gives back, in a loop that does not begin it anew for each batch."""
    if not isinstance(data.loop, ast.For):
        return "", None
    nodes = walk_all(data.loop.body)
    assigned = [n for n in nodes if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call)]
    for one in sorted(assigned, key=place_of):
        call = one.value
        assert isinstance(call, ast.Call)
        if script.is_imported(call.func) or not _may_be_model(script, call):
            continue
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        for name in sorted(
            names_stored_in(*one.targets) & {name for value in given for name in names_in(value)}
        ):
            if _is_bound_before(script, data, name) and not _begins_anew(script, nodes, name, call):
                return name, call
    return "", None


def _may_be_model(script: Script, call: ast.Call) -> bool:
    """Whether what is called is an object, and gives several results: `model(x, hidden)`, `self.model.forward(x, hidden)`."""
    asked = call.func.value if is_method(call, "forward") else call.func
    is_named = isinstance(asked, ast.Name) or (
        isinstance(asked, ast.Attribute) and isinstance(asked.value, ast.Name) and asked.value.id == "self"
    )
    last = script.last(asked)
    several = len(call.args) + len(call.keywords) > 1
    return is_named and several and not script.functions(last) and not script.classes(last)


def _is_bound_before(script: Script, data: Data, name: str) -> bool:
    assert data.loop is not None
    stores = script.stores(data.frame, name)
    return name in script.parameters(data.frame) or any(place_of(s) < place_of(data.loop) for s in stores)


def _begins_anew(script: Script, nodes: list[ast.AST], name: str, call: ast.Call) -> bool:
    """Whether the loop binds a variable above a call, always, to what does not come from the batch before."""
    made = [n for n in nodes if isinstance(n, ast.Assign) and place_of(n) < place_of(call)]
    fresh = {n for n in made if name in names_stored_in(*n.targets) and name not in names_in(n.value)}
    above = {n: script.parent(n) for n in fresh}
    return any(
        not isinstance(o, ast.If) or (fresh & {*o.body} and fresh & {*o.orelse}) for o in above.values()
    )
