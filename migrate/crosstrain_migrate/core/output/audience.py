"""Which processes come to a place: all of them, one that a guard lets through, each for batches of its own, or a worker of
a data loader."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable

from crosstrain_migrate.core.reading.alike import comes_alike, may_differ, what_may_differ
from crosstrain_migrate.core.reading.forms import FUNCTIONS, Frame, Loop
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.core.reading.workers import FOR_ROWS, given_to_workers
from crosstrain_migrate.syntax.nodes import Function, last_name, place_of, written
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.walks import walk, walk_all

_DEPTH = 4  # how far the callers of a function are followed
ALL, TURNS, ONE, OWN, WORKER = "all", "one after another", "one", "own batches", "worker"
# A process's number, or whether it is the first: no `lora_rank`, no `rank_loss`.
_ASKS_PROCESS = re.compile(
    r"((get|is|my|node|local|global|world|proc|process|dist|ddp|mpi|hvd)_?)*rank(_?(id|zero|0))?|slurm_procid"
    r"|\w*(is_main|is_master|main_process|master_process)\w*",
    re.I,
)


class Audience:
    """Answers for code as its author wrote it, and for what has been guarded since."""

    def __init__(
        self,
        script: Script,
        dealt: list[ast.For],
        passes: Iterable[Loop | None] = (),
        ours: Callable[[ast.AST], bool] | None = None,
    ) -> None:
        """dealt: loops of evaluations of which each process does some batches. passes: the loops over what trains, in which
        all make the same number of steps. ours: which code its author has not shared out: that of a first process."""
        self.script = script
        self._passes = {*passes}
        self._dealt = {id(node) for loop in dealt for node in walk_all(loop.body)}
        self._ours, self.is_first = ours or (lambda _: True), ours is not None
        self._guarded: dict[int, str] = {}
        self._of_frames: dict[Frame, frozenset[str]] = {}
        self._for_workers = {*FOR_ROWS, *given_to_workers(script)}

    def guard(self, *statements: ast.AST, who: str = ONE) -> None:
        """From now on one process, or one after another, comes to these statements."""
        self._guarded |= dict.fromkeys(map(id, walk_all(statements)), who)
        self._of_frames.clear()

    def is_guarded(self, node: ast.AST) -> bool:
        """Whether a guard in its own function lets one process through to a node."""
        if id(node) in self._guarded or not self._ours(node):
            return True
        if self.is_first:
            return False  # its rank is that of a machine
        below = node
        for one in self.script.around(node):
            if isinstance(one, FUNCTIONS):
                return False
            if (
                isinstance(one, ast.If)
                and below not in one.orelse
                and below is not one.test
                and _asks_process(one.test)
            ):
                return True
            below = one
        return False

    def is_own(self, node: ast.AST) -> bool:
        """Whether a node stands in a loop over batches of which each process has some."""
        return id(node) in self._dealt

    def is_all(self, node: ast.AST) -> bool:
        """Whether every process comes to a node, and not only for batches of its own."""
        return ALL in self.of(node)

    def of(self, node: ast.AST) -> frozenset[str]:
        """Who comes to a node, by whichever way."""
        if self.is_guarded(node):
            return frozenset({self._guarded.get(id(node), ONE)})
        if self.is_own(node):
            return frozenset({OWN})
        return self._of_frame(self.script.frame(node))

    def _of_frame(self, frame: Frame) -> frozenset[str]:
        if isinstance(frame, ast.Module):
            return frozenset({ALL})
        if frame not in self._of_frames:
            self._of_frames[frame] = frozenset()  # for a function that calls itself
            self._of_frames[frame] = self._of_function(frame)
        return self._of_frames[frame]

    def _of_function(self, function: Function) -> frozenset[str]:
        if function.name in self._for_workers:
            return frozenset({WORKER})
        calls = self.script.callers(function)
        if not calls:
            return frozenset({ALL})
        return frozenset(who for call in calls for who in self.of(call)) or frozenset({ALL})

    def comes_alike(
        self, node: ast.AST, depth: int = _DEPTH, is_same: Callable[[ast.expr], bool] = lambda _: False
    ) -> bool:
        """Whether every process comes to a node when one does, so that they may wait for each other there. A function that
        is called in a `try` may be waited for where its handlers raise again; what is itself tried may be there already.

        is_same: whether a test that asks for more than options is known to tell all the same, or an error to reach all.
        """
        below = node
        for loop in self.script.loops_around(node):
            is_written_out = isinstance(below, ast.For) and isinstance(below.iter, ast.List | ast.Tuple)
            if below is not node and below not in self._passes and not is_written_out:
                return False  # a loop within a loop may turn more often on one process
            if not comes_alike(
                self.script, below, loop, what_may_differ(self.script, loop, self._turns(loop))
            ):
                return False
            below = loop
        around = list(self.script.around(below))
        for inner, one in zip((below, *around), around, strict=False):
            if isinstance(one, FUNCTIONS):
                break
            if isinstance(inner, ast.ExceptHandler) and inner.type is not None and is_same(inner.type):
                continue
            if isinstance(one, ast.Try):
                raises = (any(isinstance(n, ast.Raise) for n in walk(handler)) for handler in one.handlers)
                if depth == _DEPTH or inner not in one.body or not all(raises):
                    return False
                continue
            if not isinstance(one, ast.If) or is_main_test(one):
                continue
            if may_differ(one.test, set()) and not is_same(one.test):
                return False
        frame = self.script.frame(node)
        if isinstance(frame, ast.Module):
            return True
        calls = self.script.callers(frame)
        return depth > 0 and all(self.is_all(c) and self.comes_alike(c, depth - 1, is_same) for c in calls)

    def _turns(self, loop: Loop) -> set[str]:
        """`i` of `for i in range(steps)`, which is the same on all: no loop over batches of which each process has some."""
        if isinstance(loop, ast.While) or loop in self._passes or not isinstance(loop.target, ast.Name):
            return set()
        return {loop.target.id} if written(loop.iter).startswith("range(") else set()

    def is_part(self, node: ast.AST, function: Function, depth: int = _DEPTH) -> bool:
        """Whether a node is run by a function alone, or by those that it calls, or is its call."""
        frame = self.script.frame(node)
        if frame is function or node in self.script.callers(function):
            return True
        calls = self.script.callers(frame) if depth and not isinstance(frame, ast.Module) else []
        return bool(calls) and all(self.is_part(one, function, depth - 1) for one in calls)

    def comes_after(self, later: ast.AST, earlier: ast.AST) -> bool:
        """Whether a run may come to one node when it has been at the other: below it, or in the next turn of a loop."""
        others = self.ways(earlier)
        for node in self.ways(later):
            for other in others:
                if self.script.frame(node) is self.script.frame(other):
                    loops = set(self.script.loops_around(node)) & set(self.script.loops_around(other))
                    if loops or (place_of(node) > place_of(other) and not self._is_other_arm(node, other)):
                        return True
        return False

    def _is_other_arm(self, later: ast.AST, earlier: ast.AST) -> bool:
        """Whether a node stands in the `else` of an `if` in whose body the other one stands."""
        around = [one for one in self.script.around(earlier) if isinstance(one, ast.If)]
        inside = self.script.table.is_inside
        return any(
            any(inside(later, s) for s in one.orelse) and any(inside(earlier, s) for s in one.body)
            for one in around
        )

    def ways(self, node: ast.AST) -> list[ast.AST]:
        """A node and the calls that lead to it."""
        found = [node]
        for one in found:  # which grows meanwhile
            frame = self.script.frame(one)
            if not isinstance(frame, ast.Module):
                found += [call for call in self.script.callers(frame) if call not in found]
        return found


def _asks_process(test: ast.expr) -> bool:
    """Whether a test asks which process this is, by a name or a text of the environment."""
    names = (
        n.value if isinstance(n, ast.Constant) else last_name(n)
        for n in walk(test)
        if isinstance(n, ast.Name | ast.Attribute | ast.Constant)
    )
    return any(isinstance(name, str) and _ASKS_PROCESS.fullmatch(name.strip("_")) for name in names)
