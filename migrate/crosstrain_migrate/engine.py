"""The pipeline for one file: understand, plan, rewrite, check. Pure: text in, result out."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from .results import Change, FileResult, Finding, InputError, Severity
from .roles.facts import Facts, understand
from .rules import Plan, plan


@dataclass(frozen=True)
class Options:
    """What the command line or the configuration asks for."""

    runtime: str = "crosstrain"
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    follow: bool = True


def migrate_text(path: Path, text: str, options: Options) -> FileResult:
    """Migrates one script. Never raises for what the text holds: errors and refusals are part of the result."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return FileResult(path, text, text, error=_unparsable(path, error))
    except (ValueError, RecursionError, MemoryError) as error:
        reason = f"it cannot be parsed ({error})"
        return FileResult(path, text, text, error=InputError(path, reason, "Leave it out of the run"))
    if not may_train(text):
        return FileResult(path, text, text)
    facts = understand(tree)
    planned = plan(facts, text, options.runtime)
    after, planned = _rewritten(text, planned)
    return FileResult(
        path,
        text,
        after,
        changes=_changes(planned) if after != text else (),
        findings=planned.findings,
        roles=facts.roles,
        trains=_trains(facts),
    )


def may_train(text: str) -> bool:
    """A cheap test: a script without a backward pass is none of our business."""
    return "torch" in text and "backward" in text


def _trains(facts: Facts) -> bool:
    return bool(facts.backward_calls and facts.optimizers)


def _rewritten(text: str, planned: Plan) -> tuple[str, Plan]:
    """The new text, or the old one with the finding that says why: an edit that cannot be checked is not made."""
    if not planned.edits:
        return text, planned
    from .checks import check_result
    from .rewrite import EditNotApplied, rewrite

    try:
        after = rewrite(text, planned.edits)
        problems = check_result(text, after)
    except EditNotApplied as error:
        after, problems = text, [str(error)]
    if not problems and plan(understand(ast.parse(after)), after, "crosstrain").edits:
        problems = ["a second migration of the result would change it again"]
    if problems:
        reason = f"the result did not pass the tool's own checks ({'; '.join(problems)})"
        remedy = "report this script to us; it was left as it was"
        return text, Plan(
            findings=(*planned.findings, Finding("CT001", 1, 1, reason, remedy, Severity.REFUSED))
        )
    return after, planned


def _changes(planned: Plan) -> tuple[Change, ...]:
    listed = [edit for edit in planned.edits if edit.reason]
    changes = [
        Change(edit.rule, getattr(edit.node, "lineno", 1), edit.reason, edit.confidence) for edit in listed
    ]
    return tuple(sorted(dict.fromkeys(changes), key=lambda c: (c.line, c.rule)))


def _unparsable(path: Path, error: SyntaxError) -> InputError:
    reason = f"invalid syntax: {error.msg}"
    return InputError(path, reason, "Fix the syntax, or leave the file out", error.lineno, error.offset)
