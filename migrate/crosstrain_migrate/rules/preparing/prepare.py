"""CT201: one `prepare`, with the same names on both sides.

What:   Model, optimizer, loaders and scheduler are prepared together once all of them exist.
Why:    It places the model, averages its gradients, gives each process its share of every batch.
Before: (nothing)
After:  `model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)`
Refuses: a model that runs, or a loader that is iterated, before all of them exist; two names for one loader;
        a loader that is made anew of data that may differ by process.
"""

from __future__ import annotations

import ast
from collections.abc import Set
from dataclasses import replace

from crosstrain_migrate import edits as e
from crosstrain_migrate.layout import width_of
from crosstrain_migrate.roles.nodes import line_of
from crosstrain_migrate.roles.program import is_main_test
from crosstrain_migrate.roles.scopes import Scope
from crosstrain_migrate.roles.values import External, Iterator, Sequence, Value, made_at, site_of
from crosstrain_migrate.roles.walks import walk
from crosstrain_migrate.rules.base import Context, refuse

from .aliases import ITEMS, check_aliases, check_other_names, seen_everywhere, streams_of
from .bound import sole_condition, surely_bound
from .holdings import Holding, holdings, stores
from .renewed import RENEWED, may_differ
from .rounds import rounds_of
from .schedulers import check_uncounted
from .subject import common_position, suite_of
from .unnamed import prepare_in_place

RULE = "CT201"


def plan(context: Context) -> None:
    subject = context.subject
    core = [*subject.named, *subject.optimizers, *subject.schedulers]
    held = {v: _holding(context, v) for v in core}
    for scope in subject.scopes:
        mine = {v: h for v, h in held.items() if h.scope is scope}
        if mine:
            _prepare_in(context, scope, mine)
    _check_stages(context, held)
    for loader in subject.unnamed:
        prepare_in_place(context, loader)
    _say_what_is_assumed(context)


def _say_what_is_assumed(context: Context) -> None:
    """Loaders that only their use shows to be such, and what is taken for a stream of a loader's batches."""
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


def _prepare_in(context: Context, scope: Scope, held: dict[Value, Holding], together: bool = True) -> None:
    """One prepare for what `scope` holds, or, unless all is to be prepared `together`, for one training of several."""
    position = common_position(context.facts, [s for h in held.values() for s in h.stores])
    position = _past_other_schedulers(context, scope, held, position)
    if together and scope is context.subject.scope:
        position = _with_evaluation(context, held, position)
    for loader in _begun_early(context, scope, held, position):
        check_uncounted(context, loader, held[loader].last)
        _prepare_alone(context, held[loader], "the loader is prepared before a stream of its batches begins")
        check_aliases(context, {loader: held[loader]}, held[loader].last)
        del held[loader]
    first_use = _first_use(context, scope, held, position, together)
    if context.wish.mapped and (first_use is not None or not _all_bound(context, held, position)):
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
    if first_use is not None:
        raise refuse(
            RULE,
            first_use,
            "this uses a model or loader before everything that is prepared with it exists",
            "create the model, the optimizer, the loaders and the scheduler before the first use of any of them",
        )
    _check_bound(context, held, position)
    for loader in held:
        _check_looks(context, loader, position)
    accelerator = context.accelerator(position)
    ordered = _ordered(context, held)
    apart = dict.fromkeys(_written(context, h) for h in ordered if h.value in context.subject.on_the_cpu)
    names = [n for n in dict.fromkeys(_written(context, h) for h in ordered) if n not in apart]
    codes = [_wrapped(context, _statement(accelerator, names), position)] if names else []
    codes += [f"{name} = {accelerator}.prepare_data_loader({name}, device_placement=False)" for name in apart]
    reason = "everything that trains is prepared together"
    context.edits.append(e.InsertAfter(position, RULE, reason, code="\n".join(codes)))
    check_aliases(context, held, position)
    check_other_names(context, held, position)


def _all_bound(context: Context, held: dict[Value, Holding], position: ast.stmt) -> bool:
    return all(_is_bound(context, holding, position) for holding in held.values())


def _where_made(context: Context, held: dict[Value, Holding]) -> None:
    """Of what is made in different blocks, each is prepared where the author has made it; all where the last one is
    made, if that is sure to be reached."""
    ordered = list({_written(context, h): h for h in _ordered(context, held)}.values())
    last = max((h.last for h in ordered), key=lambda s: s.lineno)
    around = [a for a in context.facts.table.ancestors(last) if isinstance(a, ast.stmt)]
    tests = [a.test for a in around if isinstance(a, ast.If) and not is_main_test(a)]
    if all(isinstance(t, ast.Constant) for t in tests) and not any(
        isinstance(a, ast.For | ast.While) for a in around
    ):
        code = _statement(context.accelerator(last), [_written(context, h) for h in ordered])
        reason = "everything that trains is prepared together"
        context.edits.append(e.InsertAfter(last, RULE, reason, code=_wrapped(context, code, last)))
        return
    for holding in sorted(ordered, key=lambda h: h.last.lineno):
        outermost = min(holding.stores, key=lambda s: (s.col_offset, -s.lineno))
        _prepare_alone(context, replace(holding, stores=[outermost]), "it is prepared where it is made")


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


def _check_stages(context: Context, held: dict[Value, Holding]) -> None:
    """A model of a later stage must not run before: it is not where its batches are until it is prepared."""
    facts = context.facts
    for model in context.subject.models:
        stage = context.subject.stages.get(model)
        if stage is None:
            continue
        if context.runtime == "accelerate":
            raise refuse(
                RULE,
                held[model].last if held[model].stores else stage.node,
                "training goes in stages, and Accelerate prepares another object than the one that other stages hold",
                "migrate with --runtime crosstrain, or make everything in one function",
            )
        begun = min(site.lineno for site in facts.callers[stage.node])
        for call in facts.calls:
            outside = facts.table.of_node[call] is context.subject.scope and call.lineno < begun
            if outside and _runs(context, call, {model}):
                raise refuse(
                    RULE,
                    call,
                    "this runs the model before the stage that prepares it",
                    "run it after its training, or make its optimizer here",
                )


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


def _check_bound(context: Context, held: dict[Value, Holding], position: ast.stmt) -> None:
    """What is made under a condition alone does not exist where the condition does not hold."""
    unset: set[str] = set()  # one variable may hold what several branches make
    for holding in held.values():
        if holding.name in unset or _is_bound(context, holding, position):
            continue
        condition = sole_condition(context.facts, holding.variable, holding.stores, position)
        steps = holding.value in {*context.subject.optimizers, *context.subject.schedulers}
        if condition is None or not steps:
            raise refuse(
                RULE,
                holding.last,
                f"`{holding.name}` is made under a condition only: it may not exist where everything is prepared",
                f"set `{holding.name} = None` before the condition, or make it in every case",
            )
        unset.add(holding.name)
        code = f"{holding.name} = None"
        reason = "prepare is given nothing where it is not made"
        context.edits.append(e.InsertBefore(condition, RULE, reason, code=code))


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


def _written(context: Context, holding: Holding) -> str:
    """The holding's name, a key of a dict in the quotes that the script prefers."""
    double = context.text.count('"') > context.text.count("'")
    return holding.name.replace("'", '"') if double else holding.name


def _wrapped(context: Context, code: str, position: ast.stmt) -> str:
    """Breaks a line that would be longer than what the author writes."""
    if position.col_offset + len(code) <= width_of(context.lines):
        return code
    targets, call = code.split(" = ", 1)
    function, arguments = call.rstrip(")").split("(", 1)
    unit = "\t" if any(line.startswith("\t") for line in context.lines) else "    "
    return f"{targets} = {function}(\n{unit}{arguments}\n)"


def _holding(context: Context, value: Value) -> Holding:
    stage = context.subject.stages.get(value)
    scopes = context.subject.scopes if stage is None else [stage]
    found = next((f for f in (holdings(context.facts, s, value) for s in scopes) if f), [])
    if not found:
        raise refuse(
            RULE,
            site_of(value),
            "this is not held by a variable where everything is prepared",
            "give it a name there",
        )
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
    if holding.variable.count(".") > 1 or "[" in holding.variable:
        raise refuse(
            RULE,
            holding.last,
            f"`{holding.name}` is no plain variable",
            "hold it in a variable or an attribute of self",
        )
    return holding


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
            _prepare_alone(context, found[0])
        elif _first_use(context, context.subject.scope, trial, joint) is None:
            held[loader] = found[0]
            position = joint
        elif found[0].stores:
            _prepare_alone(context, found[0])
        else:
            raise refuse(RULE, site_of(loader), "the loader is used before everything exists", "use it later")
    return position


def _prepare_alone(
    context: Context, holding: Holding, reason: str = "the evaluation loader is prepared where it is made"
) -> None:
    _check_looks(context, holding.value, holding.last)
    name = _written(context, holding)
    for store in holding.stores if len(_suites_of(context, holding)) > 1 else [holding.last]:
        call = f"prepare({name})"
        if holding.value in context.subject.on_the_cpu:
            call = f"prepare_data_loader({name}, device_placement=False)"
        code = f"{name} = {context.accelerator(store)}.{call}"
        context.edits.append(e.InsertAfter(store, RULE, reason, code=code))


def _suites_of(context: Context, holding: Holding) -> set[int]:
    """The blocks that make it: each branch of a choice may."""
    return {id(suite_of(context.facts, store)) for store in holding.stores}


def _check_looks(context: Context, loader: Value, position: ast.stmt) -> None:
    """A batch that is only looked at was taken for a whole one: it must not come from the loader as prepared above."""
    for look in context.facts.interp.looks:
        over = look.iter if isinstance(look, ast.For) else look
        looked = any(loader in context.facts.of(part) for part in ast.walk(over))
        prepared_above = look.lineno > position.lineno and context.facts.table.is_inside(
            look, context.facts.table.of_node[position].node
        )
        if looked and prepared_above:
            raise refuse(
                RULE,
                look,
                "a batch is looked at here, and its loader must be prepared before, where it is made",
                "look at the data set, or after everything is made",
            )


def _prepare_elsewhere(context: Context, loader: Value) -> None:
    for scope in context.facts.table.scopes.values():
        found = stores(context.facts, scope, loader)
        if found and context.reachable(found[0].last):
            _prepare_alone(context, found[0])
            check_aliases(context, {loader: found[0]}, found[0].last)
            return
    raise refuse(RULE, site_of(loader), "no variable holds this evaluation loader", "give it a name")


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
