"""Planning: one package per family of rules, one small module per concern. `plan` runs the rules in the order in which
they depend on each other.

A rule's module docstring is its page (`migrate --explain CODE`): its first line names its codes. What scripts that are
not ours look like (CT9) is in `gate`, what XLA does slowly (CT7) in `xla`; what all families share stands beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from crosstrain_migrate import edits as e
from crosstrain_migrate.results import Finding
from crosstrain_migrate.roles.facts import Facts

from . import gate
from .base import Allows, Context, Refusal, everywhere
from .distribution import marks
from .distribution.wish import Wish
from .numbers import alike, batches, evaluation, meeting, metrics, replays, shapes, training
from .output import checkpoints, downloads, files, speak
from .placement import device, home, lengths, moves, plumbing, portable, unplaced
from .placement.devices import Devices
from .preparing import backward, clipping, line_search, prepare, schedulers, subject

if TYPE_CHECKING:
    from .distribution.plain import Plain


@dataclass(frozen=True)
class Plan:
    edits: tuple[e.Edit, ...] = ()
    findings: tuple[Finding, ...] = ()


def unwind(facts: Facts, text: str, runtime: str) -> Plain | None:
    """The plain script inside one that distributes itself; None when there is nothing to take out. Raises Refusal."""
    if (
        not facts.trains
        or not gate.hand_made(facts)
        or gate.already_migrated(facts.tree)
        or gate.foreign(facts)
    ):
        return None
    # Loaded for those scripts alone: a quarter of the rules.
    from .distribution import apex, plain, precision, processes

    planners = (processes.started, processes.plan, processes.devices, apex.plan, precision.plan)
    return plain.unwind(facts, text, runtime, planners)


def plan(
    facts: Facts, text: str, runtime: str, allows: Allows = everywhere, wish: Wish | None = None
) -> Plan:
    """All edits and findings of one script. The core conversion is made whole or not at all.

    `allows` says where rules whose edits nothing relies on may act.
    """
    if gate.already_migrated(facts.tree):
        return Plan()
    if not facts.trains:
        return Plan(findings=tuple(gate.unseen_training(facts)))
    wish = wish or Wish()
    obstacles = gate.obstacles(facts, wish.settled)
    if obstacles:
        return Plan(findings=tuple(obstacles))
    try:
        alone = None if facts.train_loaders else subject.without_loader(facts, wish.draws_apart)
        context = _context(facts, text, runtime, allows)
        context.wish = wish
        context.findings += [alone] if alone is not None else []
        _core(context)
    except Refusal as refusal:
        return Plan(findings=(refusal.finding,))
    return Plan(
        tuple(context.edits), tuple(sorted(context.findings, key=lambda f: (f.line, f.column, f.rule)))
    )


def _context(facts: Facts, text: str, runtime: str, allows: Allows) -> Context:
    found = subject.find_subject(facts)
    place = home.find_home(facts, found, Devices(facts).definitions())
    return Context(facts, runtime, text, place, found, allows=allows)


def _core(context: Context) -> None:
    marks.plan(context)
    schedulers.plan(context)
    evaluation.plan(context)
    training.plan(context)
    metrics.plan(context)
    shapes.plan(context)
    line_search.plan(context)
    backward.plan(context)
    clipping.plan(context)
    batches.plan(context)
    replays.check(context)
    alike.plan(context)
    checkpoints.plan(context)
    downloads.plan(context)
    files.plan(context)
    speak.plan(context)
    meeting.check(context)
    portable.plan(context)
    placement = device.Placement(context)
    placement.plan()
    moves.plan(context, placement)
    lengths.plan(context)
    unplaced.plan(context, placement)
    prepare.plan(context)
    plumbing.Plumbing(context, placement).plan()
