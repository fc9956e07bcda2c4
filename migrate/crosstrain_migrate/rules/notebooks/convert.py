"""A notebook through the engine: its linked text as a script, then the training into a function, then the words."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from crosstrain_migrate.files.notebooks import MARK
from crosstrain_migrate.files.notebooks.linked import Cells, split, unmask
from crosstrain_migrate.results import Change, FileResult, Finding, InputError, RoleFact, Severity
from crosstrain_migrate.rules.distribution.plain import Lines
from crosstrain_migrate.rules.policy import Policy
from crosstrain_migrate.syntax import program
from crosstrain_migrate.syntax.checks import check_result
from crosstrain_migrate.syntax.problems import UNPARSABLE, syntax_problem
from crosstrain_migrate.syntax.suppress import UNUSED, Region, suppressions

from .cell_dependencies import Obstacle, Statements
from .display_only import hide, resigned, reveal
from .launch import CODE, REASON, launched
from .local_modules import Module

if TYPE_CHECKING:
    from crosstrain_migrate.results import Options

Aside = Callable[[str, Sequence[Module], Collection[str]], str]
Migrate = Callable[[Path, str, "Options"], FileResult]
Said = TypeVar("Said", Change, Finding, RoleFact)

QUIET = ("CT4", "CT6", "CT7")  # what rules say of output, of numbers and of steps


def migrate_cells(path: Path, text: str, options: Options, migrate: Migrate) -> FileResult:
    """Migrates the linked text of a notebook. `migrate` does it as if it were a script's."""
    alone = text.startswith(MARK)
    whole = _migrated_alone if alone else _migrated_program
    if CODE in options.ignore:
        result = whole(path, text, options, migrate, None)
    else:
        try:
            result = whole(path, text, options, migrate, hide)
        except Stays as stays:
            result = whole(path, text, options, migrate, None)
            result = stays.told(result)
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


def _migrated_alone(
    path: Path, text: str, options: Options, migrate: Migrate, aside: Aside | None
) -> FileResult:
    shown = aside(text, (), ()) if aside else text
    result = migrate(path, shown, options)
    if aside and result.changed and (known := resigned(Statements(text), Statements(result.after))):
        shown = aside(text, (), known)
        result = migrate(path, shown, options)
    if result.error is not None:
        return replace(result, error=_broken_cell(path, text) or result.error)
    after = reveal(_tidied(shown, result.after)) if result.changed else text
    result = replace(result, before=text, after=after)
    if result.changed and aside:
        result = _with_launch(result, options)
    return _without_noise(result)


def _migrated_program(
    path: Path, text: str, options: Options, migrate: Migrate, aside: Aside | None
) -> FileResult:
    """The same for a notebook behind the local modules that it imports; lines stay those of the program."""
    *modules, own = program.parts(text)
    shown = aside(own.text, [(m.path, m.text) for m in modules], ()) if aside else own.text
    result = migrate(path, program.join(text, [*(m.text for m in modules), shown]), options)
    if not result.changed:
        return replace(result, before=text, after=text)
    *done, cells = program.parts(result.after)
    inside = FileResult(
        path,
        own.text,
        reveal(_tidied(shown, cells.text)),
        changes=_moved((c for c in result.changes if c.line >= own.first), 1 - own.first),
        findings=_moved((f for f in result.findings if f.line >= own.first), 1 - own.first),
        roles=_moved(result.roles, 1 - own.first),
        extras=result.extras,
    )
    if inside.changed and aside:
        try:
            inside = _with_launch(inside, options, [(m.path, m.text) for m in done])
        except Stays as stays:
            if isinstance(stays.said, Finding):
                (stays.said,) = _moved([stays.said], own.first - 1)
            raise
    inside = _without_noise(inside, [(m.path, m.text) for m in modules])
    after = program.join(result.after, [*(m.text for m in done), inside.after])
    changes = (*(c for c in result.changes if c.line < own.first), *_moved(inside.changes, own.first - 1))
    findings = (*(f for f in result.findings if f.line < own.first), *_moved(inside.findings, own.first - 1))
    return replace(result, before=text, after=after, changes=changes, findings=findings, extras=inside.extras)


def _moved(said: Iterable[Said], lines: int) -> tuple[Said, ...]:
    return tuple(replace(one, line=one.line + lines) for one in said)


def _broken_cell(path: Path, text: str) -> InputError | None:
    """What is wrong with the first cell that does not parse: no bracket is open from one cell to the next."""
    lines = text.split("\n")
    starts = [index for index, line in enumerate(lines) if line.startswith(MARK)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        source = "\n".join(lines[start + 1 : end])
        try:
            ast.parse(source)
        except UNPARSABLE as error:
            problem = syntax_problem(path, source, error)
            cell, line = Cells(text)(start + 1 + (problem.line or 1))
            reason = f"cell {cell}, line {line}: {problem.reason}"
            return InputError(path, reason, problem.remedy)
    return None


def _tidied(before: str, after: str) -> str:
    """Cells begin and end as they did: lines that went leave no blank ones there."""
    old = dict(_bodies(before))
    parts = []
    for mark, body in _bodies(after):
        was = old[mark]
        if body != was:
            inner = body.strip("\n")
            head = "" if inner and not was.startswith("\n") else was[: len(was) - len(was.lstrip("\n"))]
            tail = was[len(was.rstrip("\n")) :] or "\n"
            body = f"{head}{inner}{tail}" if inner else "\n"
        parts += [mark, body]
    return "".join(parts)


def _bodies(text: str) -> list[tuple[str, str]]:
    """(mark with its line end, text below it) of each cell."""
    lines = text.splitlines(keepends=True)
    starts = [index for index, line in enumerate(lines) if line.startswith(MARK)]
    ends = [*starts[1:], len(lines)]
    return [(lines[a], "".join(lines[a + 1 : b])) for a, b in zip(starts, ends, strict=True)]


def _with_launch(result: FileResult, options: Options, modules: Sequence[Module] = ()) -> FileResult:
    """Raises Stays."""
    policy = Policy(suppressions(result.before), options.select, options.ignore)
    if not policy.selected(CODE):
        return result
    line_of = Lines(result.before, result.after)
    try:
        launch = launched(result.before, result.after, result.roles, options.runtime, modules)
        problems = check_result(result.before, launch.text) if launch is not None else []
    except Obstacle as obstacle:
        line = line_of(obstacle.line)
        if (region := policy.comments.keeping_away(line, CODE)) is not None:
            raise Stays(region) from obstacle
        reason = f"the notebook trains in its kernel's one process: {obstacle.reason}"
        raise Stays(
            Finding(CODE, line, 1, reason, f"{obstacle.remedy} to train on several", Severity.NOTE)
        ) from obstacle
    if launch is None:
        return result
    places = [line_of(line) for line in launch.lines]
    for place in places:
        if (region := policy.comments.keeping_away(place, CODE)) is not None:
            raise Stays(region)
    if problems:
        reason = f"the result did not pass the tool's own checks ({unmask('; '.join(problems))})"
        finding = Finding("CT001", 1, 1, reason, "Report this notebook to us", Severity.NOTE)
        raise Stays(finding)
    cells, old, new = Cells(result.before), split(result.before), split(launch.text)
    # Cells around the training stay: no process but the notebook's own runs them.
    stays = {number for number in old if old[number] == new[number]}
    changes = {one for one in result.changes if cells(one.line)[0] not in stays}
    changes |= {Change(CODE, place, REASON) for place in places}
    listed = tuple(sorted(changes, key=lambda one: (one.line, one.rule, one.reason)))
    return replace(result, after=launch.text, changes=listed, extras=_launched_by_hand(result.extras))


def _without_noise(result: FileResult, modules: Sequence[Module] = ()) -> FileResult:
    """No finding says that every process does what one process runs: cells that do not train, and what only they use."""
    if not any(one.rule.startswith(QUIET) for one in result.findings):
        return result
    notebook = Statements(result.before, modules)
    training = notebook.training
    used = notebook.uses(training)
    aside: list[ast.stmt] = [s for s in notebook.running if s not in training]
    aside += [d for d in notebook.defined.values() if training and d not in used]
    kept = (
        one
        for one in result.findings
        if one.severity is not Severity.NOTE
        or not one.rule.startswith(QUIET)
        or not any(s.lineno <= one.line <= (s.end_lineno or 0) for s in aside)
    )
    return replace(result, findings=tuple(kept))


def _launched_by_hand(extras: dict[str, str]) -> dict[str, str]:
    """A notebook has no launch command whose options could share a batch."""
    return {
        name: fact.replace("`crosstrain launch --split-batches`", "`Accelerator(split_batches=True)`")
        for name, fact in extras.items()
    }


def _in_cells(result: FileResult, cells: Cells) -> FileResult:
    """Sentences that name lines name cells and their lines."""
    return replace(
        result,
        changes=tuple(replace(one, reason=cells.told(one.reason)) for one in result.changes),
        findings=tuple(
            replace(one, reason=cells.told(one.reason), remedy=cells.told(one.remedy))
            for one in result.findings
        ),
        roles=tuple(replace(one, evidence=cells.told(one.evidence)) for one in result.roles),
    )
