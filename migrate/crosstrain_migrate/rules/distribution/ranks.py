"""Uses of a rank or a size outside tests: devices become the process's own, numbers are asked for."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.values import Class, Function, Method
from crosstrain_migrate.syntax.walks import walk

from .constant_folding import KnownValues
from .guards import asks_local, asks_rank, main_process
from .launcher_settings import DIST, SPAWN
from .plain import Stage
from .requested_options import MARK

GROUP, DEVICE = "CT303", "CT308"


def plan(stage: Stage) -> None:
    """Uses of a rank or a size outside tests: devices become the process's own, numbers are asked for."""
    for call in stage.facts.each(ast.Call):
        if not stage.alone.dead(call) and not stage.is_settled(call):
            _told_to_others(stage, call)
            _backend(stage, call)
    for node in stage.facts.each(ast.Name, ast.Attribute, ast.Call):
        if not _is_load(node):
            continue
        if node in stage.gone or stage.alone.dead(node) or stage.is_settled(node):
            continue
        known = stage.alone.by_hand(node)
        if known is None or not isinstance(known.value, int) or isinstance(known.value, bool):
            continue
        parent = stage.parent(node)
        if isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is node):
            continue
        if isinstance(node, ast.Call) and not _asks_for_number(stage, node):
            continue
        _rank(stage, node, known)


def _told_to_others(stage: Stage, call: ast.Call) -> None:
    """`tqdm(loader, disable=rank != 0)`: what code from elsewhere is told about this process."""
    values = stage.facts.of(call.func)
    if any(isinstance(v, Function | Method | Class) for v in values):
        return  # the script's own code is read with what it is given
    for given in (*call.args, *(k.value for k in call.keywords)):
        known = stage.alone.by_hand(given)
        if known is None or not isinstance(known.value, bool) or not asks_rank(stage, given):
            continue
        main = main_process(stage, given)
        stage.gone.update(walk(given))
        stage.replace(
            given,
            GROUP,
            "the accelerator knows which process this is",
            main if known.value else f"not {main}",
        )


def _backend(stage: Stage, call: ast.Call) -> None:
    """`print(f"... {dist.get_backend()}")`: the backend's name where it is only shown."""
    if "torch.distributed.get_backend" not in stage.facts.paths(call.func) or call.args or call.keywords:
        return
    parent = stage.parent(call)
    printed = isinstance(parent, ast.Call) and "builtins.print" in stage.facts.paths(parent.func)
    if printed or isinstance(parent, ast.FormattedValue):
        stage.gone.update(walk(call))
        stage.replace(call, GROUP, "the accelerator knows it", MARK.format("state") + ".backend")


def _is_load(node: ast.expr) -> bool:
    return not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)


def _asks_for_number(stage: Stage, node: ast.Call) -> bool:
    return any(p.startswith(DIST) for p in stage.facts.paths(node.func))


def _rank(stage: Stage, node: ast.expr, known: KnownValues) -> None:
    device = _device_around(stage, node)
    if device is not None:
        if not stage.is_settled(device):
            stage.gone.update(walk(device))
            if isinstance(device, ast.keyword):
                return
            assert isinstance(device, ast.expr)
            stage.replace(device, DEVICE, "the process's own device", _device_text(device))
        return
    name = number(stage, node, known)
    if name is None or _carried_on(stage, node):
        return
    stage.gone.add(node)
    stage.replace(node, GROUP, "the accelerator knows it", MARK.format(name))


def number(stage: Stage, node: ast.expr, known: KnownValues) -> str | None:
    """What the accelerator calls a rank or a size; None of what is only computed from one: `rank + 1`."""
    if known.value not in (0, 1):
        return None
    is_rank = known.value == 0
    for world in stage.several:
        told = world.known(node)
        own = (
            {world.world.rank, world.world.local_rank}
            if is_rank
            else {world.world.size, world.world.local_size}
        )
        if told is not None and told.value not in own:
            return None
    if not is_rank:
        return "num_processes"
    return "local_process_index" if asks_local(stage, node) else "process_index"


def _device_text(node: ast.expr) -> str:
    return (
        'torch.device("cuda")'
        if isinstance(node, ast.Call) and not isinstance(node.func, ast.Attribute)
        else '"cuda"'
    )


def _device_around(stage: Stage, node: ast.expr) -> ast.AST | None:
    """The expression around a rank that names a device: `f"cuda:{rank}"`, `torch.device("cuda", rank)`, `.to(rank)`."""
    child: ast.AST = node
    for around in stage.facts.table.ancestors(node):
        if isinstance(around, ast.Call):
            if (
                (
                    isinstance(around.func, ast.Attribute)
                    and around.func.attr == "format"
                    and around.func is not child
                )
                and isinstance(around.func.value, ast.Constant)
                and str(around.func.value.value).startswith("cuda")
            ):
                return around
            if "torch.device" in stage.facts.paths(around.func):
                return around
            if (
                isinstance(around.func, ast.Attribute)
                and around.func.attr in {"to", "cuda"}
                and child is node
            ):
                return node if around.func.attr == "to" or child in around.args else None
            return None
        if isinstance(around, ast.JoinedStr):
            if _is_ordinal(stage, around):
                child = around
                continue
            first = around.values[0]
            return around if isinstance(first, ast.Constant) and str(first.value).startswith("cuda") else None
        if (
            isinstance(around, ast.BinOp)
            and isinstance(around.op, ast.Add | ast.Mod)
            and isinstance(around.left, ast.Constant)
            and str(around.left.value).startswith("cuda")
        ):
            return around
        if isinstance(around, ast.keyword) and around.arg in {"device", "map_location"}:
            return node if child is node else None
        if isinstance(around, ast.stmt):
            return None
        child = around
    return None


def _is_ordinal(stage: Stage, text: ast.JoinedStr) -> bool:
    """`torch.device(f"{kind}:{rank}")`: a number behind a colon, whatever stands before it, in a device's name."""
    around = stage.parent(text)
    if not isinstance(around, ast.Call) or "torch.device" not in stage.facts.paths(around.func):
        return False
    return len(text.values) == 3 and isinstance(text.values[1], ast.Constant) and text.values[1].value == ":"


def _has_name(stage: Stage, value: ast.expr) -> bool:
    """Whether the uses of what a value is bound to say what it is: no number that is computed from a size."""
    known = stage.alone.by_hand(value)
    if known is None:
        return False
    is_number = isinstance(known.value, int) and not isinstance(known.value, bool)
    return not is_number or number(stage, value, known) is not None


def _carried_on(stage: Stage, node: ast.expr) -> bool:
    """Handed on under another name, where its uses are found: assigned, returned, passed to the script's own code."""
    child: ast.AST = node
    for around in stage.facts.table.ancestors(node):
        if isinstance(around, ast.Call):
            if child is around.func:
                return False
            values = stage.facts.of(around.func)
            own = bool(values) and all(isinstance(v, Function | Method | Class) for v in values)
            pure = "builtins.int" in stage.facts.paths(around.func)
            if pure:
                child = around
                continue
            if own:
                value = child.value if isinstance(child, ast.keyword) else child
                return not isinstance(value, ast.BinOp) or _has_name(stage, value)
            return bool(stage.facts.paths(around.func) & SPAWN) or _asks_for_number(stage, around)
        if isinstance(around, ast.Assign | ast.AnnAssign | ast.Return):
            return _has_name(stage, child) if isinstance(child, ast.expr) else True
        if isinstance(around, ast.If | ast.While) and child is around.test:
            return stage.alone.by_hand(around.test) is not None
        if isinstance(around, ast.stmt):
            return False
        child = around
    return False
