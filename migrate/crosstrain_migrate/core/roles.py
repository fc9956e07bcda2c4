"""Who is what in training, by use (CONVERT.md, "Roles come from use"): where a value was made does not matter.

- A backward trains where its function, its class or a caller steps an optimizer.
- What is stepped there is an optimizer, unless it is a scheduler, a scaler or a bar.
- What the loop around the backward iterates is the data: from the innermost loop outwards, then around the calls of the
  function. It is seen through `enumerate`, `zip`, progress bars and iterators.
- What gives its parameters to an optimizer is a model.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import cached_property

from crosstrain_migrate.syntax.nodes import COMPREHENSIONS, Function, last_name, place_of, written
from crosstrain_migrate.syntax.walks import walk

from .script import Frame, Loop, Script, is_function_frame, is_method, names_in, root_of

STEPS = ("step", "step_and_update_lr")
# `x.step()` where x is no optimizer, by the names that people give to such things.
OTHER_STEPS = re.compile(
    r"sched|lr_|env\b|envs\b|writer|pbar|bar$|prof|meter|timer|logger|warm|loss|ema\b", re.I
)
BARS = re.compile(r"tqdm|trange|progress|track\b|ProgBar", re.I)
SEEN_THROUGH = {"enumerate", "islice", "iter", "cycle", "reversed", "list", "tuple"}
# Methods whose result is not data: parts of containers, of modules, of text.
NO_DATA = {
    "count",
    "items",
    "keys",
    "values",
    "parameters",
    "named_parameters",
    "modules",
    "children",
    "split",
    "chunk",
}
NO_DATA |= {"sorted", "listdir", "glob", "named_modules", "state_dict", "unbind"}
RANDOM = re.compile(
    r"^(torch|numpy|np|random|numpy\.random)\.(.*\.)?(rand\w*|multinomial|choice\w*|sample|shuffle|permutation|normal|integers|uniform|bernoulli)$"
)
DEPTH = 4  # how many calls, or names, are followed


@dataclass(frozen=True)
class Backward:
    """A backward pass that trains."""

    call: ast.Call
    frame: Frame


@dataclass(frozen=True)
class Stepped:
    """An optimizer, as the code names it where it steps it."""

    text: str
    call: ast.Call
    frame: Frame


@dataclass(frozen=True)
class Data:
    """What a training loop reads its batches from, as the code names it there.

    loop: the loop that iterates it; None where `next` takes its batches. held: it stands inside a class that wraps it.
    """

    node: ast.expr
    frame: Frame
    loop: Loop | None = None
    held: bool = False


@dataclass
class Roles:
    """What trains in a script."""

    script: Script
    _data: dict[ast.expr, Data] = field(default_factory=dict)

    @cached_property
    def backwards(self) -> list[Backward]:
        """The backward passes behind which an optimizer is stepped; all of them where none is."""
        found = [
            Backward(call, self.script.frame(call)) for call in self.script.calls if self._goes_backward(call)
        ]
        return [one for one in found if self._steps_near(one.frame)] or found

    @cached_property
    def optimizers(self) -> list[Stepped]:
        found: dict[object, Stepped] = {}
        for backward in self.backwards:
            for one in self._optimizers_near(backward.frame):
                found.setdefault((one.frame, one.text, self._bound_at(one)), one)
        return list(found.values())

    def _bound_at(self, one: Stepped) -> tuple[int, int] | None:
        """Where a file binds an optimizer, the last time above its step: a name may stand for several, one after another."""
        stores = self.script.stores(one.frame, one.text) if isinstance(one.frame, ast.Module) else []
        above = [place_of(store) for store in stores if place_of(store) < place_of(one.call)]
        return max(above, default=None)

    @cached_property
    def schedulers(self) -> list[Stepped]:
        """What is stepped once a batch beside an optimizer and is one of torch's schedulers."""
        found: dict[tuple[Frame, str], Stepped] = {}
        for optimizer in self.optimizers:
            for call in self.script.calls_in(optimizer.frame):
                if not is_method(call, "step") or call.args or self._is_optimizer(call):
                    continue
                text = written(call.func.value) if isinstance(call.func, ast.Attribute) else ""
                if self._is_scheduler(optimizer.frame, text) and self._same_batch(call, optimizer):
                    found.setdefault((optimizer.frame, text), Stepped(text, call, optimizer.frame))
        return list(found.values())

    @cached_property
    def data(self) -> list[Data]:
        """What the training loops iterate, each place once, in the order of the text."""
        for backward in self.backwards:
            self._look_around(backward.call, backward.frame, set(), 0)
        return sorted(self._data.values(), key=lambda one: place_of(one.node))

    @property
    def trains(self) -> bool:
        return bool(self.backwards and self.optimizers)

    @property
    def frames(self) -> list[Frame]:
        """Where the script steps and goes backward."""
        steps, passes = (one.frame for one in self.optimizers), (one.frame for one in self.backwards)
        return list(dict.fromkeys([*steps, *passes]))

    @cached_property
    def draws_batches(self) -> bool:
        """Whether the steps draw their batch at random, so that each process draws its own."""
        frames = {one.frame for one in self.backwards} | {one.frame for one in self.optimizers}
        called = {
            function
            for frame in frames
            for call in self.script.calls_in(frame)
            for function in self.script.functions(self.script.last(call.func))
        }
        return any(
            RANDOM.match(self.script.dotted(call.func)) or is_method(call, "sample")
            for frame in (*frames, *called)
            for call in self.script.calls_in(frame)
        )

    # -- backward and step -------------------------------------------------------------------------------------

    def _goes_backward(self, call: ast.Call) -> bool:
        if self.script.dotted(call.func) == "torch.autograd.backward":
            return True
        if isinstance(call.func, ast.Name):
            bound = self.script.values(self.script.frame(call), call.func.id)  # `go = loss.backward`
            return any(isinstance(value, ast.Attribute) and value.attr == "backward" for value in bound)
        if not is_method(call, "backward") or not isinstance(call.func, ast.Attribute):
            return False
        of = call.func.value
        is_super = isinstance(of, ast.Call) and last_name(of.func) == "super"
        if isinstance(of, ast.Name) and of.id in ("self", "cls"):
            return False  # a method of the script's own
        return not is_super and not self.script.in_lambda(call)

    def _steps_near(self, frame: Frame) -> bool:
        """Whether a frame, its class or a caller steps something."""
        cls = self.script.class_of(frame)
        frames: list[Frame] = [frame, *(self.script.methods(cls) if cls is not None else ())]
        if any(self._steps_in(one) for one in frames):
            return True
        if isinstance(frame, ast.Module):
            return False
        return any(self._steps_behind(call) for call in self.script.callers(frame))

    def _steps_behind(self, call: ast.Call) -> bool:
        """Whether a call's frame steps something in the same pass: the loops around the step are around the call too."""
        loops = self.script.loops_around(call)
        steps = (c for c in self.script.calls_in(self.script.frame(call)) if is_method(c, *STEPS))
        return any(all(loop in loops for loop in self.script.loops_around(step)) for step in steps)

    def _steps_in(self, frame: Frame) -> bool:
        return any(is_method(call, *STEPS) for call in self.script.calls_in(frame))

    def _optimizers_near(self, frame: Frame) -> list[Stepped]:
        """The optimizers that are stepped in a frame, else in its class, its callers, its file."""
        script = self.script
        cls = script.class_of(frame)
        rings: list[list[Frame]] = [[frame], [*(script.methods(cls) if cls is not None else ())]]
        if not isinstance(frame, ast.Module):
            rings.append([script.frame(call) for call in script.callers(frame)])
        module = script.module(frame)
        rings.append([module])
        rings.append(
            [one for one in script.frames if script.module(one) is module and script.is_reached(one)]
        )
        for ring in rings:
            found = [Stepped(text, call, one) for one in ring for text, call in self._stepped_in(one)]
            if found:
                return list({(one.frame, one.text, self._bound_at(one)): one for one in found}.values())
        return []

    def _stepped_in(self, frame: Frame) -> list[tuple[str, ast.Call]]:
        found = []
        for call in self.script.calls_in(frame):
            if not is_method(call, *STEPS) or not isinstance(call.func, ast.Attribute):
                continue
            of: ast.expr = call.func.value
            if "scaler" in written(of).lower() and call.args:
                of = call.args[0]  # scaler.step(optimizer)
            elif not self._is_optimizer(call):
                continue
            if isinstance(of, ast.Name | ast.Attribute | ast.Subscript):
                found.append((written(of), call))
        return found

    def _is_optimizer(self, call: ast.Call) -> bool:
        assert isinstance(call.func, ast.Attribute)
        of = call.func.value
        if not isinstance(of, ast.Name | ast.Attribute | ast.Subscript):
            return False
        text = written(of)
        if "scaler" in text.lower() or self._is_scheduler(self.script.frame(call), text):
            return False
        return text in self._cleared or not OTHER_STEPS.search(text.rpartition(".")[2])

    @cached_property
    def _cleared(self) -> set[str]:
        """Whose gradients are cleared: `x` of `x.zero_grad()`."""
        calls = (call for call in self.script.calls if is_method(call, "zero_grad"))
        return {written(call.func.value) for call in calls if isinstance(call.func, ast.Attribute)}

    def _is_scheduler(self, frame: Frame, text: str) -> bool:
        if text in self._cleared:
            return False
        name = text.rpartition(".")[2]
        made = (
            [value for one in self.script.frames for value in self.script.values(one, text)] if text else []
        )
        if any(isinstance(v, ast.Call) and "lr_scheduler" in self.script.dotted(v.func) for v in made):
            return True
        return re.search(r"sched|lr_", name, re.I) is not None

    def _same_batch(self, call: ast.Call, optimizer: Stepped) -> bool:
        """Whether a scheduler steps in the loop in which the optimizer does."""
        own, other = self.script.loops_around(call), self.script.loops_around(optimizer.call)
        return own[:1] == other[:1] and bool(own)

    # -- the data ----------------------------------------------------------------------------------------------

    def _look_around(self, node: ast.AST, frame: Frame, asked: set[Frame], depth: int) -> bool:
        """Finds what the loops around a node iterate: in its frame, else around the calls of its function."""
        for loop in self.script.loops_around(node):
            if isinstance(loop, ast.For | ast.AsyncFor):
                found = [one for one in self.sources(frame, loop.iter) if not self._is_part(frame, one, loop)]
                for one in found:
                    self._data.setdefault(one, Data(one, frame, loop))
                if found:
                    return True
            if self._taken_by_next(frame, loop):
                return True
        if depth > DEPTH or isinstance(frame, ast.Module) or frame in asked:
            return False
        asked.add(frame)
        own = [call for call in self.script.calls_in(frame) if _is_next(call)] if depth == 0 else []
        hit = False
        for call in own:
            hit |= self._behind_next(frame, call)
        if hit:
            return True
        for call in self.script.callers(frame):
            hit |= self._behind_parameter(call, frame) or self._look_around(
                call, self.script.frame(call), asked, depth + 1
            )
        return hit

    def _behind_parameter(self, call: ast.Call, step: Function) -> bool:
        """Finds the data where a step function is given to a function that calls it: `over(loader, step)`."""
        hit = False
        for function in self.script.functions(self.script.last(call.func)):
            for name in self.script.parameters(function):
                given = self.script.argument_for(call, function, name)
                if given is None or written(given) != step.name:
                    continue
                for inner in self.script.calls_in(function):
                    if written(inner.func) != name:
                        continue
                    for source in self._iterated_around(function, inner):
                        outer = self.script.argument_for(call, function, written(source)) or source
                        self._data.setdefault(outer, Data(outer, self.script.frame(outer)))
                        hit = True
        return hit

    def _iterated_around(self, function: Function, node: ast.AST) -> list[ast.expr]:
        """What the comprehensions and loops around a node of a function go over."""
        found = [
            one.generators[0].iter for one in self.script.around(node) if isinstance(one, COMPREHENSIONS)
        ]
        found += [one.iter for one in self.script.loops_around(node) if isinstance(one, ast.For)]
        return [source for one in found for source in self.sources(function, one)]

    def sources(self, frame: Frame, node: ast.expr, depth: int = 0) -> list[ast.expr]:
        """The iterables that a loop over `node` reads, as the code names them; empty where it goes over no data."""
        if isinstance(node, ast.Call):
            return self._sources_of_call(frame, node, depth)
        if isinstance(node, ast.IfExp):
            return [*self.sources(frame, node.body, depth + 1), *self.sources(frame, node.orelse, depth + 1)]
        if isinstance(node, ast.Name) and node.id not in self.script.parameters(frame) and depth < DEPTH:
            behind = [
                self._behind_name(frame, node, value, depth) for value in self.script.values(frame, node.id)
            ]
            found = [inner for inner in behind if inner is not None]
            if found:  # a bar in one branch, another one in the other
                return list(dict.fromkeys(one for inner in found for one in inner))
        return [node] if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) else []

    def _behind_name(
        self, frame: Frame, name: ast.Name, value: ast.expr, depth: int
    ) -> list[ast.expr] | None:
        """What a variable that is bound to `value` stands for: the iterables behind a bar, an iterator or a choice."""
        if isinstance(value, ast.IfExp):
            return self.sources(frame, value, depth + 1)
        if isinstance(value, ast.Call):
            called = self.script.last(value.func)
            is_other_name = called in SEEN_THROUGH - {"list", "tuple"} or called == "zip"
            if is_other_name or BARS.search(written(value.func)):
                if any(root_of(one) == name.id for one in value.args):
                    return [name]  # `loader = tqdm(loader)`: the variable is what there is
                return self.sources(frame, value, depth + 1)
            if called == "range":
                return [name] if self.sources(frame, value, depth + 1) else []
        return None

    def _sources_of_call(self, frame: Frame, call: ast.Call, depth: int) -> list[ast.expr]:
        name, last = written(call.func), self.script.last(call.func)
        if last == "trange" or last in NO_DATA:
            return []
        if last == "range":
            stepped = len(call.args) == 3 and not re.search(r"\.shape|\.size\(", ast.unparse(call))
            return [call] if stepped else []
        if last == "zip":
            return [one for argument in call.args for one in self.sources(frame, argument, depth)]
        logs = (
            isinstance(call.func, ast.Attribute) and call.args and (last == "log_every" or "metric" in name)
        )
        if last in SEEN_THROUGH or BARS.search(name) or logs:
            given = call.args[:1] or [k.value for k in call.keywords if k.arg == "iterable"]
            return [one for argument in given for one in self.sources(frame, argument, depth)]
        return [call]

    def _is_part(self, frame: Frame, node: ast.expr, loop: Loop) -> bool:
        """Whether an iterable is made from the batch of a loop further out: its chunks, its rows."""
        if isinstance(node, ast.Call):
            return bool(names_in(node) & self._taken_in(frame))
        if not isinstance(node, ast.Name):
            root = root_of(node)
            around = [one for one in self.script.loops_around(loop) if isinstance(one, ast.For)]
            targets = {n.id for one in around for n in walk(one.target) if isinstance(n, ast.Name)}
            data = [one for one in around if self.sources(frame, one.iter)]
            return isinstance(node, ast.Subscript | ast.Attribute) and root in targets and bool(data)
        for outer in self.script.loops_around(loop):
            if isinstance(outer, ast.For | ast.AsyncFor) and not self.sources(frame, outer.iter):
                continue
            inside = set(map(id, walk(outer)))
            if not any(id(store) in inside for store in self.script.stores(frame, node.id)):
                continue
            made = [v for v in self.script.values(frame, node.id) if id(v) in inside]
            calls = [v for v in made if isinstance(v, ast.Call)]
            if not any(re.search(r"loader|iter", ast.unparse(v), re.I) for v in calls):
                return True
        return False

    def _taken_in(self, frame: Frame) -> set[str]:
        """The variables of a frame that hold what `next` has given: `batch, labels = next(batches)`."""
        assigns = [n for n in self.script.within(frame) if isinstance(n, ast.Assign)]
        taken = [n for n in assigns if isinstance(n.value, ast.Call) and _is_next(n.value)]
        return {
            n.id for one in taken for target in one.targets for n in walk(target) if isinstance(n, ast.Name)
        }

    def _taken_by_next(self, frame: Frame, loop: Loop) -> bool:
        """Finds what `next` takes the batches of a loop from, in its body or in a function that gives it a batch."""
        places = [(frame, call) for call in self.script.calls_in(frame) if self._is_inside(call, loop)]
        given = [
            function
            for _, call in places
            if not isinstance(self.script.parent(call), ast.Expr)
            for function in self.script.functions(self.script.last(call.func))
        ]
        nexts = [(one, call) for one, call in places if _is_next(call)]
        nexts += [
            (f, call)
            for f in given
            for call in self.script.calls_in(f)
            if _is_next(call) and not self._loops_on(f, call)
        ]
        found = [self._behind_next(one, call) for one, call in nexts]
        return any(found)  # every one is looked at

    def _loops_on(self, function: Function, call: ast.Call) -> bool:
        return any(isinstance(loop, ast.For) for loop in self.script.loops_around(call))

    def _is_inside(self, node: ast.AST, loop: Loop) -> bool:
        return self.script.table.is_inside(node, loop)

    def _behind_next(self, frame: Frame, call: ast.Call) -> bool:
        iterator = call.args[0] if isinstance(call.func, ast.Name) else call.func.value  # type: ignore[attr-defined]
        if isinstance(iterator, ast.Call):  # next(iter(loader))
            found = self.sources(frame, iterator)
            for one in found:
                self._data.setdefault(one, Data(one, frame))
            return bool(found)
        if self._behind_text(frame, written(iterator), 0):
            return True
        if is_function_frame(frame) and written(iterator) in self.script.parameters(frame):
            self._data.setdefault(iterator, Data(iterator, frame))
            return True
        return False

    def _behind_text(self, frame: Frame, text: str, depth: int) -> bool:
        """Finds what the iterator `text` of a frame goes over."""
        hit = False
        module = self.script.module(frame)
        for other in self.script.frames:
            if self.script.module(other) is not module:
                continue
            for value in self.script.values(other, text):
                if isinstance(value, ast.Call):
                    hit |= self._behind_iterator(other, value)
        if not hit and depth < DEPTH and text in self.script.parameters(frame) and is_function_frame(frame):
            for given in self.script.direct_callers(frame):
                argument = self.script.argument_for(given, frame, text)
                if isinstance(argument, ast.Call):  # train(iter(loader))
                    hit |= self._behind_iterator(self.script.frame(given), argument)
                elif argument is not None:
                    hit |= self._behind_text(self.script.frame(given), written(argument), depth + 1)
        return hit

    def _behind_iterator(self, frame: Frame, value: ast.Call) -> bool:
        inside = self._held_by(value)
        if inside:
            for one in inside:
                self._data.setdefault(one, Data(one, self.script.frame(one), held=True))
            return True
        found = self.sources(frame, value)
        for one in found:
            self._data.setdefault(one, Data(one, frame))
        return bool(found)

    def _held_by(self, value: ast.Call) -> list[ast.expr]:
        """What the class of an object goes over with `iter`, where the class is the project's own."""
        cls = self.script.class_made(value)
        if cls is None:
            return []
        calls = (node for node in walk(cls) if isinstance(node, ast.Call) and node.args)
        return [
            call.args[0]
            for call in calls
            if last_name(call.func) == "iter" and isinstance(call.func, ast.Name)
        ]

    # -- models ------------------------------------------------------------------------------------------------

    def models_of(self, frame: Frame, text: str) -> list[str]:
        """The variables and attributes whose parameters an optimizer of a frame was given there."""
        found: dict[str, None] = {}
        for value in self.script.values(frame, text):
            for call in walk(value) if isinstance(value, ast.Call) else ():
                if not is_method(call, "parameters", "named_parameters"):
                    continue
                assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
                of = _whole(call.func.value)
                if of:
                    found.setdefault(of)
        return list(found)


def _whole(node: ast.expr) -> str:
    """`model` of `model.head`, `self.model` of `self.model.head`; empty for other expressions."""
    parts = written(node).split(".") if isinstance(node, ast.Name | ast.Attribute) else []
    if not parts or not all(part.isidentifier() for part in parts):
        return ""
    return ".".join(parts[:2] if parts[0] == "self" else parts[:1])


def _is_next(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id == "next" and bool(call.args)
    return is_method(call, "next", "__next__")
