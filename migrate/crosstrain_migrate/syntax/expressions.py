"""Carries out the edits inside statements: expressions that are replaced, arguments that come and go."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import lru_cache

from . import edits as e
from .comments import blanked, comments
from .located import Located
from .places import Span

_HOLE = re.compile(r"\{(\w+)\}")
# What needs its parentheses also where it is an argument.
_KEEPS_PARENTHESES = (ast.Tuple, ast.GeneratorExp, ast.NamedExpr, ast.Yield)
_WORD = re.compile(r"\w")


@dataclass(frozen=True)
class _Site:
    """A node that becomes something else, and what it takes up in the text."""

    node: ast.AST
    span: Span


class Expressions:
    """The code of a file with these edits made."""

    def __init__(self, located: Located) -> None:
        self._located = located
        self._text = located.text
        kinds = (e.Replace, e.ReplaceStatement, e.InsertArgument, e.RemoveArgument)
        nodes = [node for node, edits in located.edits.items() if any(isinstance(x, kinds) for x in edits)]
        sites = [_Site(node, self._span(node)) for node in nodes]
        self._sites = sorted(
            sites, key=lambda one: (one.span[0], -one.span[1], not isinstance(one.node, ast.stmt))
        )

    def _span(self, node: ast.AST) -> Span:
        if self._located.made(node, e.Replace):
            return self._located.with_parentheses(node)
        return self._located.places.span(node)

    def code(self, start: int, end: int, above: int = 0) -> str:
        """The text from `start` to `end`. above: the number of the site that this is the inside of, and one."""
        pieces: list[str] = []
        at = start
        for number, site in enumerate(self._sites[above:], above):
            first, last = site.span
            if at <= first and last <= end:
                new = self._replaced(number, site)
                pieces.append(self._text[at:first])
                if _WORD.match(new) and first and _WORD.match(self._text[first - 1]):
                    pieces.append(" ")  # `return(x)`
                pieces.append(new)
                at = last
        return "".join([*pieces, self._text[at:end]])

    def _replaced(self, number: int, site: _Site) -> str:
        node = site.node
        start, end = self._located.places.span(node)
        removals = self._located.made(node, e.RemoveArgument)
        insertions = self._located.made(node, e.InsertArgument)
        if isinstance(node, ast.Call) and (removals or insertions):
            code = self._call(node, number + 1, removals, insertions)
        else:
            code = self.code(start, end, number + 1)
        for edit in self._located.edits[node]:
            if isinstance(edit, e.Replace):
                itself = self._text[site.span[0] : start] + code + self._text[end : site.span[1]]
                code = self._filled(edit, edit.template, itself)
            elif isinstance(edit, e.ReplaceStatement):
                code = self._filled(edit, edit.code, code)
        return code

    # -- templates -------------------------------------------------------------------------------------------

    def _filled(self, edit: e.Replace | e.ReplaceStatement, template: str, itself: str) -> str:
        """The template with its holes filled. itself: the code of the very node that is replaced."""
        node = self._located.own(edit.node, edit)
        string = self._located.string_around(node)
        if string is not None and self._opened_by(string).endswith('"'):
            # Before Python 3.12 a string inside an f-string may not use the f-string's own quotes.
            template = template.replace('"', "'")
        if not edit.holes:
            return template
        arguments = _argument_holes(template)
        pieces, at = [], 0
        for found in _HOLE.finditer(template):
            hole = self._located.own(edit.holes[found[1]], edit)
            code = itself if hole is node else self.code(*self._located.with_parentheses(hole))
            start, end = found.span()
            if is_in_parentheses(code):
                if found[1] in arguments:
                    code = _without_parentheses(code)
                elif template[start - 1 : start] == "(" and template[end : end + 1] == ")":
                    start, end = start - 1, end + 1  # `({x}).backward()` of what has its own
            pieces += [template[at:start], code]
            at = end
        return "".join([*pieces, template[at:]])

    def _opened_by(self, string: ast.JoinedStr) -> str:
        """The opening quotes of an f-string."""
        start, _ = self._located.places.span(string)
        found = re.compile(r"\w*('''|\"\"\"|'|\")").match(self._text, start)
        return found[1] if found else ""

    # -- calls -----------------------------------------------------------------------------------------------

    def _call(
        self, call: ast.Call, above: int, removals: list[e.RemoveArgument], insertions: list[e.InsertArgument]
    ) -> str:
        start, end = self._located.places.span(call)
        opening = self._located.opening(call)
        given: list[ast.expr | ast.keyword] = sorted(
            [*call.args, *call.keywords], key=lambda one: (one.lineno, one.col_offset)
        )
        spans = [self._located.with_parentheses(one) for one in given]
        if (
            len(spans) == 1 and spans[0][0] == opening
        ):  # `sum(x for x in rows)`: one pair of parentheses for both
            items = [_Argument(given[0], self.code(opening, end, above), "")]
            head = self.code(start, opening, above) + "("
        else:
            starts = [*(span[0] for span in spans), end - 1]
            head = self.code(start, starts[0], above)
            items = [
                _Argument(one, self.code(*span, above), self._text[span[1] : stop])
                for one, span, stop in zip(given, spans, starts[1:], strict=True)
            ]
        for removal in removals:
            assert removal.argument is not None
            items = _without(items, self._located.own(removal.argument, removal), removal)
        for insertion in insertions:
            items = _with(items, insertion)
        return "".join([head, *(item.code + item.behind for item in items), ")"])


@dataclass(frozen=True)
class _Argument:
    """An argument, its code, and what stands between it and the next, or the closing bracket."""

    node: ast.AST | None
    code: str
    behind: str

    @property
    def value(self) -> ast.AST | None:
        return self.node.value if isinstance(self.node, ast.keyword) else self.node


def _without(items: list[_Argument], gone: ast.AST, edit: e.Edit) -> list[_Argument]:
    kept = [one for one in items if one.value is not gone]
    if len(kept) == len(items):
        raise e.EditNotApplied(edit)
    if kept and items[-1].value is gone:
        kept[-1] = _Argument(kept[-1].node, kept[-1].code, _closed(kept[-1].behind, items[-1].behind))
    return kept


def _closed(behind: str, closing: str) -> str:
    """What stands behind the last argument, with the comment that stood behind this one."""
    line, newline, _ = behind.partition("\n")
    if not newline or not comments(line) or "\n" not in closing:
        return closing
    comma = "," if "," in blanked(closing) else ""
    return comma + line[line.index(",") + 1 :] + closing[closing.index("\n") :]


def _with(items: list[_Argument], edit: e.InsertArgument) -> list[_Argument]:
    new = edit.code
    if not items:
        return [_Argument(None, new, "")]
    comma = _separator(items)
    if 0 <= edit.position < len(items):
        return [*items[: edit.position], _Argument(None, new, comma), *items[edit.position :]]
    last = items[-1]
    behind = last.behind
    line, newline, rest = behind.partition("\n")
    if "\n" in comma and newline and comments(line) and "," not in blanked(behind):
        # A comment behind the last argument stays on its line.
        comma, behind = f",{line}{comma[1:]}", newline + rest
    return [*items[:-1], _Argument(last.node, last.code, comma), _Argument(None, new, behind)]


def _separator(items: list[_Argument]) -> str:
    """A comma and a space; a comma and a new line where the author gives each item a line of its own."""
    between = [item.behind for item in items[:-1]]
    if not between or not all("\n" in one[blanked(one).index(",") :] for one in between):
        return ", "
    return ",\n" + between[0].rpartition("\n")[2]


@lru_cache(maxsize=64)
def _argument_holes(template: str) -> frozenset[str]:
    """The holes of a template that are whole arguments."""
    tree = ast.parse(_HOLE.sub(r"__hole_\1__", template))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    given = [one for call in calls for one in (*call.args, *(keyword.value for keyword in call.keywords))]
    values = [one.value if isinstance(one, ast.Starred) else one for one in given]
    names = (one.id for one in values if isinstance(one, ast.Name))
    return frozenset(name[len("__hole_") : -2] for name in names if name.startswith("__hole_"))


def is_in_parentheses(code: str) -> bool:
    """Whether the first bracket of an expression closes with its last."""
    if not code.startswith("(") or not code.endswith(")"):
        return False
    depth = 0
    for at, sign in enumerate(blanked(code)):
        depth += (sign == "(") - (sign == ")")
        if not depth:
            return at == len(code) - 1
    return False


def _without_parentheses(code: str) -> str:
    """An argument needs no parentheses of its own."""
    inner = code[1:-1].strip()
    if is_in_parentheses(inner) or inner.startswith("#"):
        return code
    kind = ast.parse(code, mode="eval").body
    return code if isinstance(kind, _KEEPS_PARENTHESES) else inner
