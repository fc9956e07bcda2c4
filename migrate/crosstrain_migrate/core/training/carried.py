"""CT201: state that the model carries from batch to batch, as in truncated backpropagation through a long text.

`output, hidden = model(x, hidden)` goes on where the batch before it ended. Such batches are dealt like others, so that a
process carries its state over those that the others have: every weight still learns from all the data, but from shorter
contexts. To share the text by columns, as an expert would, is a change of the author's data code; a loader that is not
dealt would train every process on the same. So nothing is refused, and one note says what the state misses.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import names_in
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import place_of
from crosstrain_migrate.syntax.walks import walk_all

RULE = "CT201"
REMEDY = "give each process a contiguous part, or train on one process"


def note_carried_state(plan: Plan, dealt: Iterable[Data]) -> None:
    """Says where state goes from batch to batch of what is dealt."""
    for data in dealt:
        name, call = _carried(plan.script, data)
        if call is not None:
            reason = f"`{name}` is carried from batch to batch, and each process skips the others' batches"
            plan.note(RULE, call, reason, REMEDY)


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
        for name in sorted(_bound(one) & {name for value in given for name in names_in(value)}):
            if _is_bound_before(script, data, name) and not _begins_anew(script, nodes, name, call):
                return name, call
    return "", None


def _may_be_model(script: Script, call: ast.Call) -> bool:
    """Whether what is called is an object, and gives several results: `model(x, hidden)`, `self.model(x, hidden)`."""
    is_named = isinstance(call.func, ast.Name) or (
        isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "self"
    )
    last = script.last(call.func)
    several = len(call.args) + len(call.keywords) > 1
    return is_named and several and not script.functions(last) and not script.classes(last)


def _is_bound_before(script: Script, data: Data, name: str) -> bool:
    assert data.loop is not None
    stores = script.stores(data.frame, name)
    return name in script.parameters(data.frame) or any(place_of(s) < place_of(data.loop) for s in stores)


def _begins_anew(script: Script, nodes: list[ast.AST], name: str, call: ast.Call) -> bool:
    """Whether the loop binds a variable above a call, always, to what does not come from the batch before."""
    made = [n for n in nodes if isinstance(n, ast.Assign) and place_of(n) < place_of(call)]
    fresh = {n for n in made if name in _bound(n) and name not in names_in(n.value)}
    above = {n: script.parent(n) for n in fresh}
    return any(
        not isinstance(o, ast.If) or (fresh & {*o.body} and fresh & {*o.orelse}) for o in above.values()
    )


def _bound(node: ast.Assign) -> set[str]:
    """The variables that an assignment binds: not those of which it sets a part."""
    names = [one for one in walk_all(node.targets) if isinstance(one, ast.Name)]
    return {one.id for one in names if isinstance(one.ctx, ast.Store)}
