"""Makes scripts that share a file agree: the file changes in one way for all of them, or they are left unchanged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from crosstrain_migrate.outcome import Migrated
from crosstrain_migrate.results import Finding, Severity

RULE = "CT004"

Files = list[Migrated]  # one script's: what it imports, then itself


def agreed(programs: Iterable[Files], follow: bool) -> Files:
    """Every file once. A script that needs another change of a file than an earlier one has made is left unchanged, with
    a finding that says so; so is, without `follow`, one that needs a change of a file that it imports."""
    texts: dict[Path, Migrated] = {}  # by file, the script whose change of it is made
    kept: list[Files] = []
    for files in programs:
        changed = {file.source.target: file for file in files if file.result.changed}
        reason = None if follow else _changes_imports(files)
        for target, file in changed.items():
            other = texts.get(target)
            if other is not None and other.result.after != file.result.after:
                told = f"{file.name} would have to change differently for another script of this run"
                reason = reason or (told, "give each script its own copy of what differs")
        if reason is None:
            texts |= changed
        kept.append(files if reason is None else _withdrawn(files, *reason))
    return _merged(kept)


def _changes_imports(files: Files) -> tuple[str, str] | None:
    """With --no-follow: a conversion that changes an imported file is not made."""
    other = next((file for file in files[:-1] if file.result.changed), None)
    if other is None:
        return None
    reason = f"the conversion also changes {other.name}, which --no-follow forbids"
    return reason, "leave --no-follow out, or bring the training into one file"


def _withdrawn(files: Files, reason: str, remedy: str) -> Files:
    """The same files, unchanged, with the reason at the script."""
    back = []
    for file in files:
        found = tuple(one for one in file.result.findings if one.severity is not Severity.ASSUMED)
        result = replace(file.result, after=file.result.before, changes=(), findings=found, extras={})
        back.append(replace(file, result=result))
    script = back[-1]
    said = Finding(RULE, 1, 1, reason, remedy, Severity.REFUSED)
    result = replace(script.result, findings=(said, *script.result.findings))
    return [*back[:-1], replace(script, result=result)]


def _merged(programs: list[Files]) -> Files:
    """Each file once: with its change where it has one, and everything that was found in it."""
    by_target: dict[Path, Files] = defaultdict(list)
    for files in programs:
        for file in files:
            by_target[file.source.target].append(file)
    found = []
    for versions in by_target.values():
        # Where a script changes a file, what was said of the file by itself is beside the point.
        changed = [file for file in versions if file.result.changed]
        best = (changed or versions)[-1]
        findings = dict.fromkeys(one for file in changed or versions for one in file.result.findings)
        trains = any(file.result.trains for file in versions)
        found.append(replace(best, result=replace(best.result, findings=tuple(findings), trains=trains)))
    return found
