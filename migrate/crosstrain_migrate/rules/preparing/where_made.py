"""CT201 where no joint call can stand: each object is prepared where the author makes it.

It is prepared by its name, behind the statement that binds it (`loader = accelerator.prepare(loader)`); or, where no
name of the scope will do, in its expression (`cycle(accelerator.prepare(DataLoader(...)))`). A model is prepared before
its optimizer.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.values import Instance, Value, made_at, site_of
from crosstrain_migrate.rules.base import Context, refuse
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import line_of
from crosstrain_migrate.syntax.walks import walk

from .aliases import sees_all
from .holders import Held, Holding, stores
from .prepared_objects import common_position, suite_of, trained_by
from .rebuilt_loaders import check_alike
from .schedulers import check_uncounted

RULE = "CT201"
MADE_HERE = "it is prepared where it is made"


def prepare_each(context: Context, held: Held) -> None:
    """Prepares every object by itself, in the order in which the script makes them."""
    facts = context.facts
    behind: dict[Value, ast.stmt] = {}
    for value, holding in sorted(held.items(), key=lambda item: _line(item[1])):
        if facts.interp.is_loader(value):
            prepare_loader(context, holding, MADE_HERE)
            continue
        others = [behind[m] for m in trained_by(facts, value) if m in behind]
        behind[value] = prepare_named(context, holding, MADE_HERE, others)


def _line(holding: Holding) -> int:
    return holding.stores[0].lineno if holding.stores else 0  # a parameter is there from the start


def prepare_loader(context: Context, holding: Holding, reason: str) -> None:
    """Prepares a loader by the name that every loop reads it by; where there is none, in its expression."""
    loader = holding.value
    if not _sees_all_where_made(context, holding):
        variables = [h for h in stores(context.facts, holding.scope, loader) if h.container is None]
        by_variable = next((h for h in variables if _sees_all_where_made(context, h)), None)
        if by_variable is None:
            prepare_in_place(context, loader)
            return
        holding = by_variable
    check_uncounted(context, loader, holding.last)
    check_previews(context, loader, holding.last)
    prepare_named(context, holding, reason)


def _sees_all_where_made(context: Context, holding: Holding) -> bool:
    return bool(holding.stores) and sees_all(context, holding, holding.last)


def prepare_named(
    context: Context, holding: Holding, reason: str, others: list[ast.stmt] | None = None
) -> ast.stmt:
    """`name = accelerator.prepare(name)` behind every branch that binds it, or once, behind `others` too.

    Returns the last statement behind which it stands.
    """
    if not holding.stores:  # a parameter
        function = holding.scope.node
        assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        code = _prepared(context, holding, context.accelerator(function.body[0]))
        context.edits.append(e.InsertAtStart(function, RULE, reason, code=code))
        return function.body[0]
    behind = [*_moves(context, holding), *(s for s in others or () if s.lineno > holding.last.lineno)]
    positions = [common_position(context.facts, [*holding.stores, *behind])]
    if len({id(suite_of(context.facts, store)) for store in holding.stores}) > 1:
        positions = holding.stores
    positions = [_behind_home(context, holding, position) for position in positions]
    for position in positions:
        accelerator = context.accelerator(position)
        code = _prepared(context, holding, accelerator)
        if maker_of(context, holding.value) is not None:
            code = f"{accelerator}.prepare(self)\n{code}"
        context.edits.append(e.InsertAfter(position, RULE, reason, code=code))
    return positions[-1]


def maker_of(context: Context, optimizer: Value) -> Value | None:
    """The module whose constructor makes an optimizer for its own parameters: it is prepared there, by itself."""
    facts = context.facts
    if optimizer not in context.subject.optimizers:
        return None
    function = facts.enclosing_function(site_of(optimizer))
    models = (m for m in trained_by(facts, optimizer) if isinstance(m, Instance))
    return next((m for m in models if facts.interp.method(m.cls, "__init__") is function), None)


def _behind_home(context: Context, holding: Holding, position: ast.stmt) -> ast.stmt:
    """`position`, or a place below it where the Accelerator exists. Above a loader whose batches are streamed by then,
    the Accelerator moves up instead."""
    home = context.home.statement
    table = context.facts.table
    if home is None or table.of_node[position] is not table.of_node[home] or home.lineno <= position.lineno:
        return position
    below = common_position(context.facts, [position, home])
    together = suite_of(context.facts, home) is suite_of(context.facts, position)
    movable = together and home not in context.device_definitions
    if movable and context.facts.interp.is_loader(holding.value) and not sees_all(context, holding, below):
        context.home.statement = position
        return position
    return below


def _prepared(context: Context, holding: Holding, accelerator: str) -> str:
    name = spelled(context, holding)
    if holding.is_whole_list:
        return f"{name[1:]} = [{accelerator}.prepare(one) for one in {name[1:]}]"
    return f"{name} = {prepare_call(context, holding.value, accelerator, name)}"


def prepare_call(context: Context, value: Value, accelerator: str, code: str) -> str:
    """The call that prepares one value. A loader whose batches the script uses on the CPU does not place them."""
    if value in context.subject.on_the_cpu:
        return f"{accelerator}.prepare_data_loader({code}, device_placement=False)"
    return f"{accelerator}.prepare({code})"


def spelled(context: Context, holding: Holding) -> str:
    """The holding's name, a key of a dict in the quotes that the script prefers."""
    double = context.text.count('"') > context.text.count("'")
    return holding.name.replace("'", '"') if double else holding.name


def _moves(context: Context, holding: Holding) -> list[ast.stmt]:
    """The statements of the scope that move a model to its device: the model runs on the CPU before them."""
    facts = context.facts
    if holding.value not in context.subject.models:
        return []
    statements = [
        facts.table.statement_of(call)
        for call in (*facts.method_calls("to"), *facts.method_calls("cuda"))
        if isinstance(call.func, ast.Attribute)
        and holding.value in facts.of(call.func.value)
        and facts.table.of_node[call] is holding.scope
    ]
    return [s for s in statements if isinstance(s, ast.Expr) and s.lineno > line_of(holding.stores[0])]


def prepare_in_place(context: Context, value: Value) -> None:
    """`DataLoader(...)` becomes `accelerator.prepare(DataLoader(...))`. Raises Refusal where it cannot."""
    site = made_at(value)
    loads = context.facts.interp.is_loader(value)
    accelerator = context.accelerator_at(site, loads)
    if accelerator is None or (loads and _serves_others(context, value, site)):
        raise refuse(
            RULE,
            site,
            "this call also makes loaders whose batches must stay whole, and `prepare` would split the batches of all of them"
            if accelerator is not None
            else "this is made before the Accelerator can exist, so nothing would place it or split its batches",
            "make it beside the model, and give it a name there: `loader = DataLoader(...)`",
        )
    if loads:
        check_uncounted(context, value, site)
        check_alike(context.facts, site)
    if not any(isinstance(one, e.Replace) and one.node is site and one.rule == RULE for one in context.edits):
        reason = "no variable of this scope holds it, so it is prepared where it is made"
        context.replace(site, RULE, reason, prepare_call(context, value, accelerator, "{x}"), x=site)


def _serves_others(context: Context, loader: Value, site: ast.expr) -> bool:
    """Whether the call also makes loaders that stay whole: those of another key, say."""
    whole = {v for v in context.facts.loaders if v not in context.subject.loaders} - {loader}
    return any(made_at(other) is site for other in whole)


def check_previews(context: Context, loader: Value, position: ast.stmt) -> None:
    """Raises Refusal where the script looks at a whole batch of a loader below the place where it is prepared."""
    facts = context.facts
    for preview in facts.interp.previews:
        over = preview.iter if isinstance(preview, ast.For) else preview
        looked = any(loader in facts.of(part) for part in walk(over))
        inside = facts.table.is_inside(preview, facts.table.of_node[position].node)
        if looked and inside and preview.lineno > position.lineno:
            raise refuse(
                RULE,
                preview,
                "this looks at a whole batch, but its loader must be prepared above, so it would get one process's share of "
                "the batch",
                "look at the data set instead, or look only after everything is made",
            )
