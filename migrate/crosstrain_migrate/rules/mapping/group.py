"""The process group: the launcher has started the processes, and `PartialState()` joins them where the author did.

What the author passes to `init_process_group` as `rank` and `world_size` is the rank and the number of processes, so the
variables that hold them are set from the state.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import given
from crosstrain_migrate.rules.base import refuse
from crosstrain_migrate.rules.distribution.launcher_settings import DIST, INIT, SETUP
from crosstrain_migrate.rules.distribution.plain import Stage
from crosstrain_migrate.rules.distribution.processes import sets_environment
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.rules.side_effects import effectless
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.walks import walk

from .rank_sources import STATE, add_import, reads_environment, starts_of, told_by_launcher
from .world_switch import SWITCHES, switches

GROUP, DEVICE = "CT303", "CT308"
DEVICES = frozenset(
    {"torch.cuda.set_device", "torch.accelerator.set_device_index", "torch.accelerator.set_device_idx"}
)


def plan(stage: Stage) -> None:
    for statement in stage.facts.each(ast.Expr):
        call = statement.value
        paths = stage.facts.paths(call.func) if isinstance(call, ast.Call) else set()
        if isinstance(call, ast.Call) and INIT in paths:
            _joins(stage, statement, call)
        elif paths & DEVICES:
            stage.remove(statement, DEVICE, "the launcher gives each process its device")
        elif paths & SETUP and f"{DIST}monitored_barrier" not in paths:
            stage.remove(statement, GROUP, "the runtime leaves the group when the script ends")
    for assignment in stage.facts.each(ast.Assign):
        if sets_environment(assignment):
            stage.remove(assignment, GROUP, "the launcher sets it")
    for call in stage.facts.calls_to(INIT):
        if not isinstance(stage.parent(call), ast.Expr):
            reason = "the process group is set up inside another expression, so it cannot be replaced by the launcher's"
            raise refuse(GROUP, call, reason, "write dist.init_process_group(...) as a statement of its own")


def _joins(stage: Stage, statement: ast.Expr, call: ast.Call) -> None:
    numbers = ((given(call, "rank", 4), "process_index"), (given(call, "world_size", 3), "num_processes"))
    lines = []
    for number, name in numbers:
        if isinstance(number, ast.Name | ast.Attribute) and not told_by_launcher(stage, number):
            lines.append(f"{stage.source(number)} = {STATE}().{name}")
            _drop_arithmetic(stage, statement, ast.unparse(number))
    reason = "the launcher's processes are the group"
    if all(number is not None for number, _ in numbers) and _runs_unlaunched(stage, call, frozenset()):
        lines = [f"{STATE}(group_of_one=True)", *lines]
    code, *more = lines or [f"{STATE}()"]
    stage.edits.append(e.ReplaceStatement(statement, GROUP, reason, code=code))
    stage.edits += [e.InsertAfter(statement, GROUP, reason, code=line) for line in more]
    stage.gone.add(statement)
    add_import(stage, statement, STATE)
    for beside in suite_of(stage.facts, statement):
        if isinstance(beside, ast.Assert) and "cuda.is_available" in ast.unparse(beside.test):
            stage.remove(beside, GROUP, "the processes run on what the machine has")


def _runs_unlaunched(stage: Stage, node: ast.AST, seen: frozenset[ast.AST]) -> bool:
    """Whether a script without a launcher reaches this code: its group then had one process."""
    for child, around in stage.outward(node):
        if isinstance(around, ast.If) and child in around.body and _asks_for_launch(stage, around.test):
            return False
        if isinstance(child, ast.stmt):
            suite = suite_of(stage.facts, child)
            if any(_leaves_the_others(stage, s) for s in suite[: suite.index(child)]):
                return False
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            sites = [*stage.single.sources.sites(around), *starts_of(stage, around)]
            return around not in seen and any(_runs_unlaunched(stage, s, seen | {around}) for s in sites)
    return True


def _leaves_the_others(stage: Stage, statement: ast.stmt) -> bool:
    """`if "RANK" in os.environ: ... else: return`"""
    if not isinstance(statement, ast.If) or not _asks_for_launch(stage, statement.test):
        return False
    arms, last = [statement.body], statement.orelse
    while len(last) == 1 and isinstance(last[0], ast.If):
        arms, last = [*arms, last[0].body], last[0].orelse
    return any(arm and isinstance(arm[-1], ast.Return | ast.Raise) for arm in (*arms, last))


def _asks_for_launch(stage: Stage, test: ast.expr) -> bool:
    """Whether a test asks the environment, now or after `world_switch`."""
    inner = set(walk(test))
    replaced = (x for x in stage.edits if isinstance(x, e.Replace) and x.node in inner)
    switched = any(x.template in SWITCHES for x in replaced)
    flags = {ast.unparse(n) for n in inner if isinstance(n, ast.Name | ast.Attribute)}
    return switched or reads_environment(test) or bool(flags & switches(stage))


def _drop_arithmetic(stage: Stage, statement: ast.stmt, target: str) -> None:
    """Removes the statements right above that compute a number which is now set from the state."""
    suite = suite_of(stage.facts, statement)
    for above in reversed(suite[: suite.index(statement)]):
        if not only_computes(above, target):
            return
        stage.remove(above, GROUP, "the launcher knows it")


def only_computes(statement: ast.stmt, target: str) -> bool:
    """Whether a statement does nothing but set `target`."""
    if isinstance(statement, ast.If):
        inner = (*statement.body, *statement.orelse)
        return effectless(statement.test) and all(only_computes(s, target) for s in inner)
    if isinstance(statement, ast.Assign):
        own = [ast.unparse(t) for t in statement.targets] == [target]
        return own and effectless(statement.value)
    if isinstance(statement, ast.AugAssign):
        return ast.unparse(statement.target) == target and effectless(statement.value)
    return False
