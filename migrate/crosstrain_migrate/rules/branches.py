"""Branches whose test is about distribution: one process takes one of them, and the others must be dispensable.

Which branch a single process takes is `Alone`'s to say. A branch it does not take may only hold what distribution is
made of (the group, the wrapper, samplers, devices, reductions); anything else is refused, for dropping it would change
what several processes compute.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from crosstrain_migrate import edits as e
from crosstrain_migrate.results import Severity
from crosstrain_migrate.roles.scopes import Scope
from crosstrain_migrate.roles.torch_api import HOST_METHODS
from crosstrain_migrate.roles.values import (
    External,
    Function,
    Instance,
    Member,
    Method,
    Parameters,
    Shard,
    Unknown,
)

from .alone import DIST, LAUNCHED, SPAWN, WRAPPERS
from .base import refuse
from .files import WRITERS, WRITING_METHODS
from .plain import Stage
from .subject import suite_of
from .wish import MARK

RULE = "CT303"
SPEAKING = frozenset(
    {"builtins.print", "torch.save", "os.makedirs", "os.mkdir", "os.path.join", "os.path.exists"}
)


def plan(stage: Stage) -> None:
    for node in list(ast.walk(stage.facts.tree)):
        if stage.alone.dead(node) or stage.is_gone(node):
            continue
        if isinstance(node, ast.If) and not _is_elif(stage, node):
            _chain(stage, node)
        elif isinstance(node, ast.IfExp):
            _choice(stage, node)
        elif (
            isinstance(node, ast.While | ast.Assert)
            and stage.alone.by_hand(node.test) is not None
            and isinstance(node, ast.Assert)
        ):
            stage.remove(node, RULE, "it asks how the script distributes itself")


def _is_elif(stage: Stage, node: ast.If) -> bool:
    parent = stage.parent(node)
    return isinstance(parent, ast.If) and parent.orelse == [node] and stage.source(node).startswith("elif")


def _choice(stage: Stage, node: ast.IfExp) -> None:
    test = stage.alone.by_hand(node.test)
    if test is None:
        return
    chosen, other = (node.body, node.orelse) if test.truth else (node.orelse, node.body)
    if any(isinstance(v, Shard) for v in stage.facts.of(other)) and not _reduces(stage, other):
        raise refuse(RULE, other, "only several processes compute this", "compute it in both cases")
    parent = stage.parent(node)
    bare = isinstance(
        chosen, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant | ast.JoinedStr
    )
    whole = isinstance(parent, ast.Assign | ast.Return | ast.keyword | ast.Call)
    stage.gone.update(ast.walk(node.test))
    stage.gone.update(ast.walk(other))
    stage.replace(
        node,
        RULE,
        "what one process does, prepare does on all",
        "{x}" if bare or whole else "({x})",
        x=chosen,
    )


def _reduces(stage: Stage, node: ast.expr) -> bool:
    return any(
        isinstance(n, ast.Call) and any(p.startswith(DIST) for t in _bodies(stage, n) for p in t)
        for n in ast.walk(node)
    )


def _bodies(stage: Stage, call: ast.Call) -> list[set[str]]:
    found = [stage.facts.paths(call.func)]
    for value in stage.facts.of(call.func):
        if isinstance(value, Function | Method):
            function = value.function.node if isinstance(value, Method) else value.node
            found += [stage.facts.paths(n.func) for n in ast.walk(function) if isinstance(n, ast.Call)]
    return found


# -- chains of if, elif, else --------------------------------------------------------------------------------


def _chain(stage: Stage, node: ast.If) -> None:
    arms: list[tuple[ast.expr | None, list[ast.stmt]]] = []
    current: ast.If | None = node
    while current is not None:
        arms.append((current.test, current.body))
        inner = (
            current.orelse[0] if len(current.orelse) == 1 and isinstance(current.orelse[0], ast.If) else None
        )
        if inner is not None and _is_elif(stage, inner):
            current = inner
            continue
        if current.orelse:
            arms.append((None, current.orelse))
        current = None
    fates: list[str] = []
    settled = False
    for test, body in arms:
        known = stage.alone.by_hand(test) if test is not None else None
        if (
            settled
            or (known is not None and not known.truth)
            or (known is not None and test is not None and len(arms) == 1 and _only_warns(stage, test, body))
        ):
            fates.append("drop")
        elif known is not None:
            fates.append("always")
            settled = True
        else:
            fates.append("keep")
            if test is not None:
                _shorten(stage, test, body)
    if "drop" not in fates and "always" not in fates:
        return
    taken = [s for (_, body), fate in zip(arms, fates, strict=True) if fate != "drop" for s in body]
    for (test, body), fate in zip(arms, fates, strict=True):
        if fate == "drop" and not (test is not None and _left_out(test)):
            _dispensable(stage, body, node, taken)
    if fates == ["always"] and not _runs_everywhere(stage, node):
        main = MARK.format("is_local_main_process" if _asks_local(node.test) else "is_main_process")
        stage.gone.update(ast.walk(node.test))
        stage.replace(node.test, RULE, "the accelerator knows which process this is", main)
        return
    _drop(stage, node, arms, fates)


def _only_warns(stage: Stage, test: ast.expr, body: list[ast.stmt]) -> bool:
    """A warning about how the script is distributed, which it no longer decides."""
    return not asks_rank(stage, test) and all(
        isinstance(s, ast.Expr)
        and isinstance(s.value, ast.Call)
        and any(p.startswith("warnings.") for p in stage.facts.paths(s.value.func))
        for s in body
    )


def _left_out(test: ast.expr) -> bool:
    """`len(loader.sampler) * world_size < len(loader.dataset)`: rows that a sampler with drop_last left to nobody.

    A prepared loader leaves none out, so what is done for them is not done any more.
    """
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt):
            left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
            if (
                left.startswith("len(")
                and ".sampler)" in left
                and "*" in left
                and right.endswith(".dataset)")
            ):
                return True
    return False


def _drop(
    stage: Stage, node: ast.If, arms: list[tuple[ast.expr | None, list[ast.stmt]]], fates: list[str]
) -> None:
    for (test, body), fate in zip(arms, fates, strict=True):
        if test is not None and fate != "keep":
            stage.gone.update(ast.walk(test))
        if fate == "drop":
            stage.gone.update(body)
            lose_comments(stage, body)
    reason = "what one process does, prepare does on all"
    stage.edits.append(e.Fold(node, RULE, reason, arms=tuple(fates)))
    if stage.alone.leaves(node):
        _never_reached(stage, node)


def _never_reached(stage: Stage, node: ast.If) -> None:
    """What stands behind an `if` that one process always leaves the function by."""
    suite = suite_of(stage.facts, node)
    behind = suite[suite.index(node) + 1 :]
    if not behind:
        return
    _dispensable(stage, behind, node, [])
    lose_comments(stage, behind)
    for statement in behind:
        stage.edits.append(e.RemoveStatement(statement, RULE))
    stage.gone.update(behind)


def lose_comments(stage: Stage, body: list[ast.stmt]) -> None:
    """The comments of a branch that goes: what they speak of goes with it, and the report lists them."""
    lines = stage.text.split("\n")
    first, last = body[0].lineno, body[-1].end_lineno or body[-1].lineno
    while first > 1 and (
        lines[first - 2].strip().startswith("#") or lines[first - 2].split("#")[0].strip() == "else:"
    ):
        first -= 1
    indent = body[0].col_offset
    while last < len(lines) and lines[last].strip().startswith("#") and lines[last].find("#") >= indent:
        last += 1
    found = [comment for line in lines[max(first - 2, 0) : last] if (comment := _comment(line))]
    stage.lose(found, first)


def _comment(line: str) -> str:
    quote = ""
    for index, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char == "#":
            return line[index:].rstrip()
    return ""


def _shorten(stage: Stage, test: ast.expr, body: list[ast.stmt]) -> None:
    """`rank == 0 and epoch % 5 == 0`: the part about the rank goes, or becomes the accelerator's."""
    if not isinstance(test, ast.BoolOp):
        return
    parts = [(p, stage.alone.by_hand(p)) for p in test.values]
    if all(k is None for _, k in parts):
        for part, _ in parts:
            _shorten(stage, part, body)
        return
    kept = [p for p, k in parts if k is None]
    guard = next((p for p, k in parts if k is not None and asks_rank(stage, p)), None)
    holes = {f"p{i}": p for i, p in enumerate(kept)}
    word = " and " if isinstance(test.op, ast.And) else " or "
    pieces = [
        ("({p%d})" if isinstance(p, ast.BoolOp | ast.IfExp) else "{p%d}") % i for i, p in enumerate(kept)
    ]
    around = stage.parent(test)
    if guard is not None and isinstance(around, ast.If) and not _everywhere(stage, around, body):
        pieces.insert(0, MARK.format("is_local_main_process" if _asks_local(guard) else "is_main_process"))
    for part, known in parts:
        if known is not None:
            stage.gone.update(ast.walk(part))
    template = (
        word.join(pieces) if len(pieces) > 1 else pieces[0].strip("()") if len(kept) == 1 else pieces[0]
    )
    stage.replace(
        test, RULE, "what the main process alone does is guarded where it must be", template, **holes
    )


# -- tests of the rank ---------------------------------------------------------------------------------------


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
    for other in ast.walk(stage.facts.tree):
        if (
            isinstance(other, ast.Assign)
            and any(ast.unparse(t) == text for t in other.targets)
            and "rank" in ast.unparse(other.value).lower()
        ):
            return True
    return False


def _asks_local(test: ast.expr) -> bool:
    return "local" in ast.unparse(test).lower()


def _runs_everywhere(stage: Stage, node: ast.If) -> bool:
    return not asks_rank(stage, node.test) or _everywhere(stage, node, node.body)


def _everywhere(stage: Stage, node: ast.If, body: list[ast.stmt]) -> bool:
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
    if _is_elif(stage, node):
        return False
    scope = stage.facts.table.of_node[node]
    names: dict[str, str] = {}
    for part in local:
        text = stage.source(part)
        if text not in names:
            names[text] = _free_name(scope, part)
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


def _free_name(scope: Scope, part: ast.expr) -> str:
    root = next((n.id for n in ast.walk(part) if isinstance(n, ast.Name)), "number")
    taken = scope.names | scope.module.names
    name = next(c for c in (f"{root}_value", *(f"{root}_value{i}" for i in range(2, 99))) if c not in taken)
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


# -- branches that go ----------------------------------------------------------------------------------------


def _dispensable(stage: Stage, body: list[ast.stmt], at: ast.If, taken: list[ast.stmt]) -> None:
    """Refuses a branch that does more than distribute. `taken`: what one process does instead."""
    from . import distribution

    instead = {ast.dump(s) for s in taken} | {t for s in taken for t in _made(stage, s)}
    for statement in body:
        if ast.dump(statement) in instead or (_made(stage, statement) and _made(stage, statement) <= instead):
            continue
        layers = [
            n
            for n in ast.walk(statement)
            if isinstance(n, ast.Call) and stage.facts.paths(n.func) & distribution.SYNC_BATCH_NORM
        ]
        if layers and isinstance(statement, ast.Assign):
            distribution.keep_synchronised(stage, statement, at)
            continue
        if not _is_dispensable(stage, statement):
            raise refuse(
                RULE,
                statement,
                "this runs only when several processes train, and the tool cannot tell what it becomes",
                "move it out of the branch, or take the hand-written distribution out, and run migrate again",
            )


def _made(stage: Stage, statement: ast.stmt) -> set[str]:
    """What an assignment binds, and by which imported function: `checkpoint = torch.load(...)` in both branches."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return set()
    paths = stage.facts.paths(statement.value.func)
    return {f"{ast.unparse(t)} = {p}" for t in statement.targets for p in paths}


def _is_dispensable(stage: Stage, statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Pass | ast.Import | ast.ImportFrom | ast.Raise | ast.Assert | ast.Global):
        return True
    if isinstance(statement, ast.Return):
        return statement.value is None or _plain_value(stage, statement.value)
    if isinstance(statement, ast.For):
        return all(_is_dispensable(stage, s) for s in statement.body) and _plain_value(stage, statement.iter)
    if isinstance(statement, ast.If):
        return all(_is_dispensable(stage, s) for s in (*statement.body, *statement.orelse))
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant) or (
            isinstance(statement.value, ast.Call) and _dispensable_call(stage, statement.value)
        )
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets: list[ast.expr] = (
            statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        )
        return statement.value is None or _dispensable_value(stage, targets, statement.value)
    if isinstance(statement, ast.AugAssign):
        return _dispensable_update(stage, statement)
    return False


def _plain_value(stage: Stage, node: ast.expr) -> bool:
    return not any(
        isinstance(n, ast.Call)
        and not _asks(stage, n)
        and not (
            isinstance(n.func, ast.Attribute) and n.func.attr in {"parameters", "named_parameters", "buffers"}
        )
        for n in ast.walk(node)
    )


def _asks(stage: Stage, call: ast.Call) -> bool:
    paths = stage.facts.paths(call.func)
    return any(
        p.startswith((DIST, "torch.cuda.", "builtins.")) or p == "torch.device" for p in paths
    ) or ast.unparse(call.func).startswith(("os.environ", "os.getenv"))


def _dispensable_call(stage: Stage, call: ast.Call) -> bool:
    from . import distribution

    paths = stage.facts.paths(call.func)
    if paths & distribution.REDUCERS:
        distribution.check_reduction(stage, call)
        return True
    if any(p.startswith(DIST) for p in paths):
        return bool(paths & (distribution.SETUP | {"torch.distributed.barrier"})) or shares_weights(
            stage, call
        )
    if any(
        p.startswith(("torch.cuda.", "torch.backends.", "torch.accelerator.", "logging.", "warnings."))
        for p in paths
    ):
        return True
    if paths & (SPAWN | {"builtins.print", "time.sleep", "torch.multiprocessing.set_start_method"}):
        return True
    text = ast.unparse(call.func)
    if text.startswith(("os.environ.", "os.putenv", "builtins.")):
        return True
    if isinstance(call.func, ast.Attribute):
        name = call.func.attr
        if name in {"set_epoch", "info", "warning", "warn", "debug"}:
            return True
        if name in {"cuda", "to"} and _is_module(stage, call.func.value):
            return True
    return _own_function(stage, call)


def shares_weights(stage: Stage, call: ast.Call) -> bool:
    """`dist.broadcast(p.data, 0)` of a model's parameters, which prepare does."""
    if "torch.distributed.broadcast" not in stage.facts.paths(call.func) or not call.args:
        return False
    tensor = call.args[0]
    if isinstance(tensor, ast.Attribute) and tensor.attr == "data":
        tensor = tensor.value
    return any(isinstance(v, Parameters) for v in stage.facts.of(tensor))


def _is_module(stage: Stage, node: ast.expr) -> bool:
    values = stage.facts.of(node)
    return any(stage.facts.interp.is_module(v) for v in values) or any(
        isinstance(v, External) and v.path in WRAPPERS for v in values
    )


def _own_function(stage: Stage, call: ast.Call) -> bool:
    """A helper of the script that is made of nothing but distribution, or that reduces what it is given."""
    values = stage.facts.of(call.func)
    targets = [
        v.function.node if isinstance(v, Method) else v.node
        for v in values
        if isinstance(v, Function | Method)
    ]
    if not targets or len(targets) < len([v for v in values if not isinstance(v, Unknown)]):
        return False
    return all(
        isinstance(t, ast.FunctionDef)
        and (all(_is_dispensable(stage, s) for s in t.body) or _reduces_only(stage, t))
        for t in targets
    )


def _reduces_only(stage: Stage, function: ast.FunctionDef) -> bool:
    """Puts numbers into a tensor, reduces it and takes them out again: with one process nothing changes."""
    from . import distribution

    inner = [n for n in ast.walk(function) if isinstance(n, ast.Call)]
    if not any(stage.facts.paths(n.func) & distribution.REDUCERS for n in inner):
        return False
    for call in inner:
        paths = stage.facts.paths(call.func)
        if any(p.startswith(("torch.", "builtins.")) for p in paths):
            continue
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in {
            "tolist",
            "item",
            "clone",
            "detach",
            "to",
        }:
            return False
    return True


def _dispensable_value(stage: Stage, targets: list[ast.expr], value: ast.expr) -> bool:
    from . import distribution

    if all(_is_environment(t) for t in targets):
        return True
    if stage.alone.by_hand(value) is not None:
        return True
    for target in targets:
        if distribution.is_batch_size(stage, target) and _divides(stage, value):
            distribution.share_batches(stage, value)
            return True
        if distribution.is_workers(stage, target):
            return True
    if isinstance(value, ast.Attribute) and value.attr == "module":
        return True
    if isinstance(value, ast.Call):
        paths = stage.facts.paths(value.func)
        if paths & (WRAPPERS | distribution.SAMPLERS) or any(p.startswith(DIST) for p in paths):
            return True
        if isinstance(value.func, ast.Attribute) and value.func.attr in {"cuda", "to"}:
            if all(ast.unparse(t) == ast.unparse(value.func.value) for t in targets):
                return True  # a move to another device
            return _is_module(stage, value.func.value) or _dispensable_value(stage, targets, value.func.value)
        if "torch.utils.data.DataLoader" in paths or "torch.utils.data.BatchSampler" in paths:
            return True
        if paths & {"torch.device", "torch.utils.data.BatchSampler"}:
            return True
        return _own_function(stage, value)
    return _about_ranks(stage, targets, value)


def _about_ranks(stage: Stage, targets: list[ast.expr], value: ast.expr) -> bool:
    """Built from ranks, sizes, devices and constants only."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and not _asks(stage, node) and "format" not in ast.unparse(node.func):
            return False
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            values = stage.facts.of(node)
            if any(
                isinstance(v, Shard)
                or (isinstance(v, Instance | External) and stage.facts.interp.is_module(v))
                for v in values
            ):
                return False
    names = {
        ast.unparse(n).split(".")[-1].lower()
        for part in (*targets, value)
        for n in ast.walk(part)
        if isinstance(n, ast.Name | ast.Attribute)
    }
    wanted = ("rank", "gpu", "world", "device", "dist", "backend", "node", "port", "environ")
    return any(w in n for n in names for w in wanted)


def _divides(stage: Stage, value: ast.expr) -> bool:
    return any(
        isinstance(n, ast.BinOp)
        and isinstance(n.op, ast.Div | ast.FloorDiv)
        and stage.alone.by_hand(n.right) is not None
        for n in ast.walk(value)
    )


def _dispensable_update(stage: Stage, node: ast.AugAssign) -> bool:
    from . import distribution

    if stage.alone.by_hand(node.value) is None or not isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mult):
        return False
    if distribution.is_workers(stage, node.target):
        return True
    if distribution.is_batch_size(stage, node.target) and not isinstance(node.op, ast.Mult):
        distribution.share_batches(stage, node)
        return True
    return ast.unparse(node.target) in distribution.reduced(stage)


def _is_environment(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Subscript)
        and ast.unparse(node.value) in {"os.environ", "environ"}
        and isinstance(node.slice, ast.Constant)
        and node.slice.value in LAUNCHED | {"OMP_NUM_THREADS"}
    )
