"""A notebook through the engine: its linked text as a script, then the training into a function, then the words."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from crosstrain_migrate.files.notebooks import MARK
from crosstrain_migrate.files.notebooks.linked import Cells, masked_sources, split, unmask
from crosstrain_migrate.results import Change, FileResult, Finding, InputError, RoleFact, Severity
from crosstrain_migrate.rules.policy import Policy
from crosstrain_migrate.syntax import program
from crosstrain_migrate.syntax.checks import check_result
from crosstrain_migrate.syntax.layout import wrapped
from crosstrain_migrate.syntax.lines import Lines
from crosstrain_migrate.syntax.problems import UNPARSABLE, syntax_problem
from crosstrain_migrate.syntax.suppress import UNUSED, Region, suppressions

from .cell_dependencies import Obstacle, Statements
from .display_only import hide, reveal
from .launch import CODE, REASON, launched
from .local_modules import Module
from .statement_forms import end_of

if TYPE_CHECKING:
    from crosstrain_migrate.results import Options

Migrate = Callable[[Path, str, "Options"], FileResult]
Said = TypeVar("Said", Change, Finding, RoleFact)

QUIET = ("CT4", "CT6", "CT7")  # what rules say of output, of numbers and of steps


def migrate_cells(path: Path, text: str, options: Options, migrate: Migrate) -> FileResult:
    """Migrates the linked text of a notebook. `migrate` does it as if it were a script's."""
    alone = text.startswith(MARK)
    whole = _migrated_alone if alone else _migrated_program
    try:
        result = whole(path, text, options, migrate, CODE not in options.ignore)
    except Stays as stays:
        result = stays.told(whole(path, text, options, migrate, False))
    return _in_cells(result, Cells(text)) if alone else result


class Stays(Exception):
    """The training stays in the kernel's one process: because a comment asks for it, or for the reason that is told."""

    def __init__(self, said: Finding | Region) -> None:
        super().__init__()
        self.said = said

    def told(self, result: FileResult) -> FileResult:
        """A migration for one process, and why it is one."""
        said = self.said
        if isinstance(said, Region):
            # The engine did not know that the comment is needed.
            findings = [one for one in result.findings if (one.rule, one.line) != (UNUSED, said.line)]
        else:
            severity = Severity.REFUSED if result.refused else Severity.NOTE
            findings = [*result.findings, replace(said, severity=severity)]
        findings.sort(key=lambda one: (one.line, one.column, one.rule))
        return replace(result, findings=tuple(findings))


def _migrated_alone(path: Path, text: str, options: Options, migrate: Migrate, launches: bool) -> FileResult:
    """`launches`: the training goes into a function, and what cells only show is hidden meanwhile."""
    shown = hide(text) if launches else text
    result = migrate(path, shown, options)
    if result.error is not None:
        return replace(result, error=_broken_cell(path, text) or result.error)
    after = reveal(_with_own_ends(shown, result.after)) if result.changed else text
    result = replace(result, before=text, after=after)
    if result.changed and launches:
        result = _with_launch(result, options)
    return _without_noise(result)


def _migrated_program(
    path: Path, text: str, options: Options, migrate: Migrate, launches: bool
) -> FileResult:
    """The same for a notebook behind the local modules that it imports; lines stay those of the program."""
    *modules, own = program.parts(text)
    before = [(m.path, m.text) for m in modules]
    shown = hide(own.text, before) if launches else own.text
    result = migrate(path, program.join(text, [*(m.text for m in modules), shown]), options)
    if not result.changed:
        return replace(result, before=text, after=text)
    above = own.first - 1  # lines of the modules
    *done, cells = program.parts(result.after)
    inside = replace(
        result,
        before=own.text,
        after=reveal(_with_own_ends(shown, cells.text)),
        changes=_moved((one for one in result.changes if one.line > above), -above),
        findings=_moved((one for one in result.findings if one.line > above), -above),
        roles=_moved(result.roles, -above),
    )
    if inside.changed and launches:
        try:
            inside = _with_launch(inside, options, [(m.path, m.text) for m in done])
        except Stays as stays:
            if isinstance(stays.said, Finding):
                (stays.said,) = _moved([stays.said], above)
            raise
    inside = _without_noise(inside, before)
    return replace(
        result,
        before=text,
        after=program.join(result.after, [*(m.text for m in done), inside.after]),
        changes=(*(c for c in result.changes if c.line <= above), *_moved(inside.changes, above)),
        findings=(*(f for f in result.findings if f.line <= above), *_moved(inside.findings, above)),
        extras=inside.extras,
    )


def _moved(said: Iterable[Said], lines: int) -> tuple[Said, ...]:
    return tuple(replace(one, line=one.line + lines) for one in said)


def _broken_cell(path: Path, text: str) -> InputError | None:
    """What is wrong with the first cell that does not parse: no bracket is open from one cell to the next."""
    cells = Cells(text)
    for number, source in masked_sources(text).items():
        try:
            ast.parse(source)
        except UNPARSABLE as error:
            problem = syntax_problem(path, source, error)
            place = cells.spoken(cells.first(number) + (problem.line or 1) - 1)
            return InputError(path, f"{place}: {problem.reason}", problem.remedy)
    return None


def _with_own_ends(before: str, after: str) -> str:
    """The text after, in which cells begin and end as before: what went leaves no blank lines there."""
    old, parts = masked_sources(before), []
    for number, source in masked_sources(after).items():
        was, inner = f"{old[number]}\n", source.strip("\n")
        body = f"{source}\n"
        if body != was:
            head, tail = was[: len(was) - len(was.lstrip("\n"))], was[len(was.rstrip("\n")) :]
            body = f"{head}{inner}{tail}" if inner else "\n"
        parts.append(f"{MARK}{number}'\n{body}")
    return "".join(parts)


def _with_launch(result: FileResult, options: Options, modules: Sequence[Module] = ()) -> FileResult:
    """Raises Stays."""
    policy = Policy(suppressions(result.before), options.select, options.ignore)
    if not policy.selected(CODE):
        return result
    line_of = Lines(result.before, result.after)
    try:
        launch = launched(result.before, result.after, result.roles, options.runtime, modules)
    except Obstacle as obstacle:
        line = line_of(obstacle.line)
        _obey_comments(policy, [line])
        reason = f"the notebook trains in its kernel's one process: {obstacle.reason}"
        remedy = f"{obstacle.remedy} to train on several"
        raise Stays(Finding(CODE, line, 1, reason, remedy, Severity.NOTE)) from obstacle
    if launch is None:
        return result
    after = wrapped(result.before, launch.text)
    places = [line_of(line) for line in launch.lines]
    _obey_comments(policy, places)
    if problems := check_result(result.before, after):
        reason = f"the result did not pass the tool's own checks ({unmask('; '.join(problems))})"
        raise Stays(Finding("CT001", 1, 1, reason, "Report this notebook to us", Severity.NOTE))
    cells, old, new = Cells(result.before), split(result.before), split(after)
    # Cells around the training stay: no process but the notebook's own runs them.
    stays = {number for number in old if old[number] == new[number]}
    changes = {one for one in result.changes if cells(one.line)[0] not in stays}
    changes |= {Change(CODE, place, REASON) for place in places}
    listed = tuple(sorted(changes, key=lambda one: (one.line, one.rule, one.reason)))
    return replace(result, after=after, changes=listed, extras=_launched_by_hand(result.extras))


def _obey_comments(policy: Policy, lines: Iterable[int]) -> None:
    """Raises Stays where a comment keeps a training in the kernel."""
    for line in lines:
        if (region := policy.comments.keeping_away(line, CODE)) is not None:
            raise Stays(region)


def _without_noise(result: FileResult, modules: Sequence[Module] = ()) -> FileResult:
    """No finding says that every process does what one process runs: cells that do not train, and what only they use."""
    if not any(one.rule.startswith(QUIET) for one in result.findings):
        return result
    notebook = Statements(result.before, modules)
    training = notebook.training
    used = notebook.uses(training)
    aside: list[ast.stmt] = [s for s in notebook.running if s not in training]
    aside += [d for d in notebook.defined.values() if training and d not in used]

    def is_noise(one: Finding) -> bool:
        quiet = one.severity is Severity.NOTE and one.rule.startswith(QUIET)
        return quiet and any(s.lineno <= one.line <= end_of(s) for s in aside)

    return replace(result, findings=tuple(one for one in result.findings if not is_noise(one)))


def _launched_by_hand(extras: dict[str, str]) -> dict[str, str]:
    """A notebook has no launch command whose options could share a batch."""
    option, argument = "`crosstrain launch --split-batches`", "`Accelerator(split_batches=True)`"
    return {name: fact.replace(option, argument) for name, fact in extras.items()}


def _in_cells(result: FileResult, cells: Cells) -> FileResult:
    """Sentences that name lines name cells and their lines."""
    told = cells.told
    return replace(
        result,
        changes=tuple(replace(one, reason=told(one.reason)) for one in result.changes),
        findings=tuple(replace(f, reason=told(f.reason), remedy=told(f.remedy)) for f in result.findings),
        roles=tuple(replace(one, evidence=told(one.evidence)) for one in result.roles),
    )
