"""Blocks under a test of the rank: which of them all processes may, or must, run after the conversion."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.torch_api import HOST_METHODS
from crosstrain_migrate.facts.values import External, FromBatch, Member, code_of
from crosstrain_migrate.rules.base import Refusal, refuse
from crosstrain_migrate.rules.output.files import WRITERS, WRITING_METHODS
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import FunctionNode
from crosstrain_migrate.syntax.scopes import Scope
from crosstrain_migrate.syntax.walks import walk

from .launcher_settings import DIST
from .plain import Stage, nodes_in
from .requested_options import MARK

RULE = "CT303"
LOGS = ("logging.", "torch.utils.tensorboard", "tensorboardX", "wandb.", "mlflow.", "loguru.", "visdom.")
# Calls that every process may make: they have no effect, or another rule guards them.
ANY_PROCESS = frozenset({"os.makedirs", "os.mkdir", *WRITERS})
ANY_PROCESS_FROM = ("builtins.", "torch.", "os.path.", "time.", "numpy.")
ANY_PROCESS_METHODS = WRITING_METHODS | {
    *("state_dict", "format", "join", "item", "append", "parameters", "eval", "train")
}
UNKNOWN = object()  # the value of a test on a process where it is not certain


def asks_rank(stage: Stage, test: ast.expr) -> bool:
    """Whether a test tells one process from another (not merely one process from several)."""
    return any(len(set(values)) > 1 for values in _by_process(stage, test))


def asks_local(stage: Stage, test: ast.expr) -> bool:
    """Whether a test tells the processes of one machine apart, and not one machine from another."""
    told = [v for v in _by_process(stage, test) if len(set(v)) > 1]
    return bool(told) and all(first == elsewhere for first, _, elsewhere in told)


def _by_process(stage: Stage, test: ast.expr) -> list[tuple[object, ...]]:
    """The values of a test on several processes; where they are not certain, those of its parts."""
    known = [process.value_of(test) for process in stage.several]
    certain = [k.value for k in known if k is not None]
    if len(certain) == len(known):
        try:
            hash(tuple(certain))
        except TypeError:
            return []  # lists and the like decide nothing
        return [tuple(map(bool, certain) if isinstance(test, ast.Compare | ast.BoolOp) else certain)]
    if any(value != certain[0] for value in certain):
        return [tuple(k.value if k is not None else UNKNOWN for k in known)]
    parts = [n for n in ast.iter_child_nodes(test) if isinstance(n, ast.expr)]
    return [values for part in parts for values in _by_process(stage, part)]


def guard_of(stage: Stage, node: ast.AST) -> ast.If | None:
    """The innermost `if` around `node` that tests the rank."""
    around = (a for a in stage.facts.table.ancestors(node) if isinstance(a, ast.If))
    return next((a for a in around if asks_rank(stage, a.test)), None)


def one_sided_barrier(call: ast.Call) -> Refusal:
    """The refusal of a barrier under a test of the rank."""
    reason = "only some processes reach this barrier, and the others wait elsewhere: this decides which of them goes first"
    remedy = (
        "do it under `with accelerator.main_process_first():` after migrating, and remove the barriers now"
    )
    return refuse(RULE, call, reason, remedy)


def main_process(stage: Stage, test: ast.expr) -> str:
    """The accelerator's attribute that says what a test of the rank asks, as a mark."""
    return MARK.format("is_local_main_process" if asks_local(stage, test) else "is_main_process")


def ask_accelerator(stage: Stage, test: ast.expr, truth: bool = True) -> None:
    """Replaces a test of the rank, which is `truth` on the main process, by the accelerator's attribute."""
    main = main_process(stage, test)
    reason = "the accelerator knows which process this is"
    stage.replace_whole(test, RULE, reason, main if truth else f"not {main}")


def run_on_all(stage: Stage, node: ast.If, body: list[ast.stmt]) -> bool:
    """Whether all processes may (and, where it reads a share of the data, must) run what the main process did alone.

    If so, the statements inside that stay the main process's own are guarded one by one.
    """
    inside = nodes_in(body)
    calls = [n for n in inside if isinstance(n, ast.Call)]
    shared = any(_runs_model(stage, c) for c in calls)
    decides = any(isinstance(n, ast.If | ast.For | ast.While) for n in inside)
    if stage.requested.draws_apart and (decides or shared):
        return False  # the others draw other data, and would decide by that
    once = [c for c in calls if _has_effect(stage, c)]
    if not shared and not _iterates_loader(stage, inside):
        if not once or _feeds_all(stage, node, inside):
            return True
        local = _local_parts(stage, body)
        if not local or _compute_before(stage, node, inside, local):
            return False
    _guard_each(stage, node.test, once)
    return True


def _iterates_loader(stage: Stage, nodes: list[ast.AST]) -> bool:
    return any(isinstance(n, ast.For) and stage.facts.interp.iterations.get(n) for n in nodes)


def _feeds_all(stage: Stage, node: ast.If, inside: list[ast.AST]) -> bool:
    """Whether what the block binds is read by what all processes run."""
    stored = [n for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    uses = [use for store in stored for use in stage.facts.interp.uses.get(store, ())]
    return any(not stage.facts.table.is_inside(use, node) and _is_run_by_all(stage, use) for use in uses)


def _is_run_by_all(stage: Stage, use: ast.AST) -> bool:
    guard = guard_of(stage, use)
    if guard is None:
        return True
    statement = stage.statement(use)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and _only_logs(stage, call) and not _local_parts(stage, [statement]):
        return False  # this call gets a guard of its own
    inside = nodes_in(guard.body)
    runs = any(isinstance(n, ast.Call) and _runs_model(stage, n) for n in inside)
    return runs or _iterates_loader(stage, inside)


def _guard_each(stage: Stage, test: ast.expr, calls: list[ast.Call]) -> None:
    """Of a block that all processes must run, guards the statements that stay the main process's own."""
    left: list[ast.Call] = []
    for call in calls:
        statement = stage.statement(call)
        guarded = any(isinstance(x, e.Guard) and x.node is statement for x in stage.edits)
        if guarded or stage.is_settled(statement):
            continue
        logs = isinstance(statement, ast.Expr) and statement.value is call and _only_logs(stage, call)
        local = _local_parts(stage, [statement])
        if not logs or (local and not _compute_before(stage, statement, nodes_in([statement]), local)):
            left += [] if _runs_model(stage, call) else [call]
            continue
        reason = "the main process alone does it, as before"
        stage.edits.append(e.Guard(statement, RULE, reason, last=statement, test=main_process(stage, test)))
    if left:
        called = ast.unparse(left[0].func)
        reason = f"`{called}` was called by one process only, next to work that all processes must do"
        remedy = "make sure that it stands under `if accelerator.is_main_process:` in the result"
        stage.note(RULE, left[0], reason, remedy)


def _only_logs(stage: Stage, call: ast.Call) -> bool:
    """Whether a call only logs or writes: by a logger, a writer, an object that the main process alone has."""
    if any(_runs_model(stage, n) for n in walk(call) if isinstance(n, ast.Call)):
        return False
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    made = {v.path for v in stage.facts.of(owner) if isinstance(v, External)} if owner is not None else set()
    if any(p.startswith(LOGS) for p in made | stage.facts.paths(call.func)):
        return True
    return isinstance(owner, ast.Name | ast.Attribute) and _only_here(stage, owner)


def _only_here(stage: Stage, owner: ast.Name | ast.Attribute) -> bool:
    """Whether a variable is bound under tests of the rank, and outside of what all processes run."""
    guards = [guard_of(stage, store) for store in stage.single.sources.definitions(owner)]
    return bool(guards) and all(guards) and not any(guard_of(stage, owner) is g for g in guards)


def _local_parts(stage: Stage, body: list[ast.stmt]) -> list[ast.expr]:
    """The largest expressions whose value depends on this process's share of the data."""
    found: list[ast.expr] = []
    work: list[ast.AST] = list(body)
    while work:
        part = work.pop(0)
        if isinstance(part, ast.expr) and (_is_local(stage, part) or _reads_local(stage, part)):
            found.append(part)
        else:
            work.extend(ast.iter_child_nodes(part))
    return found


def _is_local(stage: Stage, part: ast.AST) -> bool:
    return any(isinstance(v, FromBatch) and not v.host and v.kind != "shape" for v in stage.facts.of(part))


def _reads_local(stage: Stage, node: ast.expr) -> bool:
    """`loss.item()`, `float(loss)`: a number read from such a value."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in HOST_METHODS:
        return any(_is_local(stage, n) for n in walk(node.func.value))
    converts = isinstance(node.func, ast.Name) and node.func.id in {"float", "int"}
    return converts and any(_is_local(stage, a) for a in node.args)


def _compute_before(stage: Stage, node: ast.stmt, inside: list[ast.AST], local: list[ast.expr]) -> bool:
    """Computes such values before a block, on all processes, so that the block can stay the main process's own.

    False, and nothing is done, where that is impossible.
    """
    names = [(n, part) for part in local for n in walk(part) if isinstance(n, ast.Name)]
    stored = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if not all(_is_number(stage, part) for part in local) or any(n.id in stored for n, _ in names):
        return False
    if stage.is_elif(node):
        return False
    variables: dict[str, str] = {}
    for part in local:
        text = stage.source(part)
        if text not in variables:
            root = next((n.id for n, own in names if own is part), "number")
            variables[text] = free_name(stage.facts.table.of_node[node], f"{root}_value")
            code = f"{variables[text]} = {text}"
            stage.edits.append(e.InsertBefore(node, RULE, "all processes compute it", code=code))
        stage.replace_whole(part, RULE, "", variables[text])
    return True


def _is_number(stage: Stage, part: ast.expr) -> bool:
    """Whether what is read from the batch is one number, not rows."""
    if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "item":
        return True
    kinds = {v.kind for v in stage.facts.of(part) if isinstance(v, FromBatch)}
    return bool(kinds) and kinds <= {"mean", "sum", "count"}


def free_name(scope: Scope, root: str) -> str:
    """A name that `scope` does not use yet."""
    taken = scope.names | scope.module.names
    name = next(c for c in (root, *(f"{root}{i}" for i in range(2, 99))) if c not in taken)
    scope.names.add(name)
    return name


def _runs_model(stage: Stage, call: ast.Call) -> bool:
    """Whether a call runs a model, or a function that does, or communicates: all processes must make it."""
    values, interp = stage.facts.of(call.func), stage.facts.interp
    if any(interp.is_module(v) or code_of(v) in interp.touching for v in values):
        return True
    return any(p.startswith(DIST) for p in stage.facts.paths(call.func))


def _has_effect(stage: Stage, call: ast.Call) -> bool:
    """Whether a call may have an effect that should happen once, and that no other rule is known to guard."""
    paths = stage.facts.paths(call.func)
    if any(p.startswith("torch.utils.tensorboard") for p in paths):
        return True
    if any(p in ANY_PROCESS or p.startswith(ANY_PROCESS_FROM) for p in paths):
        return False
    if isinstance(call.func, ast.Attribute) and call.func.attr in ANY_PROCESS_METHODS:
        return False
    for value in stage.facts.of(call.func):
        function = code_of(value)
        if isinstance(function, FunctionNode):
            inner = [n for n in walk(function) if isinstance(n, ast.Call) and n is not call]
            return any(_has_effect(stage, n) for n in inner)
        if isinstance(value, Member):
            owner = value.receiver
            if isinstance(owner, FromBatch) or stage.facts.interp.is_module(owner):
                return False
    return True
