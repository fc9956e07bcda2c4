"""What the main process did alone: which of it all processes may, or must, run now."""

from __future__ import annotations

import ast
from collections.abc import Callable

from crosstrain_migrate.facts.torch_api import HOST_METHODS
from crosstrain_migrate.facts.values import External, FromBatch, Function, Member, Method, code_of
from crosstrain_migrate.rules.output.files import WRITERS, WRITING_METHODS
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.scopes import Scope
from crosstrain_migrate.syntax.walks import walk

from .launcher_settings import DIST
from .plain import Stage
from .requested_options import MARK

RULE = "CT303"
LOGS = ("logging.", "torch.utils.tensorboard", "tensorboardX", "wandb.", "mlflow.", "loguru.", "visdom.")
UNTOLD = object()  # what a process finds where it cannot be told
SPEAKING = frozenset(
    {"builtins.print", "torch.save", "os.makedirs", "os.mkdir", "os.path.join", "os.path.exists"}
)


def asks_rank(stage: Stage, test: ast.expr) -> bool:
    """Whether a test tells one process from another (not merely one process from several)."""
    return any(len(set(values)) > 1 for values in _by_process(stage, test))


def asks_local(stage: Stage, test: ast.expr) -> bool:
    """Whether a test tells the processes of one machine apart, and not one machine from another."""
    told = [v for v in _by_process(stage, test) if len(set(v)) > 1]
    return bool(told) and all(first == elsewhere for first, _, elsewhere in told)


def _by_process(stage: Stage, test: ast.expr) -> list[tuple[object, ...]]:
    """What a test is on several processes; where that is not certain, what its parts are."""
    known = [alone.known(test) for alone in stage.several]
    values = tuple(k.value for k in known if k is not None)
    if len(values) == len(known):
        try:
            hash(values)
        except TypeError:
            return []  # lists and the like decide nothing
        return [tuple(map(bool, values)) if isinstance(test, ast.Compare | ast.BoolOp) else values]
    told = [k.value for k in known if k is not None]
    if len(told) > 1 and any(value != told[0] for value in told):
        return [tuple(k.value if k is not None else UNTOLD for k in known)]
    parts = [n for n in ast.iter_child_nodes(test) if isinstance(n, ast.expr)]
    return [values for part in parts for values in _by_process(stage, part)]


def runs_everywhere(stage: Stage, node: ast.If) -> bool:
    return not asks_rank(stage, node.test) or runs_on_all(stage, node, node.body)


def main_process(stage: Stage, test: ast.expr) -> str:
    """The mark for what a test of the rank asks."""
    return MARK.format("is_local_main_process" if asks_local(stage, test) else "is_main_process")


def runs_on_all(stage: Stage, node: ast.If, body: list[ast.stmt]) -> bool:
    """Whether what the main process did alone may (and, where it reads a share of the data, must) be run by all."""
    calls = [n for s in body for n in walk(s) if isinstance(n, ast.Call)]
    decides = any(isinstance(n, ast.If | ast.For | ast.While) for s in body for n in walk(s))
    if stage.requested.draws_apart and (decides or any(_needs_all(stage, c) for c in calls)):
        return False  # the others draw something else, and would decide by it
    loops = [n for s in body for n in walk(s) if isinstance(n, ast.For)]
    foreign = [c for c in calls if _is_foreign(stage, c)]
    if any(_needs_all(stage, c) for c in calls) or any(stage.facts.interp.iterations.get(n) for n in loops):
        _guard_foreign(stage, node.test, foreign)
        return True
    if not foreign:
        return True
    if _feeds_all(stage, node, body):
        return True
    local = _local_parts(stage, body)
    if not local:
        return False
    if _take_out(stage, node, body, local):
        return False
    _guard_foreign(stage, node.test, foreign)
    return True


def _feeds_all(stage: Stage, node: ast.If, body: list[ast.stmt]) -> bool:
    """Whether what the block binds is read by what all processes run."""
    stored = [n for s in body for n in walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    uses = [use for store in stored for use in stage.facts.interp.uses.get(store, ())]
    return any(not stage.facts.table.is_inside(use, node) and _is_run_by_all(stage, use) for use in uses)


def _is_run_by_all(stage: Stage, use: ast.AST) -> bool:
    guard = _guard_of(stage, use)
    if guard is None:
        return True
    statement = stage.statement(use)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and _speaks(stage, call) and not _local_parts(stage, [statement]):
        return False  # which is guarded by itself
    inside = [n for s in guard.body for n in walk(s)]
    return any(isinstance(n, ast.Call) and _needs_all(stage, n) for n in inside) or any(
        isinstance(n, ast.For) and stage.facts.interp.iterations.get(n) for n in inside
    )


def _guard_foreign(stage: Stage, test: ast.expr, calls: list[ast.Call]) -> None:
    """Of a block that all processes must run, the statements that stay the main process's own."""
    left: list[ast.Call] = []
    for call in calls:
        statement = stage.statement(call)
        if stage.is_settled(statement) or _is_guarded(stage, statement):
            continue
        alone = isinstance(statement, ast.Expr) and statement.value is call and _speaks(stage, call)
        local = _local_parts(stage, [statement])
        if not alone or (local and not _take_out(stage, statement, [statement], local)):
            left += [] if _needs_all(stage, call) else [call]
            continue
        reason = "the main process alone does it, as before"
        stage.edits.append(e.Guard(statement, RULE, reason, last=statement, test=main_process(stage, test)))
    _report(stage, left)


def _is_guarded(stage: Stage, statement: ast.stmt) -> bool:
    return any(isinstance(x, e.Guard) and x.node is statement for x in stage.edits)


def _speaks(stage: Stage, call: ast.Call) -> bool:
    """Whether a call only tells or writes: a logger, a writer, an object that the main process alone has."""
    if any(_needs_all(stage, n) for n in walk(call) if isinstance(n, ast.Call)):
        return False
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    made = {v.path for v in stage.facts.of(owner) if isinstance(v, External)} if owner is not None else set()
    if any(p.startswith(LOGS) for p in made | stage.facts.paths(call.func)):
        return True
    return isinstance(owner, ast.Name | ast.Attribute) and _only_here(stage, owner)


def _only_here(stage: Stage, owner: ast.Name | ast.Attribute) -> bool:
    """Whether a variable is bound under tests of the rank, and outside of what all processes run."""
    stores = stage.alone.sources.definitions(owner)
    guards = [_guard_of(stage, store) for store in stores]
    return bool(guards) and all(guards) and not any(_guard_of(stage, owner) is g for g in guards)


def _guard_of(stage: Stage, node: ast.AST) -> ast.If | None:
    return next(
        (
            around
            for around in stage.facts.table.ancestors(node)
            if isinstance(around, ast.If) and asks_rank(stage, around.test)
        ),
        None,
    )


def _local_parts(stage: Stage, body: list[ast.stmt]) -> list[ast.expr]:
    """The largest expressions whose value depends on this process's share of the data."""

    def local(part: ast.AST) -> bool:
        return any(
            isinstance(v, FromBatch) and not v.host and v.kind != "shape" for v in stage.facts.of(part)
        )

    found: list[ast.expr] = []
    work: list[ast.AST] = list(body)
    while work:
        part = work.pop(0)
        if isinstance(part, ast.expr) and (local(part) or _reads_local(part, local)):
            found.append(part)
        else:
            work.extend(ast.iter_child_nodes(part))
    return found


def _reads_local(node: ast.expr, local: Callable[[ast.AST], bool]) -> bool:
    """`loss.item()`, `float(loss)`: a number read from such a value."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in HOST_METHODS:
        return any(local(n) for n in walk(node.func.value))
    return (
        isinstance(node.func, ast.Name)
        and node.func.id in {"float", "int"}
        and any(local(a) for a in node.args)
    )


def _take_out(stage: Stage, node: ast.stmt, body: list[ast.stmt], local: list[ast.expr]) -> bool:
    """Computes such values before the block, on all processes, so that the block can stay the main process's own."""
    stored = {n.id for s in body for n in walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if not all(_is_number(stage, part) for part in local):
        return False
    if any(isinstance(n, ast.Name) and n.id in stored for part in local for n in walk(part)):
        return False
    if isinstance(node, ast.If) and is_elif(stage, node):
        return False
    scope = stage.facts.table.of_node[node]
    names: dict[str, str] = {}
    for part in local:
        text = stage.source(part)
        if text not in names:
            root = next((n.id for n in walk(part) if isinstance(n, ast.Name)), "number")
            names[text] = free_name(scope, f"{root}_value")
            code = f"{names[text]} = {text}"
            stage.edits.append(e.InsertBefore(node, RULE, "all processes compute it", code=code))
        stage.gone.update(walk(part))
        stage.edits.append(e.Replace(part, RULE, template=names[text]))
    return True


def _is_number(stage: Stage, part: ast.expr) -> bool:
    """What is read from the batch is one number, not rows."""
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


def _report(stage: Stage, calls: list[ast.Call]) -> None:
    if calls:
        reason = f"`{ast.unparse(calls[0].func)}` was called by one process alone, beside work that all processes must do"
        remedy = "see that it stands under `if accelerator.is_main_process:` in the result"
        stage.note(RULE, calls[0], reason, remedy)


def _needs_all(stage: Stage, call: ast.Call) -> bool:
    """Running a model, or a function that does, is for all processes."""
    if any(stage.facts.interp.is_module(v) for v in stage.facts.of(call.func)):
        return True
    for value in stage.facts.of(call.func):
        target = code_of(value)
        if target in stage.facts.interp.touching:
            return True
    return any(p.startswith(DIST) for p in stage.facts.paths(call.func))


def _is_foreign(stage: Stage, call: ast.Call) -> bool:
    """A call whose effect should happen once, and which no other rule is known to guard."""
    paths = stage.facts.paths(call.func)
    if any(p.startswith("torch.utils.tensorboard") for p in paths):
        return True
    if any(
        p in SPEAKING | WRITERS or p.startswith(("builtins.", "torch.", "os.path.", "time.", "numpy."))
        for p in paths
    ):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name in WRITING_METHODS | {
        "state_dict",
        "format",
        "join",
        "item",
        "append",
        "parameters",
        "eval",
        "train",
    }:
        return False
    for value in stage.facts.of(call.func):
        if isinstance(value, Function | Method):
            function = value.function.node if isinstance(value, Method) else value.node
            return any(
                isinstance(n, ast.Call) and n is not call and _is_foreign(stage, n) for n in walk(function)
            )
        if isinstance(value, Member) and isinstance(value.receiver, FromBatch):
            return False
        if isinstance(value, Member) and stage.facts.interp.is_module(value.receiver):
            return False
    return True


def is_elif(stage: Stage, node: ast.If) -> bool:
    return stage.facts.table.is_whole_else(node) and stage.source(node).startswith("elif")
