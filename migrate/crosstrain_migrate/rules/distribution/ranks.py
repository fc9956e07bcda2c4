"""Uses of a rank or a size outside tests: devices become the process's own, and numbers come from the accelerator."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import arguments_of
from crosstrain_migrate.facts.values import Class, Function, Method

from .constant_folding import KnownValue
from .guards import ask_accelerator, asks_local, asks_rank
from .launcher_settings import DIST, SPAWN
from .plain import Stage
from .requested_options import MARK

GROUP, DEVICE = "CT303", "CT308"


def plan(stage: Stage) -> None:
    """Plans what replaces each use."""
    for call in stage.facts.each(ast.Call):
        if not stage.single.dead(call) and not stage.is_settled(call):
            _told_to_others(stage, call)
            _backend(stage, call)
    for node in stage.facts.each(ast.Name, ast.Attribute, ast.Call):
        if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            continue
        if stage.single.dead(node) or stage.is_settled(node):
            continue
        known = stage.single.launch_value(node)
        if known is None or not is_number(known):
            continue
        parent = stage.parent(node)
        if isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is node):
            continue
        if not isinstance(node, ast.Call) or _asks_group(stage, node):
            _rank(stage, node, known)


def _told_to_others(stage: Stage, call: ast.Call) -> None:
    """`tqdm(loader, disable=rank != 0)`: a test of the rank that is passed to another library."""
    values = stage.facts.of(call.func)
    if any(isinstance(v, Function | Method | Class) for v in values):
        return  # the script's own code is read with what it is given
    for argument in arguments_of(call):
        known = stage.single.launch_value(argument)
        if known is not None and isinstance(known.value, bool) and asks_rank(stage, argument):
            ask_accelerator(stage, argument, known.value)


def _backend(stage: Stage, call: ast.Call) -> None:
    """`print(f"... {dist.get_backend()}")`: replaces the backend's name where it is only shown."""
    if "torch.distributed.get_backend" not in stage.facts.paths(call.func) or call.args or call.keywords:
        return
    parent = stage.parent(call)
    printed = isinstance(parent, ast.Call) and "builtins.print" in stage.facts.paths(parent.func)
    if printed or isinstance(parent, ast.FormattedValue):
        stage.replace_whole(call, GROUP, "the accelerator knows it", MARK.format("state") + ".backend")


def is_number(known: KnownValue) -> bool:
    return isinstance(known.value, int) and not isinstance(known.value, bool)


def _asks_group(stage: Stage, call: ast.Call) -> bool:
    return any(p.startswith(DIST) for p in stage.facts.paths(call.func))


def _rank(stage: Stage, node: ast.expr, known: KnownValue) -> None:
    device = _device_around(stage, node)
    if device is not None:
        if not stage.is_settled(device):
            made = isinstance(device, ast.Call) and not isinstance(device.func, ast.Attribute)
            text = 'torch.device("cuda")' if made else '"cuda"'
            stage.replace_whole(device, DEVICE, "the process's own device", text)
        return
    name = number(stage, node, known)
    if name is not None and not _carried_on(stage, node):
        stage.gone.add(node)
        stage.replace(node, GROUP, "the accelerator knows it", MARK.format(name))


def number(stage: Stage, node: ast.expr, known: KnownValue) -> str | None:
    """The accelerator's name for a rank or a size; None for what is computed from one: `rank + 1`."""
    if known.value not in (0, 1):
        return None
    for process in stage.several:
        told, world = process.value_of(node), process.world
        own = {world.size, world.local_size} if known.value else {world.rank, world.local_rank}
        if told is not None and told.value not in own:
            return None
    if known.value:
        return "num_processes"
    return "local_process_index" if asks_local(stage, node) else "process_index"


def _device_around(stage: Stage, node: ast.expr) -> ast.expr | None:
    """The expression around a rank that names a device: `f"cuda:{rank}"`, `torch.device("cuda", rank)`, `.to(rank)`."""
    for child, around in stage.outward(node):
        if isinstance(around, ast.Call):
            method = around.func if isinstance(around.func, ast.Attribute) else None
            formats = method is not None and method.attr == "format" and method is not child
            named = method is not None and formats and _begins_with_cuda(method.value)
            if named or "torch.device" in stage.facts.paths(around.func):
                return around
            if method is None or child is not node:
                return None
            moves = method.attr == "to" or (method.attr == "cuda" and node in around.args)
            return node if moves else None
        if isinstance(around, ast.JoinedStr) and not _is_ordinal(stage, around):
            return around if _begins_with_cuda(around.values[0]) else None
        adds = isinstance(around, ast.BinOp) and isinstance(around.op, ast.Add | ast.Mod)
        if isinstance(around, ast.BinOp) and adds and _begins_with_cuda(around.left):
            return around
        if isinstance(around, ast.keyword) and around.arg in {"device", "map_location"}:
            return node if child is node else None
        if isinstance(around, ast.stmt):
            break
    return None


def _begins_with_cuda(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and str(node.value).startswith("cuda")


def _is_ordinal(stage: Stage, text: ast.JoinedStr) -> bool:
    """`torch.device(f"{kind}:{rank}")`: a number behind a colon, whatever stands before it, in a device's name."""
    around = stage.parent(text)
    if not isinstance(around, ast.Call) or "torch.device" not in stage.facts.paths(around.func):
        return False
    return len(text.values) == 3 and isinstance(text.values[1], ast.Constant) and text.values[1].value == ":"


def _has_name(stage: Stage, value: ast.expr) -> bool:
    """Whether the uses of a variable with this value can be replaced: it is not a number that is computed from a size."""
    known = stage.single.launch_value(value)
    return known is not None and (not is_number(known) or number(stage, value, known) is not None)


def _carried_on(stage: Stage, node: ast.expr) -> bool:
    """Whether a rank is only assigned, returned or passed to the script's own code, where its uses are found."""
    for child, around in stage.outward(node):
        if isinstance(around, ast.Call):
            if child is around.func:
                return False
            if "builtins.int" in stage.facts.paths(around.func):
                continue
            values = stage.facts.of(around.func)
            if values and all(isinstance(v, Function | Method | Class) for v in values):
                value = child.value if isinstance(child, ast.keyword) else child
                return not isinstance(value, ast.BinOp) or _has_name(stage, value)
            return bool(stage.facts.paths(around.func) & SPAWN) or _asks_group(stage, around)
        if isinstance(around, ast.Assign | ast.AnnAssign | ast.Return):
            return not isinstance(child, ast.expr) or _has_name(stage, child)
        if isinstance(around, ast.If | ast.While) and child is around.test:
            return stage.single.launch_value(around.test) is not None
        if isinstance(around, ast.stmt):
            break
    return False
