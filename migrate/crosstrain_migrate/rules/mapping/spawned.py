"""`mp.spawn` becomes a call: the launcher has started the processes, and tells each its rank.

`nprocs` is the number of processes on a machine, and the first parameter of the started function is the local rank; where
the function passes that to the group as the rank, it is the rank.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import given
from crosstrain_migrate.rules.distribution.launcher_settings import INIT
from crosstrain_migrate.rules.distribution.plain import Stage
from crosstrain_migrate.rules.distribution.processes import call_directly
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of

from .group import only_computes
from .rank_sources import DEPTH, LOCAL_SIZE, STATE, add_import, is_process_number
from .world_switch import set_option

RULE = "CT305"
COUNTS = frozenset({"torch.cuda.device_count", "torch.accelerator.device_count"})


def plan(stage: Stage) -> None:
    for call in stage.single.spawns:
        _call_instead(stage, call)
    for call in stage.facts.calls_to(*COUNTS):
        if isinstance(stage.parent(call), ast.Assign) and not _asks_the_machine(stage, call):
            _processes_here(stage, call)


def _call_instead(stage: Stage, call: ast.Call) -> None:
    number = "process_index" if _is_rank(stage) else "local_process_index"
    call_directly(stage, call, f"{STATE}().{number}")
    add_import(stage, call, STATE)
    statement, count = stage.statement(call), given(call, "nprocs", 2)
    _drop_what_is_set_again(stage, statement)
    if isinstance(count, ast.Attribute) and set_option(stage, count, statement, _size(stage)):
        add_import(stage, call, "os" if _size(stage) == LOCAL_SIZE else STATE)


def _drop_what_is_set_again(stage: Stage, spawning: ast.stmt) -> None:
    """`args.world_size = ngpus * args.world_size` above the call, where the group's size is set before anybody reads it."""
    for init in stage.facts.calls_to(INIT):
        size, joining = given(init, "world_size", 3), stage.facts.enclosing_function(init)
        if not isinstance(size, ast.Attribute) or joining is stage.facts.enclosing_function(spawning):
            continue
        text, suite = ast.unparse(size), suite_of(stage.facts, spawning)
        above = next((s for s in suite[: suite.index(spawning)] if only_computes(s, text)), None)
        named = (
            n for n in stage.facts.each(ast.Attribute) if n.attr == size.attr and isinstance(n.ctx, ast.Load)
        )
        uses = [n for n in named if n.lineno >= spawning.lineno]
        again = all(stage.facts.enclosing_function(n) is joining and n.lineno >= init.lineno for n in uses)
        if above is not None and again:
            stage.remove(above, RULE, "the launcher knows it")


def _size(stage: Stage) -> str:
    return f"{STATE}().num_processes" if _is_rank(stage) else LOCAL_SIZE


def _is_rank(stage: Stage) -> bool:
    """Whether the group gets the number of a started process as the rank itself: all run on one machine."""
    inits = stage.facts.calls_to(INIT)
    ranks = [given(call, "rank", 4) for call in inits]
    return bool(ranks) and all(r is not None and _is_number(stage, r, DEPTH) for r in ranks)


def _is_number(stage: Stage, node: ast.expr, depth: int) -> bool:
    if not isinstance(node, ast.Name | ast.Attribute) or not depth:
        return False
    definitions = stage.single.sources.definitions(node)
    if any(isinstance(d, ast.arg) and is_process_number(stage, d) for d in definitions):
        return True
    sources = stage.single.sources.of(node)
    return bool(sources) and all(_is_number(stage, s, depth - 1) for s in sources)


def _asks_the_machine(stage: Stage, call: ast.Call) -> bool:
    """`count = device_count()`, `if count < 2: exit()` in a script that starts no processes: the machine is checked, nothing shared."""
    statement = stage.statement(call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    scope = stage.facts.table.of_node[target].resolve(target.id) if isinstance(target, ast.Name) else None
    if stage.single.spawns or scope is None or not isinstance(target, ast.Name):
        return False
    uses = [n for n in stage.facts.mentions(scope, target.id) if isinstance(n.ctx, ast.Load)]
    return all(isinstance(stage.parent(use), ast.Compare) for use in uses)


def _processes_here(stage: Stage, call: ast.Call) -> None:
    """`ngpus = torch.cuda.device_count()`: one process for each device, as many as the launcher starts here."""
    code = _size(stage) if stage.single.spawns else LOCAL_SIZE
    stage.replace(call, RULE, "the launcher starts a process for each device", code)
    add_import(stage, call, "os" if code == LOCAL_SIZE else STATE)
