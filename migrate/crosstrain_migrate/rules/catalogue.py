"""The rules' documentation: each rule module's docstring is its page."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crosstrain_migrate.rules.distribution import apart, apex, marks, precision, processes, replicas
from crosstrain_migrate.rules.notebooks import launch
from crosstrain_migrate.rules.numbers import alike, batches, evaluation, metrics, training
from crosstrain_migrate.rules.output import checkpoints, downloads, files, speak
from crosstrain_migrate.rules.placement import device, home, plumbing
from crosstrain_migrate.rules.preparing import (
    backward,
    clipping,
    line_search,
    micro_batches,
    prepare,
    schedulers,
)

from . import gate, unseen, xla

PAGES = (
    gate,
    unseen,
    home,
    device,
    plumbing,
    prepare,
    backward,
    line_search,
    clipping,
    schedulers,
    micro_batches,
    speak,
    downloads,
    files,
    checkpoints,
    evaluation,
    training,
    batches,
    metrics,
    alike,
    replicas,
    processes,
    precision,
    apex,
    marks,
    apart,
    xla,
    launch,
)


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
    found: list[Page] = []
    for module in PAGES:
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
