"""The nodes that edits name, in the tree of the one file that is edited."""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar, cast

from . import edits as e
from .comments import blanked
from .places import Places, Span
from .program import tree_of
from .walks import children

_Key = tuple[type[ast.AST], int, int, int, int]
E = TypeVar("E", bound=e.Edit)
N = TypeVar("N", bound=ast.AST)


class Located:
    """A file's text, and its nodes that edits concern. `first` is the line of the edits' nodes that is its line 1."""

    def __init__(self, text: str, first: int, wanted: Iterable[e.Edit]) -> None:
        self.text = text
        self.places = Places(text)
        self.tree = tree_of(text)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.edits: dict[ast.AST, list[e.Edit]] = defaultdict(list)
        self._shift = first - 1
        wanted = list(wanted)
        keys = {self._key(node, self._shift) for edit in wanted for node in e.nodes_of(edit)}
        self._lines = sorted({key[1] for key in keys})
        self._own: dict[_Key, ast.AST] = {}
        self._find(keys)
        for edit in wanted:
            node = self.tree if isinstance(edit.node, ast.Module) else self.own(edit.node, edit)
            for named in e.nodes_of(edit):
                self.own(named, edit)
            self.edits[node].append(edit)

    def own(self, node: N, edit: e.Edit) -> N:
        """The node of this tree that `node`, which an edit names, is in its own."""
        found = self._own.get(self._key(node, self._shift))
        if found is None:
            raise e.EditNotApplied(edit)
        return cast(N, found)

    def made(self, node: ast.AST, kind: type[E]) -> list[E]:
        """The edits of a kind that name a node."""
        return [one for one in self.edits.get(node, ()) if isinstance(one, kind)]

    def is_touched(self, first: int, last: int) -> bool:
        """Whether a node that an edit names begins in these lines."""
        return bisect_left(self._lines, first) < bisect_right(self._lines, last)

    def with_parentheses(self, node: ast.AST) -> Span:
        """Where a node stands, with the parentheses around it that are its own."""
        start, end = self.places.span(node)
        lowest, highest = self._room(node)
        before, behind = blanked(self.text[lowest:start]), blanked(self.text[end:highest])
        while True:
            opening, closing = before.rstrip(" \t\n\f\\"), behind.lstrip(" \t\n\f\\")
            if not opening.endswith("(") or not closing.startswith(")"):
                return start, end
            before, behind = opening[:-1], closing[1:]
            start, end = lowest + len(before), highest - len(behind)

    def _room(self, node: ast.AST) -> Span:
        """Where parentheses of a node may stand: not those of the call that it is an argument of."""
        parent = self.parents[node]
        while not hasattr(parent, "lineno") and parent in self.parents:
            parent = self.parents[parent]
        if not hasattr(parent, "lineno"):
            return self.places.span(node)
        start, end = self.places.span(parent)
        if isinstance(parent, ast.Call) and node is not parent.func:
            return self.opening(parent) + 1, end - 1
        return (start, end) if not isinstance(parent, ast.ClassDef) else self.places.span(node)

    def opening(self, call: ast.Call) -> int:
        """Where the bracket of a call's arguments stands."""
        _, end = self.with_parentheses(call.func)
        return end + blanked(self.text[end : self.places.span(call)[1]]).index("(")

    @staticmethod
    def _key(node: ast.AST, shift: int) -> _Key:
        own = cast(ast.expr, node)
        end = (own.end_lineno or 0) - shift, own.end_col_offset or 0
        return (node.__class__, own.lineno - shift, own.col_offset, *end)

    def _find(self, keys: set[_Key]) -> None:
        work: list[ast.AST] = [self.tree]
        while work:
            node = work.pop()
            for child in children(node):
                if isinstance(child, ast.stmt) and not self._may_hold(child):
                    continue
                self.parents[child] = node
                key = self._key(child, 0) if hasattr(child, "end_lineno") else None
                if key in keys and self._is_as_written(child):
                    self._own.setdefault(key, child)
                work.append(child)

    def _may_hold(self, node: ast.stmt) -> bool:
        first = min(one.lineno for one in (node, *getattr(node, "decorator_list", ())))
        return self.is_touched(first, node.end_lineno or first)

    def _is_as_written(self, node: ast.AST) -> bool:
        """Before Python 3.12 the places in an f-string may be wrong."""
        if self.string_around(node) is None:
            return True
        try:
            there = ast.parse(f"({self.places.source(node)})", mode="eval").body
        except (SyntaxError, ValueError):
            return False
        return ast.dump(there) == ast.dump(node)

    def string_around(self, node: ast.AST) -> ast.JoinedStr | None:
        """The f-string that an expression stands in."""
        above: ast.AST | None = self.parents.get(node)
        while isinstance(above, ast.expr | ast.keyword | ast.comprehension):
            if isinstance(above, ast.JoinedStr):
                return above
            above = self.parents.get(above)
        return None
