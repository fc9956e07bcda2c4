"""From an assumption to the checks that test it.

An assumption stands in the text before, where a value comes from; the runtime checks the value where the converted
script hands it over: at a `gather_for_metrics`, a `backward`, a `prepare`. `Program` follows the value there through
the names that it is given, over functions and files. Names stand for all that is ever stored in them, so it may
reach a check of another value of that name, and misses what goes through a library's objects.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from crosstrain_migrate.syntax.nodes import Function, last_name
from crosstrain_migrate.syntax.walks import children

SIMILAR = 0.4  # how much of a rewritten statement must be as it was
_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")
_ADDING = frozenset({"append", "appendleft", "extend", "add", "insert", "update", "setdefault", "put"})
Key = tuple[ast.AST | None, str]  # a variable of a function or module; None: an attribute, wherever it is


@dataclass(eq=False)
class Step:
    """A simple statement, or the head of a compound one, in a function (or module) of a file."""

    file: str
    module: ast.Module
    scope: ast.AST
    suite: list[ast.stmt]
    node: ast.stmt

    @cached_property
    def head(self) -> list[ast.AST]:
        """The nodes of the statement, without those of the statements in it."""
        inner = {id(one) for name in _BODIES for one in getattr(self.node, name, ())}
        found = [child for child in children(self.node) if id(child) not in inner]
        for node in found:  # which grows meanwhile
            found += children(node)
        return found

    def holds(self, line: int) -> bool:
        """Whether a line belongs to it, and not to a statement in it."""
        below = (stmt for name in _BODIES for stmt in getattr(self.node, name, ()))
        inner = [stmt.lineno for stmt in below if hasattr(stmt, "lineno")]
        end = self.node.end_lineno or self.node.lineno
        return self.node.lineno <= line <= (max(min(inner) - 1, self.node.lineno) if inner else end)

    @cached_property
    def writes(self) -> set[Key]:
        """What it binds or changes."""
        found: set[Key] = set()
        for node in self.head:
            if isinstance(getattr(node, "ctx", None), ast.Store):
                found |= self._stored(node)
        call = self.node.value if isinstance(self.node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _ADDING:
            found |= self._stored(call.func.value)
        return found

    @cached_property
    def reads(self) -> set[Key]:
        return self.read_in(self.head)

    def read_in(self, nodes: Iterable[ast.AST]) -> set[Key]:
        """The variables whose values these nodes use; a name that the function does not bind is the module's, too."""
        found: set[Key] = set()
        for node in nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found |= {(self.scope, node.id), (self.module, node.id)}
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.add((None, ast.unparse(node)))
        return found

    def _stored(self, target: ast.AST) -> set[Key]:
        while isinstance(target, ast.Subscript | ast.Starred):
            target = target.value
        if isinstance(target, ast.Name):
            return {(self.scope, target.id)}
        return {(None, ast.unparse(target))} if isinstance(target, ast.Attribute) else set()


class Program:
    """The texts before and after of all files, by name."""

    def __init__(self, texts: Mapping[str, tuple[str, str]]) -> None:
        self._before = {name: (text, list(_steps(name, text))) for name, (text, _) in texts.items()}
        self._after = {name: (text, list(_steps(name, text))) for name, (_, text) in texts.items()}
        self._steps = [step for _, steps in self._after.values() for step in steps]
        self._functions: dict[str, list[Function]] = {}
        for step in self._steps:
            if isinstance(step.node, Function):
                self._functions.setdefault(step.node.name, []).append(step.node)
            elif isinstance(step.node, ast.ClassDef):
                methods = (one for one in step.node.body if isinstance(one, Function))
                made = [one for one in methods if one.name == "__init__"]
                self._functions.setdefault(step.node.name, []).extend(made)

    def reached(self, name: str, line: int, places: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
        """Of these (file, line) of the texts after those to which the value goes that comes from a line before."""
        origin = self._counterpart(name, line)
        by_step = {step: place for place in places if (step := self._at(*place)) is not None}
        if origin is None or origin in by_step:
            return {by_step[origin]} if origin is not None else set()
        live = self._live(origin, set(by_step))
        return {by_step[step] for step in (*live, *_just_before(origin, by_step)) if step in by_step}

    def _at(self, name: str, line: int) -> Step | None:
        return _holding(self._after[name][1], line) if name in self._after else None

    def _counterpart(self, name: str, line: int) -> Step | None:
        """The statement after that stands where the one at `line` before stood: the same one, or the most similar of those
        that took the place of its lines."""
        (before, old), (after, new) = self._before[name], self._after[name]
        step = _holding(old, line)
        if step is None:
            return None
        row = step.node.lineno - 1
        matcher = difflib.SequenceMatcher(None, before.split("\n"), after.split("\n"), autojunk=False)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            if i1 <= row < i2:
                if tag == "equal":
                    return _holding(new, row - i1 + j1 + 1)
                likely = [(_likeness(step, one), one) for one in new if j1 < one.node.lineno <= j2]
                score, found = max(likely, key=lambda one: one[0], default=(0.0, None))
                return found if score >= SIMILAR else None
        return None

    def _live(self, origin: Step, ends: set[Step]) -> set[Step]:
        """The statements that use the value, or what is made of it; it is followed no further than to `ends`."""
        live: set[Step] = set()
        known: set[Key] = set()
        returning: set[str] = set()
        size = -1
        while size != len(live) + len(known) + len(returning):
            size = len(live) + len(known) + len(returning)
            for step in self._steps:
                if not (step is origin or step.reads & known or _calls(step.head) & returning):
                    continue
                live.add(step)
                if step in ends:
                    continue
                known |= step.writes | self._handed_over(step, known, returning, everything=step is origin)
                if isinstance(step.scope, Function) and _hands_back(step):
                    returning.add(step.scope.name)
        return live

    def _handed_over(self, step: Step, known: set[Key], returning: set[str], *, everything: bool) -> set[Key]:
        """The parameters that the calls in a statement give something known, or what a function returns that does."""
        found: set[Key] = set()
        for call in (node for node in step.head if isinstance(node, ast.Call)):
            for function in self._functions.get(last_name(call.func), ()):
                names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
                bound = names[1:] if names[:1] == ["self"] else names
                by_name = ((keyword.arg or "", keyword.value) for keyword in call.keywords)
                for name, value in (*zip(bound, call.args, strict=False), *by_name):
                    parts = list(ast.walk(value))
                    if everything or step.read_in(parts) & known or _calls(parts) & returning:
                        found.add((function, name))
        return found


def _steps(file: str, text: str) -> Iterator[Step]:
    try:
        module = ast.parse(text)
    except SyntaxError:  # a notebook's cells with magics
        return
    work: list[tuple[ast.AST, ast.AST]] = [(module, module)]
    while work:
        owner, scope = work.pop()
        for name in _BODIES:
            suite = [stmt for stmt in getattr(owner, name, ()) if isinstance(stmt, ast.stmt)]
            for node in suite:
                yield Step(file, module, scope, suite, node)
                work.append((node, node if isinstance(node, Function) else scope))
            work.extend(
                (one, scope)
                for one in getattr(owner, name, ())
                if isinstance(one, ast.ExceptHandler | ast.match_case)
            )


def _holding(steps: Iterable[Step], line: int) -> Step | None:
    return next((step for step in steps if step.holds(line)), None)


def _likeness(one: Step, other: Step) -> float:
    if type(one.node) is not type(other.node):
        return 0.0
    old, new = (ast.unparse(step.node).split("\n")[0] for step in (one, other))
    return float(difflib.SequenceMatcher(None, old, new, autojunk=False).ratio())


def _just_before(origin: Step, steps: Iterable[Step]) -> Iterator[Step]:
    """Those of the statements that stand above it in its suite and bind what it uses: rows gathered for it."""
    for step in steps:
        above = step.suite is origin.suite and step.node.lineno < origin.node.lineno
        if above and step.writes & origin.reads:
            yield step


def _calls(nodes: Iterable[ast.AST]) -> set[str]:
    return {last_name(node.func) for node in nodes if isinstance(node, ast.Call)}


def _hands_back(step: Step) -> bool:
    return isinstance(step.node, ast.Return) or any(
        isinstance(node, ast.Yield | ast.YieldFrom) for node in step.head
    )
