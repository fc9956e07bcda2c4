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
from collections.abc import Set
from dataclasses import replace

from crosstrain_migrate.facts.values import External, Iterator, Sequence, Value, made_at, site_of
from crosstrain_migrate.rules.base import Context, refuse
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.layout import width_of
from crosstrain_migrate.syntax.nodes import line_of
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.scopes import Scope
from crosstrain_migrate.syntax.walks import walk

from .aliases import ITEMS, seen_everywhere, sees_all, streams_of
from .definite_assignment import sole_condition, surely_bound
from .holders import Holding, holdings, made_repeatedly, stores
from .prepared_objects import common_position, suite_of
from .rebuilt_loaders import RENEWED, may_differ
from .repeated_trainings import rounds_of
from .schedulers import CountsItsShare, leave_unprepared
from .where_made import (
    MADE_HERE,
    check_looks,
    maker_of,
    prepare_each,
    prepare_in_place,
    prepare_loader,
    prepare_named,
    written,
)

RULE = "CT201"
# How roles are spoken of.
SPOKEN = {
    "module": "a module",
    "optimizer": "an optimizer",
    "loader": "a DataLoader",
    "scheduler": "a scheduler",
}
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
    _say_what_is_assumed(context)


def _say_what_is_assumed(context: Context) -> None:
    """Loaders that only their use or a run shows to be such, and what is taken for a stream of a loader's batches."""
    _say_what_was_seen(context)
    for place, values in context.facts.interp.assumed.items():
        name = context.source(place)
        for value in values:
            if isinstance(value, Iterator) and value.of in context.subject.train_loaders:
                claim = f"`{name}` gives the batches of the loader that it is made of"
                context.assume("loader", RULE, place, claim)
            elif isinstance(value, External) and value in context.subject.loaders:
                context.assume(
                    "loader", RULE, place, f"`{name}` is a DataLoader: the training loop goes over it"
                )


def _say_what_was_seen(context: Context) -> None:
    """What is prepared because a run has shown what it is."""
    interp, subject = context.facts.interp, context.subject
    for value in (*subject.models, *subject.optimizers, *subject.loaders, *subject.schedulers):
        site = site_of(value)
        if site in interp.only_observed:
            word = SPOKEN.get(interp.role(value), "")
            context.observed("loader", RULE, site, f"`{context.source(site)}` is {word}")


def _prepare_in(context: Context, scope: Scope, held: dict[Value, Holding], together: bool = True) -> None:
    """One prepare for what `scope` holds, or, unless all is to be prepared `together`, for one training of several."""
    position = common_position(context.facts, [s for h in held.values() for s in h.stores])
    position = _past_other_schedulers(context, scope, held, position)
    if together and scope is context.subject.scope:
        position = _with_evaluation(context, held, position)
    for loader in _begun_early(context, scope, held, position):
        reason = "the loader is prepared before a stream of its batches begins"
        prepare_loader(context, held.pop(loader), reason)
    first_use = _first_use(context, scope, held, position, together)
    if context.requested.mapped and (first_use is not None or not _all_bound(context, held, position)):
        _where_made(context, held)
        return
    if first_use is not None:
        position = _before_rebindings(context, held, first_use) or position
        first_use = _first_use(context, scope, held, position, together)
    rounds = rounds_of(context, held) if first_use is not None and together else []
    if len(rounds) > 1:
        for part in rounds:
            _prepare_in(context, scope, part, together=False)
        return
    if first_use is not None:
        _check_renewed(context, held)
    blocks = _blocks_of(context, held) if first_use is not None and together else []
    if len(blocks) > 1:
        for part in blocks:
            _prepare_in(context, scope, part, together=False)
        return
    if first_use is not None or not _set_before(context, held, position):
        _some_where_made(context, scope, held, position)
        return
    for loader in _otherwise_named(context, held, position):
        prepare_loader(context, held.pop(loader), MADE_HERE)
    if held:
        _prepare_jointly(context, held, position)


def _some_where_made(context: Context, scope: Scope, held: dict[Value, Holding], position: ast.stmt) -> None:
    """What is used before `position`, or may not exist there, is prepared where it is made; the rest together."""
    facts = context.facts
    held = {v: _made_before_use(context, scope, h, position) for v, h in held.items()}
    apart = {
        v
        for v, h in held.items()
        if not _is_bound(context, h, position) or _first_use(context, scope, {v: h}, position, alone=False)
    }
    apart |= {facts.whole(m, v) for v in apart for m in facts.optimized_by(v)} & set(held)
    if not apart or any(
        facts.table.of_node[c] is scope and c.lineno < position.lineno for c, _ in facts.backward_calls
    ):
        apart = set(held)
    prepare_each(context, {v: h for v, h in held.items() if v in apart})
    rest = {v: h for v, h in held.items() if v not in apart}
    if rest:
        _prepare_in(context, scope, rest, together=False)


def _made_before_use(context: Context, scope: Scope, holding: Holding, position: ast.stmt) -> Holding:
    """The holding without the statements that bind it to the same again once it is used: `model = fit(model)`."""
    used = _first_use(context, scope, {holding.value: holding}, position, alone=False)
    if used is None or not holding.stores:
        return holding
    return replace(
        holding, stores=[s for s in holding.stores if s.lineno < line_of(used)] or holding.stores[:1]
    )


def _prepare_jointly(context: Context, held: dict[Value, Holding], position: ast.stmt) -> None:
    for loader in held:
        check_looks(context, loader, position)
    accelerator = context.accelerator(position)
    ordered = _ordered(context, held)
    apart = dict.fromkeys(written(context, h) for h in ordered if h.value in context.subject.on_the_cpu)
    names = [n for n in dict.fromkeys(written(context, h) for h in ordered) if n not in apart]
    codes = [_wrapped(context, _statement(accelerator, names), position)] if names else []
    if any(maker_of(context, value) is not None for value in held):
        codes.insert(0, f"{accelerator}.prepare(self)")
    codes += [f"{name} = {accelerator}.prepare_data_loader({name}, device_placement=False)" for name in apart]
    reason = "everything that takes part in training is prepared together"
    context.edits.append(e.InsertAfter(position, RULE, reason, code="\n".join(codes)))


def _all_bound(context: Context, held: dict[Value, Holding], position: ast.stmt) -> bool:
    return all(_is_bound(context, holding, position) for holding in held.values())


def _where_made(context: Context, held: dict[Value, Holding]) -> None:
    """Of what is made in different blocks, each is prepared where the author has made it; all where the last one is
    made, if that is sure to be reached."""
    ordered = list({written(context, h): h for h in _ordered(context, held)}.values())
    last = max((h.last for h in ordered), key=lambda s: s.lineno)
    around = [a for a in context.facts.table.ancestors(last) if isinstance(a, ast.stmt)]
    tests = [a.test for a in around if isinstance(a, ast.If) and not is_main_test(a)]
    if all(isinstance(t, ast.Constant) for t in tests) and not any(
        isinstance(a, ast.For | ast.While) for a in around
    ):
        code = _statement(context.accelerator(last), [written(context, h) for h in ordered])
        reason = "everything that takes part in training is prepared together"
        context.edits.append(e.InsertAfter(last, RULE, reason, code=_wrapped(context, code, last)))
        return
    for holding in sorted(ordered, key=lambda h: h.last.lineno):
        outermost = min(holding.stores, key=lambda s: (s.col_offset, -s.lineno))
        prepare_named(context, replace(holding, stores=[outermost]), MADE_HERE)


def _blocks_of(context: Context, held: dict[Value, Holding]) -> list[dict[Value, Holding]]:
    """What each block makes, where one makes the model and another, such as `if args.train:`, the optimizer and the
    loaders. Empty where an optimizer would be prepared before its model."""
    facts = context.facts
    places = {v: common_position(facts, h.stores) for v, h in held.items() if h.stores}
    blocks: dict[int, dict[Value, Holding]] = {}
    for value, place in sorted(places.items(), key=lambda item: item[1].lineno):
        blocks.setdefault(id(suite_of(facts, place)), {})[value] = held[value]
    order = list(blocks.values())
    ready: set[Value] = set()
    for block in order:
        ready |= set(block)
        models = {
            facts.whole(m, v) for v in block if v in context.subject.optimizers for m in facts.optimized_by(v)
        }
        if not models <= ready:
            return []
    return order if len(places) == len(held) else []


def _check_renewed(context: Context, held: dict[Value, Holding]) -> None:
    """Nothing that the author could put into another order helps a loader over what a policy has just played."""
    for loader in (v for v in held if v in context.subject.train_loaders):
        if may_differ(context, made_at(loader)):
            raise refuse(RULE, made_at(loader), *RENEWED)


def _statement(accelerator: str, names: list[str]) -> str:
    """The same names on both sides. Of several lists only one could be unpacked into again: what is prepared is the
    script's own objects, so the lists hold it already."""
    lists = [name for name in names if name.startswith("*")]
    targets = ", ".join(names)
    if len(lists) > 1:
        others = [name for name in names if name not in lists]
        names = [*lists, *others]
        targets = ", ".join(["*_", *others]) if others else "_"
    return f"{targets} = {accelerator}.prepare({', '.join(names)})"


def _check_stages(context: Context) -> None:
    """A model that runs before the stage that trains it is prepared where it is made: batches are on its device."""
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
                "training goes in stages, and Accelerate prepares another object than the one that other stages hold",
                "migrate with --runtime crosstrain, or make everything in one function",
            )
        if stage is None or model in makers:
            continue
        begun = min((site.lineno for site in facts.callers[stage.node]), default=0)
        early = (
            facts.table.of_node[call] is subject.scope
            and call.lineno < begun
            and _runs(context, call, {model})
            for call in facts.calls
        )
        if stores(facts, subject.scope, model) and any(early):
            del subject.stages[model]


def _otherwise_named(context: Context, held: dict[Value, Holding], position: ast.stmt) -> list[Value]:
    """Loaders that some loop would go on to see under a name that this prepare does not rebind."""
    loaders = [v for v in held if context.facts.interp.is_loader(v)]
    return [v for v in loaders if not sees_all(context, held[v], position)]


def _begun_early(
    context: Context, scope: Scope, held: dict[Value, Holding], position: ast.stmt
) -> list[Value]:
    """Training loaders of which a stream of batches begins before all else exists: `stream = cycle(loader)`."""
    found = []
    for loader in (v for v in context.subject.train_loaders if v in held):
        first = _first_use(context, scope, {loader: held[loader]}, position)
        if not isinstance(first, ast.Call) or loader not in streams_of(context, first):
            continue
        if held[loader].stores and held[loader].last.lineno < first.lineno:
            found.append(loader)
    return found


def _before_rebindings(context: Context, held: dict[Value, Holding], first_use: ast.AST) -> ast.stmt | None:
    """Where everything exists before its first use, although a name is bound to the same thing again later:
    `model = model.to("cpu")` after training."""
    line = line_of(first_use)
    earlier = [[s for s in h.stores if s.lineno < line] for h in held.values()]
    if not all(earlier):
        return None
    return common_position(context.facts, [s for stored in earlier for s in stored])


def _set_before(context: Context, held: dict[Value, Holding], position: ast.stmt) -> bool:
    """Gives optimizers and schedulers that one condition alone makes a value in every case, where that is enough."""
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


def _past_other_schedulers(
    context: Context, scope: Scope, held: dict[Value, Holding], position: ast.stmt
) -> ast.stmt:
    """Schedulers that stay unprepared are still made before the prepare, from the optimizer as it was."""
    for scheduler in context.facts.schedulers:
        found = stores(context.facts, scope, scheduler) if scheduler not in held else []
        if found:
            later = common_position(context.facts, [position, *found[0].stores])
            if _first_use(context, scope, held, later) is None:
                position = later
    return position


def _ordered(context: Context, held: dict[Value, Holding]) -> list[Holding]:
    """Models, optimizers, loaders, schedulers: the order people write."""
    subject = context.subject
    wanted = [
        *subject.models,
        *subject.optimizers,
        *subject.train_loaders,
        *subject.eval_loaders,
        *subject.schedulers,
    ]
    return [held[v] for v in wanted if v in held]


def _wrapped(context: Context, code: str, position: ast.stmt) -> str:
    """Breaks a line that would be longer than what the author writes."""
    if position.col_offset + len(code) <= width_of(context.lines):
        return code
    targets, call = code.split(" = ", 1)
    function, arguments = call.rstrip(")").split("(", 1)
    unit = "\t" if any(line.startswith("\t") for line in context.lines) else "    "
    return f"{targets} = {function}(\n{unit}{arguments}\n)"


def _holding(context: Context, value: Value) -> Holding | None:
    """Who holds a value where everything is prepared; None where no plain variable does."""
    stage = context.subject.stages.get(value)
    scopes = context.subject.scopes if stage is None else [stage]
    found = next((f for f in (holdings(context.facts, s, value) for s in scopes) if f), [])
    if not found:
        return None
    loads = context.facts.interp.is_loader(value)
    holding = _that_loops_read(context, value, found) if loads else found[0]
    if holding.container is not None and not loads and context.runtime == "accelerate":
        raise refuse(
            RULE,
            holding.last,
            f"`{holding.variable}` holds models or optimizers, and Accelerate prepares other objects than those that "
            "the script may hold elsewhere",
            "migrate with --runtime crosstrain, or give each a variable",
        )
    plain = holding.variable.count(".") < 2 and "[" not in holding.variable
    return holding if plain and not _is_one_of_many(context, holding) else None


def _is_one_of_many(context: Context, holding: Holding) -> bool:
    """Whether a loop makes the value again and again, and the holding is one place of a list or dict."""
    return (
        holding.container is not None
        and not holding.is_whole_list
        and made_repeatedly(context.facts, holding.value)
    )


def _that_loops_read(context: Context, value: Value, found: list[Holding]) -> Holding:
    """The variable, or the item of a dict or list where that is what the loops over the loader read."""
    items = [h for h in found if h.container is not None]
    read = any(
        Sequence(h.container) in context.facts.of(node.value)
        for h in items
        if h.container is not None
        for node in context.facts.each(ast.Subscript, ast.Attribute)
        if isinstance(node.ctx, ast.Load)
        if not isinstance(node, ast.Attribute) or node.attr in ITEMS
    )
    return items[0] if items and (read or len(items) == len(found)) else found[0]


def _with_evaluation(context: Context, held: dict[Value, Holding], position: ast.stmt) -> ast.stmt:
    """Evaluation loaders join the one prepare where nothing is used in between, and get one of their own elsewhere."""
    facts = context.facts
    for loader in list(context.subject.eval_loaders):
        found = holdings(facts, context.subject.scope, loader)
        if not found:
            _prepare_elsewhere(context, loader)
            continue
        joint = common_position(facts, [position, *found[0].stores])
        trial = {**held, loader: found[0]}
        if not found[0].stores and not seen_everywhere(context, loader, found[0], position):
            _prepare_elsewhere(context, loader)
        elif not _is_bound(context, found[0], joint):
            prepare_loader(context, found[0], EVALUATION)
        elif _first_use(context, context.subject.scope, trial, joint) is None:
            held[loader] = found[0]
            position = joint
        elif found[0].stores:
            prepare_loader(context, found[0], EVALUATION)
        else:
            _prepare_elsewhere(context, loader)
    return position


def _prepare_elsewhere(context: Context, loader: Value) -> None:
    for scope in context.facts.table.scopes.values():
        found = stores(context.facts, scope, loader)
        if found and context.reachable(found[0].last):
            prepare_loader(context, found[0], EVALUATION)
            return
    prepare_in_place(context, loader)


def _first_use(
    context: Context, scope: Scope, held: dict[Value, Holding], position: ast.stmt, alone: bool = True
) -> ast.AST | None:
    """The first place, up to `position`, that runs a model or iterates a loader that is about to be prepared; or that
    trains, where there is one training alone."""
    facts = context.facts
    values = set(held)
    for node in walk(scope.node):
        line = getattr(node, "lineno", None)
        if (
            line is None
            or line > (position.end_lineno or position.lineno)
            or not _runs_in(context, node, scope)
        ):
            continue
        if isinstance(node, ast.For) and facts.interp.iterations.get(node, set()) & values:
            return node
        if isinstance(node, ast.Call) and streams_of(context, node) & values:
            return node
        if alone and any(node is call for call, _ in facts.backward_calls):
            return node
        if isinstance(node, ast.Call) and _runs(context, node, values):
            return node
    return None


def _runs_in(context: Context, node: ast.AST, scope: Scope) -> bool:
    return context.facts.table.of_node.get(node) is scope


def _runs(context: Context, call: ast.Call, values: set[Value]) -> bool:
    facts = context.facts
    if facts.of(call.func) & values & set(context.subject.models):
        return True
    touching = [t for t in facts.targets(call) if t in facts.interp.touching]
    given = {v for a in (*call.args, *(k.value for k in call.keywords)) for v in facts.of(a)}
    return bool(touching and given & values) or any(_uses(context, t, values, frozenset()) for t in touching)


def _uses(context: Context, function: ast.AST, values: set[Value], entered: frozenset[ast.AST]) -> bool:
    """Whether a function, or one that it calls, runs a model or iterates a loader that it finds in a global variable."""
    facts = context.facts
    if function in entered or function in facts.interp.module_methods:
        return False
    for node in walk(function):
        if isinstance(node, ast.For) and _is_global(
            context, node.iter, facts.interp.iterations.get(node, set()) & values
        ):
            return True
        if not isinstance(node, ast.Call):
            continue
        if _is_global(context, node.func, facts.of(node.func) & values):
            return True
        inner = (t for t in facts.targets(node) if t in facts.interp.touching)
        if any(_uses(context, t, values, entered | {function}) for t in inner):
            return True
    return False


def _is_global(context: Context, node: ast.expr, values: Set[Value]) -> bool:
    """Whether an expression reads one of the values from a variable of a file's top level."""
    facts = context.facts
    names = (n for n in walk(node) if isinstance(n, ast.Name) and facts.of(n) & values)
    scopes = (facts.table.of_node[n].resolve(n.id) for n in names)
    return any(scope is not None and scope.parent is None for scope in scopes)
