"""Reduces a script that distributes itself, or sets its precision up itself, to the plain script inside it.

The plain script computes what the original computes as one process. All other rules then convert it as they convert any
script. Where it needs the accelerator (a barrier, an autocast region, a rank), it holds a mark such as
`__crosstrain_wait_for_everyone__()`. `placeholders` replaces the marks once it is known how that code gets the accelerator.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.observed import Sightings
from crosstrain_migrate.results import Change, Finding, Severity
from crosstrain_migrate.rules.base import Refusal, finding, refuse
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import last_name
from crosstrain_migrate.syntax.places import Places
from crosstrain_migrate.syntax.program import path_of
from crosstrain_migrate.syntax.walks import walk

from .launcher_settings import ELSEWHERE, FIRST, SECOND
from .requested_options import Requested
from .single_process import EveryProcess, SingleProcess
from .unused_code import remove_unused

MAX_PASSES = 8
_NEEDS_NO_PARENTHESES = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant, ast.JoinedStr)


@dataclass
class Stage:
    """One pass over the script: its facts, and the edits and findings planned so far."""

    facts: Facts
    text: str
    runtime: str
    requested: Requested
    edits: list[e.Edit] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    gone: set[ast.AST] = field(default_factory=set)  # statements and expressions that an edit removes
    kept: set[ast.AST] = field(default_factory=set)  # functions and classes that stay as the author has them
    lost: list[str] = field(default_factory=list)  # comments in branches that are never taken

    @cached_property
    def single(self) -> SingleProcess:
        return EveryProcess(self.facts) if self.requested.mapped else SingleProcess(self.facts)

    @cached_property
    def several(self) -> tuple[SingleProcess, ...]:
        """The script as three of several processes run it."""
        return tuple(SingleProcess(self.facts, world) for world in (FIRST, SECOND, ELSEWHERE))

    @cached_property
    def _places(self) -> Places:
        return Places(self.text)

    def source(self, node: ast.AST) -> str:
        """The source text of a node."""
        return self._places.source(node)

    def replace(self, node: ast.expr, rule: str, reason: str, template: str, **holes: ast.expr) -> None:
        self.edits.append(e.Replace(node, rule, reason, template=template, holes=holes))

    def replace_whole(self, node: ast.AST, rule: str, reason: str, text: str) -> None:
        """Like `replace`, for a text that keeps nothing of `node`: no other edit is made inside it."""
        self.gone.update(walk(node))
        self.edits.append(e.Replace(node, rule, reason, template=text))

    def keep_only(self, node: ast.expr, rule: str, reason: str, part: ast.expr, bare: bool = False) -> None:
        """Replaces an expression by a part of it, in parentheses where it may need them (never if `bare`)."""
        bare = bare or isinstance(part, _NEEDS_NO_PARENTHESES)
        self.replace(node, rule, reason, "{x}" if bare else "({x})", x=part)

    def remove(self, node: ast.stmt, rule: str, reason: str = "") -> None:
        if not self.is_settled(node):
            self.edits.append(e.RemoveStatement(node, rule, reason))
            self.gone.add(node)

    def is_settled(self, node: ast.AST) -> bool:
        """Whether an edit removes `node` or code around it, or that code stays as it is. Then no more edits are planned for it."""
        around = chain((node,), self.facts.table.ancestors(node))
        return any(a in self.gone or a in self.kept for a in around)

    def note(self, rule: str, node: ast.AST, reason: str, remedy: str) -> None:
        self.findings.append(finding(rule, node, reason, remedy, Severity.NOTE))

    def report_lost(self, comments: list[str], line: int) -> None:
        """Reports comments that are removed with the code they describe."""
        if comments:
            self.findings.append(gone_with_code(comments, line))
            self.lost.extend(comments)

    def statement(self, node: ast.AST) -> ast.stmt:
        return self.facts.table.statement_of(node)

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self.facts.table.parents.get(node)

    def outward(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """`node` with its parent, the parent with its own, and so on up to the module."""
        return pairwise(chain((node,), self.facts.table.ancestors(node)))

    def is_elif(self, node: ast.AST) -> bool:
        """Whether an `if` is the `elif` of another one."""
        return (
            isinstance(node, ast.If) and self.facts.table.is_whole_else(node) and self._places.is_elif(node)
        )


@dataclass(frozen=True)
class Plain:
    """The plain script, with a translation of its line numbers into those of the original."""

    text: str
    facts: Facts
    requested: Requested
    changes: tuple[Change, ...]
    findings: tuple[Finding, ...]
    edits: tuple[e.Edit, ...]  # those of the first pass, which name nodes of the original
    lost: frozenset[str]
    lines: Lines


class Lines:
    """Translates line numbers of a later text into those of the original."""

    def __init__(self, before: str, after: str) -> None:
        old, new = before.split("\n"), after.split("\n")
        self._old: list[int] = []
        for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            for j in range(j1, j2):
                offset = j - j1
                self._old.append(i1 + offset if tag == "equal" else min(i1 + offset, max(i2 - 1, i1)))
        self._last = len(old)

    def __call__(self, line: int) -> int:
        known = 1 <= line <= len(self._old)
        return min(self._old[line - 1] + 1 if known else line, self._last)


Planner = Callable[[Stage], None]


def nodes_in(body: Iterable[ast.AST]) -> list[ast.AST]:
    """Every node of several statements."""
    return [node for statement in body for node in walk(statement)]


def unwind(
    facts: Facts, text: str, runtime: str, planners: Iterable[Planner], requested: Requested | None = None
) -> Plain:
    """Runs the planners until none of them has an edit. Raises Refusal where the tool cannot tell what code computes."""
    requested = requested or Requested()
    current, now = text, facts
    changes: list[Change] = []
    findings: list[Finding] = []
    first: tuple[e.Edit, ...] = ()
    lost: set[str] = set()
    for _ in range(MAX_PASSES):
        stage = Stage(now, current, runtime, requested)
        lines = Lines(text, current)
        try:
            edits = _planned(stage, planners)
        except Refusal as refusal:
            raise Refusal(_moved(refusal.finding, lines)) from refusal
        findings += [_moved(f, lines) for f in stage.findings]
        lost.update(stage.lost)
        if not edits:
            break
        first = first or tuple(edits)
        changes += [Change(x.rule, lines(x.line), x.reason, x.confidence) for x in edits if x.reason]
        current, now = _applied(stage, edits, facts.seen)
    else:
        reason = "removing the hand-written distribution does not come to an end: each removal makes another one necessary"
        raise refuse("CT303", facts.tree, reason, "remove it yourself")
    return Plain(
        current,
        now,
        requested,
        tuple(dict.fromkeys(changes)),
        tuple(dict.fromkeys(findings)),
        first,
        frozenset(lost),
        Lines(text, current),
    )


def _planned(stage: Stage, planners: Iterable[Planner]) -> list[e.Edit]:
    """The edits of the first planner that has any. The next planner sees the result of these."""
    for planner in planners:
        planner(stage)
        if stage.edits:
            break
    return [x for x in stage.edits if isinstance(x, e.AddImport) or not _inside_gone(stage, x)]


def _applied(stage: Stage, edits: list[e.Edit], seen: Sightings | None) -> tuple[str, Facts]:
    """The text after one pass, without the code that nothing uses any more, and its facts."""
    from crosstrain_migrate.syntax.edit_plan import EditNotApplied
    from crosstrain_migrate.syntax.rewrite import rewrite

    of_node = stage.facts.table.of_node
    files = frozenset(path_of(of_node[edit.node].file) for edit in edits if edit.node in of_node)
    mapped = files if stage.requested.mapped else None
    try:
        return remove_unused(
            stage.text, rewrite(stage.text, edits), kept_names(stage.requested), mapped, seen
        )
    except EditNotApplied as error:
        node, reason = error.edit.node, str(error)
    except SyntaxError as error:
        reason = f"taking the hand-written distribution out gave a text that does not parse ({error.msg})"
        node = stage.facts.tree
    raise refuse("CT001", node, reason, "report this script to us")


def gone_with_code(comments: Iterable[str], line: int) -> Finding:
    """The finding about comments that were removed with the code they describe."""
    reason = f"comments were removed with the code they describe: {' '.join(comments)}"
    return Finding("CT303", line, 1, reason, "keep them elsewhere if they say more than that", Severity.NOTE)


def kept_names(requested: Requested) -> frozenset[str]:
    """The names that the Accelerator's arguments will use."""
    flag = requested.precision.flag if requested.precision is not None else None
    if flag is None:
        return frozenset()
    nodes = walk(ast.parse(flag))
    return frozenset(last_name(n) for n in nodes if isinstance(n, ast.Name | ast.Attribute))


def _inside_gone(stage: Stage, edit: e.Edit) -> bool:
    """Whether another edit removes the code around this edit."""
    return any(a in stage.gone for a in stage.facts.table.ancestors(edit.node))


def _moved(found: Finding, lines: Lines) -> Finding:
    return replace(found, line=lines(found.line))
