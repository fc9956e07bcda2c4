"""Which edits concern which node of LibCST's tree: found by position and kind."""

from __future__ import annotations

import ast
import bisect
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from functools import cache
from typing import TypeVar, cast

import libcst as cst

from . import edits as e
from .positions import Place, positions_of
from .skeleton import Skeleton

Span = tuple[int, int, int, int]
E = TypeVar("E", bound=e.Edit)
_COMPOUND = (ast.For, ast.If, ast.While, ast.With, ast.Try)


class EditNotApplied(Exception):
    """An edit's node could not be found in the concrete tree."""

    def __init__(self, edit: e.Edit) -> None:
        super().__init__(f"line {getattr(edit.node, 'lineno', 0)}: cannot place the edit of {edit.rule}")
        self.edit = edit


class _Kind(Enum):
    """What an edit may name."""

    STATEMENT = auto()
    EXPRESSION = auto()
    OTHER = auto()


@cache
def _kind(cls: type[cst.CSTNode]) -> _Kind:
    """Asked once for each class: these bases are abstract ones, which takes Python ten times as long."""
    if issubclass(cls, cst.BaseSmallStatement | cst.BaseCompoundStatement):
        return _Kind.STATEMENT
    return _Kind.EXPRESSION if issubclass(cls, cst.BaseExpression) else _Kind.OTHER


def of_kind(edits: Iterable[e.Edit], kind: type[E]) -> list[E]:
    return [edit for edit in edits if isinstance(edit, kind)]


def first_of(edits: Iterable[e.Edit], kind: type[E]) -> E | None:
    return next((edit for edit in edits if isinstance(edit, kind)), None)


def _with_parentheses(node: cst.Tuple, start: Place, end: Place) -> tuple[Place, Place]:
    """Where a tuple stands for Python, which takes its parentheses for a part of it, as LibCST does not."""
    if not node.lpar:
        return start, end
    before, behind = node.lpar[-1].whitespace_after, node.rpar[0].whitespace_before
    if not (isinstance(before, cst.SimpleWhitespace) and isinstance(behind, cst.SimpleWhitespace)):
        return start, end
    return (start[0], start[1] - len(before.value) - 1), (end[0], end[1] + len(behind.value) + 1)


class EditPlan:
    """Which edits concern which concrete node."""

    def __init__(self, module: cst.Module, shape: Skeleton, wanted: list[e.Edit]) -> None:
        self.module = module
        self.done: set[e.Edit] = set()
        self.nodes: dict[ast.AST, cst.CSTNode] = {}
        self.edits: dict[cst.CSTNode, list[e.Edit]] = defaultdict(list)
        self._shape = shape
        self._lines = shape.text.split("\n")
        self._locate({node for edit in wanted for node in e.nodes_of(edit)})
        for edit in wanted:
            if isinstance(edit, e.AddImport):
                self.edits[self.module].append(edit)
                continue
            node = self.nodes.get(edit.node)
            if node is None:
                raise EditNotApplied(edit)
            self.edits[node].append(edit)

    def _span(self, node: ast.AST) -> Span:
        own = cast(ast.expr, node)
        assert own.end_lineno is not None and own.end_col_offset is not None
        return (
            *self._shape.place(own.lineno, own.col_offset),
            *self._shape.place(own.end_lineno, own.end_col_offset),
        )

    def _locate(self, targets: set[ast.AST]) -> None:
        functions: dict[tuple[int, str], ast.AST] = {}
        spans: dict[tuple[bool, Span], ast.AST] = {}
        for target in targets:
            if isinstance(target, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                functions[self._span(target)[0], target.name] = target
            else:
                spans[isinstance(target, ast.stmt), self._span(target)] = target
        compound = {span[:2]: node for (_, span), node in spans.items() if isinstance(node, _COMPOUND)}
        self._positions = positions = positions_of(self.module)
        self._starts = sorted(self._span(target)[:2] for target in targets)
        for node, (start, end) in positions.items():
            kind = _kind(node.__class__)
            if kind is _Kind.OTHER:
                continue
            if isinstance(node, cst.FunctionDef | cst.ClassDef):
                name_line = positions[node.name][0][0]
                function = functions.get((name_line, node.name.value))
                if function is not None:
                    self.nodes[function] = node
                continue
            is_statement = kind is _Kind.STATEMENT
            if isinstance(node, cst.Tuple):
                start, end = _with_parentheses(node, start, end)
            found = spans.get((is_statement, (*start, *end)))
            if found is None and isinstance(node, cst.BaseCompoundStatement):
                # Its end differs between the trees (trailing comments): its start is enough.
                found = compound.get(start)
            if found is not None:
                self.nodes.setdefault(found, node)

    def concerns(self, node: cst.CSTNode) -> bool:
        """Whether an edit names anything in a line of statements or an expression."""
        start, end = self._positions[node]
        return bisect.bisect(self._starts, end) > bisect.bisect_left(self._starts, start)

    def has_comment(self, statement: cst.CSTNode) -> bool:
        """Whether there may be one in a statement, of a compound one in its header."""
        decorators = getattr(statement, "decorators", ())
        first = self._positions[decorators[0] if decorators else statement][0][0]
        body = getattr(statement, "body", None)
        if isinstance(body, cst.IndentedBlock):
            last = self._positions[body.body[0]][0][0]
        else:
            last = self._positions[statement][1][0]
        return any("#" in line for line in self._lines[first - 1 : last])

    def is_untouched_expression(self, node: cst.CSTNode) -> bool:
        """Of f-strings the quotes are looked at, so they are none."""
        kind = node.__class__
        if _kind(kind) is not _Kind.EXPRESSION or kind is cst.FormattedString:
            return False
        return not self.concerns(node)

    def concrete(self, node: ast.AST, edit: e.Edit) -> cst.CSTNode:
        found = self.nodes.get(node)
        if found is None:
            raise EditNotApplied(edit)
        return found

    def edits_of(self, node: cst.CSTNode) -> Sequence[e.Edit]:
        return self.edits.get(node, ())

    def made(self, node: cst.CSTNode, kind: type[E]) -> list[E]:
        """The edits of one kind that concern a node, which whoever asks for them makes."""
        found = of_kind(self.edits_of(node), kind)
        self.done.update(found)
        return found
