"""The measurement as text: a line for each script, and the summary."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Any

from .look import Look


def line(found: Look) -> str:
    """One script: what became of it and, of a conversion, what a reviewer looks at first."""
    name = f"{found.checkout}/{found.script}"
    head = f"{found.outcome:10} {found.seconds:6.1f} s  {name}"
    if found.outcome != "converted":
        whys = [f"{one.rule} {one.place}: {one.reason}" for one in found.refusals] or [found.reason]
        return "\n    ".join([head, *(why[:200] for why in whys if why)])
    about = [f"{len(found.files)} files, {found.changed_lines} lines, {_count(found.notes, 'note')}"]
    about += [f"{one.state}: {one.path}:{one.line} {one.text}".rstrip() for one in found.data]
    return "\n    ".join([head, *about])


def summary(looks: list[Look]) -> dict[str, Any]:
    """The totals, and for each refusing rule the number of scripts and the first place."""
    rules: dict[str, dict[str, Any]] = {}
    for found in looks:
        for rule in dict.fromkeys(one.rule for one in found.refusals):
            first = next(one for one in found.refusals if one.rule == rule)
            entry = rules.setdefault(rule, {"scripts": 0, "first": f"{found.checkout}/{first.place}"})
            entry["scripts"] += 1
    converted = [found for found in looks if found.outcome == "converted"]
    return {
        "scripts": len(looks),
        "checkouts": len({found.checkout for found in looks}),
        "outcomes": dict(Counter(found.outcome for found in looks).most_common()),
        "median notes": median([found.notes for found in converted]) if converted else 0,
        "median changed lines": median([found.changed_lines for found in converted]) if converted else 0,
        "unprepared": sum(found.unprepared for found in converted),
        "rules": dict(sorted(rules.items(), key=lambda item: (-item[1]["scripts"], item[0]))),
    }


def summary_text(looks: list[Look]) -> str:
    """The summary, to be read."""
    found = summary(looks)
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in found["outcomes"].items())
    lines = [f"{found['scripts']} scripts of {found['checkouts']} checkouts: {outcomes or 'none'}"]
    lines += [
        f"of the converted: {found['unprepared']} with a training loader that is not prepared, "
        f"median {found['median changed lines']:g} changed lines, {found['median notes']:g} notes"
    ]
    for rule, entry in found["rules"].items():
        lines.append(f"{rule:6} refuses {_count(entry['scripts'], 'script')}, first {entry['first']}")
    return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
