"""For CT308: devices that are chosen by the process's number: `f"cuda:{local_rank}"`, `torch.device("cuda", gpu)`.

The launcher gives each process its device, so the number is dropped; the rules about devices do the rest.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import keyword_of
from crosstrain_migrate.rules.distribution.plain import Stage, nodes_in
from crosstrain_migrate.rules.distribution.ranks import is_number
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
            stage.replace_whole(number, RULE, REASON, '"cuda"')
        elif _numbered_name(node):
            stage.replace_whole(_either_way(stage, node), RULE, REASON, '"cuda"')


def _either_way(stage: Stage, node: ast.expr) -> ast.expr:
    """`f"cuda:{gpu}" if gpu is not None else "cuda"`: both are the process's own now."""
    around = stage.parent(node)
    arms = (around.body, around.orelse) if isinstance(around, ast.IfExp) else ()
    if isinstance(around, ast.IfExp) and all(arm is node or _is_cuda(arm) for arm in arms):
        return around
    return node


def _numbered_device(stage: Stage, call: ast.Call) -> bool:
    """`torch.device("cuda", local_rank)`"""
    if "torch.device" not in stage.facts.paths(call.func) or not call.args or not _is_cuda(call.args[0]):
        return False
    numbers = [*call.args[1:], *(k.value for k in call.keywords if k.arg == "index")]
    return any(not isinstance(n, ast.Constant) for n in numbers)


def _place_by_number(stage: Stage, call: ast.Call) -> ast.expr | None:
    """The number in `.to(args.gpu)` and `torch.ones(8, device=rank)`, where it is the process's own."""
    moves = isinstance(call.func, ast.Attribute) and call.func.attr == "to" and len(call.args) == 1
    makes = any(path.startswith("torch.") for path in stage.facts.paths(call.func))
    number = call.args[0] if moves else keyword_of(call, "device") if makes else None
    if not isinstance(number, ast.Name | ast.Attribute):
        return None
    known = [process.value_of(number) for process in stage.several[:2]]
    return number if all(k is not None and is_number(k) for k in known) else None


def _numbered_name(node: ast.expr) -> bool:
    """`f"cuda:{rank}"`, `"cuda:{}".format(rank)`, `"cuda:" + str(rank)`, `"cuda:%d" % rank`"""
    match node:
        case ast.JoinedStr(values=[name, ast.FormattedValue()]):
            return _begins(name)
        case ast.BinOp(op=ast.Add() | ast.Mod()):
            return _begins(node.left)
        case ast.Call(func=ast.Attribute(attr="format", value=name), args=[_]):
            return _begins(name)
    return False


def _begins(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("cuda:")


def _is_cuda(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "cuda"


def _is_counted(stage: Stage, node: ast.AST) -> bool:
    """Whether a loop or a comprehension counts the devices."""
    numbers = node.args if isinstance(node, ast.Call) else [node]
    names = {n.id for n in nodes_in(numbers) if isinstance(n, ast.Name)}
    for around in stage.facts.table.ancestors(node):
        counting = [around] if isinstance(around, ast.For) else getattr(around, "generators", ())
        targets = nodes_in(one.target for one in counting)
        if any(isinstance(n, ast.Name) and n.id in names for n in targets):
            return True
    return False
