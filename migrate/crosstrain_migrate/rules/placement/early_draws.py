"""Random numbers that are drawn before the Accelerator exists and gives all processes one random state."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.facts.arguments import arguments_of
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.torch_api import NOISE, last
from crosstrain_migrate.facts.values import Symbol, code_of
from crosstrain_migrate.rules.access import Home
from crosstrain_migrate.syntax.program import is_main_test, modules_of
from crosstrain_migrate.syntax.scopes import Scope
from crosstrain_migrate.syntax.walks import walk

SEEDS = frozenset(
    {"manual_seed", "manual_seed_all", "seed", "seed_everything", "set_seed", "use_deterministic_algorithms"}
)
DRAWS = NOISE | {"random_split", "randperm", "shuffle", "multinomial"}
OWN_STATE = frozenset({"generator", "random_state", "seed"})  # arguments that name a state of their own
MAKERS = frozenset({"default_rng", "RandomState", "Random", "Generator", "SeedSequence"})
DEPTH = 3  # how far calls of the script's own functions are followed

Place = tuple[ast.stmt, Scope]


def may_draw(facts: Facts, statement: ast.stmt) -> bool:
    """Whether a statement might draw a random number before any seed is set."""
    if defines(statement):
        return False
    return any(_draws(symbol.path) for _, symbol in _called(facts, statement))


def unseeded_draw(facts: Facts, home: Home) -> Place | None:
    """The first draw that runs before `home` and that nothing has seeded: each process would draw its own numbers."""
    seeded: set[str] = set()
    for node, scope in _before(facts, home):
        if not isinstance(node, ast.If | ast.For | ast.While | ast.Try):  # these may or may not set a seed
            paths = (symbol.path for _, symbol in _called(facts, node))
            seeded |= {_family(path) for path in paths if last(path) in SEEDS}
        for call, symbol in _called(facts, node):
            drawn = _draws(symbol.path) and not _has_own_state(call, symbol.path)
            if drawn and _family(symbol.path) not in seeded:
                return facts.table.statement_of(node), scope
    return None


def _before(facts: Facts, home: Home) -> Iterator[tuple[ast.AST, Scope]]:
    """What runs before the Accelerator is made, in order: statements, and arguments of the calls that lead to it."""
    levels: list[list[tuple[ast.AST, Scope]]] = []
    scope, until = home.scope, home.statement
    seen = {scope}
    while scope.parent is not None:
        sites = facts.callers.get(scope.node, [])
        if not sites:
            break
        site = sites[0]
        scope = facts.table.of_node[site]
        if scope in seen:
            break
        seen.add(scope)
        until = facts.table.statement_of(site)
        given = ((argument, scope) for argument in arguments_of(site))
        levels.append([*_prefix(facts, until, scope), *given])
    for module in modules_of(facts.tree):
        own = facts.table.scopes[module]
        if own is not scope:
            yield from ((s, own) for s in module.body if not defines(s) and not is_main_test(s))
    for level in reversed(levels):
        yield from level


def _prefix(facts: Facts, until: ast.stmt, scope: Scope) -> list[tuple[ast.AST, Scope]]:
    """The statements of `scope` that run before `until`, simple ones and whole blocks."""
    found: list[tuple[ast.AST, Scope]] = []
    current: ast.AST = until
    while current is not scope.node:
        parent = facts.table.parents[current]
        for name in ("body", "orelse", "finalbody"):
            suite = getattr(parent, name, None)
            if isinstance(suite, list) and current in suite:
                earlier = suite[: suite.index(current)]
                found[:0] = [(s, scope) for s in earlier if not defines(s)]
        current = parent
    return found


def defines(node: ast.stmt) -> bool:
    """Whether a statement only binds a name to a function, a class or a module."""
    return isinstance(
        node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
    )


def _called(
    facts: Facts, node: ast.AST, depth: int = DEPTH + 1, seen: frozenset[ast.AST] = frozenset()
) -> Iterator[tuple[ast.Call, Symbol]]:
    """Every call of a library that evaluating `node` may come to, through the script's own functions."""
    for call in (n for n in walk(node) if isinstance(n, ast.Call)):
        for value in facts.of(call.func):
            if isinstance(value, Symbol):
                yield call, value
            inner = code_of(value) if depth else None
            if inner is not None and inner not in seen:
                yield from _called(facts, inner, depth - 1, seen | {inner})


def _draws(path: str) -> bool:
    name = last(path)
    if name in SEEDS:
        return False
    return path.startswith(("random.", "numpy.random.", "sklearn.model_selection")) or name in DRAWS


def _has_own_state(call: ast.Call, path: str) -> bool:
    """`random_split(..., generator=g)`, `default_rng(0)`: not the state that all draws share."""
    if any(keyword.arg in OWN_STATE for keyword in call.keywords):
        return True
    return last(path) in MAKERS and bool(call.args)


def _family(path: str) -> str:
    """Which random state a function uses; a seed function of another library is taken to seed them all."""
    top = path.split(".")[0]
    return {"random": "random", "numpy": "numpy", "sklearn": "numpy"}.get(top, "torch")
