"""A script that distributes itself is mapped, one construct at a time.

What:   `init_process_group` joins the launcher's group, `mp.spawn` becomes a call, the wrapper goes, devices are the
        accelerator's. Samplers, tests of the rank, reductions and barriers stay as the author has them.
Why:    What each process does is written down already; its numbers are the author's own.
Before: `dist.init_process_group("nccl"); model = DDP(model, device_ids=[local_rank])`
After:  `PartialState(); model, optimizer = accelerator.prepare(model, optimizer)`
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import Parameters
from crosstrain_migrate.rules.distribution import replicas
from crosstrain_migrate.rules.distribution.launcher_settings import DIST, INIT
from crosstrain_migrate.rules.distribution.plain import Stage
from crosstrain_migrate.syntax.walks import walk

from . import barriers, group, in_place, layers, ordinals, spawned, world_switch
from .rank_sources import WRAPPERS

RULE = "CT303"
MAPPED = "torch.distributed"  # a mapped script may keep it
COLLECTIVES = frozenset({"all_reduce", "reduce", "all_gather", "reduce_scatter"})


def has_wrapper(facts: Facts) -> bool:
    """Whether gradients are averaged by DistributedDataParallel, which `prepare` takes the place of."""
    return bool(facts.calls_to(*WRAPPERS))


def starts(facts: Facts) -> bool:
    """Whether the script makes its processes a group."""
    return bool(facts.calls_to(INIT))


def averages_by_hand(facts: Facts) -> bool:
    """Whether a collective averages gradients or weights: with `prepare`, they would be averaged twice."""
    collectives = facts.calls_to(*(f"{DIST}{name}" for name in COLLECTIVES))
    return any(_of_weights(facts, argument) for call in collectives for argument in call.args)


def _of_weights(facts: Facts, node: ast.expr) -> bool:
    grads = any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in walk(node))
    return grads or any(
        isinstance(v, Parameters) for n in walk(node) if isinstance(n, ast.expr) for v in facts.of(n)
    )


def _unwrap_choices(stage: Stage) -> None:
    """`model.module if ddp else model`: the prepared model is the model itself."""
    for node in stage.facts.each(ast.IfExp):
        for arm, other in ((node.body, node.orelse), (node.orelse, node.body)):
            inner = isinstance(arm, ast.Attribute) and arm.attr == "module" and arm.value
            if inner and ast.unparse(inner) == ast.unparse(other) and any(x.node is arm for x in stage.edits):
                stage.edits[:] = [x for x in stage.edits if x.node is not arm]
                stage.gone.update(walk(node))
                stage.replace(node, "CT302", "the prepared model is the model itself", "{m}", m=other)


def _drop_repeated_unwrapping(stage: Stage) -> None:
    """`inner = model.module` where `inner = model` stands above: the wrapper was between the two."""
    for node in stage.facts.each(ast.Assign):
        value = node.value
        if not isinstance(value, ast.Attribute) or value.attr != "module" or len(node.targets) > 1:
            continue
        target, function = ast.unparse(node.targets[0]), stage.facts.enclosing_function(node)
        within = (s for s in stage.facts.each(ast.Assign) if stage.facts.enclosing_function(s) is function)
        others = [s for s in within if s is not node and target in map(ast.unparse, s.targets)]
        inner = ast.unparse(value.value)
        same = [s for s in others if ast.unparse(s.value) == inner and s.lineno < node.lineno]
        if same and same == others and any(x.node is value for x in stage.edits):
            stage.edits[:] = [x for x in stage.edits if x.node is not value]
            stage.remove(node, "CT302", "the prepared model is the model itself")


def _drop_sync_switches(stage: Stage) -> None:
    """`model.require_backward_grad_sync = last`: gradients that are averaged each time add up the same."""
    for node in stage.facts.each(ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and target.attr == "require_backward_grad_sync":
            stage.remove(node, "CT302", "gradients that are averaged each time add up the same")


def plan(stage: Stage) -> None:
    """Maps everything in one pass; the other rules then work on the result."""
    if MAPPED in stage.requested.settled:
        return
    stage.requested.settled.add(MAPPED)
    barriers.check(stage)
    spawned.plan(stage)
    world_switch.plan(stage)
    group.plan(stage)
    layers.plan(stage)
    if stage.requested.in_place:
        in_place.plan(stage)
    else:
        replicas.plan(stage)
    _unwrap_choices(stage)
    _drop_repeated_unwrapping(stage)
    _drop_sync_switches(stage)
    if not stage.requested.in_place:  # otherwise no rule replaces these devices by the accelerator's
        ordinals.plan(stage)
    first = next(iter(stage.facts.calls_to(INIT, *WRAPPERS)))
    reason = "this script distributes its work itself, and still does: samplers, rank checks and torch.distributed calls are unchanged. They run on CPUs and GPUs, not on TPUs"
    stage.note(RULE, first, reason, "for a TPU, prepare the loaders and use accelerator.reduce")
