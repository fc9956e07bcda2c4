"""Under which names a prepared loader is used: every loop must go over the prepared one, and not over what it was."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import arguments_of
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.memory import ANY
from crosstrain_migrate.facts.values import Generator, Instance, Iterator, Sequence, Value
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.placement.construction import only_definition
from crosstrain_migrate.syntax.nodes import FunctionNode
from crosstrain_migrate.syntax.walks import walk

from .holders import Holding

ITEMS = frozenset({"items", "values"})


def sees_all(context: Context, holding: Holding, position: ast.stmt) -> bool:
    """Whether every loop over a loader goes over it as it is prepared behind `position`, and no variable that holds it
    as it was made is read where an item of a dict holds the prepared one."""
    return (
        seen_everywhere(context, holding.value, holding, position)
        and _streamed_as_prepared(context, holding, position)
        and not _is_read_beside(context, holding, position)
    )


def seen_everywhere(context: Context, loader: Value, holding: Holding, position: ast.stmt) -> bool:
    return all(
        _sees_prepared(context, _iterated(loop.iter), holding, position, loader, frozenset())
        for loop, over in context.facts.interp.iterations.items()
        if isinstance(loop, ast.For | ast.AsyncFor | ast.comprehension) and loader in over
    )


def _streamed_as_prepared(context: Context, holding: Holding, position: ast.stmt) -> bool:
    facts, loader = context.facts, holding.value
    return all(
        _sees_prepared(context, given, holding, position, loader, frozenset())
        for call in facts.calls
        if loader in streams_of(context, call)
        for given in call.args
        if loader in facts.of(given)
    )


def _is_read_beside(context: Context, holding: Holding, position: ast.stmt) -> bool:
    """Whether a loader whose item in a dict is prepared is read as a variable as well: that one is the author's."""
    facts, loader = context.facts, holding.value
    if holding.container is None:
        return False
    for node in facts.nodes:
        if (
            not isinstance(node, ast.Name)
            or not isinstance(node.ctx, ast.Load)
            or loader not in facts.of(node)
        ):
            continue
        if facts.table.of_node[node] is holding.scope and node.lineno <= position.lineno:
            continue
        # for phase, loader in loaders.items(); loader = loaders[phase]
        if not _unpacked(context, node) and not isinstance(only_definition(facts, node), ast.Subscript):
            return True
    return False


def _iterated(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    return node


def _sees_prepared(
    context: Context,
    node: ast.expr,
    holding: Holding,
    position: ast.stmt,
    loader: Value,
    seen: frozenset[ast.AST],
) -> bool:
    facts = context.facts
    if node in seen:
        return True
    seen = seen | {node}
    if isinstance(node, ast.IfExp):  # train_loader if training else test_loader
        chosen = [p for p in (node.body, node.orelse) if loader in facts.of(p)]
        return all(_sees_prepared(context, p, holding, position, loader, seen) for p in chosen)
    if isinstance(node, ast.Attribute):
        return _attribute_sees(context, node, holding, position, loader, seen)
    if isinstance(node, ast.Subscript) and holding.container is not None:
        within = facts.table.of_node[node] is holding.scope
        return Sequence(holding.container) in facts.of(node.value) and (
            not within or node.lineno > position.lineno
        )
    if not isinstance(node, ast.Name):
        return False
    container = _unpacked(context, node)
    if container is not None:  # for phase, loader in loaders.items()
        return _sees_prepared(context, container, holding, position, loader, seen)
    scope = facts.table.of_node[node].resolve(node.id)
    if scope is holding.scope and node.id == holding.name:
        return facts.table.of_node[node] is not scope or node.lineno > position.lineno
    definition = only_definition(facts, node)
    definition = definition or _entered(context, node)
    if definition is not None:  # batches = tqdm(loader); with tqdm(loader) as batches:
        return _sees_prepared(context, _iterated(definition), holding, position, loader, seen)
    if scope is None or not isinstance(scope.node, FunctionNode):
        return False
    arguments = {a.arg: a for a in walk(scope.node) if isinstance(a, ast.arg)}
    if node.id in arguments:
        sites = facts.callers.get(scope.node, [])
        return bool(sites) and all(
            _sees_prepared(context, value, holding, position, loader, seen)
            for site in sites
            for value in (context.facts.passed(site, scope.node, node.id),)
            if value is not None and loader in facts.of(value)
        )
    return False


def _entered(context: Context, name: ast.Name) -> ast.expr | None:
    """`tqdm(loader)`, when `name` is bound by `with tqdm(loader) as name:`."""
    definitions = context.facts.interp.reaching.get(name, frozenset())
    for definition in definitions if len(definitions) == 1 else ():
        around = context.facts.table.parents.get(definition)
        if isinstance(around, ast.withitem):
            return around.context_expr
    return None


def _unpacked(context: Context, name: ast.Name) -> ast.Subscript | None:
    """`loaders[...]`, when `name` is bound by a loop over the items or values of `loaders`."""
    for definition in context.facts.interp.reaching.get(name, ()):
        loops = ast.For | ast.comprehension | ast.stmt
        around = next((a for a in context.facts.table.ancestors(definition) if isinstance(a, loops)), None)
        call = around.iter if isinstance(around, ast.For | ast.comprehension) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ITEMS:
            found = ast.Subscript(call.func.value, call.func.value, ast.Load())
            context.facts.table.of_node[found] = context.facts.table.of_node[call]
            return ast.copy_location(found, call)
    return None


def _attribute_sees(
    context: Context,
    node: ast.Attribute,
    holding: Holding,
    position: ast.stmt,
    loader: Value,
    seen: frozenset[ast.AST],
) -> bool:
    """`self.loader`: rebound by prepare itself, or assigned from something that is."""
    facts = context.facts
    if holding.name == ast.unparse(node) or holding.name.split(".")[-1] == node.attr:
        return True
    sources = [
        s.value
        for s in facts.each(ast.Assign)
        if any(isinstance(t, ast.Attribute) and t.attr == node.attr for t in s.targets)
        and loader in facts.of(s.value)
    ]
    return bool(sources) and all(_sees_prepared(context, s, holding, position, loader, seen) for s in sources)


def streams_of(context: Context, call: ast.Call) -> set[Value]:
    """The loaders that a call begins to iterate for later: `iter(loader)`, a generator over it, a wrapper.

    `next(iter(loader))` looks at one batch and keeps nothing.
    """
    facts = context.facts
    parent = facts.table.parents.get(call)
    if isinstance(parent, ast.Call) and "builtins.next" in facts.paths(parent.func):
        return set()
    if isinstance(parent, ast.For) and parent.iter is call:
        return set()  # looked at with the loop
    made = [v for v in facts.of(call) if isinstance(v, Iterator | Generator) and v.site is call]
    found = {loader for value in made for loader in streamed(facts, value)}
    if any(isinstance(v, Instance) and v.site is call and _yields(facts, v) for v in facts.of(call)):
        found |= {
            v for argument in arguments_of(call) for v in facts.of(argument) if facts.interp.is_loader(v)
        }
    return found


def _yields(facts: Facts, value: Instance) -> bool:
    """Whether an object of the script's own, made of a loader, is there to be iterated."""
    return any(facts.interp.method(value.cls, name) is not None for name in ("__iter__", "__next__"))


def streamed(facts: Facts, value: Value) -> set[Value]:
    """The loaders whose batches a value gives one after the other."""
    if isinstance(value, Iterator):
        return streamed(facts, value.of)
    if isinstance(value, Generator):
        return facts.interp.loaders_of(frozenset(facts.interp.heap.get((value.site, ANY), ())))
    return {value} if facts.interp.is_loader(value) else set()
