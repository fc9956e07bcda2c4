"""The figures of many cases: what was converted, by transformation, and what the runs came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.corpora.variations.registry import VARIATIONS


@dataclass(frozen=True)
class Row:
    """One case: its script, what was applied, how planning ended, and the smallest set that still ends so.

    ran: "", or the verdicts of the original, of one process and of two. said: the first reason or difference. rules: what
    refused, or made a note.
    """

    seed: int
    number: int
    base: str
    applied: tuple[str, ...]
    outcome: str
    said: str = ""
    smallest: tuple[str, ...] = ()
    ran: str = ""
    right: bool = True
    rules: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        applied = ", ".join(self.applied)
        smallest = f" [smallest: {', '.join(self.smallest)}]" if self.smallest else ""
        return f"{self.seed}/{self.number} {self.base}: {applied}: {self.ran or self.outcome}{smallest} {self.said}"


def by_transformation(rows: Iterable[Row]) -> str:
    """A table in Markdown: for each transformation, the cases that have it alone or among others."""
    alone, among = Counter[str](), Counter[str]()
    alone_converted, among_converted = Counter[str](), Counter[str]()
    blamed = Counter[str]()
    for row in rows:
        done = row.outcome == "converted"
        total, good = (alone, alone_converted) if len(row.applied) == 1 else (among, among_converted)
        total.update(row.applied)
        good.update(row.applied if done else ())
        blamed.update(row.smallest if not done and len(row.smallest) == 1 else ())
    lines = [
        "| transformation | what it does | alone | in combinations | failures by it alone |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, one in VARIATIONS.items():
        if alone[name] + among[name] == 0:
            continue
        about = one.about.replace("|", "\\|")
        lines.append(
            f"| `{name}` | {about} | {_share(alone_converted[name], alone[name])} | "
            f"{_share(among_converted[name], among[name])} | {blamed[name] or ''} |"
        )
    return "\n".join(lines) + "\n"


def _share(good: int, total: int) -> str:
    return f"{good} of {total}" if total else ""


def summary(rows: Sequence[Row]) -> str:
    """The totals, in one line for each kind."""
    outcomes = Counter(row.outcome for row in rows)
    converted = outcomes["converted"]
    share = 100 * converted / max(len(rows), 1)
    lines = [f"{converted} of {len(rows)} converted ({share:.1f} %)"]
    lines += [f"  {outcome}: {count}" for outcome, count in outcomes.most_common() if outcome != "converted"]
    notes = Counter(rule for row in rows if row.outcome == "converted" for rule in row.rules)
    lines.append("converted with findings of: " + ", ".join(f"{r} {n}" for r, n in notes.most_common()))
    ran = [row for row in rows if row.ran]
    if ran:
        lines.append(f"{sum(row.right for row in ran)} of {len(ran)} runs right")
        lines += [f"  {word}: {count}" for word, count in Counter(row.ran for row in ran).most_common()]
    return "\n".join(lines)


def causes(rows: Sequence[Row]) -> str:
    """Smallest sets and their first reasons, the most frequent first."""
    failed = [row for row in rows if row.outcome != "converted" or not row.right]
    found = Counter(" + ".join(row.smallest) or "?" for row in failed)
    first = {" + ".join(row.smallest) or "?": row for row in reversed(failed)}
    return "\n".join(
        f"{count:4} {name} (as in {first[name].seed}/{first[name].number} {first[name].base}): {first[name].said[:200]}"
        for name, count in found.most_common()
    )
