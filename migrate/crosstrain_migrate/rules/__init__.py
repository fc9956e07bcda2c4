"""Planning: one small module per concern. `plan` runs them in the order in which they depend on each other.

A rule's module docstring is its page (`migrate --explain CODE`): its first line names its codes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from crosstrain_migrate import edits as e
from crosstrain_migrate.results import Finding
from crosstrain_migrate.roles.facts import Facts

from . import (
    alike,
    apex,
    backward,
    batches,
    checkpoints,
    clipping,
    device,
    distribution,
    evaluation,
    files,
    gate,
    home,
    lengths,
    line_search,
    marks,
    meeting,
    metrics,
    moves,
    numbers,
    plain,
    plumbing,
    portable,
    precision,
    prepare,
    replicas,
    schedulers,
    shapes,
    speak,
    subject,
    unplaced,
    xla,
)
from .base import Allows, Context, Refusal, everywhere
from .devices import Devices
from .wish import Wish

PAGES = (
    gate,
    home,
    device,
    plumbing,
    prepare,
    backward,
    line_search,
    clipping,
    schedulers,
    speak,
    files,
    checkpoints,
    evaluation,
    numbers,
    batches,
    metrics,
    alike,
    replicas,
    distribution,
    precision,
    apex,
    marks,
    xla,
)


@dataclass(frozen=True)
class Plan:
    edits: tuple[e.Edit, ...] = ()
    findings: tuple[Finding, ...] = ()


def unwind(facts: Facts, text: str, runtime: str) -> plain.Plain | None:
    """The plain script inside one that distributes itself; None when there is nothing to take out. Raises Refusal."""
    if (
        not facts.trains
        or not gate.hand_made(facts)
        or gate.already_migrated(facts.tree)
        or gate.foreign(facts)
    ):
        return None
    planners = (distribution.started, distribution.plan, distribution.devices, apex.plan, precision.plan)
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
        alone = [] if facts.train_loaders else [subject.without_loader(facts)]
        context = _context(facts, text, runtime, allows)
        context.wish = wish
        context.findings.extend(alone)
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
    numbers.plan(context)
    metrics.plan(context)
    shapes.plan(context)
    line_search.plan(context)
    backward.plan(context)
    clipping.plan(context)
    batches.plan(context)
    alike.plan(context)
    checkpoints.plan(context)
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


@dataclass(frozen=True)
class Page:
    """One rule's documentation."""

    code: str
    name: str
    doc: str
    before: str
    after: str


def catalogue() -> list[Page]:
    """Every rule code with its page, in order."""
    from crosstrain_migrate.notebooks import launch

    found: list[Page] = []
    for module in (*PAGES, launch):
        doc = (module.__doc__ or "").strip()
        title = doc.split("\n", 1)[0]
        name = title.split(":", 1)[1].strip() if ":" in title else title
        before = re.search(r"^Before: (.+)$", doc, re.M)
        after = re.search(r"^After:  ?(.+)$", doc, re.M)
        examples = (before.group(1) if before else "", after.group(1) if after else "")
        found.extend(Page(code, name, doc, *examples) for code in _codes(module, title))
    return sorted(found, key=lambda page: page.code)


def _codes(module: object, title: str) -> list[str]:
    """The codes of a rule module: every `CT…` string among its constants."""
    constants = [
        v
        for k, v in vars(module).items()
        if k.isupper() and isinstance(v, str) and re.fullmatch(r"CT\d{3}", v)
    ]
    if module is gate:
        constants += [rule for rule, _ in gate.HAND_MADE.values()] + ["CT901", "CT902"]
    return sorted(set(constants + re.findall(r"CT\d{3}", title)))
