"""The author's own collectives in a loss: the code around them stays as it is.

Such a loss is already written for several processes: its sums and its divisors belong together. The default group is that
of the run, so the calls keep their meaning.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.arguments import keyword_of
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.torch_api import last
from crosstrain_migrate.results import Severity
from crosstrain_migrate.rules.base import finding, refuse
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.walks import walk

from .launcher_settings import DIST
from .plain import Stage, nodes_in
from .process_dependent import RANK, ProcessDependent

RULE = "CT303"
COLLECTIVES = ("all_reduce", "reduce", "all_gather", "gather", "broadcast", "reduce_scatter", "all_to_all")
IN_PLACE = frozenset({f"{DIST}all_reduce"})
_FUNCTIONS = frozenset({"torch.autograd.Function", "torch.autograd.function.Function"})


def plan(stage: Stage) -> None:
    """Keeps all other planners away from such code, and reports it."""
    kept = left_alone(stage.facts)
    if not kept:
        return
    _no_parts_of_a_model(stage.facts)
    stage.kept.update(kept)
    said, stage.requested.keeps_collectives = stage.requested.keeps_collectives, True
    for call in [] if said else _collectives(stage.facts):
        if any(a in kept for a in stage.facts.table.ancestors(call)):
            _report(stage, call)


def left_alone(facts: Facts) -> set[ast.AST]:
    """The functions, and the classes of modules and of functions with gradients, that hold such a collective."""
    found: set[ast.AST] = set()
    for call in _collectives(facts):
        function = facts.enclosing_function(call)
        if function is None or _trains(facts, function):
            continue
        cls = facts.table.parents.get(function)
        if isinstance(cls, ast.ClassDef) and not _trains(facts, cls) and _is_of_torch(facts, cls, call):
            found.add(cls)
        elif any(n in facts.loss_slice for r in facts.returned(function) for n in walk(r)):
            found.add(function)
    return found | _callers_in_modules(facts, found)


def _no_parts_of_a_model(facts: Facts) -> None:
    """Refuses a module that depends on the rank: it holds one process's part of a model (tensor parallelism), not a copy."""
    differing = ProcessDependent(facts)
    for cls in facts.each(ast.ClassDef):
        made = facts.interp.method(cls, "__init__") if facts.interp.inherits(cls, api.MODULE_BASES) else None
        for name in walk(made) if made is not None else ():
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load) and differing.asks(name) == RANK:
                reason = (
                    f"`{cls.name}` depends on the rank: each process holds a part of the model, and `prepare` would give "
                    "all of them the first one's part"
                )
                remedy = "keep this script as it is: the tool does not convert tensor parallelism"
                raise refuse(RULE, name, reason, remedy)


def _is_of_torch(facts: Facts, cls: ast.ClassDef, call: ast.Call) -> bool:
    """Whether torch calls the methods of a class: a module, or an autograd function."""
    return facts.in_module(call) or facts.interp.inherits(cls, _FUNCTIONS)


def _collectives(facts: Facts) -> list[ast.Call]:
    """The collectives of all processes. Among some of them, parameters may be parts of one model, which `prepare` would
    make alike."""
    return [
        call
        for call in facts.calls
        if any(p.startswith(DIST) and last(p).startswith(COLLECTIVES) for p in facts.paths(call.func))
        and keyword_of(call, "group") is None
        and len(call.args) < 3
    ]


def _trains(facts: Facts, code: ast.AST) -> bool:
    return any(facts.table.is_inside(call, code) for call, _ in facts.backward_calls)


def _callers_in_modules(facts: Facts, kept: set[ast.AST]) -> set[ast.AST]:
    """The modules that call such a function: they ask for ranks and sizes on its behalf."""
    sites = [site for function in kept for site in facts.callers.get(function, ()) if facts.in_module(site)]
    classes = (next(a for a in facts.table.ancestors(s) if isinstance(a, ast.ClassDef)) for s in sites)
    return {cls for cls in classes if not _trains(facts, cls)}


def _report(stage: Stage, call: ast.Call) -> None:
    statement = stage.statement(call)
    shown = ast.unparse(call.func)
    if not stage.single.dead(call) and _is_unguarded(stage, call):
        whole = isinstance(statement, ast.Expr) and statement.value is call
        if whole and stage.facts.paths(call.func) & IN_PLACE and isinstance(call.func, ast.Attribute):
            test = f"{stage.source(call.func.value)}.is_initialized()"
            why = "one process that nothing launched has no group, and nothing to add up"
            stage.edits.append(e.Guard(statement, RULE, why, last=statement, test=test))
        else:
            claim = f"`{shown}` finds the run's process group: the script is launched, on one process too"
            assumed = finding(
                RULE, call, claim, "start it with `crosstrain launch --num-processes 1`", Severity.ASSUMED
            )
            stage.findings.append(replace(assumed, kind="group"))
    reason = f"`{shown}` is part of the loss, so it stays as it is, with the code around it"
    stage.note(RULE, call, reason, "nothing to do: it acts on the processes of the run")


def _is_unguarded(stage: Stage, call: ast.Call) -> bool:
    """Whether no test around it, or above it, asks about distribution."""
    tests = [a.test for a in stage.facts.table.ancestors(call) if isinstance(a, ast.If | ast.IfExp)]
    asked = (n for n in nodes_in(tests) if isinstance(n, ast.Call))
    return not any(p.startswith(DIST) for n in asked for p in stage.facts.paths(n.func))
