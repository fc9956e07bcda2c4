"""The cells around the training: they run once, in the kernel's own process, as their author wrote them.

A script's conversion guards what every process would do, and takes a device away that the accelerator knows. No other
process runs the cells around the training, so their statements become what they were, except where they call a function
that the conversion has changed, or use an object that only a changed function may see.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from crosstrain_migrate.rules.distribution.plain import Lines

from .cell_dependencies import Statements, stored
from .statement_forms import (
    HOLDER,
    calls_one_of,
    first_of,
    guarded_by,
    is_construct,
    is_own,
    is_prepare,
    targets_of,
)

_NONE: frozenset[str] = frozenset()
_DEVICES = ("cuda", "mps", "cpu", "xpu")


@dataclass(frozen=True)
class Insertion:
    """A statement of the original that comes back, above this line of the migrated text."""

    line: int
    original: ast.stmt


class Kernel:
    """`bodies`: the statements that move into functions; `now` and `before`: the notebook, migrated and as it was."""

    def __init__(self, before: Statements, now: Statements, bodies: Collection[ast.stmt]) -> None:
        self.before, self.now = before, now
        self.statements = [s for s in now.running if s not in bodies]
        self._origin = Lines(before.text, now.text)
        inside = {self._origin(line) for s in bodies for line in range(s.lineno, (s.end_lineno or 0) + 1)}
        self._originals = [s for s in before.running if s.lineno not in inside]
        self.prepared = {n for s in now.running if is_prepare(s) for n in stored([s])}
        self._changed = self._changed_definitions(bodies)
        self.back: dict[
            ast.stmt, list[ast.stmt]
        ] = {}  # a migrated statement, and the originals it becomes again
        self.insertions: list[Insertion] = []
        self.gone: list[ast.stmt] = []
        self._give_back()

    def _changed_definitions(self, bodies: Collection[ast.stmt]) -> set[str]:
        """What the conversion has changed and the training uses, and what calls that; other definitions come back."""
        old = {name: ast.dump(node) for name, node in self.before.defined.items()}
        changed = {n for n, node in self.now.defined.items() if old.get(n) != ast.dump(node)}
        used = {d.name for d in self.now.uses(bodies)}
        kept = changed & used | {
            n for n, nodes in self.now.outside.items() if any(_knows_holder(d) for d in nodes)
        }
        while more := {n for n in changed - kept if n not in old or self.before.reads.get(n, _NONE) & kept}:
            kept |= more
        self.definitions = {n: self.before.defined[n] for n in changed - kept}
        return kept

    def altered(self, statements: Iterable[ast.stmt]) -> list[ast.stmt]:
        """Those that stay migrated, or that call what was."""
        return [
            s
            for s in statements
            if s not in self.back
            and s not in self.gone
            and not self._is_moved(s)
            and (self._calls_changed(self.now, s) or ast.dump(s) not in self._dumps)
        ]

    def own(self, statement: ast.stmt) -> list[ast.stmt]:
        """A statement as the kernel will run it; nothing where it goes."""
        if statement in self.gone or self._is_moved(statement):
            return []
        return self.back.get(statement, [statement])

    def source(self, statement: ast.stmt) -> list[str]:
        """The lines of a statement that `own` gave, or of the original."""
        return self.before.text.split("\n")[first_of(statement) - 1 : statement.end_lineno]

    def between(self, above: ast.stmt, below: ast.stmt) -> list[str]:
        """The lines between two statements of the original: comments, and blank ones."""
        return self.before.text.split("\n")[above.end_lineno or 0 : first_of(below) - 1]

    # -- what becomes as it was ------------------------------------------------------------------------------

    def _give_back(self) -> None:
        taken: set[ast.stmt] = set()
        for statement in self.statements:
            if _waits(statement) or self._is_idle_move(statement):
                self.gone.append(statement)
            elif not self._is_moved(statement) and self._may_come_back(statement):
                if guarded := self._guarded(statement, taken):
                    taken |= set(guarded)
                    self.back[statement] = guarded
                    continue
                original = self._original(statement)
                if original is not None and original not in taken:
                    taken.add(original)
                    if ast.dump(original) != ast.dump(statement):
                        self.back[statement] = [original]
        self._give_back_placements()
        self._give_back_lost()

    def _is_idle_move(self, statement: ast.stmt) -> bool:
        """`model = model.to(device)` of what is prepared in each process, unless a cell before that computes with it.

        What is moved to the CPU, or moved after the last training, is moved for the kernel's own sake.
        """
        value = statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
        called = value.func if isinstance(value, ast.Call) else None
        if not isinstance(called, ast.Attribute) or called.attr not in ("to", "cuda"):
            return False
        name = called.value.id if isinstance(called.value, ast.Name) else ""
        own = isinstance(statement, ast.Expr) or targets_of(statement) == [name]
        assert isinstance(value, ast.Call)
        if not own or name not in self.prepared or any(_is_device(a) and _is_cpu(a) for a in value.args):
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
        return any(
            set(names) & _named(s) and self._devices & _named(s) and not stored([s]) & set(names)
            for s in between
        )

    def _may_come_back(self, statement: ast.stmt) -> bool:
        """A model that the training prepares need not be on a device before it."""
        return HOLDER in _named(statement) or not stored([statement]) & self.prepared

    def _give_back_placements(self) -> None:
        """`model = Net().to(device)`, where a cell before any training computes with the model on its device."""
        for statement in self.statements:
            names = stored([statement]) & self.prepared
            original = self._original(statement) if names and not self._is_moved(statement) else None
            if original is None or statement in self.back or ast.dump(original) == ast.dump(statement):
                continue
            if self._is_used_above(names, statement):
                self.back[statement] = [original]

    def _give_back_lost(self) -> None:
        """What the migrated text does not make any more, and cells of the kernel still read."""
        while lost := [s for s in self._originals if self._is_lost(s)]:
            self.insertions += [Insertion(self._place(s), s) for s in lost]

    def _is_lost(self, original: ast.stmt) -> bool:
        """Whether the kernel reads what a statement made that no statement makes now as it did."""
        if any(i.original is original for i in self.insertions):
            return False
        cell, said = self.before.cell(original), ast.dump(original)
        own = [original for s in self.statements for original in self.own(s)]
        own += [i.original for i in self.insertions]
        reading = (*own, *self.now.defined.values())  # a default is read where its function is defined
        made = stored([original]) & {n for s in reading for n in _named(s)}
        if not made or any(ast.dump(s) == said for s in own):
            return False
        have = stored(self.now.tree.body) | {n for i in self.insertions for n in stored([i.original])}
        as_before = not made & self.prepared and not self._calls_changed(self.before, original)
        return bool(made - have) or (as_before and cell in self._cells)

    def _place(self, original: ast.stmt) -> int:
        """The line of the migrated text above which an original belongs."""
        cell = self.before.cell(original)
        for statement in self.now.of_cell(cell):
            if self._origin(statement.lineno) >= original.lineno and not self._is_moved(statement):
                return statement.lineno
        return self.now.cells.last(cell) + 1

    def _guarded(self, statement: ast.stmt, taken: Collection[ast.stmt]) -> list[ast.stmt]:
        """The author's statements under a guard for one process, if they are those of the cell and need nothing changed."""
        cell, found = self.now.cell(statement), []
        own = {ast.dump(o): o for o in self._originals if self.before.cell(o) == cell and o not in taken}
        for inner in guarded_by(statement):
            original = own.get(ast.dump(inner))
            if original is None or self._calls_changed(self.before, original):
                return []
            found.append(original)
        return found

    def _original(self, statement: ast.stmt) -> ast.stmt | None:
        """The author's statement, if it makes the same and needs nothing that has changed."""
        cell, first = self.now.cell(statement), self._origin(statement.lineno)
        last = self._origin(statement.end_lineno or statement.lineno)
        for original in self._originals:
            if self.before.cell(original) != cell or original.lineno > last:
                continue
            if (original.end_lineno or 0) < first or stored([original]) != stored([statement]):
                continue
            return None if self._calls_changed(self.before, original) else original
        return None

    # -- what is asked ---------------------------------------------------------------------------------------

    @cached_property
    def _cells(self) -> frozenset[int]:
        """The cells in which the migrated text makes its own of the author's names."""
        return frozenset(self.now.cell(s) for s in (*self.back, *self.gone))

    @cached_property
    def _dumps(self) -> frozenset[str]:
        return frozenset(ast.dump(s) for s in self.before.running)

    @cached_property
    def _devices(self) -> frozenset[str]:
        return frozenset(
            name
            for s in self.before.running
            if isinstance(s, ast.Assign | ast.If)
            for name in _chosen_devices(s)
        )

    def device_of(self, statements: Sequence[ast.stmt]) -> str:
        """How these statements name the device they compute on; empty where they do not."""
        named = sorted(self._devices & self.now.reach(statements))
        if len(named) == 1:
            return named[0]
        return "Accelerator().device" if named or any(_calls_cuda(s) for s in statements) else ""

    def _calls_changed(self, notebook: Statements, statement: ast.stmt) -> bool:
        return bool(notebook.reach([statement]) & self._changed)

    def _is_moved(self, statement: ast.stmt) -> bool:
        return is_construct(statement) or is_prepare(statement)


def _waits(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Call) and is_own(value.func, "wait_for_everyone")


def _named(statement: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}


def _knows_holder(node: ast.AST) -> bool:
    return any(
        (isinstance(n, ast.Name) and n.id == HOLDER) or (isinstance(n, ast.arg) and n.arg == HOLDER)
        for n in ast.walk(node)
    )


def _chosen_devices(statement: ast.stmt) -> set[str]:
    """The variables that a statement sets to a device: `torch.device(...)`, `"cuda" if ... else "cpu"`."""
    assigned = (n for n in ast.walk(statement) if isinstance(n, ast.Assign) and _is_device(n.value))
    return {name for n in assigned for name in stored([n])}


def _is_device(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str) and value.value.split(":")[0] in _DEVICES
    if isinstance(value, ast.JoinedStr | ast.BoolOp):
        return any(map(_is_device, value.values))
    if isinstance(value, ast.IfExp):
        return _is_device(value.body) or _is_device(value.orelse)
    return calls_one_of(value, ("device",)) and any(
        _is_device(a) for n in ast.walk(value) if isinstance(n, ast.Call) for a in n.args
    )


def _is_cpu(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value == "cpu"


def _calls_cuda(statement: ast.stmt) -> bool:
    return any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "cuda"
        for n in ast.walk(statement)
    )
