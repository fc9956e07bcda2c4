"""What is prepared and where: the scope that holds every model, optimizer, training loader and scheduler at once."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from crosstrain_migrate.facts.argument_values import is_weight
from crosstrain_migrate.facts.arguments import given
from crosstrain_migrate.facts.assumed import loop_around
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import (
    External,
    Iterator,
    Parameters,
    Sequence,
    Value,
    made_at,
    site_of,
)
from crosstrain_migrate.results import Finding, Severity
from crosstrain_migrate.rules.base import Subject, finding, refuse
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.scopes import Scope, suites

from .holders import holdings, stores

RULE, NO_LOADER = "CT201", "CT902"


def find_subject(facts: Facts, loaders: bool = True) -> Subject:
    """The core of the conversion; without the training loaders unless `loaders`. Raises Refusal when no scope can hold
    `prepare`."""
    first_backward = facts.backward_calls[0][0]
    if not facts.optimizers:
        raise refuse(
            "CT202",
            first_backward,
            "this script calls no optimizer's step(): each process would apply the gradients of its own part of the batch to its own model",
            "use an optimizer of torch.optim, imported by name",
        )
    if not facts.models:
        raise refuse(
            RULE,
            site_of(facts.optimizers[0]),
            "this optimizer's parameters come from no nn.Module of this script: without `prepare`, each process would train a model of its own",
            "create the model in the script's own files, and pass its parameters()",
        )
    _must_be_told_apart(facts)
    for optimizer in facts.optimizers if loaders else ():  # otherwise the runtime looks, at the first step
        _must_be_traced(facts, optimizer)
    shared = facts.train_loaders if loaders else []
    return _together(facts, shared, []) or _apart(facts, shared) or _each_where_made(facts, shared)


def _together(facts: Facts, named: list[Value], unnamed: list[Value]) -> Subject | None:
    """The subject, in a scope that holds the models, the optimizers and the loaders; None where there is none."""
    values: list[Value] = [*facts.models, *facts.optimizers, *named]
    candidates = _holding_all(facts, values) or _given_the_rest(facts, facts.optimizers, values)
    if not candidates:
        return _in_stages(facts, named, unnamed)
    scope = min(candidates, key=lambda s: _preference(facts, s))
    return Subject(scope, facts.models, facts.optimizers, [*named, *unnamed], unnamed=unnamed)


def _holding_all(facts: Facts, values: Iterable[Value]) -> list[Scope]:
    return [s for s in facts.table.scopes.values() if all(stores(facts, s, v) for v in values)]


def _given_the_rest(facts: Facts, made: Iterable[Value], values: Iterable[Value]) -> list[Scope]:
    """Functions that make some values, and are given the others: `fit(model, loader, lr)`."""
    called = [s for s in facts.table.scopes.values() if s.is_function and facts.callers.get(s.node)]
    return [
        s
        for s in called
        if all(stores(facts, s, v) for v in made) and all(holdings(facts, s, v) for v in values)
    ]


def _apart(facts: Facts, loaders: list[Value]) -> Subject | None:
    """The subject, with loaders prepared where they are made if they are made elsewhere or have no name:
    `cycle(DataLoader(...))`."""
    alone = _together(facts, [], loaders)
    if alone is None or not all(_comes_to(facts, alone.scope, site_of(loader)) for loader in loaders):
        return None
    apart = [v for v in loaders if not holdings(facts, alone.scope, v)]
    return _together(facts, [v for v in loaders if v not in apart], apart)


def trained_by(facts: Facts, optimizer: Value) -> set[Value]:
    """The models whose parameters an optimizer changes."""
    return {facts.whole(part, optimizer) for part in facts.optimized_by(optimizer)}


def _comes_to(facts: Facts, scope: Scope, node: ast.AST) -> bool:
    """Whether code at `node` runs in `scope`, or in functions that it calls."""
    return scope.parent is None or scope in _leading_to(facts, facts.table.of_node[node])


def _in_stages(facts: Facts, named: list[Value], unnamed: list[Value]) -> Subject | None:
    """The subject, where one scope holds the models and the loaders, and calls a function for each optimizer: first for
    the teacher, then for the student."""
    outer = _holding_all(facts, [*facts.models, *named])
    if not outer:
        return None
    stages: dict[Value, Scope] = {}
    for optimizer in facts.optimizers:
        models = trained_by(facts, optimizer)
        inside = _given_the_rest(facts, [optimizer], models)
        if len(inside) != 1 or any(stages.get(m, inside[0]) is not inside[0] for m in models):
            return None
        stages.update(dict.fromkeys([optimizer, *models], inside[0]))
    scope = min(outer, key=lambda s: _preference(facts, s))
    return Subject(scope, facts.models, facts.optimizers, [*named, *unnamed], unnamed=unnamed, stages=stages)


def _each_where_made(facts: Facts, loaders: list[Value]) -> Subject:
    """The subject, where no scope holds everything: each object is prepared in the scope that makes it, the model at the
    top level of the file, say, and the optimizer in `main`. What no variable holds is prepared in its expression."""
    places: dict[Value, Scope] = {}
    for value in (*facts.models, *facts.optimizers, *loaders):
        holding = _holding_all(facts, [value])
        if holding:
            places[value] = min(holding, key=lambda s: _distance(facts, s, value))
        elif value not in loaders:
            places[value] = facts.table.of_node[made_at(value)]
    top = next((p for p in places.values() if p.parent is None), places[facts.models[0]])
    scope = _above_all(facts, set(places.values())) or top
    unnamed = [v for v in loaders if v not in places]
    stages = {value: place for value, place in places.items() if place is not scope}
    return Subject(scope, facts.models, facts.optimizers, loaders, unnamed=unnamed, stages=stages)


def _above_all(facts: Facts, places: set[Scope]) -> Scope | None:
    """The innermost function or file whose calls lead to all of several scopes; None if one of them is the top level of
    a file, which runs first anyway."""
    leading = [_leading_to(facts, place) for place in places]
    common = [s for s in leading[0] if all(s in others for others in leading[1:])]
    functions = [s for s in common if not isinstance(facts.table.parents.get(s.node), ast.ClassDef)]
    return functions[0] if functions and not any(p.parent is None for p in places) else None


def _leading_to(facts: Facts, place: Scope) -> list[Scope]:
    """The scopes whose calls lead to a scope, the nearest first."""
    found = [place]
    for scope in found:
        callers = (facts.table.of_node[site] for site in facts.callers.get(scope.node, ()))
        found += [caller for caller in dict.fromkeys(callers) if caller not in found]
    return found


def _distance(facts: Facts, scope: Scope, value: Value) -> tuple[bool, int]:
    """The scope that makes a value first, then the outermost."""
    return facts.table.of_node.get(site_of(value)) is not scope, _depth(scope)


def _must_be_told_apart(facts: Facts) -> None:
    """Raises Refusal where one call makes models and optimizers by a name from elsewhere: only a run shows which of its
    results is which."""
    for optimizer in facts.optimizers:
        site = site_of(optimizer)
        if any(facts.interp.is_module(value) for value in facts.of(site)):
            raise refuse(
                RULE,
                site,
                "one call makes both models and optimizers, chosen by a configuration or a registry: the tool cannot tell which it returns where without running the script",
                "let the tool watch a run of a few steps: `migrate --observe` (the script's own arguments go after `--`)",
            )


def _must_be_traced(facts: Facts, optimizer: Value) -> None:
    """Raises Refusal where a parameter of the optimizer belongs to no module: its gradient would not be averaged."""
    site = getattr(optimizer, "site", None)
    observation = facts.interp.observation
    if not isinstance(site, ast.Call) or (observation is not None and observation.owned_by(site)):
        return
    parameters = given(site, "params", 0)
    if parameters is None or isinstance(parameters, ast.Starred) or _asks_a_model(facts, parameters):
        return
    others = (v for v in facts.of(parameters) if not facts.optimized_by(v))
    loose = next((v for v in others if not _of_modules(facts, v, frozenset())), None)
    if loose is not None and facts.interp.loaders_of(frozenset({loose})):
        raise refuse(
            RULE,
            parameters,
            "this optimizer changes the rows of a batch (in an attack on the input, say), not the parameters of a model: the "
            "loss is a mean over the rows of one process's share, so their gradients are larger than for the whole batch",
            "change the rows by hand: `(slope,) = torch.autograd.grad(loss, x)` and `x = x + rate * slope.sign()`",
        )
    if loose is not None:
        raise refuse(
            RULE,
            parameters,
            "some of this optimizer's parameters belong to no nn.Module of this script (a separate tensor or nn.Parameter, say), so their gradients would not be averaged over processes",
            "put them into an nn.Module (nn.ParameterList holds separate ones) and pass its parameters()",
        )


def _asks_a_model(facts: Facts, parameters: ast.expr) -> bool:
    """`model.parameters()`, where the variable is prepared, although it may hold something else, too: a model from a file."""
    method = parameters.func if isinstance(parameters, ast.Call) and not parameters.args else None
    if not isinstance(method, ast.Attribute) or method.attr != "parameters":
        return False
    return isinstance(method.value, ast.Name) and bool(facts.of(method.value) & set(facts.models))


def _of_modules(facts: Facts, value: Value, seen: frozenset[Value]) -> bool:
    if isinstance(value, Parameters) or value in seen or is_weight(facts.interp, value):
        return True
    if isinstance(value, Iterator):
        return _of_modules(facts, value.of, seen | {value})
    if isinstance(value, Sequence):
        interp = facts.interp
        grouped = isinstance(value.site, ast.Dict) or (
            isinstance(value.site, ast.Call) and facts.paths(value.site.func) == {"builtins.dict"}
        )
        inner = interp.element(value, "params") if grouped else interp.element(value)
        return all(_of_modules(facts, v, seen | {value}) for v in inner)
    return False


def _preference(facts: Facts, scope: Scope) -> tuple[int, int]:
    """Prefer the scope that makes the optimizer; then the outermost."""
    made_here = any(facts.table.of_node.get(site_of(o)) is scope for o in facts.optimizers)
    return (0 if made_here else 1, _depth(scope))


def _depth(scope: Scope) -> int:
    return 0 if scope.parent is None else 1 + _depth(scope.parent)


def suite_of(facts: Facts, statement: ast.stmt) -> list[ast.stmt]:
    parent = facts.table.parents[statement]
    return next(block for block in suites(parent) if statement in block)


def common_position(facts: Facts, statements: list[ast.stmt]) -> ast.stmt:
    """The statement after which all of `statements` have run: in the innermost suite that is around all of them."""
    chains = []
    for statement in statements:
        chain: list[ast.stmt] = [statement]
        around = [a for a in facts.table.ancestors(statement) if isinstance(a, ast.stmt)]
        chain += [a for a in around if not is_main_test(a)]
        chains.append(chain[::-1])
    depth = 0
    while all(len(c) > depth + 1 for c in chains) and len({id(c[depth]) for c in chains}) == 1:
        if len({id(_block(facts, c[depth + 1])) for c in chains}) > 1:
            break
        depth += 1
    level = [c[min(depth, len(c) - 1)] for c in chains]
    return max(level, key=lambda s: (s.lineno, s.col_offset))


def _block(facts: Facts, statement: ast.stmt) -> list[ast.stmt]:
    """The suite of a statement. Code under `if __name__ == "__main__":` counts as part of the file's top level."""
    parent = facts.table.parents[statement]
    if isinstance(parent, ast.stmt) and is_main_test(parent):
        return _block(facts, parent)
    return suite_of(facts, statement)


def without_loader(facts: Facts, draws_apart: bool = False) -> Finding | None:
    """The finding about training without a DataLoader, unless every process draws its own data."""
    if draws_apart:
        return None
    first = facts.backward_calls[0][0]
    loops = (loop_around(facts, call) for call, _ in facts.backward_calls)
    source = next((loop.iter for loop in loops if loop is not None), None)
    node: ast.AST = first if source is None else source
    if source is not None:
        reason = f"this loop trains on what `{ast.unparse(source)}` yields, which is not a DataLoader"
    elif any(isinstance(v, External) for v in facts.loaders):
        reason = "no loop over a DataLoader leads to this backward pass"
    else:
        reason = "training without a DataLoader"
    return finding(
        NO_LOADER,
        node,
        f"{reason}: with several processes, each repeats the same work",
        "run it on one process, or wrap the data in a DataLoader",
        Severity.NOTE,
    )
