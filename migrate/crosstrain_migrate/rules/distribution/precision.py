"""CT306: autocast and GradScaler

What:   `Accelerator(mixed_precision=...)` follows the script's own switch; autocast regions become
        `with accelerator.autocast():`; the scaler goes: `backward`, clipping and `step` scale and unscale by themselves,
        and its state in checkpoints is the accelerator's.
Why:    One loss scale for all processes, and every optimizer skips the same steps.
Leaves: the author's own autocast regions where the model also runs outside them, or where they differ: then prepared
        models add none (AutocastKwargs(enabled=False)) and every number stays what it was.
Refuses: several scalers, a scale that the script reads or sets, a scaler given to code that cannot be seen into.

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
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.walks import walk

from .plain import Stage
from .requested_options import MARK, Precision
from .scaler import AUTOCAST, CUDA_AUTOCAST, SCALERS, Scaler
from .switches import canonical, device_kind, from_outside, resolve, switch_of

RULE = "CT306"
DTYPES = {
    "torch.float16": "fp16",
    "torch.half": "fp16",
    "torch.bfloat16": "bf16",
}
CALLED_BY_TORCH = frozenset({"torch.utils.data.Dataset", "torch.autograd.Function"})


@dataclass(frozen=True)
class Region:
    """One autocast call. flag: the canonical text of its switch; dtype None: not one the Accelerator can be told."""

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
    given = {k.arg: k.value for k in call.keywords}
    cuda = bool(stage.facts.paths(call.func) & CUDA_AUTOCAST)
    names = (
        ("enabled", "dtype", "cache_enabled")
        if cuda
        else ("device_type", "dtype", "enabled", "cache_enabled")
    )
    given.update({n: a for n, a in zip(names, call.args, strict=False) if n not in given})
    device = "cuda" if cuda else device_kind(given.get("device_type"))
    switch = switch_of(stage, given.get("enabled"), call)
    if scaler is not None and switch is not None and scaler.tests(switch):
        switch = scaler.switch
    dtype = given.get("dtype")
    kind: str | None = None
    if dtype is None:
        kind = "fp16" if device == "cuda" else None
    else:
        paths = stage.facts.paths(dtype)
        kind = DTYPES.get(next(iter(paths))) if len(paths) == len(stage.facts.of(dtype)) == 1 else None
    if "cache_enabled" in given or (isinstance(switch, ast.Constant)):
        kind = None
    flag = canonical(stage, switch) if switch is not None else None
    return Region(call, kind, device, flag, switch, _is_plain(stage, call))


def _is_plain(stage: Stage, call: ast.Call) -> bool:
    item: ast.AST = call
    parent = stage.parent(call)
    if isinstance(parent, ast.IfExp) and ast.unparse(parent.orelse).endswith("nullcontext()"):
        item, parent = parent, stage.parent(parent)
    if not isinstance(parent, ast.withitem) or parent.optional_vars is not None:
        return False
    for around in stage.facts.table.ancestors(item):
        if isinstance(around, ast.ClassDef) and (
            stage.facts.interp.inherits(around, api.MODULE_BASES)
            or stage.facts.interp.inherits(around, CALLED_BY_TORCH)
        ):
            return False
    return True


def _agree(stage: Stage, regions: list[Region], scaler: Scaler | None) -> None:
    """Either one precision for the whole script, or the author's regions as they are."""
    first = regions[0] if regions else None
    whole = (
        first is not None
        and first.dtype is not None
        and all(
            r.plain and r.dtype == first.dtype and r.device == first.device and r.flag == first.flag
            for r in regions
        )
    )
    whole = whole and first is not None and first.device != "cpu"
    if first is not None and scaler is not None:
        scaled = scaler.live
        whole = whole and (first.dtype == "fp16") == scaled
        if scaled:
            whole = (
                whole
                and scaler.flag == first.flag
                and (scaler.device == first.device or first.device == "cuda")
            )
    elif first is not None and first.dtype == "fp16":
        whole = False  # without a scaler, as the author wants it
    outside = _outside(stage, regions) if whole else None
    if whole and outside is None:
        assert first is not None and first.dtype is not None
        _whole(stage, regions, first, scaler)
        return
    stage.requested.settled.update({"torch.cuda.amp", "torch.amp", "torch.autocast"})
    if regions:
        why = (
            "the model also runs outside them"
            if outside is not None
            else "they differ, or stand where no accelerator is"
        )
        reason = f"the script's autocast regions stay as they are, because {why}: prepared models add none of their own"
        remedy = "put every forward pass into one kind of region to have `mixed_precision=` do it"
        stage.note(RULE, outside or regions[0].call, reason, remedy)
    if scaler is not None and scaler.live:
        if stage.runtime == "accelerate":
            reason = "the model runs inside and outside autocast, and Accelerate has one precision for all its forward passes"
            remedy = "put every forward pass into an autocast region, or migrate with --runtime crosstrain"
            raise refuse(RULE, outside or scaler.created, reason, remedy)
        stage.requested.precision = Precision(
            "fp16",
            _text(stage, scaler.switch),
            scaler.device == "cuda",
            True,
            scaler.scaling,
            from_outside(stage, scaler.switch),
        )


def _whole(stage: Stage, regions: list[Region], first: Region, scaler: Scaler | None) -> None:
    assert first.dtype is not None
    for region in regions:
        node: ast.expr = region.call
        parent = stage.parent(node)
        if isinstance(parent, ast.IfExp):
            node = parent
        stage.gone.update(walk(node))
        stage.edits.append(
            e.Replace(
                node,
                RULE,
                "the precision the accelerator was made with",
                template=MARK.format("autocast") + "()",
            )
        )
    live = scaler is not None and scaler.live
    scaling = scaler.scaling if scaler is not None and live else ""
    switch = scaler.switch if scaler is not None and live else first.switch
    stage.requested.precision = Precision(
        first.dtype, _text(stage, switch), first.device == "cuda", False, scaling, from_outside(stage, switch)
    )


def _text(stage: Stage, switch: ast.expr | None) -> str | None:
    return stage.source(switch) if switch is not None else None


def _outside(stage: Stage, regions: list[Region]) -> ast.Call | None:
    """A forward pass of a trained model that no region is around, while the switch is on."""
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
    child = node
    for around in stage.facts.table.ancestors(node):
        if (
            isinstance(around, ast.With | ast.AsyncWith)
            and child in around.body
            and any(n in regions for item in around.items for n in walk(item.context_expr))
        ):
            return True
        if (
            isinstance(around, ast.If)
            and flag is not None
            and child in around.orelse
            and canonical(stage, resolve(stage, around.test)) == flag
        ):
            return True
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            if around in seen:
                return True
            sites = stage.facts.callers.get(around, [])
            return bool(sites) and all(_covered(stage, s, regions, flag, seen | {around}) for s in sites)
        child = around
    return False
