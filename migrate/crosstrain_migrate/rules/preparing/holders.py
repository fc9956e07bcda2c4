"""Who holds what is prepared: the variables, attributes and containers of a scope."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.memory import ANY
from crosstrain_migrate.facts.values import Sequence, Value, site_of
from crosstrain_migrate.syntax.nodes import all_arguments, written
from crosstrain_migrate.syntax.scopes import Scope
from crosstrain_migrate.syntax.walks import walk


@dataclass
class Holding:
    """A variable of the home scope that holds a prepared value: its name as written, and where it is bound.

    No statement binds a parameter: its `stores` are empty. `container` is where a dict or list is made, if the value is
    an item of it (`loaders["train"]`), or if a loop fills the list with such values (`*models`).
    """

    name: str
    value: Value
    stores: list[ast.stmt]
    scope: Scope
    container: ast.AST | None = None

    @property
    def variable(self) -> str:
        """The name itself, or that of the dict or list."""
        return self.name if self.container is None else self.name.lstrip("*").rsplit("[", 1)[0]

    @property
    def is_whole_list(self) -> bool:
        return self.name.startswith("*")

    @property
    def last(self) -> ast.stmt:
        return max(self.stores, key=lambda s: (s.lineno, s.col_offset))


Held = dict[Value, Holding]  # what is prepared, with who holds it


def stores(facts: Facts, scope: Scope, value: Value) -> list[Holding]:
    """The variables and `self` attributes of `scope` that hold `value`, attributes first, items of dicts and lists last."""
    found: dict[str, Holding] = {}

    def hold(name: str, statement: ast.stmt, container: ast.AST | None = None) -> None:
        found.setdefault(name, Holding(name, value, [], scope, container)).stores.append(statement)

    items = {Sequence(site): key for site, key in facts.items.get(value, ())}
    for node, values in facts.stores_in.get(scope, ()):
        if _is_loop_variable(facts, node):
            continue  # a loop variable over models is no place to bind a prepared one
        statement = facts.table.statement_of(node)
        if value in values:
            hold(written(node), statement)
        for container in values & set(items):
            assert isinstance(container, Sequence)
            key = items[container]
            if key != ANY:
                hold(f"{written(node)}[{key!r}]", statement, container.site)
            elif _is_list_of_its_own(facts, container, value):
                hold(f"*{written(node)}", statement, container.site)
    for alias in facts.imports_in.get(scope, ()):
        if value in facts.interp.definitions[alias]:
            # Another file of the program has made it.
            hold(alias.asname or alias.name, facts.table.statement_of(alias))
    for holding in found.values():
        if holding.container is not None:
            holding.stores += _filled(facts, scope, holding)
    several = made_repeatedly(facts, value)
    return sorted(
        found.values(),
        key=lambda h: (
            not (several and h.is_whole_list),
            h.container is not None,
            "." not in h.name,
            _only_copies(h),
            h.last.lineno,
        ),
    )


def _only_copies(holding: Holding) -> bool:
    """Whether a variable is a second name for what another holds: `unoptimized_model = model`."""
    return holding.name.isidentifier() and all(
        isinstance(s, ast.Assign) and isinstance(s.value, ast.Name) for s in holding.stores
    )


def _is_loop_variable(facts: Facts, node: ast.AST) -> bool:
    around = next(
        (a for a in facts.table.ancestors(node) if isinstance(a, ast.comprehension | ast.stmt)), None
    )
    return isinstance(around, ast.comprehension | ast.For | ast.AsyncFor)


def _is_list_of_its_own(facts: Facts, container: Sequence, value: Value) -> bool:
    """Whether a list that a loop fills holds models alone, or optimizers alone."""
    if not isinstance(container.site, ast.List | ast.ListComp):
        return False
    kinds = (facts.models, facts.optimizers)
    return any(value in kind and facts.interp.element(container) <= set(kind) for kind in kinds)


def made_repeatedly(facts: Facts, value: Value) -> bool:
    """Whether the place that makes `value` is in a loop, so that a variable holds the last one only."""
    loops = ast.For | ast.AsyncFor | ast.While | ast.comprehension | ast.ListComp
    return any(isinstance(around, loops) for around in facts.table.ancestors(site_of(value)))


def _filled(facts: Facts, scope: Scope, holding: Holding) -> list[ast.stmt]:
    """The statements that put the item into its container: `loaders["train"] = ...`, `models.append(...)`"""
    statements = (n for n in walk(scope.node) if isinstance(n, ast.stmt))
    return [s for s in statements if facts.table.of_node.get(s) is scope and _fills(s, holding)]


def _fills(statement: ast.stmt, holding: Holding) -> bool:
    if isinstance(statement, ast.Assign):
        return any(written(t) == holding.name for t in statement.targets)
    call = statement.value if isinstance(statement, ast.Expr) else None
    return (
        holding.is_whole_list
        and isinstance(call, ast.Call)
        and written(call.func) in {f"{holding.variable}.{name}" for name in ("append", "extend", "insert")}
    )


def holdings(facts: Facts, scope: Scope, value: Value) -> list[Holding]:
    """`stores`, or the parameters of a function that are given `value`: held from its first line on."""
    found = stores(facts, scope, value)
    copied = all(map(_only_copies, found))
    if (found and not copied) or not isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef):
        return found
    names = [a.arg for a in all_arguments(scope.node)]
    values = {name: facts.interp.env.get((scope, name), ()) for name in names}
    given = [Holding(name, value, [], scope) for name in names if value in values[name]]
    if found:  # other names of what the function is given
        return given or found
    return given + [
        Holding(f"{name}[{key!r}]", value, [], scope, site)
        for name in names
        for site, key in facts.items.get(value, ())
        if key != ANY and Sequence(site) in values[name]
    ]
