"""The pipeline for one file: understand, plan, rewrite, check. Pure: text in, result out."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from pathlib import Path

from .policy import Policy
from .results import Change, FileResult, Finding, Severity
from .roles.facts import Facts, understand
from .rules import Plan, plan
from .sources import may_train, syntax_problem
from .suppress import skips_file, suppressions


@dataclass(frozen=True)
class Options:
    """What the command line or the configuration asks for."""

    runtime: str = "crosstrain"
    select: tuple[str, ...] = ()  # codes or prefixes; none: every rule
    ignore: tuple[str, ...] = ()
    follow: bool = True


def migrate_text(path: Path, text: str, options: Options) -> FileResult:
    """Migrates one script. Never raises for what the text holds: errors and refusals are part of the result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes and the like are the author's
        return _migrate_text(path, text, options)


def _migrate_text(path: Path, text: str, options: Options) -> FileResult:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if skips_file(text):
            return FileResult(path, text, text)
        return FileResult(path, text, text, error=syntax_problem(path, text, error))
    if not may_train(text.encode(errors="surrogatepass")):
        return FileResult(path, text, text)
    comments = suppressions(text)
    if comments.whole_file:
        return FileResult(path, text, text)
    facts = understand(tree)
    after, planned = _planned(text, facts, options.runtime, Policy(comments, options.select, options.ignore))
    return FileResult(
        path,
        text,
        after,
        changes=_changes(planned) if after != text else (),
        findings=planned.findings,
        roles=facts.roles,
        trains=_trains(facts),
    )


def _trains(facts: Facts) -> bool:
    return bool(facts.backward_calls and facts.optimizers)


def _planned(text: str, facts: Facts, runtime: str, policy: Policy) -> tuple[str, Plan]:
    """The new text and what to say of it, as far as the selection and the file's comments allow."""
    planned = plan(facts, text, runtime, lambda rule, node: policy.allows(rule, getattr(node, "lineno", 1)))
    findings = tuple(one for one in planned.findings if policy.allows(one.rule, one.line))
    wanted = planned.edits if policy.converts else ()
    refusals = policy.refusals(wanted)
    after, planned = _rewritten(text, Plan(() if refusals else wanted, findings + refusals))
    # What was planned to the end has asked every rule; otherwise a comment may be needed by one that was not asked.
    complete = policy.is_everything and bool(planned.edits)
    return after, Plan(planned.edits, planned.findings + policy.comments.reports(unused=complete))


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
