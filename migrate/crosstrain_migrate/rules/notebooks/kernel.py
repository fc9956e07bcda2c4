"""The cells around the training run once, in the kernel's own process, as their author wrote them.

A script's conversion guards what every process would do, and removes devices that the accelerator knows. No other process
runs the cells around the training, so their statements become again what they were, except where they call a function
that the conversion has changed, or use an object that only a changed function may see.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from functools import cached_property

from crosstrain_migrate.syntax.bindings import bindings
from crosstrain_migrate.syntax.lines import Lines

from .cell_dependencies import Statements
from .statement_forms import (
    HOLDER,
    calls_method,
    calls_one_of,
    end_of,
    first_of,
    guarded_by,
    is_construct,
    is_merge,
    is_own,
    is_prepare,
    names_in,
    targets_of,
)

_NONE: frozenset[str] = frozenset()
_DEVICES = ("cuda", "mps", "cpu", "xpu")


class Kernel:
    """What the kernel runs of a notebook. `before` and `now`: as it was, and migrated; `bodies`: the statements that move
    into functions.

    definitions: functions and classes that become again what they were. back: statements that do, each with its originals.
    gone: statements that go.
    """

    def __init__(self, before: Statements, now: Statements, bodies: Collection[ast.stmt]) -> None:
        self.before, self.now = before, now
        self.statements = [s for s in now.running if s not in bodies]
        self._origin = Lines(before.text, now.text)
        inside = {self._origin(line) for s in bodies for line in _lines_of(s) - _inserted_lines(s)}
        self._originals = [s for s in before.running if s.lineno not in inside]
        self.prepared = {n for s in now.running if is_prepare(s) for n in bindings([s])}
        self._changed = self._changed_definitions(bodies)
        self.back: dict[ast.stmt, list[ast.stmt]] = {}
        self.gone: list[ast.stmt] = []
        self._give_back()

    def _changed_definitions(self, bodies: Collection[ast.stmt]) -> set[str]:
        """The functions and classes that the training uses changed, and those that call them; the others come back."""
        old = {name: ast.dump(node) for name, node in self.before.defined.items()}
        changed = {n for n, node in self.now.defined.items() if old.get(n) != ast.dump(node)}
        used = {d.name for d in self.now.uses(bodies)}
        kept = changed & used
        kept |= {n for n, nodes in self.now.outside.items() if any(map(_knows_holder, nodes))}
        while more := {n for n in changed - kept if n not in old or self.before.reads.get(n, _NONE) & kept}:
            kept |= more
        self.definitions = {n: self.before.defined[n] for n in changed - kept}
        return kept

    def altered(self, statements: Iterable[ast.stmt]) -> list[ast.stmt]:
        """Those that stay migrated, or that call what the conversion has changed."""
        own = [s for s in statements if s not in self.back and self.own(s)]
        return [s for s in own if self._calls_changed(self.now, s) or ast.dump(s) not in self._dumps]

    def own(self, statement: ast.stmt) -> list[ast.stmt]:
        """A statement as the kernel will run it; nothing where it goes."""
        if statement in self.gone or _is_moved(statement):
            return []
        return self.back.get(statement, [statement])

    def source(self, *statements: ast.stmt) -> list[str]:
        """The lines of neighbouring statements in the original text, with the comments between them."""
        lines = self.before.text.split("\n")
        return lines[first_of(statements[0]) - 1 : end_of(statements[-1])] if statements else []

    # -- what comes back -------------------------------------------------------------------------------------

    def _give_back(self) -> None:
        taken: set[ast.stmt] = set()
        for statement in self.statements:
            if _waits(statement) or self._is_idle_move(statement):
                self.gone.append(statement)
            elif not _is_moved(statement) and self._may_come_back(statement):
                originals = self._guarded(statement, taken)
                if not originals and (original := self._original(statement, taken)) is not None:
                    originals = [original] if original not in taken else []
                taken |= set(originals)
                if originals and [ast.dump(o) for o in originals] != [ast.dump(statement)]:
                    self.back[statement] = originals

    def _is_idle_move(self, statement: ast.stmt) -> bool:
        """Whether a statement like `model = model.to(device)` is not needed: each process prepares the model.

        It is, where a cell computes with the model before the training. Moves to the CPU, and moves after the last training,
        are for the kernel itself.
        """
        match statement.value if isinstance(statement, ast.Assign | ast.Expr) else None:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="to" | "cuda"), args=given):
                own = not isinstance(statement, ast.Assign) or targets_of(statement) == [name]
            case _:
                return False
        to_cpu = any(isinstance(a, ast.Constant) and a.value == "cpu" for a in given)
        if not own or name not in self.prepared or to_cpu:
            return False
        return self._next_training(statement) > 0 and not self._is_used_above({name}, statement)

    def _next_training(self, statement: ast.stmt) -> int:
        """The line of the first training below a statement, 0 where there is none."""
        lines = (s.lineno for s in self.now.running if s not in self.statements)
        return min((line for line in lines if line > statement.lineno), default=0)

    def _is_used_above(self, names: Collection[str], statement: ast.stmt) -> bool:
        """Whether the kernel computes with a variable on its device between a statement and the next training."""
        until = self._next_training(statement)
        between = [s for s in self.statements if statement.lineno < s.lineno < until]
        using = (s for s in between if not names_in(s).isdisjoint(names) and bindings([s]).isdisjoint(names))
        return any(self._devices & names_in(s) for s in using)

    def _may_come_back(self, statement: ast.stmt) -> bool:
        """Whether the original may come back: a model that the training prepares need not be on a device before."""
        return HOLDER in names_in(statement) or not bindings([statement]) & self.prepared

    def _guarded(self, statement: ast.stmt, taken: Collection[ast.stmt]) -> list[ast.stmt]:
        """The originals of the statements under a guard for one process, if each has one in the cell and needs nothing changed."""
        cell, found = self.now.cell(statement), []
        own = {ast.dump(o): o for o in self._originals if self.before.cell(o) == cell and o not in taken}
        for inner in guarded_by(statement):
            original = own.get(ast.dump(inner))
            if original is None or self._calls_changed(self.before, original):
                return []
            found.append(original)
        return found

    def _original(self, statement: ast.stmt, taken: Collection[ast.stmt] = ()) -> ast.stmt | None:
        """The original of a statement, if it binds the same names and needs nothing that has changed."""
        cell, said = self.now.cell(statement), ast.dump(_with_plain_print(statement))
        for original in self._originals:
            if original not in taken and self.before.cell(original) == cell and ast.dump(original) == said:
                return None if self._calls_changed(self.before, original) else original
        first, last = self._origin(statement.lineno), self._origin(end_of(statement))
        for original in self._originals:
            overlaps = original.lineno <= last and first <= end_of(original)
            if (
                overlaps
                and self.before.cell(original) == cell
                and bindings([original]) == bindings([statement])
            ):
                return None if self._calls_changed(self.before, original) else original
        return None

    # -- questions ------------------------------------------------------------------------------------------

    @cached_property
    def _dumps(self) -> frozenset[str]:
        return frozenset(ast.dump(s) for s in self.before.running)

    @cached_property
    def _devices(self) -> frozenset[str]:
        """The variables that hold a device: `torch.device(...)`, `"cuda" if ... else "cpu"`."""
        choosing = (s for s in self.before.running if isinstance(s, ast.Assign | ast.If))
        assigned = (n for s in choosing for n in ast.walk(s) if isinstance(n, ast.Assign))
        return frozenset(bindings(n for n in assigned if _is_device(n.value)))

    def device_of(self, statements: Sequence[ast.stmt]) -> str:
        """The expression by which these statements name their device; empty where they use none."""
        named = sorted(self._devices & self.now.reach(statements))
        if len(named) == 1:
            return named[0]
        on_device = named or any(calls_method(s, "cuda") for s in statements)
        return "Accelerator().device" if on_device else ""

    def _calls_changed(self, notebook: Statements, statement: ast.stmt) -> bool:
        return bool(notebook.reach([statement]) & self._changed)


class _PlainPrint(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if is_own(node, "print"):
            return ast.Name("print", ast.Load())
        self.generic_visit(node)
        return node


def _with_plain_print(statement: ast.stmt) -> ast.stmt:
    """A copy of the statement with `print` for `accelerator.print`."""
    copy: ast.stmt = _PlainPrint().visit(deepcopy(statement))
    return copy


def _lines_of(statement: ast.stmt) -> set[int]:
    return set(range(statement.lineno, end_of(statement) + 1))


def _inserted_lines(statement: ast.stmt) -> set[int]:
    """The lines of statements within it that the original does not have: a prepare, a merge."""
    inner = [n for n in ast.walk(statement) if isinstance(n, ast.Assign)]
    return {line for s in inner if is_prepare(s) or is_merge(s) for line in _lines_of(s)}


def _is_moved(statement: ast.stmt) -> bool:
    return is_construct(statement) or is_prepare(statement)


def _waits(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Call) and is_own(value.func, "wait_for_everyone")


def _knows_holder(node: ast.AST) -> bool:
    return any(
        (isinstance(n, ast.Name) and n.id == HOLDER) or (isinstance(n, ast.arg) and n.arg == HOLDER)
        for n in ast.walk(node)
    )


def _is_device(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str) and value.value.split(":")[0] in _DEVICES
    if isinstance(value, ast.JoinedStr | ast.BoolOp):
        return any(map(_is_device, value.values))
    if isinstance(value, ast.IfExp):
        return _is_device(value.body) or _is_device(value.orelse)
    given = (a for n in ast.walk(value) if isinstance(n, ast.Call) for a in n.args)
    return calls_one_of(value, ("device",)) and any(map(_is_device, given))
