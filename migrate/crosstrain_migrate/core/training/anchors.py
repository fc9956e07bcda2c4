"""Above which statement an object is prepared; and where a loader is: at the variable that nothing but the training iterates, or in
the function that is given it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cached_property

from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import LOOPS, Frame, is_function_frame, is_method, names_in
from crosstrain_migrate.core.reading.roles import STEPS, Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.files.notebooks.linked import is_mark
from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.walks import walk

from .holders import Held, Holders
from .lengths import counted_lengths
from .schedules import OwnSchedule


class Anchors:
    """Finds the statements above which a script's objects are prepared.

    own_schedules: as `schedules.own_schedules` finds them.
    """

    def __init__(self, script: Script, roles: Roles, own_schedules: list[OwnSchedule]) -> None:
        self.script = script
        self.roles = roles
        self._own_schedules = own_schedules
        self._holders = Holders(script)

    def of(self, one: Held) -> ast.stmt:
        """The statement above which an object is prepared: the outermost loop around its use that does not bind it."""
        root = one.text.partition(".")[0].partition("[")[0]
        is_element = self.all_of(one.frame, one.text) == one.text
        index = names_in(ast.parse(one.text)) - {root} if is_element else set()
        loops = self.script.loops_around(one.use)
        if isinstance(one.use, LOOPS):
            loops = [one.use, *loops]
        for loop in reversed(loops):
            inside = set(map(id, walk(loop)))
            stores = [
                *self.script.stores(one.frame, one.text),
                *(self.script.stores(one.frame, root) if root != "self" else ()),
                *(store for name in index for store in self.script.stores(one.frame, name)),
            ]
            is_bound = any(id(store) in inside and not _comes_back(self.script, store) for store in stores)
            if not is_bound and not self._is_bound_by_method(one, loop):
                return loop
        statement = self.script.statement(one.use)
        bound = [name for name in (root, one.text) if self.script.stores(one.frame, name)]
        if not loops and is_function_frame(one.frame) and not bound:
            return self.script.first_statement(one.frame)
        return self._above_backward(one, statement)

    def _is_bound_by_method(self, one: Held, loop: ast.AST) -> bool:
        """Whether a loop calls a method of the object that binds an attribute anew: `for stage in stages: self.build()`."""
        calls = (
            (n for n in walk(loop) if isinstance(n, ast.Call) and _is_own(n)) if "self." in one.text else ()
        )
        of = one.text.partition("[")[0]
        return any(self.script.stores(f, of) for call in calls for f in self.script.functions_of(call))

    def with_pass(self, one: Held, depth: int = 0) -> list[Held]:
        """An attribute that a method steps, in the methods that call both this one and the backward pass, which stands elsewhere:
        `self.lose(x); self.update()`; none where there are no such."""
        passes, frame = {b.frame for b in self.roles.backwards}, one.frame
        called = (f for call in self.script.calls_in(frame) for f in self.script.functions_of(call))
        if frame in passes or not passes.isdisjoint(called):
            is_named = self._names_all(frame, one.text) or self.all_of(frame, one.text) != one.text
            return [one] if is_named else []
        if depth > 3 or not is_function_frame(frame) or not one.text.startswith("self."):
            return []
        calls = [c for c in self.script.callers(frame) if not is_method(c, *STEPS) or _is_own(c)]
        first = {self.script.frame(call): call for call in reversed(calls) if _is_own(call)}
        if not first or not all(map(_is_own, calls)):
            return []
        above = [self.with_pass(Held(one.kind, one.text, f, call), depth + 1) for f, call in first.items()]
        return [held for those in above for held in those] if all(above) else []

    def _above_backward(self, one: Held, step: ast.stmt) -> ast.stmt:
        """The same place, or above the backward pass that stands between what binds an optimizer and its step; another method may
        bind it anew in each turn of a loop."""
        bound = [place_of(s) for s in self.script.stores(one.frame, one.text) if place_of(s) < place_of(step)]
        if not bound and one.text.startswith("self."):
            bound = [place_of(loop) for loop in self.script.loops_around(step)[:1]]
        passes = [b.call for b in self.roles.backwards if b.frame is one.frame and bound]
        if one.kind in ("model", "optimizer") and passes and isinstance(one.use, ast.Call):
            # Each branch of a step may have a pass of its own.
            step = self.script.statement(self._holders.on_every_way([one.use, *passes], max(bound)))
        around = {step, *self.script.around(step)}
        statements = [
            s
            for call in passes
            if max(bound) < place_of(call)
            for s in (self.script.statement(call), *self.script.around(self.script.statement(call)))
            if isinstance(s, ast.stmt) and s not in around and around & {*self.script.suite_of(s)}
        ]
        return min([step, *statements], key=place_of)

    def above_lengths(self, frame: Frame, text: str, anchor: ast.stmt) -> ast.stmt:
        """The same place, or above what counts with the length of the loader that is prepared."""
        read = counted_lengths(self.script, frame, text, self._own_schedules)
        suite = self._run_through(anchor)
        stores = list(map(place_of, self.script.stores(frame, text)))
        if is_function_frame(frame) and text in self.script.parameters(frame):
            stores.append(place_of(frame))
        around = (next((s for s in self.script.around(n) if s in suite), None) for n in read)
        statements = [
            s for s in around if isinstance(s, ast.stmt) and min(stores, default=(0, 0)) < place_of(s)
        ]
        return min([anchor, *statements], key=place_of)

    def _run_through(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements beside one, and beside each `try` or `with` that it stands in."""
        found = list(self.script.suite_of(statement))
        block = self.script.parent(statement)
        while isinstance(block, ast.Try | ast.With) and statement in block.body:
            # a length in the head of a `with` is read above its body
            found += [
                one for one in self.script.suite_of(block) if one is not block or isinstance(one, ast.With)
            ]
            statement, block = block, self.script.parent(block)
        marks = [one for one in found if is_mark(one) and place_of(one) < place_of(statement)]
        return [one for one in found if not marks or place_of(one) > place_of(marks[-1])]  # of one cell

    def all_of(self, frame: Frame, text: str) -> str:
        """`*optimizers` for `optimizers[i]`, where a list or a dictionary is written out, or a loop fills it."""
        node = ast.parse(text, mode="eval").body
        if not isinstance(node, ast.Subscript):
            return text
        container = written(node.value)
        if isinstance(node.slice, ast.Constant):
            return f"*{container}.values()" if self._is_filled(node) else text
        made = self.script.values(frame, container) or self._filled_elsewhere(frame, node)
        if any(isinstance(value, ast.List | ast.ListComp) for value in made):
            return f"*{container}"
        is_dict = any(isinstance(v, ast.Dict | ast.DictComp) or _calls_dict(v) for v in made)
        return f"*{container}.values()" if is_dict else text

    def _filled_elsewhere(self, frame: Frame, entry: ast.Subscript) -> list[ast.expr]:
        """What an attribute holds, of which a frame cannot name one: `self.optimizers[name]`, `name` is another frame's."""
        known = self._names_all(frame, ast.unparse(entry))
        return [] if known else self.script.values_anywhere(written(entry.value))

    def _names_all(self, frame: Frame, text: str) -> bool:
        return all(n == "self" or self.script.binds(frame, n) for n in names_in(ast.parse(text)))

    def _is_filled(self, entry: ast.Subscript) -> bool:
        """Whether a dictionary has its entries of a loop alone, so that the one that a step asks for may not be there."""
        of = (
            n for n in self.script.table.each(ast.Subscript) if last_name(n.value) == last_name(entry.value)
        )
        keys = [getattr(n.slice, "value", None) for n in of if isinstance(n.ctx, ast.Store)]
        is_named = isinstance(entry.slice, ast.Constant) and isinstance(entry.slice.value, str)
        return is_named and bool(keys) and not any(isinstance(key, str) for key in keys)


def _calls_dict(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and written(value.func) == "dict"


def _is_own(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and written(call.func.value) == "self"


def _comes_back(script: Script, store: ast.expr) -> bool:
    """Whether a variable is bound to what it held: `model, loss = step(model, x)`, of a function that returns its `model`."""
    bound, text = script.statement(store), written(store)
    call = bound.value if isinstance(bound, ast.Assign) else None
    functions = script.functions_of(call)
    if not isinstance(bound, ast.Assign) or not isinstance(call, ast.Call) or not functions:
        return False
    for function in functions:
        given = {name: script.argument_for(call, function, name) for name in script.parameters(function)}
        own = [n for n, one in given.items() if one is not None and written(one) == text]
        returned = script.returned(function)
        if not own or not returned or script.stores(function, own[0]):
            return False
        if any(_at_place_of(store, bound.targets[0], one) != own[0] for one in returned):
            return False
    return True


def _at_place_of(store: ast.expr, target: ast.expr, value: ast.expr) -> str:
    """How that part of a value is written which a part of a target is bound to."""
    if target is store:
        return written(value)
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple) or store not in target.elts:
        return ""
    index = target.elts.index(store)
    return written(value.elts[index]) if len(value.elts) == len(target.elts) else ""


class LoaderPlaces:
    """Finds the variables of the loaders that a script trains with."""

    def __init__(self, script: Script, roles: Roles, holders: Holders, anchors: Anchors) -> None:
        self.script = script
        self.roles = roles
        self.holders = holders
        self.anchors = anchors
        self._trained = {id(one.node) for one in roles.data}

    def lifted(self, data: Data) -> Held | None:
        """The variable that holds a loader and that nothing else iterates; None where there is none such."""
        if not isinstance(data.node, ast.Name | ast.Attribute) or (data.held and not self._is_length(data)):
            return None
        text, frame, use = written(data.node), self.script.frame(data.node), self._use_of(data)
        if isinstance(data.node, ast.Attribute) and written(data.node.value) != "self":
            return None
        place: Held | None = None
        given: set[int] = set()  # what the calls on the way up give
        for _ in range(4):
            rooted = self.holders.rooted(Held("loader", text, frame, use))
            frame, use = rooted.frame, rooted.use
            if not self._only_trains(frame, text, use, given):
                break
            if text.startswith("self.") or self.script.stores(frame, text):
                place = Held("loader", text, frame, use)
            above = self.holders.above(frame, text)
            if len({name for name, _ in above}) != 1:
                break
            text, calls = above[0][0], [call for _, call in above]
            frame, first, last = self.script.frame(calls[0]), place_of(calls[0]), place_of(calls[-1])
            stores = [place_of(store) for store in self.script.stores(frame, text)]
            if any(first < store < last for store in stores):
                break  # bound anew between two calls: it is another loader
            use = self.holders.on_every_way(calls, max((s for s in stores if s < first), default=(0, 0)))
            given |= {id(node) for _, call in above for node in walk(call)}
        return place

    def _is_length(self, data: Data) -> bool:
        """Whether a class whose objects give the batches of a loader has the loader's length for its own."""
        cls = self.script.class_of(data.frame)
        lengths = self.script.methods(cls, "__len__")
        return any(self.script.reads(one, written(data.node)) for one in lengths)

    def _only_trains(self, frame: Frame, text: str, use: ast.AST, given: set[int]) -> bool:
        """Whether a frame reads a loader's variable for its use, its length and its attributes alone."""
        inside = given | set(map(id, walk(use.iter if isinstance(use, ast.For | ast.AsyncFor) else use)))
        if isinstance(
            use, ast.If | ast.With | ast.Try
        ):  # around the calls: what else stands there does not train
            inside = given
        frames = self.script.homes(frame, text)
        if isinstance(frame, ast.Module) and not text.startswith("self."):
            inner = (one for one in self.script.frames_in(frame) if not self.script.binds(one, text))
            frames = [frame, *(one for one in inner if one is not frame)]
        training = {
            id(n)
            for d in self.roles.data
            if d.loop is not None and isinstance(d.loop, ast.For)
            for n in walk(d.loop.iter)
        }
        own = self.anchors.above_lengths(frame, text, self.anchors.of(Held("loader", text, frame, use)))
        first = min(map(place_of, (own, *self._begins[frame])))
        for one in frames:
            for read in self.script.reads(one, text):
                if id(read) in inside or id(read) in training or id(read) in self._trained:
                    continue
                parent = self.script.parent(read)
                if one is frame and place_of(read) < first and self._is_looked_at(text, parent):
                    continue  # the variable is bound anew below
                is_length = isinstance(parent, ast.Call) and last_name(parent.func) == "len"
                if (
                    not is_length
                    and not isinstance(parent, ast.Attribute)
                    and not self._is_for_no_one(parent)
                    and not self._is_measured(read)
                ):
                    return False
        return True

    def _is_measured(self, read: ast.expr) -> bool:
        """Whether a variable is given to functions of the project that ask it for nothing but its length."""
        call = self.script.parent(read)
        functions = self.script.functions_of(call)
        found = [
            asked
            for one in functions
            for name in self.script.parameters(one)
            if isinstance(call, ast.Call) and self.script.argument_for(call, one, name) is read
            for asked in [self.script.parent(n) for n in self.script.reads(one, name)] or [None]
        ]
        return bool(found) and all(isinstance(n, ast.Call) and last_name(n.func) == "len" for n in found)

    def _is_looked_at(self, text: str, parent: ast.AST | None) -> bool:
        """Whether a variable is read by no function of the project, which might train with it too: `next(iter(loader))`."""
        is_given = isinstance(parent, ast.Call) and self.script.functions_of(parent)
        return text.isidentifier() and not is_given

    @cached_property
    def _begins(self) -> dict[Frame, list[ast.AST]]:
        """Where each frame begins to train: what is prepared may be prepared there together."""
        used = [Held("optimizer", one.text, one.frame, one.call) for one in self.roles.optimizers]
        found: dict[Frame, list[ast.AST]] = defaultdict(list)
        for one in (above for held in used for above in self.holders.lifted(held)):
            found[one.frame].append(self.anchors.of(one))
        for loop in (one.loop for one in self.roles.data if one.loop is not None):
            found[self.script.frame(loop)].append([loop, *self.script.loops_around(loop)][-1])
        return found

    def _is_for_no_one(self, parent: ast.AST | None) -> bool:
        """Whether a read is a test for None, or a print."""
        return isinstance(parent, ast.Compare | ast.If) or (
            isinstance(parent, ast.Call) and last_name(parent.func) == "print"
        )

    def given(self, data: Data) -> Held | None:
        """A loader that is a parameter is bound anew in its function."""
        node, frame = data.node, self.script.frame(data.node)
        if not isinstance(node, ast.Name) or node.id not in self.script.parameters(frame):
            return None
        return Held("loader", node.id, frame, self._use_of(data))

    def _use_of(self, data: Data) -> ast.AST:
        """The loop in whose header a loader stands, or its name alone: `bar = tqdm(loader)` above the loop."""
        return data.loop if data.loop and self.script.statement(data.node) is data.loop else data.node

    def init_has_it(self, one: Held, found: list[Held]) -> bool:
        """Whether `__init__`, which alone binds an attribute, iterates it as well, and prepares it above."""
        cls = self.script.class_of(one.frame)
        others = [m for m in self.script.methods(cls) if m.name != "__init__"] if cls is not None else []
        if one.frame not in others or any(self.script.stores(m, one.text) for m in others):
            return False
        same = [o for o in found if o.text == one.text and self.script.class_of(o.frame) is cls]
        return any(o.frame not in others and self.anchors.of(o) in getattr(o.frame, "body", ()) for o in same)
