"""The pipeline for one file: read, convert by use, check. Pure: text in, result out."""

from __future__ import annotations

import ast
import posixpath
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from crosstrain_migrate.assumptions import refused_instead
from crosstrain_migrate.files.may_train import may_train
from crosstrain_migrate.files.notebooks import MARK, is_linked
from crosstrain_migrate.files.notebooks.linked import Cells
from crosstrain_migrate.results import FileResult, Finding, Options, Severity
from crosstrain_migrate.rules.policy import ALWAYS, Policy
from crosstrain_migrate.syntax.problems import UNPARSABLE, syntax_problem
from crosstrain_migrate.syntax.program import parts
from crosstrain_migrate.syntax.suppress import TODO, remaining_todo, skips_file, suppressions

if TYPE_CHECKING:
    from crosstrain_migrate.core.conversion import Conversion
    from crosstrain_migrate.core.training.observed import Seen

XLA_ADVICE = "CT7"
# What a conversion leaves local, whole, or the same on every process.
UNSURE = ("CT602", "CT603", "CT902")


def migrate_text(path: Path, text: str, options: Options) -> FileResult:
    """Migrates one script. Never raises for what the text holds: errors and refusals are part of the result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes and the like are the author's
        if is_linked(text):
            from crosstrain_migrate.rules.notebooks.convert import migrate_cells

            return _sure(migrate_cells(path, text, options, _migrate_text), options)
        result = _sure(_migrate_text(path, text, options), options)
        return _with_todo(result, options) if options.todo and result.refused else result


def _with_todo(result: FileResult, options: Options) -> FileResult:
    from crosstrain_migrate.core.conversion import Conversion, convert
    from crosstrain_migrate.rules.todo import left_to_you

    if any(one.rule == TODO for one in result.findings):
        return result  # those of an earlier run come first
    policy = Policy(suppressions(result.before), options.select, options.ignore)
    # What a person has kept away stays away: the comments' lines are those of the text before.
    everything = policy.is_everything and not policy.comments.regions

    def in_spite(text: str) -> Conversion:
        if not everything:
            return Conversion(text)
        return convert(text, options.runtime, policy.allows_at, policy.refusals, in_spite=True)

    return left_to_you(result, in_spite)


def _sure(result: FileResult, options: Options) -> FileResult:
    """A result that assumes nothing where nothing is converted, and converts nothing on an assumption with `strict`."""
    taken = (Severity.ASSUMED, Severity.OBSERVED)
    if options.strict and result.changed and not result.refused:
        findings = tuple(_must_be_sure(one) for one in refused_instead(result.findings))
        result = replace(result, findings=findings)
    if not result.refused and result.changed:
        return result
    known = tuple(one for one in result.findings if one.severity not in taken)
    return replace(result, after=result.before, changes=(), findings=known, extras={})


def _must_be_sure(found: Finding) -> Finding:
    """`--strict`: what is left whole, or left to each process, is refused."""
    if found.rule not in UNSURE or found.severity is not Severity.NOTE:
        return found
    reason = f"{found.reason}: --strict refuses what is not sure"
    return replace(found, reason=reason, severity=Severity.REFUSED)


def _migrate_text(path: Path, text: str, options: Options) -> FileResult:
    script = parts(text)[-1].text  # what it imports was parsed when it was found
    try:
        ast.parse(script)
    except UNPARSABLE as error:
        if skips_file(text):
            return FileResult(path, text, text)
        return FileResult(path, text, text, error=syntax_problem(path, script, error))
    if not may_train(text.encode(errors="surrogatepass")):
        return FileResult(path, text, text)
    comments = suppressions(text)
    if comments.whole_file:
        return FileResult(path, text, text)
    if remaining := remaining_todo(text):
        return FileResult(path, text, text, findings=remaining, trains=True)
    policy = Policy(comments, options.select, options.ignore)
    # Before the conversion, which reports the comments that kept nothing away.
    advice = _advice(text, options, policy)
    result = _converted(path, text, options, policy)
    if not _selected(options) and not result.changed:
        advice = []  # it comes with a conversion: its author may be on the way to a TPU
    findings = sorted({*result.findings, *advice}, key=lambda one: (one.line, one.column, one.rule))
    return replace(result, findings=tuple(findings)) if advice else result


def _converted(path: Path, text: str, options: Options, policy: Policy) -> FileResult:
    from crosstrain_migrate.core.conversion import convert

    seen = _seen(path, text, options)
    done = convert(text, options.runtime, policy.allows_at, policy.refusals, seen)
    if not policy.converts:  # a selection of findings alone
        done = replace(done, text=text, changes=())
    complete = policy.is_everything and bool(done.changes)
    refused = tuple(
        one for one in done.findings if one.severity is Severity.REFUSED and one.rule.startswith(ALWAYS)
    )
    others = policy.allowed(one for one in done.findings if one not in refused)
    findings = refused + others + policy.comments.reports(unused=complete)
    ordered = tuple(sorted(findings, key=lambda one: (one.line, one.column, one.rule)))
    extras = _batch_size(done, options.runtime) if done.text != text else {}
    return FileResult(path, text, done.text, done.changes, ordered, done.roles, done.trains, extras=extras)


def _batch_size(done: Conversion, runtime: str) -> dict[str, str]:
    """What a launch on several processes changes."""
    names = list(dict.fromkeys(f"`{one.name}`" for one in done.roles if one.role == "training loader"))
    if not names:
        return {}
    own = runtime == "crosstrain"
    switch = "`crosstrain launch --split-batches`" if own else "`Accelerator(split_batches=True)`"
    sentence = (
        f"{', '.join(names)}: each of N processes takes a batch of its own, so one step sees N times as many rows and an "
        f"epoch has 1/N as many steps; the learning rate stays. {switch} shares one batch instead."
    )
    return {"Batch size": sentence}


def _selected(options: Options) -> bool:
    return any(code.startswith(XLA_ADVICE) for code in options.select)


def _advice(text: str, options: Options, policy: Policy) -> list[Finding]:
    """Advice for XLA, where it is selected, asked for, or kept away by a comment."""
    if not (_selected(options) or options.advice or policy.comments.regions):
        return []
    from crosstrain_migrate.rules.xla import advise, one_of_each

    found = [one for one in advise(text) if policy.allows(one.rule, one.line)]
    if _selected(options):
        return found
    return one_of_each(found) if options.advice else []


def _seen(path: Path, text: str, options: Options) -> Seen | None:
    """What an observed run has shown about this text."""
    if options.observed is None or path.resolve() != options.observed.script:
        return None
    from crosstrain_migrate.core.training.observed import seen_in

    return seen_in(options.observed.document, _first_lines(text, path.name))


def _first_lines(text: str, name: str) -> dict[str, int]:
    """The first line of each file, by its path from the script's folder; of a notebook, of each cell."""
    own = parts(text)
    folder = posixpath.dirname(own[-1].path)
    found: dict[str, int] = {}
    for part in own:
        file = posixpath.relpath(part.path, folder or ".") if part.path else name
        if part.text.startswith(MARK):
            cells = Cells(part.text)
            found |= {f"{file}:cell {cell}": cells.first(cell) + part.first - 1 for cell in cells.numbers}
        else:
            found[file] = part.first
    return found
