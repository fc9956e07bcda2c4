"""CT306: autocast and GradScaler

What:   `Accelerator(mixed_precision=...)` follows the script's own switch; autocast regions become
        `with accelerator.autocast():`; the scaler is removed: `backward`, clipping and `step` scale and unscale by themselves,
        and its state in checkpoints is the accelerator's.
Why:    One loss scale for all processes, and every optimizer skips the same steps.
Leaves: the author's own autocast regions where the model also runs outside them, or where they differ: then prepared
        models add none (AutocastKwargs(enabled=False)) and every number stays what it was.
Refuses: several scalers, a scale that the script reads or sets, a scaler passed to code that the tool cannot see.

Example (setup):
    scaler = torch.amp.GradScaler("cuda")
And (loss):
    with torch.autocast("cuda", dtype=torch.float16):
        out = model(x)
        loss = F.cross_entropy(out, y)
And (backward):
    scaler.scale(loss).backward()
And (step):
    scaler.step(optimizer)
    scaler.update()
Becomes (device):
    accelerator = Accelerator(mixed_precision="fp16" if torch.cuda.is_available() else "no")  # the fastest there is
And (setup): nothing
And (loss):
    with accelerator.autocast():
        out = model(x)
        loss = F.cross_entropy(out, y)
And (backward):
    accelerator.backward(loss)
And (step):
    optimizer.step()
Noted (loss):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
        loss = F.cross_entropy(out, y)
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.rules.base import refuse

from .plain import Stage, nodes_in
from .requested_options import MARK, Precision
from .scaler import AUTOCAST, CUDA_AUTOCAST, SCALERS, Scaler, bound
from .switches import canonical, device_kind, from_outside, resolve, switch_of

RULE = "CT306"
DTYPES = {"torch.float16": "fp16", "torch.half": "fp16", "torch.bfloat16": "bf16"}
CALLED_BY_TORCH = frozenset({"torch.utils.data.Dataset", "torch.autograd.Function"})


@dataclass(frozen=True)
class Region:
    """One autocast call. flag: the canonical text of its switch. dtype: None if the Accelerator has no name for it."""

    call: ast.Call
    dtype: str | None
    device: str  # "cuda", "any" (the script's device) or "cpu"
    flag: str | None
    switch: ast.expr | None
    plain: bool  # it is a `with` item, in code that can be given the accelerator


def plan(stage: Stage) -> None:
    casts = stage.facts.calls_to(*AUTOCAST)
    created = stage.facts.calls_to(*SCALERS)
    if (not casts and not created) or stage.requested.precision is not None or stage.requested.settled:
        return
    scaler = Scaler(stage, created) if created else None
    regions = [_region(stage, c, scaler) for c in casts]
    _agree(stage, regions, scaler)
    if scaler is not None:
        scaler.plan()


# -- regions -------------------------------------------------------------------------------------------------


def _region(stage: Stage, call: ast.Call, scaler: Scaler | None) -> Region:
    cuda = bool(stage.facts.paths(call.func) & CUDA_AUTOCAST)
    names = ("enabled", "dtype") if cuda else ("device_type", "dtype", "enabled")
    given = bound(call, (*names, "cache_enabled"))
    device = "cuda" if cuda else device_kind(given.get("device_type"))
    switch = switch_of(stage, given.get("enabled"), call)
    if scaler is not None and switch is not None and scaler.tests(switch):
        switch = scaler.switch
    kind = "fp16" if device == "cuda" else None
    if (dtype := given.get("dtype")) is not None:
        paths = stage.facts.paths(dtype)
        kind = DTYPES.get(next(iter(paths))) if len(paths) == len(stage.facts.of(dtype)) == 1 else None
    if "cache_enabled" in given or isinstance(switch, ast.Constant):
        kind = None
    flag = canonical(stage, switch) if switch is not None else None
    return Region(call, kind, device, flag, switch, _is_plain(stage, call))


def _is_plain(stage: Stage, call: ast.Call) -> bool:
    parent = stage.parent(call)
    if isinstance(parent, ast.IfExp) and ast.unparse(parent.orelse).endswith("nullcontext()"):
        parent = stage.parent(parent)
    if not isinstance(parent, ast.withitem) or parent.optional_vars is not None:
        return False
    classes = (a for a in stage.facts.table.ancestors(call) if isinstance(a, ast.ClassDef))
    return not any(stage.facts.interp.inherits(c, api.MODULE_BASES | CALLED_BY_TORCH) for c in classes)


def _agree(stage: Stage, regions: list[Region], scaler: Scaler | None) -> None:
    """Requests one precision for the whole script, or keeps the author's regions as they are."""
    whole = _is_one_precision(regions, scaler)
    outside = _outside(stage, regions) if whole else None
    if whole and outside is None:
        _whole(stage, regions, scaler)
        return
    stage.requested.settled.update({"torch.cuda.amp", "torch.amp", "torch.autocast"})
    if regions:
        why = (
            "the model also runs outside them"
            if outside is not None
            else "they differ, or stand where the accelerator is not available"
        )
        reason = f"the script's autocast regions stay as they are, because {why}: prepared models add none of their own"
        remedy = (
            "put every forward pass into the same kind of region, so that `mixed_precision=` can replace them"
        )
        stage.note(RULE, outside or regions[0].call, reason, remedy)
    if scaler is not None and scaler.live:
        if stage.runtime == "accelerate":
            reason = "the model runs inside and outside autocast, and Accelerate has one precision for all its forward passes"
            remedy = "put every forward pass into an autocast region, or migrate with --runtime crosstrain"
            raise refuse(RULE, outside or scaler.created, reason, remedy)
        _request(stage, "fp16", scaler.switch, scaler.device, scaler.scaling, own_regions=True)


def _is_one_precision(regions: list[Region], scaler: Scaler | None) -> bool:
    """Whether all regions are alike and match the scaler, so that `mixed_precision=` can replace them."""
    first = regions[0] if regions else None
    if first is None or first.dtype is None or first.device == "cpu":
        return False
    kinds = {(r.plain, r.dtype, r.device, r.flag) for r in regions}
    if kinds != {(True, first.dtype, first.device, first.flag)}:
        return False
    if scaler is None or not scaler.live:
        return first.dtype != "fp16"  # without a scaler, as the author wants it
    return first.dtype == "fp16" and scaler.flag == first.flag and first.device in {"cuda", scaler.device}


def _whole(stage: Stage, regions: list[Region], scaler: Scaler | None) -> None:
    for region in regions:
        parent = stage.parent(region.call)
        node = parent if isinstance(parent, ast.IfExp) else region.call
        reason = "the precision the accelerator was made with"
        stage.replace_whole(node, RULE, reason, MARK.format("autocast") + "()")
    first = regions[0]
    assert first.dtype is not None
    live = scaler if scaler is not None and scaler.live else None
    switch = live.switch if live is not None else first.switch
    _request(stage, first.dtype, switch, first.device, live.scaling if live is not None else "")


def _request(
    stage: Stage, dtype: str, switch: ast.expr | None, device: str, scaling: str, own_regions: bool = False
) -> None:
    flag = stage.source(switch) if switch is not None else None
    outside = from_outside(stage, switch)
    stage.requested.precision = Precision(dtype, flag, device == "cuda", own_regions, scaling, outside)


def _outside(stage: Stage, regions: list[Region]) -> ast.Call | None:
    """A forward pass of a trained model outside all regions, while the switch is on."""
    calls = {r.call for r in regions}
    models = set(stage.facts.models)
    flag = regions[0].flag
    for call in stage.facts.calls:
        if stage.facts.of(call.func) & models and not _covered(stage, call, calls, flag, frozenset()):
            return call
    return None


def _covered(
    stage: Stage, node: ast.AST, regions: set[ast.Call], flag: str | None, seen: frozenset[ast.AST]
) -> bool:
    for child, around in stage.outward(node):
        match around:
            case ast.With() | ast.AsyncWith() if child in around.body:
                if any(n in regions for n in nodes_in(item.context_expr for item in around.items)):
                    return True
            case ast.If() if flag is not None and child in around.orelse:
                if canonical(stage, resolve(stage, around.test)) == flag:
                    return True
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if around in seen:
                    return True
                sites = stage.facts.callers.get(around, [])
                return bool(sites) and all(_covered(stage, s, regions, flag, seen | {around}) for s in sites)
    return False
