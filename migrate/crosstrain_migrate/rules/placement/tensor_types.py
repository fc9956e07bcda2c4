"""CT105 for types that name a device (`torch.cuda.FloatTensor`, default tensor types), and `.cuda()` out of reach."""

from __future__ import annotations

import ast
from collections.abc import Callable

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.values import Symbol
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax.walks import walk

RULE, BATCH = "CT105", "CT104"
REASON = "the process's own GPU is current, so this works where the launcher chooses GPUs; with --cpu, or on another kind of device, it does not"
REMEDY = "make it with device=accelerator.device, or like a tensor that is at hand (x.device, x.new_zeros)"


def plan(context: Context, is_placed: Callable[[ast.expr], bool]) -> None:
    """`is_placed` tells whether the prepared loader has put a tensor on the device already."""
    converted = {
        n
        for call in context.facts.method_calls("type")
        if isinstance(call.func, ast.Attribute) and is_placed(call.func.value)
        for n in _plain_type(context, call)
    }
    defaults = context.facts.calls_to("torch.set_default_tensor_type")
    found = [c for c in defaults if any("cuda" in ast.unparse(a) for a in c.args)]
    types = [n for n in context.facts.each(ast.Attribute) if n not in converted and _is_cuda_type(context, n)]
    for node in (found or types)[:1]:
        context.note(RULE, node, f"`{ast.unparse(node)}`: {REASON}", REMEDY)


def left_behind(context: Context, call: ast.Call) -> None:
    """Notes a `.cuda()` that no accelerator can reach: in a module, or in a function that only a library calls."""
    context.note(RULE, call, f"`{ast.unparse(call)}`: {REASON}", REMEDY)


def _is_cuda_type(context: Context, node: ast.AST) -> bool:
    return any(_cuda_type(v.path) for v in context.facts.of(node) if isinstance(v, Symbol))


def _cuda_type(path: str) -> str:
    """`float` for `torch.cuda.FloatTensor`; empty for anything else."""
    name = api.last(path)
    if path != f"torch.cuda.{name}" or not name.endswith("Tensor"):
        return ""
    return name.removesuffix("Tensor").lower()


def _plain_type(context: Context, call: ast.Call) -> set[ast.AST]:
    """`x.type(torch.cuda.LongTensor)` becomes `x.long()`: the batch is on the device already."""
    assert isinstance(call.func, ast.Attribute)
    if len(call.args) != 1 or call.keywords:
        return set()
    kinds = {_cuda_type(path) for path in context.facts.paths(call.args[0])}
    if len(kinds) != 1 or not (kind := kinds.pop()):
        return set()
    context.replace(
        call, BATCH, "the tensor is on the device already", "{x}." + kind + "()", x=call.func.value
    )
    return set(walk(call.args[0]))
