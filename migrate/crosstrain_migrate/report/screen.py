"""What a run prints on the terminal besides the diff: each file's findings, most urgent first, and what to do next.

Lines are wrapped and coloured on a terminal; elsewhere a reason is one line, so that it can be searched for.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

import typer

from crosstrain_migrate.choices import Mode
from crosstrain_migrate.outcome import Migrated, Outcome
from crosstrain_migrate.results import Finding, Severity
from crosstrain_migrate.syntax.suppress import skips_file

_STYLES: dict[str, dict[str, object]] = {
    Severity.REFUSED.value: {"fg": "red", "bold": True},
    Severity.ASSUMED.value: {"fg": "yellow", "bold": True},
    Severity.OBSERVED.value: {"fg": "green", "bold": True},
    Severity.NOTE.value: {"fg": "cyan"},
    "proven": {"fg": "green", "bold": True},
    "not reached": {"fg": "yellow", "bold": True},
    "failed": {"fg": "red", "bold": True},
    "error:": {"fg": "red", "bold": True},
    "warning:": {"fg": "yellow", "bold": True},
    "next:": {"fg": "green", "bold": True},
}
_UNWRAPPED = 1_000_000
_BESIDE = 6  # columns before the second line of a finding
_FOR_TPU = "CT7"
_OWN_SHARES = "CT3"  # scripts that distribute themselves say what each process reads
_CONVERTED = re.compile(r"^[ \t]*(?:from|import)[ \t]+(?:crosstrain|accelerate)\b", re.M)


@dataclass(frozen=True, slots=True)
class Screen:
    """How wide the lines may be, and whether they are coloured."""

    width: int = _UNWRAPPED
    colours: bool = False

    def styled(self, text: str, *words: str) -> str:
        """`text` with these words, each at its first place, in their colours."""
        if not self.colours:
            return text
        for word in words:
            text = text.replace(word, typer.style(word, **_STYLES.get(word, {"bold": True})), 1)  # type: ignore[arg-type]
        return text

    def wrapped(self, head: str, text: str, indent: int) -> list[str]:
        """`text` behind `head`, its further lines indented."""
        return textwrap.wrap(
            " ".join(text.split()),
            self.width,
            initial_indent=head,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )


def of_stderr() -> Screen:
    """The terminal behind standard error. COLUMNS, NO_COLOR and FORCE_COLOR are obeyed."""
    terminal = sys.stderr.isatty()
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    colours = not plain and (terminal or bool(os.environ.get("FORCE_COLOR")))
    wraps = terminal or "COLUMNS" in os.environ
    return Screen(shutil.get_terminal_size().columns if wraps else _UNWRAPPED, colours)


def messages(outcome: Outcome, screen: Screen, *, hints: bool = True) -> Iterator[str]:
    """Everything but the diff: what could not be used, each file's findings, the summary, with `hints` the next command."""
    yield from problems(outcome, screen)
    for file in outcome.by_urgency:
        yield from _file(file, outcome.mode, screen)
    for file in outcome.idle:
        yield f"{file.name}: {_why_idle(file)}"
    yield outcome.summary()
    if hints:
        yield from _next(outcome, screen)


def problems(outcome: Outcome, screen: Screen) -> Iterator[str]:
    """What could not be used, and what was left out."""
    for left_out in outcome.broken:
        yield screen.styled(f"warning: {left_out}", "warning:")
    for error in outcome.errors:
        yield screen.styled(f"error: {error}", "error:")


def statuses(outcome: Outcome, screen: Screen, hint: str = "") -> Iterator[str]:
    """After --verify, which assumptions it proved, the summary, and the options that write what was compared."""
    for file in outcome.files:
        if file.result.assumptions:
            yield screen.styled(file.name, file.name)
        for finding in file.result.assumptions:
            yield from _finding(file, finding, finding.status or finding.severity.value, screen)[:1]
    yield outcome.summary()
    if hint:
        yield screen.styled(f"next: {hint} changes the files", "next:", hint)


def _file(file: Migrated, mode: Mode, screen: Screen) -> Iterator[str]:
    if file.result.changed and mode is not Mode.PREVIEW:
        verb = "changed" if mode is Mode.WRITE else "would change"
        yield screen.styled(f"{verb} {file.name}" + (f" ({file.rules})" if file.rules else ""), file.name)
    elif file.result.findings:
        yield screen.styled(file.name, file.name)
    for finding in sorted(file.result.by_urgency, key=lambda one: one.rule.startswith(_FOR_TPU)):
        yield from _finding(file, finding, finding.severity.value, screen)


def _finding(file: Migrated, finding: Finding, word: str, screen: Screen) -> list[str]:
    """Two texts: what is the matter, and what to do about it or how it is checked."""
    place = file.source.place(finding.line, finding.column)
    reason = screen.wrapped(f"  {place}  {word}  {finding.rule}  ", finding.reason, _BESIDE)
    remedy = screen.wrapped(" " * _BESIDE + "-> ", finding.remedy, _BESIDE + 3)
    return [screen.styled("\n".join(reason), word, finding.rule), "\n".join(remedy)]


def _why_idle(file: Migrated) -> str:
    if skips_file(file.source.text):
        return "left alone: it says `# migrate: skip-file`"
    if _CONVERTED.search(file.source.text):
        return "nothing to do: it uses an Accelerator already"
    return "does not train: nothing that it runs calls backward(); nothing to do"


def _next(outcome: Outcome, screen: Screen) -> Iterator[str]:
    """The command that a person needs now, and what several processes change about the batch size."""
    scripts = [file for file in outcome.changed if file.result.trains and not file.source.is_cells]
    if not outcome.changed or outcome.mode is Mode.CHECK:
        return
    if outcome.mode is Mode.PREVIEW:
        told = "next: --verify trains it before and after and compares; --write changes the files"
        yield screen.styled(told, "next:", "--verify", "--write")
    elif scripts:
        command = f"{outcome.runtime} launch {scripts[0].launched}"
        yield screen.styled(f"next: {command}", "next:", command)
        if not any(change.rule.startswith(_OWN_SHARES) for change in scripts[0].result.changes):
            yield from screen.wrapped("", _batches(outcome.runtime), 0)


def _batches(runtime: str) -> str:
    own = runtime == "crosstrain"
    option = "--split-batches" if own else "DataLoaderConfiguration(split_batches=True)"
    draws = "; add --common-draws where steps draw random numbers" if own else ""
    return (
        "Each process takes batches of the script's size: N processes, N times the rows a step. "
        f"{option} shares each batch instead, which is the same training{draws}."
    )
