"""CT501: model weights are saved once, whole
CT502: checkpoints are saved once, whole
CT503: a file is read after it has been written

What:   `torch.save(model.state_dict(), "x.pt")` becomes `accelerator.save_model(model, "x.pt")`, any other torch.save
        `accelerator.save`; a file that is read back later is waited for.
Why:    One process writes, whole, and without a wrapper's prefix.

Example CT501 (end):
    torch.save(model.state_dict(), "model.pt")
Becomes (end):
    accelerator.save_model(model, "model.pt")
Example CT502 (after_epoch):
    torch.save({"model": model.state_dict(), "epoch": epoch}, "checkpoint.pt")
Becomes (after_epoch):
    accelerator.save({"model": model.state_dict(), "epoch": epoch}, "checkpoint.pt")
Example CT503 (end):
    torch.save(model.state_dict(), "model.pt")
    model.load_state_dict(torch.load("model.pt"))
Becomes (end):
    accelerator.save_model(model, "model.pt")
    accelerator.wait_for_everyone()
    model.load_state_dict(torch.load("model.pt"))
Stays CT501 (end):
    size = sum(p.numel() for p in model.parameters())
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import given
from crosstrain_migrate.facts.values import External
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.placement.construction import only_definition
from crosstrain_migrate.syntax.walks import walk

from .waits import Writes

MODEL, ANYTHING, LOAD = "CT501", "CT502", "CT503"
SUFFIXES = (".pt", ".pth", ".bin")


def plan(context: Context) -> None:
    saves = [
        c
        for c in context.facts.calls_to("torch.save")
        if context.reachable(c) and not _into_memory(context, c)
    ]
    for call in saves:
        _save(context, call)
    writes = Writes(context, saves)
    for call in context.facts.calls_to("torch.load") if saves else ():
        writes.wait_before(call, LOAD)


def _into_memory(context: Context, call: ast.Call) -> bool:
    """A buffer is every process's own: each must fill it."""
    target = given(call, "f", 1)
    return target is not None and any(
        isinstance(v, External) and v.path == "io.BytesIO" for v in context.facts.of(target)
    )


def _save(context: Context, call: ast.Call) -> None:
    if context.runtime == "crosstrain" and len(call.args) == 2 and not call.keywords:
        saved, path = call.args
        model = _state_dict_of(context, saved)
        if model is not None and _has_suffix(context, path):
            if context.allows(MODEL, call):
                template = context.accelerator(call) + ".save_model({model}, {path})"
                reason = "one file, from the main process"
                context.replace(call, MODEL, reason, template, model=model, path=path)
            return
    if not context.allows(ANYTHING, call):
        return
    accelerator = context.accelerator(call)
    if context.runtime == "accelerate":
        _unwrap_inside(context, call, accelerator)
    context.replace(call.func, ANYTHING, "written once, whole, by the main process", f"{accelerator}.save")


def _state_dict_of(context: Context, node: ast.AST) -> ast.expr | None:
    """`model` of `model.state_dict()`, when it is one of the prepared modules."""
    match node:
        case ast.Call(func=ast.Attribute(value=model, attr="state_dict"), args=[], keywords=[]):
            values = context.facts.of(model)
            return model if any(v in context.subject.models for v in values) else None
    return None


def _has_suffix(context: Context, path: ast.expr, seen: frozenset[ast.expr] = frozenset()) -> bool:
    """Whether a path expression surely ends in a checkpoint suffix."""
    end: ast.expr | None
    match path:
        case ast.Constant(value=str(text)):
            return text.endswith(SUFFIXES)
        case ast.Name():
            end = only_definition(context.facts, path)
            end = None if isinstance(end, ast.Name) else end
        case ast.JoinedStr(values=[*_, end]) | ast.BinOp(left=end, op=ast.Mod()) | ast.BinOp(right=end):
            pass
        case ast.Call(func=ast.Attribute(attr="join"), args=[*_, end]):
            pass
        case ast.Call(func=ast.Attribute(value=end, attr="format")):
            pass
        case _:
            return False
    # A name may be assigned from itself.
    return end is not None and end not in seen and _has_suffix(context, end, seen | {path})


def _unwrap_inside(context: Context, call: ast.Call, accelerator: str) -> None:
    """Accelerate's prepared model carries a wrapper: its state is taken from the model inside."""
    for node in walk(call.args[0]) if call.args else ():
        model = _state_dict_of(context, node)
        if model is not None:
            context.replace(model, ANYTHING, "", accelerator + ".unwrap_model({m})", m=model)
