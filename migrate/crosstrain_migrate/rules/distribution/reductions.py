"""The script's own reductions: sums and means of numbers and of gradients are global without them."""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.facts.arguments import given
from crosstrain_migrate.rules.base import refuse
from crosstrain_migrate.syntax.walks import walk

from .plain import Stage

GROUP = "CT303"
SIZE_WORDS = re.compile(r"world|n_?gpus?|nprocs|num_proc|replicas", re.IGNORECASE)
REDUCERS = frozenset({"torch.distributed.all_reduce", "torch.distributed.reduce"})


def division(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """What a `/`, `//`, `/=` or `//=` divides, and by what."""
    if not isinstance(node, ast.BinOp | ast.AugAssign) or not isinstance(node.op, ast.Div | ast.FloorDiv):
        return None
    return (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)


def reduction(stage: Stage, node: ast.Expr, call: ast.Call) -> None:
    known = {"tensor", "op", "dst", "async_op"}
    if any(k.arg not in known for k in call.keywords) or len(call.args) > 2:
        reason = "only some of the processes take part in this reduction"
        raise refuse(GROUP, call, reason, "reduce over all processes")
    check_reduction(stage, call)
    _no_unknown_size(stage, node)
    stage.remove(node, GROUP, "every number is made global where it is computed")


def _no_unknown_size(stage: Stage, node: ast.Expr) -> None:
    """Refuses a sum that may be divided by the number of processes, where the tool cannot follow that number."""
    for _, divisor in filter(
        None, map(division, walk(stage.facts.enclosing_function(node) or stage.facts.tree))
    ):
        if stage.single.value_of(divisor) is not None or not SIZE_WORDS.search(ast.unparse(divisor)):
            continue
        parts = (
            n for n in walk(divisor) if isinstance(n, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
        )
        if not any(stage.single.launch_value(part) for part in parts):
            reason = (
                f"`{ast.unparse(divisor)}` divides what all processes add up, and its value is not set in this script: if it is "
                "the number of processes, the division has to go; otherwise it has to stay"
            )
            raise refuse(GROUP, divisor, reason, "write `dist.get_world_size()` here and run migrate again")


def check_reduction(stage: Stage, call: ast.Call) -> None:
    """Refuses all but sums and means of numbers, which are global already, and averages of gradients."""
    operation = given(call, "op", 1)
    name = ast.unparse(operation).rsplit(".", 1)[-1] if operation is not None else "SUM"
    tensor = given(call, "tensor", 0)
    if name not in {"SUM", "AVG"} or tensor is None:
        reason = f"each process would keep its own number here: the accelerator reduces to sums and means, not to {name}"
        remedy = "compute it from gathered values (`accelerator.gather_for_metrics`) after migrating, and remove it now"
        raise refuse(GROUP, call, reason, remedy)
    if isinstance(tensor, ast.Attribute) and tensor.attr == "data":
        inner = tensor.value
        if not (isinstance(inner, ast.Attribute) and inner.attr == "grad"):
            reason = "this may average weights, which is a different algorithm from averaging gradients in every step"
            remedy = (
                "take it out and run migrate again, if gradients averaged in every step are what you want"
            )
            raise refuse(GROUP, call, reason, remedy)
    gradient = any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in walk(tensor))
    if gradient and name == "SUM" and not _divided(stage, tensor):
        reason = "gradients are summed over the processes here, and prepare averages them"
        raise refuse(GROUP, call, reason, "average them")


def _divided(stage: Stage, tensor: ast.expr) -> bool:
    text = ast.unparse(tensor).removesuffix(".data")
    return any(
        isinstance(n, ast.AugAssign)
        and isinstance(n.op, ast.Div)
        and ast.unparse(n.target).removesuffix(".data") == text
        and stage.single.launch_value(n.value) is not None
        for n in stage.facts.nodes
    )


def reduced(stage: Stage) -> set[str]:
    """The source texts of the tensors that the script reduces itself."""
    found = {ast.unparse(c.args[0]) for c in stage.facts.calls_to(*REDUCERS) if c.args}
    return found | {t.removesuffix(".data") for t in found} | {f"{t}.data" for t in found}
