"""The pipeline for one file: understand, plan, rewrite, check. Pure: text in, result out."""

from __future__ import annotations

import ast
import posixpath
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from crosstrain_migrate.assumptions import CONTRADICTED, contradicted, refused_instead
from crosstrain_migrate.facts.facts import Facts, understand
from crosstrain_migrate.facts.launching import launch_facts
from crosstrain_migrate.facts.may_train import may_train
from crosstrain_migrate.facts.observed import Sightings, sightings
from crosstrain_migrate.files.notebooks import MARK, is_linked
from crosstrain_migrate.files.notebooks.linked import Cells
from crosstrain_migrate.results import Change, FileResult, Finding, Options, RoleFact, Severity
from crosstrain_migrate.rules.as_plain import left_over
from crosstrain_migrate.rules.base import Refusal
from crosstrain_migrate.rules.distribution.requested_options import Requested
from crosstrain_migrate.rules.gate import already_migrated
from crosstrain_migrate.rules.planning import Plan, map_out, plan, unwind
from crosstrain_migrate.rules.policy import ALWAYS, Policy
from crosstrain_migrate.rules.xla import advise, one_of_each
from crosstrain_migrate.syntax.layout import wrapped
from crosstrain_migrate.syntax.problems import UNPARSABLE, syntax_problem
from crosstrain_migrate.syntax.program import parse, parts
from crosstrain_migrate.syntax.suppress import TODO, remaining_todo, skips_file, suppressions

if TYPE_CHECKING:
    from crosstrain_migrate.core.conversion import Conversion
    from crosstrain_migrate.rules.distribution.plain import Plain

XLA_ADVICE = "CT7"
# What the conversion by use leaves local, whole, or the same on every process.
UNSURE = ("CT602", "CT603", "CT902")


def migrate_text(path: Path, text: str, options: Options) -> FileResult:
    """Migrates one script. Never raises for what the text holds: errors and refusals are part of the result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes and the like are the author's
        if is_linked(text):
            from crosstrain_migrate.rules.notebooks.convert import migrate_cells

            return _settled(migrate_cells(path, text, options, _migrate_text), options)
        result = _settled(_migrate_text(path, text, options), options)
        return _with_todo(result, options) if options.todo and result.refused else result


def _with_todo(result: FileResult, options: Options) -> FileResult:
    from crosstrain_migrate.rules.todo import left_to_you

    if any(one.rule == TODO for one in result.findings):
        return result  # those of an earlier run come first
    policy = Policy(suppressions(result.before), options.select, options.ignore)
    return left_to_you(result, policy, options.runtime)


def _settled(result: FileResult, options: Options) -> FileResult:
    """A result that assumes nothing where nothing is converted, and converts nothing on an assumption with `strict`."""
    taken = (Severity.ASSUMED, Severity.OBSERVED)
    if not any(one.severity in taken for one in result.findings):
        return result
    if result.refused or not result.changed:
        known = tuple(one for one in result.findings if one.severity not in taken)
        return replace(result, findings=known)
    wrong = any(one.status == CONTRADICTED for one in result.findings)
    if not wrong and not (options.strict and result.assumptions):
        return result
    refused = contradicted(result.findings) if wrong else refused_instead(result.findings)
    findings = tuple(one for one in refused if one.severity not in taken)
    return replace(result, after=result.before, changes=(), findings=findings, extras={})


def _migrate_text(path: Path, text: str, options: Options) -> FileResult:
    try:
        tree = parse(text)
    except UNPARSABLE as error:
        if skips_file(text):
            return FileResult(path, text, text)
        return FileResult(path, text, text, error=syntax_problem(path, text, error))
    if not may_train(text.encode(errors="surrogatepass")):
        return FileResult(path, text, text)
    comments = suppressions(text)
    if comments.whole_file:
        return FileResult(path, text, text)
    if remaining := remaining_todo(text):
        return FileResult(path, text, text, findings=remaining, trains=True)
    policy = Policy(comments, options.select, options.ignore)
    selected = any(code.startswith(XLA_ADVICE) for code in options.select)
    # Before the conversion, which reports the comments that kept nothing away.
    wanted = selected or options.advice or comments.regions
    facts = understand(tree, _seen(path, text, options)) if wanted else None
    advice = _advice(facts, policy) if facts is not None else []
    result = _by_use(path, text, tree, options, policy)
    if result is None:
        facts = facts or understand(tree, _seen(path, text, options))
        result = _Script(path, text, facts, options, policy).converted()
    if not selected:
        # Advice comes with a conversion only: its author may be on the way to a TPU.
        advice = one_of_each(advice) if options.advice and result.changed else []
    findings = sorted({*result.findings, *advice}, key=lambda one: (one.line, one.column, one.rule))
    return replace(result, findings=tuple(findings)) if advice else result


def _by_use(path: Path, text: str, tree: ast.Module, options: Options, policy: Policy) -> FileResult | None:
    """The conversion by use; None where that is not asked for, or nothing trains that it can see."""
    if (
        options.centre != "use"
        or options.observed is not None
        or options.runtime != "crosstrain"
        or already_migrated(tree)
    ):
        return None
    from crosstrain_migrate.core.conversion import convert

    done = convert(text, options.runtime, policy.allows_at, policy.refusals)
    if not done.trains:
        return None
    if not policy.converts:  # a selection of findings alone
        done = replace(done, text=text, changes=())
    complete = policy.is_everything and bool(done.changes)
    refused = tuple(
        one for one in done.findings if one.severity is Severity.REFUSED and one.rule.startswith(ALWAYS)
    )
    others = policy.allowed(one for one in done.findings if one not in refused)
    findings = refused + others + policy.comments.reports(unused=complete)
    if options.strict and any(one.rule in UNSURE for one in findings):
        findings = tuple(_must_be_sure(one) for one in findings)
        done = replace(done, text=text, changes=())
    ordered = tuple(sorted(findings, key=lambda one: (one.line, one.column, one.rule)))
    extras = _batch_size(done) if done.text != text else {}
    return FileResult(path, text, done.text, done.changes, ordered, done.roles, trains=True, extras=extras)


def _batch_size(done: Conversion) -> dict[str, str]:
    """What a launch on several processes changes."""
    names = list(dict.fromkeys(f"`{one.name}`" for one in done.roles if one.role == "training loader"))
    if not names:
        return {}
    sentence = (
        f"{', '.join(names)}: each of N processes takes a batch of its own, so one step sees N times as many rows and an "
        "epoch has 1/N as many steps; the learning rate stays. `crosstrain launch --split-batches` shares one batch instead."
    )
    return {"Batch size": sentence}


def _must_be_sure(found: Finding) -> Finding:
    """`--strict`: what is left whole, or left to each process, is refused."""
    if found.rule not in UNSURE or found.severity is not Severity.NOTE:
        return found
    reason = f"{found.reason}: --strict refuses what is not sure"
    return replace(found, reason=reason, severity=Severity.REFUSED)


def _seen(path: Path, text: str, options: Options) -> Sightings | None:
    """What an observed run has shown about this text."""
    if options.observed is None or path.resolve() != options.observed.script:
        return None
    return sightings(options.observed.document, text, _first_lines(text, path.name))


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


def _trains(facts: Facts) -> bool:
    return bool(facts.backward_calls and facts.optimizers)


def _advice(facts: Facts, policy: Policy) -> list[Finding]:
    return [one for one in advise(facts) if policy.allows(one.rule, one.line)] if _trains(facts) else []


@dataclass(frozen=True)
class _Script:
    """A script that may train, on its way to a result."""

    path: Path
    text: str
    facts: Facts
    options: Options
    policy: Policy

    def converted(self) -> FileResult:
        """A script that distributes itself is mapped where it stands; any other, and one that cannot be mapped, is the
        plain script inside it, converted."""
        mapped = self._mapped()
        if mapped is not None and mapped.changed and not mapped.refused:
            return mapped
        result = self._unwound()
        return mapped if mapped is not None and mapped.refused and result.refused else result

    def _mapped(self) -> FileResult | None:
        try:
            plain = map_out(self.facts, self.text, self.options.runtime)
        except Refusal as refusal:
            return self._refused(refusal)
        return self._from_plain(plain) if plain is not None else None

    def _unwound(self) -> FileResult:
        try:
            unwound = unwind(self.facts, self.text, self.options.runtime)
        except Refusal as refusal:
            return self._refused(refusal)
        if unwound is not None and unwound.text != self.text:
            return self._from_plain(unwound)
        requested = unwound.requested if unwound is not None else None
        after, planned = _planned(self.text, self.facts, self.options.runtime, self.policy, requested)
        findings = planned.findings
        if unwound is not None:
            findings = (*self.policy.allowed(unwound.findings), *findings)
        return self._result(after, _changes(planned) if after != self.text else (), findings, self.facts)

    def _refused(self, refusal: Refusal) -> FileResult:
        findings = self.policy.allowed([refusal.finding]) + self.policy.comments.reports(unused=False)
        return self._result(self.text, (), findings, self.facts)

    def _result(
        self, after: str, changes: tuple[Change, ...], findings: tuple[Finding, ...], facts: Facts
    ) -> FileResult:
        return FileResult(
            self.path,
            self.text,
            after,
            changes=changes,
            findings=findings,
            roles=facts.roles,
            trains=_trains(facts),
            extras=launch_facts(facts, self.options.runtime) if after != self.text else {},
        )

    def _from_plain(self, plain: Plain) -> FileResult:
        """Converts the plain script found inside the text, and speaks of it in the lines of the text."""
        inner = Policy(suppressions(plain.text), self.options.select, self.options.ignore)
        if inner.comments.regions:
            _advice(plain.facts, inner)  # a comment that keeps some away is used
        after, planned = _planned(plain.text, plain.facts, self.options.runtime, inner, plain.requested)
        inner_findings = (replace(f, line=plain.lines(f.line)) for f in planned.findings)
        kept_away = self.policy.refusals(plain.edits, plain.changes)
        findings = (*self.policy.allowed(plain.findings), *inner_findings, *kept_away)
        changes: tuple[Change, ...] = ()
        if any(f.severity is Severity.REFUSED for f in findings):
            # The other findings are about a conversion that is not made.
            findings = tuple(
                f for f in findings if f.severity is Severity.REFUSED or f.rule.startswith(ALWAYS)
            )
            after = self.text
        elif after == plain.text and not plain.requested.in_place:
            after = self.text
        else:
            inner_changes = (replace(c, line=plain.lines(c.line)) for c in _changes(planned))
            changes = tuple(
                sorted({*plain.changes, *inner_changes}, key=lambda c: (c.line, c.rule, c.reason))
            )
            after, gone, problems = self._without_dead_code(plain, after)
            findings = (*findings, *gone)
            if problems:
                after, changes, findings = self.text, (), (*findings, _unchecked(problems))
        findings = tuple(sorted(dict.fromkeys(findings), key=lambda f: (f.line, f.column, f.rule)))
        result = self._result(after, changes, findings, plain.facts)
        return replace(result, roles=tuple(_role_at(role, plain) for role in plain.facts.roles))

    def _without_dead_code(self, plain: Plain, converted: str) -> tuple[str, list[Finding], list[str]]:
        """The text without what is left of the script's own distribution, what went with it, and what is wrong with it."""
        from crosstrain_migrate.rules.distribution.empty_code import comments, remove_dead_code
        from crosstrain_migrate.rules.distribution.plain import gone_with_code
        from crosstrain_migrate.rules.mapping.joined_group import joined_once
        from crosstrain_migrate.syntax.checks import check_result, keeps_comment_lines

        mapped = plain.requested.mapped
        after = remove_dead_code(plain.text, joined_once(converted) if mapped else converted, mapped=mapped)
        lost = [] if keeps_comment_lines(converted, after) else list(comments(converted) - comments(after))
        gone = [gone_with_code([comment], _line_of(comment, self.text)) for comment in lost]
        return after, gone, check_result(self.text, after, plain.lost | set(lost))


def _line_of(comment: str, text: str) -> int:
    return next((number for number, line in enumerate(text.split("\n"), 1) if comment in line), 1)


def _role_at(role: RoleFact, plain: Plain) -> RoleFact:
    """A role in the lines of the author's text, which its evidence names as well."""
    evidence = re.sub(r"\bline (\d+)", lambda m: f"line {plain.lines(int(m[1]))}", role.evidence)
    return replace(role, line=plain.lines(role.line), evidence=evidence)


def _planned(
    text: str, facts: Facts, runtime: str, policy: Policy, requested: Requested | None = None
) -> tuple[str, Plan]:
    """The new text and what to say of it, as far as the selection and the file's comments allow."""

    def left(after: str) -> list[str]:
        return left_over(after, runtime, replace(policy, comments=suppressions(after)).allows_at, requested)

    planned = plan(facts, text, runtime, policy.allows_at, requested)
    findings = policy.allowed(planned.findings)
    wanted = planned.edits if policy.converts else ()
    refusals = policy.refusals(wanted)
    after, planned = _rewritten(text, Plan(() if refusals else wanted, findings + refusals), left)
    # What was planned to the end has asked every rule; otherwise a comment may be needed by one that was not asked.
    complete = policy.is_everything and bool(planned.edits)
    return after, Plan(planned.edits, planned.findings + policy.comments.reports(unused=complete))


def _rewritten(text: str, planned: Plan, left: Callable[[str], list[str]]) -> tuple[str, Plan]:
    """The new text, or the old one with the finding that says why: an edit that cannot be checked is not made.

    left: what a second migration would find in the new text.
    """
    if not planned.edits:
        return text, planned
    from crosstrain_migrate.syntax.checks import check_result
    from crosstrain_migrate.syntax.edit_plan import EditNotApplied
    from crosstrain_migrate.syntax.rewrite import rewrite

    try:
        after = wrapped(text, rewrite(text, planned.edits))
        problems = check_result(text, after) or left(after)
    except EditNotApplied as error:
        after, problems = text, [str(error)]
    if problems:
        return text, Plan(findings=(*planned.findings, _unchecked(problems)))
    return after, planned


def _unchecked(problems: list[str]) -> Finding:
    reason = f"the result did not pass the tool's own checks ({'; '.join(problems)})"
    return Finding("CT001", 1, 1, reason, "report this script to us; it was left unchanged", Severity.REFUSED)


def _changes(planned: Plan) -> tuple[Change, ...]:
    listed = [edit for edit in planned.edits if edit.reason]
    changes = [Change(edit.rule, edit.line, edit.reason, edit.confidence) for edit in listed]
    return tuple(sorted(dict.fromkeys(changes), key=lambda c: (c.line, c.rule)))
