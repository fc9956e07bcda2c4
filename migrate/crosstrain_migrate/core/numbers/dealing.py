"""Which loops evaluate, and which of these can be dealt to the processes by whole batches (contract, decision 33)."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property

from crosstrain_migrate.core.reading.alike import comes_alike, what_may_differ
from crosstrain_migrate.core.reading.certain import Certain
from crosstrain_migrate.core.reading.forms import (
    Frame,
    Loop,
    is_function_frame,
    is_method,
    names_in,
    root_of,
    without_gradient,
)
from crosstrain_migrate.core.reading.modes import evaluates
from crosstrain_migrate.core.reading.phases import Phases
from crosstrain_migrate.core.reading.ranges import is_range
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.core.reading.workers import given_to_workers, is_for_workers
from crosstrain_migrate.core.training.numbered import turns_read
from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.walks import walk, walk_all

from .accumulators import Left, Pass, Unsure, adds_itself
from .changes import reads
from .computed import computed_again
from .kept_within import asked_behind, methods_that_give_kept

_NOT_DATA = re.compile(r"(glob|listdir|children|modules|sorted|split|keys|items|values|zip_longest)\b")
_KEEPS = re.compile(r"set_|append|extend|update|add")
_NAMED_LIKE_DATA = re.compile(r"load|data|iter|batch|test|val|dev|set\b|dl\b|gen", re.I)


@dataclass(frozen=True)
class Dealt:
    """An evaluation whose batches are dealt.

    phase: the author's own test for training in this loop, or empty. again: where the loader is named a second time,
    `tqdm(loader) if shown else loader`.
    """

    loop: ast.For
    frame: Frame
    source: ast.expr
    left: Left
    phase: str = ""
    again: tuple[ast.expr, ...] = ()


@dataclass(frozen=True)
class Whole:
    """An evaluation that every process does whole, and why. phase: as of `Dealt`; sources: what the loop reads."""

    loop: ast.For
    reason: str
    phase: str
    sources: tuple[ast.expr, ...]


class Evaluations:
    """The evaluations of a script."""

    def __init__(self, script: Script, roles: Roles) -> None:
        self.script = script
        self.roles = roles
        self.phases_of = Phases(script, roles)
        self._certain = Certain(script)
        self.dealt: list[Dealt] = []
        self.whole: list[Whole] = []
        self._seen: set[ast.AST] = set()
        loops = [n for n in script.table.each(ast.For) if script.is_reached(n)]
        for loop in sorted(loops, key=place_of):
            if self._evaluates(loop):
                try:
                    self.dealt.append(self._deal(loop))
                except Unsure as why:
                    self.whole.append(self._whole(loop, str(why)))

    @property
    def phases(self) -> list[ast.For]:
        """The loops that train and evaluate, by a test of the author's."""
        return [d.loop for d in self.dealt if d.phase] + [w.loop for w in self.whole if w.phase]

    @property
    def loops(self) -> list[Loop]:
        """The loops over batches: those that train, and those that evaluate."""
        training: list[Loop] = [one.loop for one in self.roles.data if one.loop is not None]
        return [*training, *(one.loop for one in self.dealt), *(one.loop for one in self.whole)]

    # -- which loops evaluate ----------------------------------------------------------------------------------

    def _evaluates(self, loop: ast.For) -> bool:
        trains = self.phases_of.trains(loop)
        if trains:
            data = next((one for one in self.roles.data if one.loop is loop), None)
            if not self.phases_of.test(loop) or data is None:
                return False  # it trains in any case, or goes over parts of each batch, such as the heads of a model
            if turns_read(self.script, data):
                return False  # the turns of numbered batches are counted, in whichever phase
        elif not self._without_gradient(loop, 0):
            return False
        frame = self.script.frame(loop)
        if is_function_frame(frame) and is_for_workers(self.script, frame, self._for_workers):
            return False  # it puts the rows of one batch together
        sources = self.roles.sources(frame, loop.iter)
        around = self.script.loops_around(loop)  # it may go over the rows of an evaluation's batch
        if not (trains or self._is_data(sources, loop)) or any(one in self._seen for one in around):
            return False
        if len(sources) == 1 and self._certain.gives_none(frame, sources[0], loop):
            return False
        body = walk_all(loop.body)
        uses = names_in(loop.target) & {
            n.id for n in (*body, *self._of_closures(frame, body)) if isinstance(n, ast.Name)
        }
        if not uses or not any(isinstance(n, ast.Call) for n in body):
            return False
        self._seen.add(loop)
        return True

    def _of_closures(self, frame: Frame, body: list[ast.AST]) -> list[ast.AST]:
        """What stands in functions of the same frame that a body calls."""
        called = [
            f for n in body if isinstance(n, ast.Call) for f in self.script.functions(last_name(n.func))
        ]
        return [n for f in called if self.script.table.is_inside(f, frame) for n in self.script.within(f)]

    def _is_data(self, sources: list[ast.expr], loop: ast.For) -> bool:
        calls = [one for one in sources if isinstance(one, ast.Call)]
        if not sources or any(map(is_range, calls)):
            return False
        if len(sources) == 1 and calls and _NOT_DATA.search(written(calls[0].func)):
            return False
        names = [written(one.func) if isinstance(one, ast.Call) else ast.unparse(one) for one in sources]
        return (
            _NAMED_LIKE_DATA.search(names[0]) is not None or self._moves_batch(loop) or self._asks_model(loop)
        )

    def _asks_model(self, loop: ast.For) -> bool:
        """Whether the body calls, on what the loop gives it or what it makes of that, an object that the training calls
        too: a model, a loss."""
        made = names_in(loop.target)
        for node in walk_all(loop.body):
            if isinstance(node, ast.Assign) and made & names_in(node.value):
                made |= {name for target in node.targets for name in names_in(target)}
        return any(
            isinstance(n, ast.Call) and written(n.func) in self.trained and made & names_in(n)
            for n in walk_all(loop.body)
        )

    @cached_property
    def _for_workers(self) -> set[str]:
        return given_to_workers(self.script)

    @cached_property
    def trained(self) -> set[str]:
        """The variables and attributes that training loops call: no functions of the script, of modules, of Python."""
        loops = [one for b in self.roles.backwards for one in self.script.loops_around(b.call)[:1]]
        frames = [b.frame for b in self.roles.backwards if not isinstance(b.frame, ast.Module)]
        calls = [n for n in walk_all(loops) if isinstance(n, ast.Call)]
        calls += [call for frame in frames for call in self.script.calls_in(frame)]
        named = (c for c in calls if isinstance(c.func, ast.Name) or written(c.func).startswith("self."))
        return {
            written(c.func)
            for c in named
            if not self.script.functions(last_name(c.func))
            and (
                written(c.func).startswith("self.")
                or self.script.table.scopes[self.script.frame(c)].resolve(written(c.func)) is not None
            )
        }

    def _moves_batch(self, loop: ast.For) -> bool:
        """Whether the body moves what the loop gives it to a device."""
        targets = names_in(loop.target)
        return any(is_method(n, "to", "cuda") and root_of(n.func) in targets for n in walk_all(loop.body))

    def _without_gradient(self, node: ast.AST, depth: int) -> bool:
        """Whether code runs without gradients or in eval mode: by a block, a decorator, `.eval()` before it, or its calls."""
        frame = self.script.frame(node)
        inside = (n for n in walk(node) if isinstance(n, ast.With)) if isinstance(node, ast.For) else ()
        if self.script.is_without_gradient(node) or any(map(without_gradient, inside)):
            return True
        if (mode := evaluates(self.script, node)) is not None:
            return mode
        if isinstance(frame, ast.Module) or depth > 2:
            return False
        calls = self.script.direct_callers(frame)
        return bool(calls) and all(self._without_gradient(call, depth + 1) for call in calls)

    def _whole(self, loop: ast.For, why: str) -> Whole:
        sources = self.roles.sources(self.script.frame(loop), loop.iter)
        phase = self.phases_of.test(loop) if self.phases_of.trains(loop) else ""
        return Whole(loop, why, phase if _is_one(sources) else "", tuple(sources))

    def _reached_alike(self, node: ast.AST, depth: int) -> bool:
        """Whether no training loop around a node, or around the calls of its function, comes to it by the batch."""
        script = self.script
        frame = script.frame(node)
        for data in self.roles.data:
            loop = data.loop
            if (
                loop is None
                or loop is node
                or data.frame is not frame
                or not script.table.is_inside(node, loop)
            ):
                continue
            if not comes_alike(script, node, loop, what_may_differ(script, loop)):
                return False
        if isinstance(frame, ast.Module) or depth > 2:
            return True
        return all(self._reached_alike(call, depth + 1) for call in script.direct_callers(frame))

    # -- whether one can be dealt ------------------------------------------------------------------------------

    def _deal(self, loop: ast.For) -> Dealt:
        frame = self.script.frame(loop)
        sources = self.roles.sources(frame, loop.iter)
        phase = self.phases_of.test(loop) if self.phases_of.trains(loop) else ""
        if not _is_one(sources):
            raise Unsure("it goes over more than one iterable")
        if self._certain.is_generated(frame, sources[0]):
            raise Unsure("a generator gives its batches")
        if self._is_whole_object(frame, sources[0]):
            raise Unsure("a class of the script gives its batches")
        if not phase and not self._reached_alike(loop, 0):
            raise Unsure("not every process may come to it")
        if name := asked_behind(self.script, frame, loop, self._give_kept):
            raise Unsure(f"the model keeps what `{name}()` gives")
        found = Pass(self.script, frame, loop, phase)
        left = found.left()
        left.again = computed_again(found, left)
        if not left.sums and not left.joins and not left.themselves:
            raise Unsure("it adds nothing up")
        kept = [*left.sums, *left.joins]
        running = self._shown_inside(loop, kept)
        has_reader = left.themselves or left.lasts or left.again or any(map(found.read_behind, kept))
        is_own = all(self.script.binds(frame, text) for text in kept)
        if (is_own and not has_reader) or (
            running and not any(self._shown_behind(frame, loop, text) for text in running)
        ):
            raise Unsure("its result is shown inside the loop alone")
        left.sums = [text for text in left.sums if not adds_itself(self.script, frame, loop, text)]
        return Dealt(loop, frame, sources[0], left, phase, tuple(sources[1:]))

    def _is_whole_object(self, frame: Frame, source: ast.expr) -> bool:
        """Whether a class of the script gives the batches, which the runtime leaves whole, and no training goes over that object,
        whose loader would be dealt."""
        if not self._certain.own_iterables(frame, source):
            return False
        made = set(self._certain.makers(frame, source))
        return bool(made) and made.isdisjoint(self._makers_of_data)

    @cached_property
    def _makers_of_data(self) -> set[ast.expr]:
        return {maker for one in self.roles.data for maker in self._certain.makers(one.frame, one.node)}

    @cached_property
    def _give_kept(self) -> set[str]:
        return methods_that_give_kept(self.script)

    def _shown_inside(self, loop: ast.For, names: list[str]) -> list[str]:
        """What calls in the loop show while it grows; a bar's own text may be a share."""
        calls = [n for n in walk_all(loop.body) if isinstance(n, ast.Call)]
        calls = [n for n in calls if not _KEEPS.search(getattr(n.func, "attr", ""))]
        shown = [n for n in calls if is_statement_call(self.script, n)]
        given = [a for n in shown for a in (*n.args, *(k.value for k in n.keywords))]
        return [text for text in names if any(reads(a, text) for a in given)]

    def _shown_behind(self, frame: Frame, loop: ast.For, text: str, depth: int = 0) -> bool:
        """Whether `text` is returned, printed or passed on behind the loop."""
        end = loop.end_lineno or 0
        nodes = [n for n in self.script.within(frame) if isinstance(n, ast.Return | ast.Expr | ast.Assign)]
        for node in (n for n in nodes if n.lineno > end and reads(n, text)):
            names = [written(t) for t in node.targets if depth < 3] if isinstance(node, ast.Assign) else []
            if any(self._shown_behind(frame, loop, name, depth + 1) for name in names):
                return True
            is_shown = not re.match(r"[\w.]*(save|dump)\w*\(", ast.unparse(node))
            if is_shown and not isinstance(node, ast.Assign):
                return True
        return not isinstance(frame, ast.Module) and text.startswith("self.")


def _is_one(sources: list[ast.expr]) -> bool:
    """Whether all that a loop reads is one iterable, perhaps on both sides of a choice."""
    return len({ast.unparse(one) for one in sources}) == 1 and (
        len(sources) == 1 or not any(isinstance(n, ast.Call) for n in walk(sources[0]))
    )
