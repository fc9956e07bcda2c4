"""Where a loader is prepared: at the variable that nothing but the training iterates, or in the function that is given it."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cached_property

from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import Frame
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.walks import walk

from .anchors import Anchors
from .holders import Held, Holders


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
