"""A notebook through the engine: its linked text as a script, then the training into a function, then the words."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from crosstrain_migrate.checks import check_result
from crosstrain_migrate.policy import Policy
from crosstrain_migrate.results import Change, FileResult, Finding, InputError, RoleFact, Severity
from crosstrain_migrate.roles import program
from crosstrain_migrate.rules.distribution.plain import Lines
from crosstrain_migrate.sources import UNPARSABLE, syntax_problem
from crosstrain_migrate.suppress import UNUSED, Region, suppressions

from . import MARK
from .aside import hide, misses, reveal
from .launch import CODE, REASON, launched
from .linked import Cells, split, unmask
from .needs import Obstacle, Statements
from .outside import Module

if TYPE_CHECKING:
    from crosstrain_migrate.engine import Options

Migrate = Callable[[Path, str, "Options"], FileResult]
Said = TypeVar("Said", Change, Finding, RoleFact)

PRINTS, WHOLE = "CT401", "CT603"
_ALONE = f"or leave {CODE} out (--ignore {CODE}): the notebook then trains in its kernel's one process"


def migrate_cells(path: Path, text: str, options: Options, migrate: Migrate) -> FileResult:
    """Migrates the linked text of a notebook. `migrate` does it as if it were a script's."""
    if not text.startswith(MARK):
        return _migrate_program(path, text, options, migrate)
    shown = text if CODE in options.ignore else hide(text)
    result = migrate(path, shown, options)
    if result.changed and misses(shown, result.after):
        shown = text
        result = migrate(path, shown, options)
    if result.error is not None:
        return replace(result, error=_broken_cell(path, text) or result.error)
    if result.changed:
        result = replace(result, after=_tidied(shown, result.after))
        result = _with_launch(result, options)
    result = _without_noise(replace(result, before=text, after=reveal(result.after)))
    return _in_cells(result, Cells(text))


def _migrate_program(path: Path, text: str, options: Options, migrate: Migrate) -> FileResult:
    """The same for a notebook behind the local modules that it imports; lines stay those of the program."""
    *modules, own = program.parts(text)
    hidden = own.text if CODE in options.ignore else hide(own.text, [(m.path, m.text) for m in modules])
    result = migrate(path, program.join(text, [*(m.text for m in modules), hidden]), options)
    if result.changed and misses(hidden, program.parts(result.after)[-1].text):
        hidden = own.text
        result = migrate(path, text, options)
    if not result.changed:
        return replace(result, before=text, after=text)
    *done, cells = program.parts(result.after)
    inside = FileResult(
        path,
        hidden,
        _tidied(hidden, cells.text),
        changes=_moved((c for c in result.changes if c.line >= own.first), 1 - own.first),
        roles=_moved(result.roles, 1 - own.first),
        extras=result.extras,
    )
    inside = _with_launch(inside, options, [(m.path, m.text) for m in done])
    findings = (*result.findings, *_moved(inside.findings, own.first - 1))
    if not inside.changed:
        return replace(result, before=text, after=text, changes=(), findings=findings, extras={})
    changes = (
        *(c for c in result.changes if c.line < own.first),
        *_moved(inside.changes, own.first - 1),
    )
    after = program.join(result.after, [*(m.text for m in done), reveal(inside.after)])
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
            return _as_asked(result, region)
        remedy = f"{obstacle.remedy}, {_ALONE}"
        return _refused(result, Finding(CODE, line, 1, obstacle.reason, remedy, Severity.REFUSED))
    if launch is None:
        return result
    if (region := policy.comments.keeping_away(line_of(launch.line), CODE)) is not None:
        return _as_asked(result, region)
    if problems:
        reason = f"the result did not pass the tool's own checks ({unmask('; '.join(problems))})"
        finding = Finding(
            "CT001", 1, 1, reason, "Report this notebook to us; it was left as it was", Severity.REFUSED
        )
        return _refused(result, finding)
    change = Change(CODE, line_of(launch.line), REASON)
    changes = tuple(sorted({*result.changes, change}, key=lambda one: (one.line, one.rule, one.reason)))
    cells, old, new = Cells(result.before), split(result.before), split(launch.text)
    # Prints of cells around the training stay: no process but the notebook's own runs them.
    stays = {number for number in old if old[number] == new[number]}
    changes = tuple(one for one in changes if one.rule != PRINTS or cells(one.line)[0] not in stays)
    return replace(result, after=launch.text, changes=changes, extras=_launched_by_hand(result.extras))


def _without_noise(result: FileResult) -> FileResult:
    """No finding says that every process prints or evaluates what one process runs: cells that do not train."""
    if not any(one.rule in (PRINTS, WHOLE) for one in result.findings):
        return result
    notebook = Statements(result.before)
    training = [s for s in notebook.running if notebook.trains(s)]
    aside = [s for s in notebook.running if s not in training]
    below = [s for s in aside if training and s.lineno > training[0].lineno]
    quiet = {PRINTS: aside, WHOLE: below}
    kept = (
        one
        for one in result.findings
        if not any(s.lineno <= one.line <= (s.end_lineno or 0) for s in quiet.get(one.rule, ()))
    )
    return replace(result, findings=tuple(kept))


def _as_asked(result: FileResult, region: Region) -> FileResult:
    """Without the launch, as a comment asks, which the engine did not know to be needed."""
    findings = (one for one in result.findings if (one.rule, one.line) != (UNUSED, region.line))
    return replace(result, findings=tuple(findings))


def _refused(result: FileResult, finding: Finding) -> FileResult:
    findings = tuple(sorted((*result.findings, finding), key=lambda one: (one.line, one.column, one.rule)))
    return replace(result, after=result.before, changes=(), findings=findings, extras={})


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
