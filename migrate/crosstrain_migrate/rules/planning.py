"""The order of the rules: `plan` runs them in the order in which they depend on each other.

A rule that depends on no other, and on which none depends, needs no place here: `FURTHER` finds it.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.results import Finding
from crosstrain_migrate.rules.distribution import placeholders, same_branch
from crosstrain_migrate.rules.distribution.launcher_settings import asks_launcher
from crosstrain_migrate.rules.distribution.requested_options import Requested
from crosstrain_migrate.rules.numbers import (
    collective_safety,
    evaluation,
    metrics,
    replayed_batches,
    shapes,
    training,
    unseen_loops,
    unseen_losses,
)
from crosstrain_migrate.rules.output import checkpoints, downloads, files, printing
from crosstrain_migrate.rules.placement import (
    construction,
    device,
    host_arrays,
    moves,
    packed_lengths,
    plumbing,
    portable,
    unplaced,
)
from crosstrain_migrate.rules.placement.devices import Devices
from crosstrain_migrate.rules.placement.on_the_cpu import worked_on
from crosstrain_migrate.rules.preparing import (
    backward,
    clipping,
    line_search,
    micro_batches,
    own_schedules,
    prepare,
    prepared_objects,
    schedulers,
)
from crosstrain_migrate.syntax import edits as e

from . import catalogue, gate
from .access import STATE
from .base import Allows, Context, Reasons, Refusal, WithoutAccelerator, everywhere
from .unreached_training import unseen_training, written_for_accelerate

if TYPE_CHECKING:
    from crosstrain_migrate.rules.distribution.plain import Plain, Planner


def _further() -> tuple[ModuleType, ...]:
    """The rules of a plain script that this module does not name."""
    named = {one.__name__ for one in globals().values() if isinstance(one, ModuleType)}
    files = catalogue.rule_files(("placement", "preparing", "numbers", "output"))
    others = map(importlib.import_module, sorted(files.keys() - named))
    return tuple(rule for rule in others if hasattr(rule, "plan"))


FURTHER = _further()


@dataclass(frozen=True)
class Plan:
    edits: tuple[e.Edit, ...] = ()
    findings: tuple[Finding, ...] = ()


def unwind(facts: Facts, text: str, runtime: str) -> Plain | None:
    """Takes out of a script what distributes it by hand: the plain script is left. None when there is nothing to take out.

    Raises Refusal."""
    if (
        not facts.trains
        or not (gate.distributes_by_hand(facts) or asks_launcher(facts))
        or gate.already_migrated(facts.tree)
        or gate.is_foreign(facts)
    ):
        return None
    # A quarter of the rules, imported for these scripts alone.
    from crosstrain_migrate.rules.distribution import apex, plain, precision, processes

    planners = (processes.started, processes.plan, processes.devices, apex.plan, precision.plan)
    return plain.unwind(facts, text, runtime, planners)


def map_out(facts: Facts, text: str, runtime: str) -> Plain | None:
    """A script that goes on to distribute itself, in the group of the launcher's processes, and otherwise stays as it is.

    None where that does not work: another library's wrapper, gradients averaged by hand. Raises Refusal.
    """
    if runtime != "crosstrain" or gate.already_migrated(facts.tree) or gate.is_foreign(facts):
        return None
    from crosstrain_migrate.rules.distribution import apex, plain, precision
    from crosstrain_migrate.rules.mapping import script

    if not script.has_wrapper(facts) or script.averages_by_hand(facts):
        return None
    known = facts.trains and bool(facts.optimizers and facts.models)
    if not known and not script.starts(facts):
        return None  # a module that others import

    def mapped(*others: Planner) -> Plain:
        requested = Requested(mapped=True, in_place=not known)
        return plain.unwind(facts, text, runtime, (script.plan, *others), requested)

    if not known:
        return mapped()
    try:
        return mapped(apex.plan, precision.plan)
    except Refusal:
        return mapped()  # the author's scaler stays in use


def plan(
    facts: Facts, text: str, runtime: str, allows: Allows = everywhere, requested: Requested | None = None
) -> Plan:
    """All edits and findings of one script. The core conversion is made whole, or not at all with every reason why not.

    `allows` says where rules may act whose edits nothing else relies on.
    """
    if gate.already_migrated(facts.tree):
        return Plan(findings=tuple(written_for_accelerate(facts)))
    if requested is not None and requested.in_place:
        return Plan()  # all of it is done
    if not facts.trains:
        return Plan(findings=tuple(unseen_training(facts)))
    requested = requested or Requested()
    reasons = Reasons()
    findings: list[Finding] = []
    if not requested.mapped:
        if obstacles := gate.obstacles(facts, requested.settled, _kept(facts, requested)):
            return Plan(findings=tuple(obstacles))
        reasons.agrees(_loader, facts, requested, findings)
    try:
        context = _context(facts, text, runtime, allows, requested)
    except Refusal as refusal:
        return Plan(findings=_in_order({*reasons.found, refusal.finding}))
    (_core_of_mapped if requested.mapped else _core)(context, reasons)
    if reasons.found:
        return Plan(findings=_in_order(reasons.found))
    return Plan(tuple(context.edits), _in_order([*findings, *context.findings]))


def independent(facts: Facts, text: str, runtime: str, allows: Allows) -> tuple[e.Edit, ...]:
    """The edits that are worth making without the core conversion: they ask the state of the processes, not an accelerator."""
    if not facts.trains:
        return ()
    try:
        context = WithoutAccelerator(**vars(_context(facts, text, runtime, allows, Requested())))
    except Refusal:
        return ()
    agreed = Reasons().all_agree(context, downloads.plan, files.plan, printing.plan)
    edits = context.edits if agreed else []
    own = {facts.table.of_node[one.node].file for one in edits if not isinstance(one, e.AddImport)}
    imported = f"from {runtime} import {STATE}"
    return (*edits, *(e.AddImport(file, "CT101", imported, code=imported) for file in own))


def _in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda f: (f.line, f.column, f.rule)))


def _kept(facts: Facts, requested: Requested) -> Collection[ast.AST]:
    """Code with collectives of the author's own that stays as it is."""
    if not requested.keeps_collectives:
        return ()
    from crosstrain_migrate.rules.distribution.own_collectives import left_alone

    return left_alone(facts)


def _loader(facts: Facts, requested: Requested, findings: list[Finding]) -> None:
    """Reports training without a DataLoader."""
    if not facts.train_loaders:
        said = prepared_objects.without_loader(facts, requested.draws_apart)
        findings += [said] if said is not None else []


def _context(facts: Facts, text: str, runtime: str, allows: Allows, requested: Requested) -> Context:
    found = prepared_objects.find_subject(facts, loaders=not requested.mapped)
    found.on_the_cpu = worked_on(facts)
    home = construction.find_home(facts, found, Devices(facts).definitions())
    return Context(facts, runtime, home, requested, text=text, subject=found, allows=allows)


def _core(context: Context, reasons: Reasons) -> None:
    """Asks every rule. One that reads what another has worked out is not asked where that one refuses."""
    reasons.all_agree(context, placeholders.plan, schedulers.plan, own_schedules.plan)
    counted = reasons.all_agree(
        context, evaluation.plan, training.plan, metrics.plan, shapes.plan, line_search.plan
    )
    further = [rule.plan for rule in FURTHER]
    reasons.all_agree(context, unseen_losses.plan, backward.plan, micro_batches.plan, clipping.plan)
    reasons.all_agree(context, replayed_batches.check, *further, checkpoints.plan)
    if counted:
        reasons.agrees(collective_safety.check, context)
    placement = _placement(context, reasons)
    reasons.agrees(packed_lengths.plan, context)
    if placement is not None:
        reasons.agrees(unplaced.plan, context, placement)
    reasons.agrees(prepare.plan, context)
    # Last, when it is known what functions of other files need.
    reasons.all_agree(context, downloads.plan, files.plan, printing.plan)
    reasons.all_agree(context, host_arrays.plan, unseen_loops.plan)
    if placement is not None:
        reasons.agrees(plumbing.Plumbing(context, placement).plan)
    if not reasons.found:
        reasons.agrees(same_branch.plan, context)


def _core_of_mapped(context: Context, reasons: Reasons) -> None:
    """What a script that goes on to distribute itself needs: its numbers, files and loaders are the author's."""
    reasons.agrees(placeholders.plan, context)
    placement = _placement(context, reasons)
    if placement is not None:
        reasons.agrees(unplaced.plan, context, placement)
    # Backward and clipping come after `prepare`: where it brings the accelerator, they use it.
    reasons.all_agree(context, prepare.plan, backward.plan, clipping.plan)
    if placement is not None:
        reasons.agrees(plumbing.Plumbing(context, placement).plan)


def _placement(context: Context, reasons: Reasons) -> device.Placement | None:
    """What becomes of the script's devices and moves; None where that is refused."""
    reasons.agrees(portable.plan, context)
    placement = device.Placement(context)
    placed = reasons.agrees(placement.plan) and reasons.agrees(moves.plan, context, placement)
    return placement if placed else None
