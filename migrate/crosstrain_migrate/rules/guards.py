"""What the main process did alone: which of it all processes may, or must, run now."""

from __future__ import annotations

import ast
from collections.abc import Callable

from crosstrain_migrate import edits as e
from crosstrain_migrate.results import Severity
from crosstrain_migrate.roles.scopes import Scope
from crosstrain_migrate.roles.torch_api import HOST_METHODS
from crosstrain_migrate.roles.values import Function, Member, Method, Shard

from .files import WRITERS, WRITING_METHODS
from .launched import DIST
from .plain import Stage

RULE = "CT303"


SPEAKING = frozenset(
    {"builtins.print", "torch.save", "os.makedirs", "os.mkdir", "os.path.join", "os.path.exists"}
)


def asks_rank(stage: Stage, test: ast.expr) -> bool:
    """Whether a test tells one process from another (not merely one process from several)."""
    text = ast.unparse(test).lower()
    if (
        "rank" in text
        or "main_process" in text
        or "is_main" in text
        or "is_master" in text
        or "master_process" in text
    ):
        return True
    return any(isinstance(n, ast.Name | ast.Attribute) and _comes_from_rank(stage, n) for n in ast.walk(test))


def _comes_from_rank(stage: Stage, node: ast.expr) -> bool:
    text = ast.unparse(node)
    for other in stage.facts.nodes:
        if (
            isinstance(other, ast.Assign)
            and any(ast.unparse(t) == text for t in other.targets)
            and "rank" in ast.unparse(other.value).lower()
        ):
            return True
    return False


def asks_local(test: ast.expr) -> bool:
    return "local" in ast.unparse(test).lower()


def runs_everywhere(stage: Stage, node: ast.If) -> bool:
    return not asks_rank(stage, node.test) or runs_on_all(stage, node, node.body)


def runs_on_all(stage: Stage, node: ast.If, body: list[ast.stmt]) -> bool:
    """Whether what the main process did alone may (and, where it reads a share of the data, must) be run by all."""
    calls = [n for s in body for n in ast.walk(s) if isinstance(n, ast.Call)]
    loops = [n for s in body for n in ast.walk(s) if isinstance(n, ast.For)]
    if any(_needs_all(stage, c) for c in calls) or any(stage.facts.interp.iterations.get(n) for n in loops):
        _report(stage, [c for c in calls if _is_foreign(stage, c)])
        return True
    foreign = [c for c in calls if _is_foreign(stage, c)]
    if not foreign:
        return True
    local = _local_parts(stage, body)
    if not local:
        return False
    if _take_out(stage, node, body, local):
        return False
    _report(stage, foreign)
    return True


def _local_parts(stage: Stage, body: list[ast.stmt]) -> list[ast.expr]:
    """The largest expressions whose value depends on this process's share of the data."""

    def local(part: ast.AST) -> bool:
        return any(isinstance(v, Shard) and not v.host and v.kind != "shape" for v in stage.facts.of(part))

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
        return any(local(n) for n in ast.walk(node.func.value))
    return (
        isinstance(node.func, ast.Name)
        and node.func.id in {"float", "int"}
        and any(local(a) for a in node.args)
    )


def _take_out(stage: Stage, node: ast.If, body: list[ast.stmt], local: list[ast.expr]) -> bool:
    """Computes such values before the block, on all processes, so that the block can stay the main process's own."""
    stored = {
        n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    if not all(_is_number(stage, part) for part in local):
        return False
    if any(isinstance(n, ast.Name) and n.id in stored for part in local for n in ast.walk(part)):
        return False
    if is_elif(stage, node):
        return False
    scope = stage.facts.table.of_node[node]
    names: dict[str, str] = {}
    for part in local:
        text = stage.source(part)
        if text not in names:
            root = next((n.id for n in ast.walk(part) if isinstance(n, ast.Name)), "number")
            names[text] = free_name(scope, f"{root}_value")
            code = f"{names[text]} = {text}"
            stage.edits.append(e.InsertBefore(node, RULE, "all processes compute it", code=code))
        stage.gone.update(ast.walk(part))
        stage.edits.append(e.Replace(part, RULE, template=names[text]))
    return True


def _is_number(stage: Stage, part: ast.expr) -> bool:
    """What is read from the batch is one number, not rows."""
    if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "item":
        return True
    kinds = {v.kind for v in stage.facts.of(part) if isinstance(v, Shard)}
    return bool(kinds) and kinds <= {"mean", "sum", "count"}


def free_name(scope: Scope, root: str) -> str:
    """A name that `scope` does not use yet."""
    taken = scope.names | scope.module.names
    name = next(c for c in (root, *(f"{root}{i}" for i in range(2, 99))) if c not in taken)
    scope.names.add(name)
    return name


def _report(stage: Stage, calls: list[ast.Call]) -> None:
    if calls:
        stage.note(
            RULE,
            calls[0],
            f"`{ast.unparse(calls[0].func)}` was called by one process alone, beside work that all processes must do",
            "see that it stands under `if accelerator.is_main_process:` in the result",
            Severity.REVIEW,
        )


def _needs_all(stage: Stage, call: ast.Call) -> bool:
    """Running a model, or a function that does, is for all processes."""
    if any(stage.facts.interp.is_module(v) for v in stage.facts.of(call.func)):
        return True
    for value in stage.facts.of(call.func):
        target = value.function.node if isinstance(value, Method) else getattr(value, "node", None)
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
                isinstance(n, ast.Call) and n is not call and _is_foreign(stage, n)
                for n in ast.walk(function)
            )
        if isinstance(value, Member) and isinstance(value.receiver, Shard):
            return False
        if isinstance(value, Member) and stage.facts.interp.is_module(value.receiver):
            return False
    return True


def is_elif(stage: Stage, node: ast.If) -> bool:
    parent = stage.parent(node)
    return isinstance(parent, ast.If) and parent.orelse == [node] and stage.source(node).startswith("elif")
