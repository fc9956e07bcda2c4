"""What an evaluation's loop leaves behind: what it adds up, joins, and merely leaves (CONVERT.md, "Numbers").

An evaluation is dealt to the processes by whole batches, and what its body accumulates is merged behind the loop. That is
right where everything that the body changes is an accumulator that starts at zero or empty for this very pass, is bound
before it is read, or is a clock. Anything else raises `Unsure`, with the reason, and the evaluation stays whole.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from dataclasses import dataclass, field

from crosstrain_migrate.core.numbers.changes import (
    Change,
    bound_by,
    change_of,
    changed_by,
    is_empty,
    is_open,
    is_read,
    reads,
)
from crosstrain_migrate.core.numbers.given import is_understood, only_adds
from crosstrain_migrate.core.output.writers import opens_to_write
from crosstrain_migrate.core.reading.forms import Frame, names_in, root_of
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import COMPREHENSIONS, gives_itself, last_name, place_of, written
from crosstrain_migrate.syntax.walks import walk, walk_all

from .changes import has_start, is_bound_before
from .given import given_to, kept_outside, what_becomes

_ASKS_GROUP = re.compile(r"is_initialized|is_available|world_size|num_processes")
# Calls that stand alone and keep nothing that is read behind the loop.
QUIET_ROOTS = re.compile(
    r"^(print|plt|ax\w*|fig\w*|logging|log\w*|\w*bar|\w*tqdm|t|time|gc|torch\.cuda|\w*writer|wandb|sys|os|cv2|accelerator)\b"
)
QUIET_METHODS = re.compile(
    r"\.(print|eval|train|set_\w+|close|cpu|flush|refresh|imshow|display|synchronize|zero_grad|savefig|save|show|debug|info|write)$"
)
DRAWS = re.compile(
    r"\b(random|np\.random|numpy\.random)\.\w+\(|torch\.(rand|randn|randint|randperm|multinomial|bernoulli|normal)\w*\("
    r"|\.(random_|normal_|uniform_)\("
)
METERS = ("update", "add", "add_batch", "process")
CLOCK = re.compile(r"\btime\w*(\.\w+)?\(\)")


class Unsure(Exception):
    """The evaluation may not be what it seems to be. The text says why."""


_WAYS = {"adds": Change.SUM, "appends": Change.LIST, "changes": Change.CARRIED}


@dataclass
class Left:
    """Variables, and attributes, by how `merge` is to treat them; themselves: metrics add up over processes by themselves.
    again: see `computed`."""

    sums: list[str] = field(default_factory=list)
    joins: list[str] = field(default_factory=list)
    lasts: list[str] = field(default_factory=list)
    themselves: bool = False
    again: list[ast.Assign] = field(default_factory=list)


@dataclass
class Pass:
    """A loop over an evaluation's batches. phase: the text of the author's own test for training in it, or empty."""

    script: Script
    frame: Frame
    loop: ast.For
    phase: str = ""

    def left(self) -> Left:
        """Raises Unsure."""
        self._check_ways_out()
        changes = self.changes()
        self._calls_that_keep(changes)
        found = Left(themselves=self.has_metric())
        targets = names_in(self.loop.target)
        for text, made in changes.items():
            if not self._is_clock(made):
                self._sort(text, made, targets, found)
            elif self.read_behind(text) and not has_start(self.script, self.loop, text):
                found.lasts.append(text)  # a process may have no batch at all
        found.lasts += [t for t in sorted(targets) if t not in changes and self.read_behind(t)]
        for text in (*found.sums, *found.joins):
            if not is_bound_before(self.script, self.loop, text):
                raise Unsure(f"not every way to it binds `{text}`")
        return found

    # -- the body ----------------------------------------------------------------------------------------------

    def _body(self) -> list[ast.AST]:
        nodes = walk_all(self.loop.body)
        return [node for node in nodes if not self._only_trains(node)] if self.phase else nodes

    def _only_trains(self, node: ast.AST) -> bool:
        """Whether a node stands under the author's test for training."""
        below = node
        for one in self.script.around(node):
            if one is self.loop:
                return False
            if isinstance(one, ast.If) and ast.unparse(one.test) == self.phase:
                return below not in one.orelse
            below = one
        return False

    def _check_ways_out(self) -> None:
        for node in self._body():
            if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom):
                raise Unsure("it returns or yields inside")
            if isinstance(node, ast.Break) and self.script.loop_of(node) is self.loop:
                raise Unsure("it breaks off")
            if isinstance(node, ast.Call) and DRAWS.search(ast.unparse(node)):
                raise Unsure("it draws random numbers")

    def changes(self) -> dict[str, list[tuple[Change, ast.AST]]]:
        """How the body changes what, by the text of the variable or the attribute."""
        found: dict[str, list[tuple[Change, ast.AST]]] = defaultdict(list)
        for node in self._body():
            if isinstance(node, ast.AugAssign):
                kind = Change.SUM if isinstance(node.op, ast.Add) else Change.OTHER
                found[written(changed_by(node.target))].append((kind, node))
            elif gives_itself(node):
                continue
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    for part, value in bound_by(target, node.value):
                        found[written(changed_by(part))].append((change_of(part, value), node))
            elif isinstance(node, ast.For | ast.comprehension) and node is not self.loop:
                for name in names_in(node.target):
                    found[name].append((Change.SET, node))
            elif isinstance(node, ast.withitem) and node.optional_vars is not None:
                found[written(node.optional_vars)].append((Change.SET, node))
            elif isinstance(node, ast.NamedExpr):
                found[node.target.id].append((Change.SET, node))
        self._changed_by_functions(found)
        return found

    def _changed_by_functions(self, found: dict[str, list[tuple[Change, ast.AST]]]) -> None:
        """Adds how functions change what the body gives them."""
        own = names_in(self.loop.target) | {
            t for t, made in found.items() if any(k is Change.SET for k, _ in made)
        }
        for call in self._body():
            for text, function, name in given_to(self.script, call) if isinstance(call, ast.Call) else ():
                ways = what_becomes(self.script, function, name) if text not in own else set()
                methods = {way[1:] for way in ways if way.startswith(".")} & set(METERS)
                made = {_WAYS[way] for way in ways if way in _WAYS}
                made |= {Change.METER for method in methods if self.is_meter(text, method)}
                found[text] += [(kind, call) for kind in made]
                if not found[text]:
                    del found[text]

    def _calls_that_keep(self, found: dict[str, list[tuple[Change, ast.AST]]]) -> None:
        """Adds what calls that stand alone change. Raises Unsure for one that keeps something elsewhere."""
        inner = self._of_one_batch(found)
        for call in (one for one in self._body() if isinstance(one, ast.Call)):
            if kept_outside(self.script, call):
                raise Unsure(f"`{written(call.func)}()` keeps something")
            if not is_statement_call(self.script, call):
                continue
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            outside = (one for one in (*given, *walk(call.func)) if written(one) not in inner)
            if not self.phase and any(map(self._is_file, outside)):
                raise Unsure("it writes into a file that was opened before")
            if isinstance(call.func, ast.Attribute):
                self._method_that_keeps(call, call.func, inner, found)
            elif self._is_object(call.func) and written(call.func) not in inner:
                raise Unsure(f"`{written(call.func)}()` keeps something")
            else:
                texts = [written(one) for one in given if isinstance(one, ast.Name | ast.Attribute)]
                known = {t for t in texts if any(node is call for _, node in found.get(t, ()))}
                if any(t not in inner | known and self.start(t) is not None for t in texts):
                    raise Unsure(f"`{written(call.func)}` is given what is added up")

    def _is_file(self, node: ast.AST, depth: int = 2) -> bool:
        """Whether a variable is a file: one process writes it, and has but its own batches in a dealt loop."""
        script = self.script
        scope = script.table.of_node[node].resolve(node.id) if isinstance(node, ast.Name) else None
        made = script.values_anywhere(written(node)) if isinstance(node, ast.Attribute) else []
        told: list[ast.expr] = []
        if isinstance(node, ast.Name) and scope is not None and scope.node in script.frames:
            made = script.values(scope.node, node.id)
            told = [one for one, _ in script.given_for(scope.node, node.id)] if depth else []
        return any(opens_to_write(script, one) for one in (*made, *told)) or any(
            self._is_file(one, depth - 1) for one in told
        )

    def _of_one_batch(self, found: dict[str, list[tuple[Change, ast.AST]]]) -> set[str]:
        """What the body binds anew for each batch: not the items of a list that was there before."""
        loops = [n for n in self._body() if isinstance(n, ast.For | ast.comprehension)]
        inner = names_in(self.loop.target)
        inner |= {
            text for text, made in found.items() if any(k is Change.SET and n not in loops for k, n in made)
        }
        for loop in loops:
            read = {n.id for n in walk(loop.iter) if isinstance(n, ast.Name)}
            inner |= names_in(loop.target) if read & inner else set()
        return inner

    def _is_object(self, func: ast.expr) -> bool:
        """Whether what is called is neither a function, a class nor imported, nor a metric, nor quiet: it may keep things."""
        name = written(func)
        known = name[:1].isupper() or hasattr(builtins, name) or QUIET_ROOTS.search(name)
        return isinstance(func, ast.Name) and not (
            known or self.is_metric(name) or self.script.functions(name) or self.script.is_imported(func)
        )

    def _method_that_keeps(
        self,
        call: ast.Call,
        func: ast.Attribute,
        inner: set[str],
        found: dict[str, list[tuple[Change, ast.AST]]],
    ) -> None:
        text, root = written(func.value), root_of(func.value)
        changed = written(changed_by(func.value))
        if changed in inner or (root in inner and root != "self"):
            return
        if func.attr in ("append", "extend"):
            found[changed].append((Change.LIST, call))
        elif self.is_metric(text):
            return
        elif func.attr in METERS and self.is_meter(text, func.attr):
            found[text].append((Change.METER, call))
        elif not QUIET_ROOTS.search(written(func)) and not QUIET_METHODS.search(written(func)):
            raise Unsure(f"`{written(func)}()` keeps something")

    # -- what becomes of a variable ----------------------------------------------------------------------------

    def _is_clock(self, made: list[tuple[Change, ast.AST]]) -> bool:
        return all(
            kind is Change.SET and isinstance(node, ast.Assign) and CLOCK.search(ast.unparse(node.value))
            for kind, node in made
        )

    def _sort(self, text: str, made: list[tuple[Change, ast.AST]], targets: set[str], found: Left) -> None:
        kinds = {kind for kind, _ in made}
        if text in targets:
            found.lasts += [text] if self.read_behind(text) else []
        elif kinds == {Change.METER}:
            if not self.is_fresh(text):
                raise Unsure(f"`{text}` is not made for this pass")
            found.sums.append(text)
        elif kinds <= {Change.SUM, Change.LIST} or kinds == {Change.JOIN}:
            self._accumulates(text, made, kinds, found)
        else:
            if Change.SET not in kinds or self._read_before_set(text, made):
                raise Unsure(f"`{text}` is carried from batch to batch")
            found.lasts += [text] if self.read_behind(text) else []

    def _accumulates(
        self, text: str, made: list[tuple[Change, ast.AST]], kinds: set[Change], found: Left
    ) -> None:
        start = self.start(text)
        if start is None:
            raise Unsure(f"`{text}` does not start at zero for this pass")
        if any(_changes_item(start, node) for _, node in made):
            raise Unsure(f"`{text}` is a list of sums or lists")
        if is_open(start):
            raise Unsure(f"`{text}` gets its keys as it goes")
        is_none = isinstance(start, ast.Constant) and start.value is None
        (found.joins if is_none or kinds == {Change.JOIN} else found.sums).append(text)

    def _read_before_set(self, text: str, made: list[tuple[Change, ast.AST]]) -> bool:
        """Whether a pass of the body may read what the one before it has left in a variable."""
        sets = [node for kind, node in made if kind is Change.SET and hasattr(node, "lineno")]
        if not sets:
            return False
        first = min(sets, key=place_of)
        own = {id(n) for n in walk(first.value)} if isinstance(first, ast.Assign) else set()
        for statement in self.loop.body:
            for node in walk(statement):
                if not is_read(node, text) or (place_of(node) >= place_of(first) and id(node) not in own):
                    continue
                return not any(isinstance(one, COMPREHENSIONS) for one in self.script.around(node))
        return False

    # -- before the loop and behind it -------------------------------------------------------------------------

    def start(self, text: str) -> ast.expr | None:
        """What `text` was bound to for this very pass, where that is zero or empty: the same loops are around both."""
        around = self.script.loops_around(self.loop)
        best: tuple[ast.AST, ast.expr] | None = None
        for node in self.script.within(self.frame):
            if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
                continue
            if place_of(node) >= place_of(self.loop):
                continue
            if not isinstance(node, ast.AugAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    for part, value in bound_by(target, node.value):
                        if written(part) == text:
                            best = (node, value if value is not None else node.value)
            elif isinstance(node, ast.AugAssign) and written(node.target) == text:
                best = None
        if best is None or self.script.loops_around(best[0]) != around:
            return None
        return best[1] if is_empty(best[1]) else None

    def read_behind(self, text: str) -> bool:
        """Whether `text` is read behind the loop before it is bound anew."""
        end = (self.loop.end_lineno or 0, self.loop.end_col_offset or 0)
        later: list[tuple[int, int]] = []
        last = text.rpartition(".")[2]
        for node in self.script.within(self.frame):
            if (
                not isinstance(node, ast.Name | ast.Attribute)
                or last_name(node) != last
                or place_of(node) <= end
                or written(node) != text
                or self._is_of_comprehension(node, text)
            ):
                continue
            statement = self.script.statement(node)
            line = node.lineno if hasattr(statement, "body") else statement.lineno
            reads = isinstance(node.ctx, ast.Load) or isinstance(self.script.parent(node), ast.AugAssign)
            later.append((line, 0 if reads else 1))
        return bool(later) and min(later)[1] == 0

    def _is_of_comprehension(self, node: ast.AST, text: str) -> bool:
        """Whether a name is the variable of a comprehension of its own."""
        return any(
            isinstance(one, COMPREHENSIONS) and any(text in names_in(g.target) for g in one.generators)
            for one in self.script.around(node)
        )

    def is_fresh(self, text: str) -> bool:
        """Whether a meter is made, or reset, for this pass."""
        around = self.script.loops_around(self.loop)
        for node in self.script.within(self.frame):
            if place_of(node) >= place_of(self.loop) or self.script.loops_around(node) != around:
                continue
            made = node.targets if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) else []
            if text in map(written, made):
                return True
            if isinstance(node, ast.Call) and written(node.func) == f"{text}.reset":
                return True
        return False

    def has_metric(self) -> bool:
        """Whether the body gives its batches to a metric, `metric.update(...)` or `metric(...)`."""
        calls = [n.func for n in self._body() if isinstance(n, ast.Call)]
        return any(
            self.is_metric(written(f.value) if isinstance(f, ast.Attribute) else written(f)) for f in calls
        )

    def is_metric(self, text: str) -> bool:
        """Whether `text` is a metric of torchmetrics, which adds up over the processes when it computes."""
        values = [v for frame in self.script.frames for v in self.script.values(frame, text)]
        calls = [n for n in walk_all(values) if isinstance(n, ast.Call)]
        return any(self.script.dotted(call.func).startswith("torchmetrics.") for call in calls)

    def is_meter(self, text: str, method: str) -> bool:
        """Whether `text` is an object of a class of this project whose `method` only adds to its attributes."""
        values = [v for frame in self.script.frames for v in self.script.values(frame, text)]
        cls = next((c for v in values if (c := self.script.class_made(v)) is not None), None)
        return cls is not None and only_adds(self.script, cls, method) and is_understood(self.script, cls)


def _changes_item(start: ast.expr | None, change: ast.AST) -> bool:
    """Whether a change is one of an item of a list, which `merge` would join as a whole: `hits[c] += 1`, `rows[i].append(x)`,
    also of a list that is an entry, `counts[name][c] += 1`."""
    changed = getattr(change, "target", getattr(getattr(change, "func", None), "value", None))
    while isinstance(changed, ast.Subscript):
        if isinstance(start, ast.List | ast.ListComp | ast.BinOp):
            return True
        held = [*start.values] if isinstance(start, ast.Dict) else [getattr(start, "value", None)]
        if isinstance(start, ast.Call) and start.args:  # `defaultdict(lambda: [0] * 4)`
            held = [getattr(start.args[0], "body", None)]
        start, changed = held[0] if held else None, changed.value
    return False


def adds_itself(script: Script, frame: Frame, loop: ast.For, text: str) -> bool:
    """Whether the script adds `text` up over the processes behind the loop, by a call or a function of its own, and asks for
    nothing before but for a group."""
    end = loop.end_lineno or 0
    calls = (c for c in script.calls_in(frame) if c.lineno > end and any(reads(a, text) for a in c.args))
    return any(
        last_name(call.func) == "all_reduce"
        or any("all_reduce" in ast.unparse(one) for one in script.functions(last_name(call.func)))
        for call in calls
        if all(_ASKS_GROUP.search(ast.unparse(test)) for test in _own_tests(script, call, loop))
    )


def _own_tests(script: Script, call: ast.Call, loop: ast.For) -> list[ast.expr]:
    """The tests around a call that are not around the loop, too."""
    outer = [*script.around(loop)]
    return [one.test for one in script.around(call) if isinstance(one, ast.If) and one not in outer]
