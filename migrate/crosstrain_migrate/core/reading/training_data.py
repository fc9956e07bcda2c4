"""What a training loop reads its batches from, by use.

The loops around the backward are asked, from the innermost outwards, then those around the calls of its function. They are
seen through `enumerate`, `zip`, progress bars and iterators.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from crosstrain_migrate.syntax.nodes import COMPREHENSIONS, Function, place_of, written
from crosstrain_migrate.syntax.walks import walk

from .certain import Certain
from .data import BARS, NO_DATA, PIECES, SEEN_THROUGH, Data
from .forms import RANGES, Frame, Loop, is_function_frame, is_method, names_in, root_of
from .generators import Generators
from .iterators import DEPTH, Iterators, is_fetched_apart
from .modes import facts, is_left_out, opposed, told
from .ranges import Ranges, numbers_of
from .script import Script


class TrainingData:
    """Finds the data of a script's training loops."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._data: dict[ast.expr, Data] = {}
        self._wanted: dict[ast.AST, set[tuple[str, bool]]] = {}  # by call, what lets it come to a backward
        self._asks_callers = False  # also of what trains by itself: where nothing else has data
        self._iterators = Iterators(script, self.sources)
        self._ranges = Ranges(script)
        self._certain = Certain(script)
        self._generators = Generators(script, self._iterators, self._certain, self.sources)

    def around(self, places: Iterable[tuple[ast.AST, Frame]]) -> list[Data]:
        """What the loops around the backward passes iterate, each place once, in the order of the text."""
        places = list(places)
        self._look_around_all(places)
        if not self._data:
            self._asks_callers = True
            self._look_around_all(places)
        classes = {self.script.class_of(frame) for _, frame in places}
        behind = partial(self._generators.behind, classes=classes)
        read = [(inner, one) for one in self._data.values() for inner in behind(one.node)]
        found = {inner: replace(one, node=inner) for inner, one in read}
        return sorted(found.values(), key=lambda one: place_of(one.node))

    def _look_around_all(self, places: list[tuple[ast.AST, Frame]]) -> None:
        for node, frame in places:
            self._look_around(node, frame, set(), 0)

    def _look_around(
        self, node: ast.AST, frame: Frame, asked: set[Frame], depth: int, is_training: bool = False
    ) -> bool:
        """Finds what the loops around a node iterate: in its frame, else around the calls of its function.

        What may be data, or the scales and the heads that each batch goes through, is data unless a loop around it has more.
        is_training: the node is a whole training, for each batch of a DataLoader, or for a seed, a rate or a task.
        """
        likely: tuple[Loop, list[ast.expr]] | None = None
        for loop in self.script.loops_around(node):
            found = [f for f in self._iterated(frame, loop) if not self._is_of_other(frame, f, node)]
            if any(self._certain.gives_batches(frame, one) for one in found):
                return self._take(frame, node, loop, found)
            if isinstance(loop, ast.For | ast.AsyncFor) and is_fetched_apart(self.script, node, loop):
                continue
            if likely is None and self._begins_trainings(frame, loop):
                continue
            if found and likely is None and not is_training:
                likely = (loop, found)
            inside = self._calls_inside(frame, loop)
            if likely is None and self._taken_by_next(frame, self._iterators.beside(node, inside)):
                return True
        if likely is not None and not self._is_given_batches(frame, 0):
            return self._take(frame, node, *likely)
        if depth > DEPTH or isinstance(frame, ast.Module) or frame in asked:
            return False
        asked.add(frame)
        calls = self.script.calls_in(frame)
        if depth == 0 and self._taken_by_next(frame, self._iterators.beside(node, calls)):
            return True
        is_training = is_training or self._trains_by_itself(frame, node)
        if is_training and not self._asks_callers:
            return False
        hit = False
        for call in self.script.callers(frame):
            if self.script.is_without_gradient(call) or is_left_out(self.script, node, call):
                continue  # what it computes there is not trained
            flags = told(self.script, facts(self.script, node) | self._wanted.get(node, set()), frame, call)
            if flags is None:
                continue
            self._wanted[call] = flags
            hit |= self._behind_parameter(call, frame) or self._look_around(
                call, self.script.frame(call), asked, depth + 1, is_training
            )
        return hit

    def _is_of_other(self, frame: Frame, source: ast.expr, node: ast.AST) -> bool:
        """Whether a function comes to a source only where what it is given keeps it from a node: `if tests: bar = tqdm(loader)`."""
        return any(
            text in self.script.parameters(frame) and not self.script.stores(frame, text)
            for text in opposed(self.script, source, node)
        )

    def _trains_by_itself(self, frame: Frame, node: ast.AST) -> bool:
        """Whether a function makes an optimizer and repeats its steps: its callers' loops go over trainings, not batches."""
        repeats = set(self.script.loops_around(node))
        return bool(repeats) and any(
            not repeats & set(self.script.loops_around(call)) for call in self._optimizers_made(frame)
        )

    def _begins_trainings(self, frame: Frame, loop: Loop) -> bool:
        """Whether each turn of a loop makes a model and its optimizer: it goes over trainings, such as the sizes that a benchmark
        tries."""
        nodes = [n for n in walk(loop) if isinstance(n, ast.Name | ast.Attribute)]
        bound = {written(n) for n in nodes if isinstance(n.ctx, ast.Store)}
        return any(
            loop in self.script.loops_around(call) and bound & {written(n) for n in walk(call) if n in nodes}
            for call in self._optimizers_made(frame)
        )

    def _optimizers_made(self, frame: Frame) -> list[ast.Call]:
        """Those of PyTorch, and what is made of parameters and stepped there: `optimizer = Searching(net.parameters())`."""
        calls = self.script.calls_in(frame)
        stepped = {written(c.func.value) for c in calls if is_method(c, "step")}

        def is_optimizer(call: ast.Call) -> bool:
            name, bound = self.script.dotted(call.func), self.script.parent(call)
            if name.startswith("torch.optim."):
                return "lr_scheduler" not in name
            given = any(is_method(n, "parameters") for n in walk(call))
            return given and isinstance(bound, ast.Assign) and written(bound.targets[0]) in stepped

        return [call for call in calls if is_optimizer(call)]

    def _iterated(self, frame: Frame, loop: Loop) -> list[ast.expr]:
        """What a loop goes over that may be data."""
        if not isinstance(loop, ast.For | ast.AsyncFor):
            return []
        found = [
            one
            for one in self.sources(frame, loop.iter)
            if not self._is_part(frame, one, loop) or self._is_made_anew(frame, one)
        ]
        return [one for one in found if not self._certain.gives_none(frame, one, loop)]

    def _is_made_anew(self, frame: Frame, node: ast.expr) -> bool:
        """Whether a loop further out makes a loader for each of its items: `train_loader, test_loader = loaders_of(book)`,
        `DataLoader(part)`."""
        taken = self._iterators.taken_in(frame)
        is_other = isinstance(node, ast.Call) or (isinstance(node, ast.Name) and node.id not in taken)
        return is_other and self._certain.gives_batches(frame, node)

    def _take(self, frame: Frame, node: ast.AST, loop: Loop, found: list[ast.expr]) -> bool:
        """Finds what a loop around a node goes over, and what `next` takes beside it."""
        for one in found:
            self._data.setdefault(one, Data(one, frame, loop))
        self._taken_by_next(frame, self._iterators.near(node, self._calls_inside(frame, loop)), loop)
        return True

    def _calls_inside(self, frame: Frame, loop: Loop) -> list[ast.Call]:
        return [c for c in self.script.calls_in(frame) if self.script.table.is_inside(c, loop)]

    def _is_given_batches(self, frame: Frame, depth: int) -> bool:
        """Whether every call of a function stands in a loop that surely goes over batches."""
        if not is_function_frame(frame) or depth > DEPTH:
            return False
        calls = self.script.callers(frame)
        return bool(calls) and all(
            any(
                self._certain.gives_batches(self.script.frame(call), one)
                for loop in self.script.loops_around(call)
                for one in self._iterated(self.script.frame(call), loop)
            )
            or self._is_given_batches(self.script.frame(call), depth + 1)
            for call in calls
        )

    def _taken_by_next(self, frame: Frame, calls: list[ast.Call], loop: Loop | None = None) -> bool:
        """Finds what `next` takes the batches from, among the calls of a frame; in a loop over others what surely gives some,
        and no numbers, weights or rates."""
        found = self._iterators.behind(frame, calls)
        if loop is not None:
            found = [one for one in found if self._certain.gives_batches(self.script.frame(one), one)]
        for one in found:
            held = one in self._iterators.held
            self._data.setdefault(one, Data(one, self.script.frame(one), None, held, loop))
        return bool(found)

    def _behind_parameter(self, call: ast.Call, step: Function) -> bool:
        """Finds the data where a step function is given to a function that calls it: `over(loader, step)`."""
        hit = False
        for function in self.script.functions_of(call):
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
        found = [n.generators[0].iter for n in self.script.around(node) if isinstance(n, COMPREHENSIONS)]
        found += [one.iter for one in self.script.loops_around(node) if isinstance(one, ast.For)]
        return [source for one in found for source in self.sources(function, one)]

    def sources(self, frame: Frame, node: ast.expr, depth: int = 0) -> list[ast.expr]:
        """The iterables that a loop over `node` reads, as the code names them; empty where it goes over no data."""
        if isinstance(node, ast.Call):
            return self._sources_of_call(frame, node, depth)
        if isinstance(node, ast.IfExp):
            return [*self.sources(frame, node.body, depth + 1), *self.sources(frame, node.orelse, depth + 1)]
        if isinstance(node, ast.GeneratorExp):  # `(move(batch) for batch in loader)`
            return self.sources(frame, node.generators[0].iter, depth + 1)
        if isinstance(node, ast.Name) and node.id not in self.script.parameters(frame) and depth < DEPTH:
            bound = self._bound_to(frame, node)
            behind = [self._behind_name(frame, node, value, depth) for value in bound]
            found = [inner for inner in behind if inner is not None]
            if found and not any(
                node in inner for inner in found
            ):  # a bar in one branch, and none in the other
                bare = (one for one in bound if isinstance(one, ast.Name | ast.Attribute))
                found += [[one] for one in bare if written(one) != node.id]
            if found:
                return list(dict.fromkeys(one for inner in found for one in inner))
        bars = self._bound_to(frame, node) if isinstance(node, ast.Attribute) and depth < DEPTH else []
        if len(bars) == 1 and isinstance(bars[0], ast.Call) and BARS.search(written(bars[0].func)):
            return self._sources_of_call(frame, bars[0], depth + 1)  # `self.bar = tqdm(self.loader)`
        return [node] if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) else []

    def _bound_to(self, frame: Frame, name: ast.Name | ast.Attribute) -> list[ast.expr]:
        """What a variable is bound to: the last value right above, in the same suite, where there is one: `bar = tqdm(loader)`."""
        values, statement = self.script.values(frame, written(name)), self.script.statement(name)
        above = [one for one in values if place_of(one) < place_of(statement)]
        last = max(above, key=place_of, default=None)
        is_beside = last is not None and self.script.statement(last) in self.script.suite_of(statement)
        return [last] if last is not None and is_beside else values

    def _behind_name(
        self, frame: Frame, name: ast.Name, value: ast.expr, depth: int
    ) -> list[ast.expr] | None:
        """What a variable that is bound to `value` stands for: the iterables behind a bar, an iterator or a choice."""
        if isinstance(value, ast.IfExp):
            found = self.sources(frame, value, depth + 1)
            is_called = any(isinstance(side, ast.Call) for side in (value.body, value.orelse))
            one_of_two = len({ast.unparse(one) for one in found}) > 1 and not is_called
            return [name] if one_of_two else found  # `loader = a if training else b`
        if isinstance(value, ast.Call):
            called = self.script.last(value.func)
            if called == "split" and any(isinstance(getattr(one, "value", None), str) for one in value.args):
                return []  # names, `args.sets.split(",")`
            if called in {*SEEN_THROUGH, "zip"} - {"list", "tuple"} or BARS.search(written(value.func)):
                if any(root_of(one) == name.id for one in value.args):
                    return None  # `loader = tqdm(loader)`: what it is bound to elsewhere is what there is
                return self.sources(frame, value, depth + 1)
            if (numbers := numbers_of(value)) is not None:
                return [name] if self.sources(frame, numbers, depth + 1) else []
        return None

    def _sources_of_call(self, frame: Frame, call: ast.Call, depth: int) -> list[ast.expr]:
        name, last = written(call.func), self.script.last(call.func)
        if last in NO_DATA:
            return []
        if last in (*RANGES, "trange"):
            stepped = len(call.args) == 3 and not re.search(r"\.shape|\.size\(", ast.unparse(call))
            is_cut = stepped or bool(self._ranges.cut(call))
            return [call] if is_cut and not self._ranges.accumulates(call) else []
        if last == "zip":
            return [one for argument in call.args for one in self._zipped(frame, argument, depth)]
        logs = (
            isinstance(call.func, ast.Attribute) and call.args and (last == "log_every" or "metric" in name)
        )
        if last in SEEN_THROUGH or BARS.search(name) or logs:
            given = [one for one in call.args if not self._is_told(frame, one)][:1]
            given = given or [k.value for k in call.keywords if k.arg == "iterable"]
            return [one for argument in given for one in self.sources(frame, argument, depth)]
        return [call]

    def _is_told(self, frame: Frame, given: ast.expr) -> bool:
        """Whether a bar's argument is its name, or where it logs: `Progress(logger, loader)`."""
        frames = (frame, self.script.module(given))
        made = [value for one in frames for value in self.script.values(one, written(given))] or [given]
        return all(
            isinstance(one, ast.JoinedStr | ast.Constant)
            or (isinstance(one, ast.Call) and self.script.last(one.func) == "getLogger")
            for one in made
        )

    def _zipped(self, frame: Frame, argument: ast.expr, depth: int) -> list[ast.expr]:
        """What stands for one argument of `zip`, or for each element of a list: `zip(*loaders)`."""
        if isinstance(argument, ast.Starred):
            return self._iterators.elements(frame, argument.value)
        return self.sources(frame, argument, depth)

    def _comes_from_batch(self, frame: Frame, name: str, node: ast.AST, depth: int) -> bool:
        """Whether the variable `name` at a node holds what `next` or a loop over data has given, there or to all callers."""
        if name in self._iterators.taken_in(frame, node):
            return True
        stores = self.script.stores(frame, name)
        for outer in self.script.loops_around(node):
            if not isinstance(outer, ast.For) or node in walk(outer.iter):
                continue  # the loop over it, which may have a bar around it
            inside = set(map(id, walk(outer))) if self._may_give_batches(frame, outer) else set()
            if any(id(store) in inside for store in stores):
                return True
        values = self.script.values(frame, name)  # `x = x.detach()` is another word for it
        is_other = len(values) < len(stores) or any(name not in names_in(one) for one in values)
        if depth > 2 or not is_function_frame(frame) or name not in self.script.parameters(frame) or is_other:
            return False
        calls = self.script.callers(frame)
        given = [(call, self.script.argument_for(call, frame, name)) for call in calls]
        others = [
            argument
            for call, argument in given
            if argument is None
            or not any(
                self._comes_from_batch(self.script.frame(call), one, call, depth + 1)
                for one in names_in(argument)
            )
        ]
        # A method of that name of another object is given no variable: `results.update({"loss": loss})`.
        return len(others) < len(given) and not any(map(self._may_be_loader, others))

    def _may_be_loader(self, argument: ast.expr | None) -> bool:
        if argument is None or isinstance(argument, ast.Name | ast.Attribute):
            return True
        return self._certain.gives_batches(self.script.frame(argument), argument)

    def _may_give_batches(self, frame: Frame, loop: ast.For) -> bool:
        """Whether a loop goes over something, and not for sure over numbers, names or layers."""
        return not all(self._certain.gives_none(frame, one, loop) for one in self.sources(frame, loop.iter))

    def _calls_for(self, frame: Frame, name: str) -> list[ast.Call]:
        """The calls whose result, or one of whose results, a variable is bound to."""
        bound = [self.script.statement(store) for store in self.script.stores(frame, name)]
        return [s.value for s in bound if isinstance(s, ast.Assign) and isinstance(s.value, ast.Call)]

    def _bound_from_no_data(self, frame: Frame, outer: Loop) -> set[int]:
        """The variables that loops over a dictionary of loaders bind: `for phase, loader in loaders.items()`."""
        loops = [n for n in walk(outer) if isinstance(n, ast.For) and not self.sources(frame, n.iter)]
        return {id(n) for loop in loops for n in walk(loop.target)}

    def _is_part(self, frame: Frame, node: ast.expr, loop: Loop) -> bool:
        """Whether an iterable is made from the batch of a loop further out: its chunks, its rows."""
        if isinstance(node, ast.Call):
            rows, names = self._ranges.cut(node), [n for n in walk(node) if isinstance(n, ast.Name)]
            # `range(start, start + n)` of a part of the rows: each of its numbers is a batch, where each is a step
            read = rows if rows and self._ranges.steps(walk(loop), 2) else [*rows, *names]
            return any(self._comes_from_batch(frame, root_of(one), node, 0) for one in read)
        if isinstance(node, ast.Name) and node.id in self.script.parameters(frame):
            return self._comes_from_batch(frame, node.id, node, 0)
        cuts = [one for one in self._calls_for(frame, written(node)) if self.script.last(one.func) in PIECES]
        if any(self._comes_from_batch(frame, name, node, 0) for one in cuts for name in names_in(one)):
            return True
        if not isinstance(node, ast.Name):
            root = root_of(node)
            around = [one for one in self.script.loops_around(loop) if isinstance(one, ast.For)]
            targets = {n.id for one in around for n in walk(one.target) if isinstance(n, ast.Name)}
            data = [one for one in around if self.sources(frame, one.iter)]
            return isinstance(node, ast.Subscript | ast.Attribute) and root in targets and bool(data)
        for outer in self.script.loops_around(loop):
            if isinstance(outer, ast.For | ast.AsyncFor) and not self.sources(frame, outer.iter):
                continue
            inside = set(map(id, walk(outer))) - self._bound_from_no_data(frame, outer)
            if not any(id(store) in inside for store in self.script.stores(frame, node.id)):
                continue
            calls = [v for v in self._calls_for(frame, node.id) if id(v) in inside]
            if not any(re.search(r"loader|iter", ast.unparse(v), re.I) for v in calls):
                return True
        return False
