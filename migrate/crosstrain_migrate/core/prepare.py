"""CT201 by use: what trains is prepared, jointly where one scope holds it, otherwise where it is used.

Each object is looked for upwards, from the place of its use through parameters, to the scope that holds it. A loader is
bound anew only where nothing but its training loop iterates the variable; otherwise it is prepared in the loop's header,
or at the head of the function that is given it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass

from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.walks import walk

from .accelerator import Accelerators
from .plan import Plan
from .roles import Data, Roles
from .script import Frame, Script, is_function_frame

RULE = "CT201"
REASON = "every process trains on its own share, and the gradients are averaged"
_ORDER = {"model": 0, "optimizer": 1, "loader": 2, "scheduler": 3}


@dataclass(frozen=True)
class Held:
    """An object in the scope that holds it: `text` names it there, `use` is where it is used, or given on."""

    kind: str
    text: str
    frame: Frame
    use: ast.AST


class Preparing:
    """Plans every `prepare`."""

    def __init__(self, plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.roles = roles
        self.accelerators = accelerators
        self.in_place: list[Data] = []  # loaders that are prepared where they are iterated
        self._trained = {id(one.node) for one in roles.data}

    def run(self, models: bool = True) -> None:
        """models: the models too, where the script does not wrap them by itself."""
        held = [one for one in self._optimizers() if models or one.kind != "model"]
        held += self._loaders()
        held += [self._lifted(Held("scheduler", s.text, s.frame, s.call)) for s in self.roles.schedulers]
        by_frame: dict[Frame, list[Held]] = defaultdict(list)
        for one in dict.fromkeys(held):
            by_frame[one.frame].append(one)
        for frame, those in by_frame.items():
            self._prepare_in(frame, those)
        for data in self.in_place:
            self._prepare_in_place(data)

    # -- which -------------------------------------------------------------------------------------------------

    def _optimizers(self) -> list[Held]:
        """The optimizers, each behind its models."""
        found: list[Held] = []
        for one in self.roles.optimizers:
            optimizer = self._lifted(Held("optimizer", one.text, one.frame, one.call))
            models = self.roles.models_of(optimizer.frame, optimizer.text)
            if optimizer.text.startswith("self."):
                cls = self.script.class_of(optimizer.frame)
                inits = (
                    [m for m in self.script.methods(cls) if m.name == "__init__"] if cls is not None else []
                )
                models = models or [
                    t for m in inits for t in self.roles.models_of(m, optimizer.text) if t.startswith("self.")
                ]
            models += [text for text in self._other_models(optimizer) if text not in models]
            found += [
                Held("model", text, optimizer.frame, optimizer.use)
                for text in models
                if self._may_name(optimizer.frame, text)
            ]
            found.append(optimizer)
        return found

    def _other_models(self, optimizer: Held) -> list[str]:
        """What a script that takes all GPUs asks for its `.module`, and what is put into training mode and called."""
        cls = self.script.class_of(optimizer.frame)
        frames: list[Frame] = [optimizer.frame] if cls is None else [*self.script.methods(cls)]
        called = {written(c.func) for f in frames for c in self.script.calls_in(f)}
        found: dict[str, None] = {}
        for node in (n for frame in frames for n in self.script.within(frame)):
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name | ast.Attribute):
                continue
            text = written(node.value)
            trains = (
                node.attr == "train" and isinstance(self.script.parent(node), ast.Call) and text in called
            )
            of_self = text.startswith("self.") and text.count(".") == 1
            if (node.attr == "module" or trains) and text != "self" and (text.isidentifier() or of_self):
                found.setdefault(text)
        return list(found)

    def _loaders(self) -> list[Held]:
        """The loaders whose variables are bound anew; the others are prepared in place."""
        found: list[Held] = []
        for data in self.roles.data:
            held = self._lifted_loader(data)
            if held is None:
                self.in_place.append(data)
            else:
                found.append(held)
        return found

    def _may_name(self, frame: Frame, text: str) -> bool:
        """Whether a model's variable can be bound anew in a frame."""
        return text.startswith("self.") or (self.script.binds(frame, text) and text != "self")

    # -- upwards through parameters ----------------------------------------------------------------------------

    def _lifted(self, held: Held, depth: int = 0) -> Held:
        above = self._above(held.frame, held.text)
        if above is None or depth > 3:
            return held
        text, call = above
        return self._lifted(Held(held.kind, text, self.script.frame(call), call), depth + 1)

    def _above(self, frame: Frame, text: str) -> tuple[str, ast.Call] | None:
        """What the only call of a function gives for its parameter `text`, where that is a variable."""
        if (
            not is_function_frame(frame)
            or text not in self.script.parameters(frame)
            or self.script.stores(frame, text)
        ):
            return None
        calls = self.script.callers(frame)
        if len(calls) != 1 or self.script.last(calls[0].func) not in (frame.name, self._class_name(frame)):
            return None
        call = calls[0]
        given = self.script.argument_for(call, frame, text)
        if isinstance(given, ast.Name) or (
            isinstance(given, ast.Attribute) and written(given.value) == "self"
        ):
            caller = self.script.frame(call)
            name = written(given)
            if not self.script.is_entry(call) and self.script.is_shared(call):
                return None
            return (name, call) if name.startswith("self.") or self.script.binds(caller, name) else None
        return None

    def _class_name(self, frame: Frame) -> str:
        cls = self.script.class_of(frame)
        return cls.name if cls is not None else ""

    def _lifted_loader(self, data: Data) -> Held | None:
        """The variable that holds a loader and that nothing else iterates; None where there is none such."""
        if data.held or data.loop is None or not isinstance(data.node, ast.Name | ast.Attribute):
            return None
        text, frame = written(data.node), data.frame
        use: ast.AST = data.loop
        if self.script.statement(data.node) is not data.loop:
            use = data.node  # `bar = tqdm(loader)` above the loop
        if isinstance(data.node, ast.Attribute) and written(data.node.value) != "self":
            return None
        place: Held | None = None
        for _ in range(4):
            if not self._only_trains(frame, text, use):
                break
            if text.startswith("self.") or self.script.stores(frame, text):
                place = Held("loader", text, frame, use)
            above = self._above(frame, text)
            if above is None:
                break
            text, use = above
            frame = self.script.frame(use)
        return place

    def _only_trains(self, frame: Frame, text: str, use: ast.AST) -> bool:
        """Whether a frame reads a loader's variable for its use, its length and its attributes alone."""
        inside = set(map(id, walk(use.iter if isinstance(use, ast.For | ast.AsyncFor) else use)))
        frames = [frame]
        if text.startswith("self."):
            cls = self.script.class_of(frame)
            frames = [*self.script.methods(cls)] if cls is not None else frames
        elif isinstance(frame, ast.Module):
            frames = [
                one
                for one in self.script.frames
                if self.script.module(one) is frame
                and not (one is not frame and self.script.binds(one, text))
            ]
        training = {
            id(n)
            for d in self.roles.data
            if d.loop is not None and isinstance(d.loop, ast.For)
            for n in walk(d.loop.iter)
        }
        for one in frames:
            for read in self.script.reads(one, text):
                if id(read) in inside or id(read) in training or id(read) in self._trained:
                    continue
                parent = self.script.parent(read)
                is_length = isinstance(parent, ast.Call) and last_name(parent.func) == "len"
                if (
                    not is_length
                    and not isinstance(parent, ast.Attribute)
                    and not self._is_for_no_one(parent)
                ):
                    return False
        return True

    def _is_for_no_one(self, parent: ast.AST | None) -> bool:
        """Whether a read is a test for None, or a print."""
        return isinstance(parent, ast.Compare | ast.If) or (
            isinstance(parent, ast.Call) and last_name(parent.func) == "print"
        )

    # -- one scope ---------------------------------------------------------------------------------------------

    def _prepare_in(self, frame: Frame, those: list[Held]) -> None:
        anchors = [(self._anchor(one), one) for one in those]
        by_suite: dict[int, list[tuple[ast.stmt, Held]]] = defaultdict(list)
        for anchor, one in anchors:
            by_suite[id(self.script.suite_of(anchor))].append((anchor, one))
        for group in by_suite.values():
            self._prepare_group(frame, group)

    def _prepare_group(self, frame: Frame, group: list[tuple[ast.stmt, Held]]) -> None:
        group = sorted(group, key=lambda pair: place_of(pair[0]))
        first = group[0][0]
        together = [one for _, one in group if self._is_bound_before(frame, one, first)]
        alone = [(anchor, one) for anchor, one in group if one not in together]
        self._write(frame, first, together)
        for anchor, one in alone:
            self._write(frame, anchor, [one])

    def _is_bound_before(self, frame: Frame, one: Held, anchor: ast.stmt) -> bool:
        stores = self.script.stores(frame, one.text)
        return all(place_of(store) < place_of(anchor) for store in stores)

    def _write(self, frame: Frame, anchor: ast.stmt, those: list[Held]) -> None:
        if not those:
            return
        ordered = sorted(dict.fromkeys(those), key=lambda one: _ORDER[one.kind])
        texts = list(dict.fromkeys(one.text for one in ordered))
        named = [text for text in texts if self._is_variable(frame, text)]
        others = [text for text in texts if text not in named]
        accelerator = self.accelerators.at(anchor)
        if named:
            listed = ", ".join(named)
            self.plan.before(anchor, RULE, REASON, f"{listed} = {accelerator}.prepare({listed})")
        if others:
            self.plan.before(anchor, RULE, REASON, f"{accelerator}.prepare({', '.join(others)})")

    def _is_variable(self, frame: Frame, text: str) -> bool:
        if text.isidentifier():
            return self.script.binds(frame, text)
        head, _, tail = text.partition(".")
        return head == "self" and tail.isidentifier()

    def _anchor(self, one: Held) -> ast.stmt:
        """The statement above which an object is prepared: the outermost loop around its use that does not bind it."""
        root = one.text.partition(".")[0].partition("[")[0]
        loops = self.script.loops_around(one.use)
        if isinstance(one.use, ast.For | ast.AsyncFor | ast.While):
            loops = [one.use, *loops]
        for loop in reversed(loops):
            inside = set(map(id, walk(loop)))
            stores = [
                *self.script.stores(one.frame, one.text),
                *(self.script.stores(one.frame, root) if root != "self" else ()),
            ]
            if not any(id(store) in inside for store in stores):
                return loop
        statement = self.script.statement(one.use)
        if not loops and is_function_frame(one.frame) and not self.script.stores(one.frame, root):
            return self.script.first_statement(one.frame)
        return statement

    # -- in place ----------------------------------------------------------------------------------------------

    def _prepare_in_place(self, data: Data) -> None:
        frame, node = data.frame, data.node
        is_parameter = isinstance(node, ast.Name) and node.id in self.script.parameters(frame)
        if is_parameter and is_function_frame(frame):
            first = self.script.first_statement(frame)
            accelerator = self.accelerators.at(first)
            text = written(node)
            self.plan.before(first, RULE, REASON, f"{text} = {accelerator}.prepare({text})")
            return
        accelerator = self.accelerators.at(node)
        self.plan.replace(node, RULE, REASON, f"{accelerator}.prepare({{it}})", it=node)
