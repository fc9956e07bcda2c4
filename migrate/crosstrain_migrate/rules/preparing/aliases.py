"""The names under which a loader is used: every loop must go over the prepared loader, not over the original."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

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
    """Whether every loop over a loader goes over it as it is prepared behind `position`, and no variable with the original
    is read where an item of a dict holds the prepared one."""
    facts, loader = context.facts, holding.value
    prepared = _Prepared(facts, holding, position)
    streamed_over = (
        given
        for call in facts.calls
        if loader in streams_of(context, call)
        for given in call.args
        if loader in facts.of(given)
    )
    return (
        seen_everywhere(context, holding, position)
        and all(prepared.is_read_by(given) for given in streamed_over)
        and not _is_read_beside(context, holding, position)
    )


def seen_everywhere(context: Context, holding: Holding, position: ast.stmt) -> bool:
    """Whether every loop over a loader goes over it as it is prepared behind `position`."""
    prepared = _Prepared(context.facts, holding, position)
    return all(
        prepared.is_read_by(_iterated(loop.iter))
        for loop, over in context.facts.interp.iterations.items()
        if isinstance(loop, ast.For | ast.AsyncFor | ast.comprehension) and holding.value in over
    )


def _is_read_beside(context: Context, holding: Holding, position: ast.stmt) -> bool:
    """Whether a loader that is prepared as an item of a dict is read as a variable, too, which holds the original."""
    facts = context.facts
    if holding.container is None:
        return False
    for node in facts.each(ast.Name):
        if not isinstance(node.ctx, ast.Load) or holding.value not in facts.of(node):
            continue
        if facts.table.of_node[node] is holding.scope and node.lineno <= position.lineno:
            continue
        # for phase, loader in loaders.items(); loader = loaders[phase]
        if not _unpacked(facts, node) and not isinstance(only_definition(facts, node), ast.Subscript):
            return True
    return False


def _iterated(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    return node


@dataclass
class _Prepared:
    """A loader of which the holder has the prepared object below `position`, and everything else the original."""

    facts: Facts
    holding: Holding
    position: ast.stmt

    def is_read_by(self, node: ast.expr, seen: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether an expression that may be the loader is the prepared one."""
        if node in seen:
            return True
        seen = seen | {node}
        if isinstance(node, ast.IfExp):  # train_loader if training else test_loader
            return self._all_read([node.body, node.orelse], seen)
        if isinstance(node, ast.Attribute):
            return self._is_attribute(node, seen)
        if isinstance(node, ast.Subscript) and self.holding.container is not None:
            of_container = Sequence(self.holding.container) in self.facts.of(node.value)
            return of_container and self._is_behind(node)
        return isinstance(node, ast.Name) and self._is_variable(node, seen)

    def _all_read(self, nodes: Iterable[ast.expr], seen: frozenset[ast.AST]) -> bool:
        return all(self.is_read_by(n, seen) for n in nodes if self.holding.value in self.facts.of(n))

    def _is_behind(self, node: ast.expr) -> bool:
        """Whether what stands in the scope of `prepare` stands below it."""
        within = self.facts.table.of_node[node] is self.holding.scope
        return not within or node.lineno > self.position.lineno

    def _is_variable(self, node: ast.Name, seen: frozenset[ast.AST]) -> bool:
        facts = self.facts
        container = _unpacked(facts, node)
        if container is not None:  # for phase, loader in loaders.items()
            return self.is_read_by(container, seen)
        scope = facts.table.of_node[node].resolve(node.id)
        if scope is self.holding.scope and node.id == self.holding.name:
            return self._is_behind(node)
        definition = only_definition(facts, node) or _entered(facts, node)
        if definition is not None:  # batches = tqdm(loader); with tqdm(loader) as batches:
            return self.is_read_by(_iterated(definition), seen)
        function = scope.node if scope is not None else None
        if not isinstance(function, FunctionNode):
            return False
        if not any(isinstance(a, ast.arg) and a.arg == node.id for a in walk(function)):
            return False
        sites = facts.callers.get(function, [])
        passed = [facts.passed(site, function, node.id) for site in sites]
        return bool(sites) and self._all_read([p for p in passed if p is not None], seen)

    def _is_attribute(self, node: ast.Attribute, seen: frozenset[ast.AST]) -> bool:
        """`self.loader`: rebound by prepare itself, or assigned from something that is."""
        if self.holding.name == ast.unparse(node) or self.holding.name.split(".")[-1] == node.attr:
            return True
        sources = [
            s.value
            for s in self.facts.each(ast.Assign)
            if any(isinstance(t, ast.Attribute) and t.attr == node.attr for t in s.targets)
            and self.holding.value in self.facts.of(s.value)
        ]
        return bool(sources) and self._all_read(sources, seen)


def _entered(facts: Facts, name: ast.Name) -> ast.expr | None:
    """`tqdm(loader)`, when `name` is bound by `with tqdm(loader) as name:`."""
    definitions = facts.bindings(name)
    around = [facts.table.parents.get(definition) for definition in definitions]
    return around[0].context_expr if len(around) == 1 and isinstance(around[0], ast.withitem) else None


def _unpacked(facts: Facts, name: ast.Name) -> ast.Subscript | None:
    """`loaders[...]`, when `name` is bound by a loop over the items or values of `loaders`."""
    for definition in facts.bindings(name):
        loops = ast.For | ast.comprehension | ast.stmt
        around = next((a for a in facts.table.ancestors(definition) if isinstance(a, loops)), None)
        call = around.iter if isinstance(around, ast.For | ast.comprehension) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ITEMS:
            found = ast.Subscript(call.func.value, call.func.value, ast.Load())
            facts.table.of_node[found] = facts.table.of_node[call]
            return ast.copy_location(found, call)
    return None


def streams_of(context: Context, call: ast.Call) -> set[Value]:
    """The loaders over which a call begins an iteration for later: `iter(loader)`, a generator over it, a wrapper.

    `next(iter(loader))` looks at one batch and keeps nothing.
    """
    facts = context.facts
    parent = facts.table.parents.get(call)
    if isinstance(parent, ast.Call) and "builtins.next" in facts.paths(parent.func):
        return set()
    if isinstance(parent, ast.For) and parent.iter is call:
        return set()  # the loop itself is checked
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
