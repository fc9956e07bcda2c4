"""For CT308: devices that are chosen by the process's number: `f"cuda:{local_rank}"`, `torch.device("cuda", gpu)`.

The launcher gives each process its device, so the kind is enough here; what it becomes is for the rules about devices.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import keyword_of
from crosstrain_migrate.rules.distribution.plain import Stage
from crosstrain_migrate.syntax.walks import walk

RULE = "CT308"
REASON = "the process's own device"


def plan(stage: Stage) -> None:
    for node in stage.facts.each(ast.Call, ast.JoinedStr, ast.BinOp):
        if stage.is_settled(node) or _is_counted(stage, node):
            continue
        if isinstance(node, ast.Call) and _numbered_device(stage, node):
            stage.gone.update(walk(node))
            stage.replace(node, RULE, REASON, '{f}("cuda")', f=node.func)
        elif isinstance(node, ast.Call) and (number := _place_by_number(stage, node)) is not None:
            stage.gone.update(walk(number))
            stage.replace(number, RULE, REASON, '"cuda"')
        elif _numbered_name(node):
            whole = _either_way(stage, node)
            stage.gone.update(walk(whole))
            stage.replace(whole, RULE, REASON, '"cuda"')


def _either_way(stage: Stage, node: ast.expr) -> ast.expr:
    """`f"cuda:{gpu}" if gpu is not None else "cuda"`: both are the process's own now."""
    around = stage.parent(node)
    if isinstance(around, ast.IfExp) and all(
        arm is node or _is_cuda(arm) for arm in (around.body, around.orelse)
    ):
        return around
    return node


def _numbered_device(stage: Stage, call: ast.Call) -> bool:
    """`torch.device("cuda", local_rank)`"""
    if "torch.device" not in stage.facts.paths(call.func):
        return False
    numbers = [*call.args[1:], *(k.value for k in call.keywords if k.arg == "index")]
    return (
        bool(call.args) and _is_cuda(call.args[0]) and any(not isinstance(n, ast.Constant) for n in numbers)
    )


def _place_by_number(stage: Stage, call: ast.Call) -> ast.expr | None:
    """The number in `.to(args.gpu)` and `torch.ones(8, device=rank)`, where it is the process's own."""
    moves = isinstance(call.func, ast.Attribute) and call.func.attr == "to" and len(call.args) == 1
    makes = any(path.startswith("torch.") for path in stage.facts.paths(call.func))
    number = call.args[0] if moves else keyword_of(call, "device") if makes else None
    if not isinstance(number, ast.Name | ast.Attribute):
        return None
    known = [world.known(number) for world in stage.several]
    counted = bool(known) and all(
        k is not None and isinstance(k.value, int) and not isinstance(k.value, bool) for k in known[:2]
    )
    return number if counted else None


def _numbered_name(node: ast.expr) -> bool:
    """`f"cuda:{rank}"`, `"cuda:{}".format(rank)`, `"cuda:" + str(rank)`, `"cuda:%d" % rank`"""
    if isinstance(node, ast.JoinedStr):
        return (
            len(node.values) == 2
            and _begins(node.values[0])
            and isinstance(node.values[1], ast.FormattedValue)
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        return _begins(node.left)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _begins(node.func.value) and len(node.args) == 1
    return False


def _begins(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("cuda:")


def _is_cuda(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "cuda"


def _is_counted(stage: Stage, node: ast.AST) -> bool:
    """Whether a loop or a comprehension counts the devices."""
    numbers = node.args if isinstance(node, ast.Call) else [node]
    names = {n.id for part in numbers for n in walk(part) if isinstance(n, ast.Name)}
    for around in stage.facts.table.ancestors(node):
        targets: list[ast.expr] = []
        if isinstance(around, ast.For):
            targets = [around.target]
        elif isinstance(around, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            targets = [g.target for g in around.generators]
        if any(isinstance(n, ast.Name) and n.id in names for t in targets for n in walk(t)):
            return True
    return False
