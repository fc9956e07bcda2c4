"""Random numbers that are drawn before the Accelerator exists, which gives all processes one random state."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.torch_api import NOISE
from crosstrain_migrate.facts.values import Symbol, Value, code_of
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
DEPTH = 3  # calls of the script's own functions are followed so far

Place = tuple[ast.stmt, Scope]


def may_draw(facts: Facts, statement: ast.stmt) -> bool:
    """Whether a statement might draw a random number before any seed is set."""
    if _defines(statement):
        return False
    return any(
        isinstance(value, Symbol) and _draws(value.path) for _, value in _called(facts, statement, DEPTH + 1)
    )


def unseeded_draw(facts: Facts, home: Home) -> Place | None:
    """The first draw that runs before `home` and that nothing has seeded: each process would draw its own numbers."""
    seeded: set[str] = set()
    for node, scope in _before(facts, home):
        if not isinstance(node, ast.If | ast.For | ast.While | ast.Try):  # which may seed, or not
            seeded |= {_family(v.path) for v in _seeds(facts, node)}
        for call, value in _called(facts, node, DEPTH + 1):
            drawn = isinstance(value, Symbol) and _draws(value.path) and not _has_own_state(call, value.path)
            if isinstance(value, Symbol) and drawn and _family(value.path) not in seeded:
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
        given = [*site.args, *(k.value for k in site.keywords)]
        levels.append([*_prefix(facts, until, scope), *((argument, scope) for argument in given)])
    for module in modules_of(facts.tree):
        own = facts.table.scopes[module]
        if own is not scope:
            yield from ((s, own) for s in module.body if not _defines(s) and not is_main_test(s))
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
                earlier = [s for s in suite[: suite.index(current)] if not _defines(s)]
                found = [*((s, scope) for s in earlier), *found]
        current = parent
    return found


def _defines(node: ast.stmt) -> bool:
    return isinstance(
        node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
    )


def _called(
    facts: Facts, node: ast.AST, depth: int, seen: frozenset[ast.AST] = frozenset()
) -> Iterator[tuple[ast.Call, Value]]:
    """Every call that evaluating `node` may come to, through the script's own functions, with what is called."""
    for call in walk(node):
        if not isinstance(call, ast.Call):
            continue
        for value in facts.of(call.func):
            yield call, value
            inner = code_of(value) if depth else None
            if inner is not None and inner not in seen:
                yield from _called(facts, inner, depth - 1, seen | {inner})


def _seeds(facts: Facts, node: ast.AST) -> list[Symbol]:
    return [
        value
        for _, value in _called(facts, node, DEPTH + 1)
        if isinstance(value, Symbol) and value.path.rsplit(".", 1)[-1] in SEEDS
    ]


def _draws(path: str) -> bool:
    name = path.rsplit(".", 1)[-1]
    if name in SEEDS:
        return False
    return path.startswith(("random.", "numpy.random.", "sklearn.model_selection")) or name in DRAWS


def _has_own_state(call: ast.Call, path: str) -> bool:
    """`random_split(..., generator=g)`, `default_rng(0)`: not the state that all draws share."""
    if any(keyword.arg in OWN_STATE for keyword in call.keywords):
        return True
    return path.rsplit(".", 1)[-1] in MAKERS and bool(call.args)


def _family(path: str) -> str:
    """Which random state a function uses; a seed function of another library is taken to seed them all."""
    top = path.split(".")[0]
    return {"random": "random", "numpy": "numpy", "sklearn": "numpy"}.get(top, "torch")
