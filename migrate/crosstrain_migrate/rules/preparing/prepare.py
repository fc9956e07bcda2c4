"""CT201: prepare model, optimizer, loaders and schedulers

What:   Model, optimizer, loaders and scheduler are prepared together once all of them exist.
Why:    It places the model, averages its gradients, gives each process its share of every batch.
        Where one of them is used before all exist, each is prepared where it is made.
Refuses: a loader that is made anew of data that may differ by process; one call that makes models and optimizers, by
        names from a configuration (`--observe` sees which it makes where).

Example (optimizer):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
Becomes (optimizer):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
And (prepare): nothing
Stays (setup):
    teacher = nn.Linear(8, 3).eval()
"""

from __future__ import annotations

import ast
from dataclasses import replace
from itertools import chain

from crosstrain_migrate.facts.values import External, Iterator, Sequence, Value, made_at, site_of
from crosstrain_migrate.rules.base import Context, refuse
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.layout import width_of
from crosstrain_migrate.syntax.nodes import line_of
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.scopes import Scope

from .aliases import ITEMS, seen_everywhere, sees_all, streams_of
from .definite_assignment import sole_condition, surely_bound
from .first_use import first_use, runs
from .holders import Held, Holding, holdings, made_repeatedly, stores
from .prepared_objects import common_position, suite_of, trained_by
from .rebuilt_loaders import check_alike
from .repeated_trainings import rounds_of
from .schedulers import CountsItsShare, leave_unprepared
from .where_made import (
    MADE_HERE,
    check_previews,
    maker_of,
    prepare_call,
    prepare_each,
    prepare_in_place,
    prepare_loader,
    prepare_named,
    spelled,
)

RULE = "CT201"
# What a finding calls each role.
ROLES = {
    "module": "a module",
    "optimizer": "an optimizer",
    "loader": "a DataLoader",
    "scheduler": "a scheduler",
}
TOGETHER = "everything that takes part in training is prepared together"
EVALUATION = "the evaluation loader is prepared where it is made"


def plan(context: Context) -> None:
    edits, findings, needs = len(context.edits), len(context.findings), set(context.needs)
    try:
        _plan(context)
    except CountsItsShare as counted:
        del context.edits[edits:], context.findings[findings:]
        context.needs = needs
        leave_unprepared(context, counted)
        _plan(context)


def _plan(context: Context) -> None:
    subject = context.subject
    _check_stages(context)
    by_themselves = {maker_of(context, optimizer) for optimizer in subject.optimizers}
    core = [v for v in (*subject.named, *subject.optimizers, *subject.schedulers) if v not in by_themselves]
    found = {v: _holding(context, v) for v in core}
    held = {v: holding for v, holding in found.items() if holding is not None}
    for scope in subject.scopes:
        mine = {v: h for v, h in held.items() if h.scope is scope}
        if mine:
            _prepare_in(context, scope, mine)
    for value in (*subject.unnamed, *(v for v, holding in found.items() if holding is None)):
        prepare_in_place(context, value)
    _record_assumptions(context)


def _record_assumptions(context: Context) -> None:
    """Records what is taken for a loader, or for a stream of a loader's batches, only because of its use or a run."""
    _record_observations(context)
    for place, values in context.facts.interp.assumed.items():
        name = context.source(place)
        for value in values:
            if isinstance(value, Iterator) and value.of in context.subject.train_loaders:
                claim = f"`{name}` gives the batches of the loader that it is made of"
            elif isinstance(value, External) and value in context.subject.loaders:
                claim = f"`{name}` is a DataLoader: the training loop goes over it"
            else:
                continue
            context.assume("loader", RULE, place, claim)


def _record_observations(context: Context) -> None:
    """Records what is prepared because an observed run has shown what it is."""
    interp, subject = context.facts.interp, context.subject
    for value in (*subject.models, *subject.optimizers, *subject.loaders, *subject.schedulers):
        site = site_of(value)
        if site in interp.only_observed:
            word = ROLES.get(interp.role(value), "")
            context.observed("loader", RULE, site, f"`{context.source(site)}` is {word}")


def _prepare_in(context: Context, scope: Scope, held: Held, together: bool = True) -> None:
    """Plans one `prepare` for what `scope` holds; unless `together`, for one of several trainings only."""
    position = common_position(context.facts, [s for h in held.values() for s in h.stores])
    position = _past_other_schedulers(context, scope, held, position)
    if together and scope is context.subject.scope:
        position = _with_evaluation(context, held, position)
    for loader in _begun_early(context, scope, held, position):
        reason = "the loader is prepared before a stream of its batches begins"
        prepare_loader(context, held.pop(loader), reason)
    used = first_use(context, scope, held, position, together)
    bound = (_is_bound(context, h, position) for h in held.values())
    if context.requested.mapped and (used is not None or not all(bound)):
        _prepare_where_made(context, held)
        return
    if used is not None:
        position = _before_rebindings(context, held, used) or position
        used = first_use(context, scope, held, position, together)
    if used is not None:
        parts = rounds_of(context, held) if together else []
        if len(parts) < 2:
            for loader in (v for v in context.subject.train_loaders if v in held):
                check_alike(context.facts, made_at(loader))
            parts = _blocks_of(context, held) if together else []
        if len(parts) > 1:
            for part in parts:
                _prepare_in(context, scope, part, together=False)
            return
    if used is not None or not _set_before(context, held, position):
        _prepare_some_where_made(context, scope, held, position)
        return
    for loader in _otherwise_named(context, held, position):
        prepare_loader(context, held.pop(loader), MADE_HERE)
    if held:
        _prepare_jointly(context, held, position)


def _prepare_some_where_made(context: Context, scope: Scope, held: Held, position: ast.stmt) -> None:
    """Prepares what is used before `position`, or may not exist there, where it is made; and the rest together."""
    facts = context.facts
    held = {v: _made_before_use(context, scope, h, position) for v, h in held.items()}
    apart = {
        v
        for v, h in held.items()
        if not _is_bound(context, h, position) or first_use(context, scope, {v}, position, single=False)
    }
    apart |= set().union(*(trained_by(facts, v) for v in apart)) & set(held)
    here = (c for c, _ in facts.backward_calls if facts.table.of_node[c] is scope)
    if not apart or any(call.lineno < position.lineno for call in here):
        apart = set(held)
    prepare_each(context, {v: h for v, h in held.items() if v in apart})
    rest = {v: h for v, h in held.items() if v not in apart}
    if rest:
        _prepare_in(context, scope, rest, together=False)


def _made_before_use(context: Context, scope: Scope, holding: Holding, position: ast.stmt) -> Holding:
    """The holding without the statements that bind the same object again after its first use: `model = fit(model)`."""
    used = first_use(context, scope, {holding.value}, position, single=False)
    if used is None or not holding.stores:
        return holding
    before = [s for s in holding.stores if s.lineno < line_of(used)]
    return replace(holding, stores=before or holding.stores[:1])


def _prepare_jointly(context: Context, held: Held, position: ast.stmt) -> None:
    for loader in held:
        check_previews(context, loader, position)
    accelerator = context.accelerator(position)
    ordered = _ordered(context, held)
    apart = {spelled(context, h): h.value for h in ordered if h.value in context.subject.on_the_cpu}
    names = [n for n in dict.fromkeys(spelled(context, h) for h in ordered) if n not in apart]
    codes = [_wrapped(context, _prepare_statement(accelerator, names), position)] if names else []
    if any(maker_of(context, value) is not None for value in held):
        codes.insert(0, f"{accelerator}.prepare(self)")
    codes += [f"{name} = {prepare_call(context, v, accelerator, name)}" for name, v in apart.items()]
    context.edits.append(e.InsertAfter(position, RULE, TOGETHER, code="\n".join(codes)))


def _prepare_where_made(context: Context, held: Held) -> None:
    """Prepares what is made in different blocks: all of it behind the last one, if that is certain to be reached; else
    each object where it is made."""
    ordered = list({spelled(context, h): h for h in _ordered(context, held)}.values())
    last = max((h.last for h in ordered), key=lambda s: s.lineno)
    around = [a for a in context.facts.table.ancestors(last) if isinstance(a, ast.stmt)]
    tests = [a.test for a in around if isinstance(a, ast.If) and not is_main_test(a)]
    repeated = any(isinstance(a, ast.For | ast.While) for a in around)
    if not repeated and all(isinstance(t, ast.Constant) for t in tests):
        code = _prepare_statement(context.accelerator(last), [spelled(context, h) for h in ordered])
        context.edits.append(e.InsertAfter(last, RULE, TOGETHER, code=_wrapped(context, code, last)))
        return
    for holding in sorted(ordered, key=lambda h: h.last.lineno):
        outermost = min(holding.stores, key=lambda s: (s.col_offset, -s.lineno))
        prepare_named(context, replace(holding, stores=[outermost]), MADE_HERE)


def _blocks_of(context: Context, held: Held) -> list[Held]:
    """What each block makes: one makes the model, another, such as `if args.train:`, the optimizer and the loaders.
    Empty where an optimizer would be prepared before its model."""
    facts = context.facts
    places = {v: common_position(facts, h.stores) for v, h in held.items() if h.stores}
    blocks: dict[int, Held] = {}
    for value, place in sorted(places.items(), key=lambda item: item[1].lineno):
        blocks.setdefault(id(suite_of(facts, place)), {})[value] = held[value]
    order = list(blocks.values())
    ready: set[Value] = set()
    for block in order:
        ready |= set(block)
        if any(not trained_by(facts, v) <= ready for v in block if v in context.subject.optimizers):
            return []
    return order if len(places) == len(held) else []


def _prepare_statement(accelerator: str, names: list[str]) -> str:
    """The call, with the same names on both sides. A starred target can stand only once; several lists need none,
    because `prepare` changes the script's own objects, which the lists hold already."""
    lists = [name for name in names if name.startswith("*")]
    targets = ", ".join(names)
    if len(lists) > 1:
        others = [name for name in names if name not in lists]
        names = [*lists, *others]
        targets = ", ".join(["*_", *others]) if others else "_"
    return f"{targets} = {accelerator}.prepare({', '.join(names)})"


def _check_stages(context: Context) -> None:
    """Takes a model out of the stage that trains it where it runs before: it is prepared where it is made, so that it is
    on the device of its batches."""
    facts, subject = context.facts, context.subject
    makers = {maker_of(context, optimizer) for optimizer in subject.optimizers}
    for model in subject.models:
        stage = subject.stages.get(model)
        if stage is None and model not in makers:
            continue
        if context.runtime == "accelerate":
            raise refuse(
                RULE,
                site_of(model),
                "training runs in stages, and Accelerate's prepare returns a new object, which other stages do not hold",
                "migrate with --runtime crosstrain, or make everything in one function",
            )
        if stage is None or model in makers:
            continue
        begun = min((site.lineno for site in facts.callers[stage.node]), default=0)
        early = (
            facts.table.of_node[call] is subject.scope
            and call.lineno < begun
            and runs(context, call, {model})
            for call in facts.calls
        )
        if stores(facts, subject.scope, model) and any(early):
            del subject.stages[model]


def _otherwise_named(context: Context, held: Held, position: ast.stmt) -> list[Value]:
    """The loaders that some loop reads under a name that this `prepare` does not rebind."""
    loaders = [v for v in held if context.facts.interp.is_loader(v)]
    return [v for v in loaders if not sees_all(context, held[v], position)]


def _begun_early(context: Context, scope: Scope, held: Held, position: ast.stmt) -> list[Value]:
    """The training loaders whose batches are streamed before everything else exists: `stream = cycle(loader)`."""
    found = []
    for loader in (v for v in context.subject.train_loaders if v in held):
        first = first_use(context, scope, {loader}, position)
        if not isinstance(first, ast.Call) or loader not in streams_of(context, first):
            continue
        if held[loader].stores and held[loader].last.lineno < first.lineno:
            found.append(loader)
    return found


def _before_rebindings(context: Context, held: Held, used: ast.AST) -> ast.stmt | None:
    """Where everything exists before its first use, if a name is merely bound to the same object again later:
    `model = model.to("cpu")` after training."""
    earlier = [[s for s in h.stores if s.lineno < line_of(used)] for h in held.values()]
    return common_position(context.facts, list(chain(*earlier))) if all(earlier) else None


def _set_before(context: Context, held: Held, position: ast.stmt) -> bool:
    """Binds optimizers and schedulers that are made under one condition to None above it, where nothing else is missing.
    Returns whether everything exists then."""
    steps = {*context.subject.optimizers, *context.subject.schedulers}
    conditions: dict[str, ast.If | None] = {}
    for holding in held.values():
        if not _is_bound(context, holding, position):
            found = sole_condition(context.facts, holding.variable, holding.stores, position)
            conditions[holding.name] = found if holding.value in steps else None
    if None in conditions.values():
        return False
    for name, condition in conditions.items():
        assert condition is not None
        reason = "prepare is given nothing where it is not made"
        context.edits.append(e.InsertBefore(condition, RULE, reason, code=f"{name} = None"))
    return True


def _is_bound(context: Context, holding: Holding, position: ast.stmt) -> bool:
    return not holding.stores or surely_bound(context.facts, holding.variable, position)


def _past_other_schedulers(context: Context, scope: Scope, held: Held, position: ast.stmt) -> ast.stmt:
    """A position behind the schedulers that stay unprepared: they are made from the unprepared optimizer."""
    for scheduler in context.facts.schedulers:
        found = stores(context.facts, scope, scheduler) if scheduler not in held else []
        if found:
            later = common_position(context.facts, [position, *found[0].stores])
            if first_use(context, scope, held, later) is None:
                position = later
    return position


def _ordered(context: Context, held: Held) -> list[Holding]:
    """Models, optimizers, loaders, schedulers: the order people write."""
    subject = context.subject
    loaders = (*subject.train_loaders, *subject.eval_loaders)
    return [
        held[v] for v in (*subject.models, *subject.optimizers, *loaders, *subject.schedulers) if v in held
    ]


def _wrapped(context: Context, code: str, position: ast.stmt) -> str:
    """Breaks a line that would be longer than what the author writes."""
    if position.col_offset + len(code) <= width_of(context.lines):
        return code
    targets, call = code.split(" = ", 1)
    function, arguments = call.rstrip(")").split("(", 1)
    unit = "\t" if any(line.startswith("\t") for line in context.lines) else "    "
    return f"{targets} = {function}(\n{unit}{arguments}\n)"


def _holding(context: Context, value: Value) -> Holding | None:
    """The variable that holds a value where everything is prepared; None where no plain variable does."""
    stage = context.subject.stages.get(value)
    scopes = context.subject.scopes if stage is None else [stage]
    found = next(filter(None, (holdings(context.facts, scope, value) for scope in scopes)), [])
    if not found:
        return None
    loads = context.facts.interp.is_loader(value)
    holding = _that_loops_read(context, value, found) if loads else found[0]
    if holding.container is not None and not loads and context.runtime == "accelerate":
        raise refuse(
            RULE,
            holding.last,
            f"`{holding.variable}` holds models or optimizers, and Accelerate's prepare returns new objects, while the "
            "script may hold the old ones elsewhere",
            "migrate with --runtime crosstrain, or give each a variable",
        )
    plain = holding.variable.count(".") < 2 and "[" not in holding.variable
    an_item = holding.container is not None and not holding.is_whole_list
    return holding if plain and not (an_item and made_repeatedly(context.facts, value)) else None


def _that_loops_read(context: Context, value: Value, found: list[Holding]) -> Holding:
    """The variable; or the item of a dict or list, where the loops over the loader read that."""
    items = [h for h in found if h.container is not None]
    containers = {Sequence(h.container) for h in items if h.container is not None}
    read = any(
        containers & context.facts.of(node.value)
        for node in (context.facts.each(ast.Subscript, ast.Attribute) if items else ())
        if isinstance(node.ctx, ast.Load) and (isinstance(node, ast.Subscript) or node.attr in ITEMS)
    )
    return items[0] if items and (read or len(items) == len(found)) else found[0]


def _with_evaluation(context: Context, held: Held, position: ast.stmt) -> ast.stmt:
    """The position at which evaluation loaders can join the one `prepare`. Those that cannot are prepared on their own."""
    facts, scope = context.facts, context.subject.scope
    for loader in context.subject.eval_loaders:
        holding = next(iter(holdings(facts, scope, loader)), None)
        if holding is None or not (holding.stores or seen_everywhere(context, holding, position)):
            _prepare_elsewhere(context, loader)
            continue
        joint = common_position(facts, [position, *holding.stores])
        bound = _is_bound(context, holding, joint)
        if bound and first_use(context, scope, {*held, loader}, joint) is None:
            held[loader] = holding
            position = joint
        elif holding.stores:
            prepare_loader(context, holding, EVALUATION)
        else:
            _prepare_elsewhere(context, loader)
    return position


def _prepare_elsewhere(context: Context, loader: Value) -> None:
    held = (
        h for scope in context.facts.table.scopes.values() for h in stores(context.facts, scope, loader)[:1]
    )
    holding = next((h for h in held if context.reachable(h.last)), None)
    if holding is None:
        prepare_in_place(context, loader)
    else:
        prepare_loader(context, holding, EVALUATION)
