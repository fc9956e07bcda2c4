"""What stands behind `next`: the iterables over which a script keeps iterators.

An iterator is followed through variables, parameters, attributes, the elements of lists and dictionaries, and objects of
the project's classes that iterate a loader of their own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from crosstrain_migrate.syntax.nodes import COMPREHENSIONS, Function, last_name, place_of, words, written
from crosstrain_migrate.syntax.walks import walk, walk_all

from .forms import Frame, is_function_frame, is_method, names_in, root_of
from .script import Script, is_statement_call

DEPTH = 4  # how many calls, or names, are followed
Sources = Callable[[Frame, ast.expr], list[ast.expr]]
Bound = tuple[Frame, ast.expr]  # a value, and the frame that it stands in


class Iterators:
    """Finds the iterables behind calls of `next`. sources: what a loop over an expression of a frame reads."""

    def __init__(self, script: Script, sources: Sources) -> None:
        self.script = script
        self.sources = sources
        self.held: set[ast.expr] = set()  # iterables inside the class of an object that `next` is called on

    def behind(self, frame: Frame, calls: list[ast.Call]) -> list[ast.expr]:
        """What the calls of `next` among `calls`, or in functions that they ask for a batch, take it from: no line of a file."""
        taken = [
            one
            for place, call in self._nexts(frame, calls, 2)
            for one in self._behind_next(place, call, calls)
        ]
        found = dict.fromkeys(source for one in taken for source in self._behind_numbers(one))
        return [one for one in found if last_name(getattr(one, "func", one)) != "open"]

    def _given_to_train(self, frame: Frame, node: ast.expr, calls: list[ast.Call]) -> list[Bound]:
        """What the training gives for a parameter of which others take batches too: `take(data["train"])`, `take(data["test"])`."""
        given = {call: one for one, call in self.script.given_for(frame, written(node))}
        own = [c for c in given if c in calls and not self.script.is_without_gradient(c)]
        others = {ast.unparse(one) for call, one in given.items() if call not in own}
        is_apart = bool(own) and not others <= {ast.unparse(given[call]) for call in own}
        return [(self.script.frame(call), given[call]) for call in own] if is_apart else [(frame, node)]

    def _behind_numbers(self, node: ast.expr) -> list[ast.expr]:
        """What is numbered, where all calls give `enumerate(loader)` for a parameter: a process counts its steps by its own
        numbers, so that the loader is dealt and not its batches with theirs."""
        frame = self.script.frame(node)
        given = self.script.given_for(frame, written(node))
        counts = [isinstance(one, ast.Call) and last_name(one.func) == "enumerate" for one, _ in given]
        if not counts or not all(counts):
            return [node]
        self.held.discard(node)
        return [source for one, call in given for source in self.sources(self.script.frame(call), one)]

    def beside(self, node: ast.AST, calls: list[ast.Call]) -> list[ast.Call]:
        """The calls near a node, or all where `next` is called elsewhere alone: for samples, or a test."""
        near = self.near(node, calls)
        return near if any(map(_is_next, near)) else calls

    def near(self, node: ast.AST, calls: list[ast.Call]) -> list[ast.Call]:
        """The calls without those of `next` in a loop or a branch that a node is not in, and whose batches do not come to it."""
        around = self._suites_around(node)
        apart = {one for one in calls if _is_next(one) and self._suites_around(one) - around}
        if apart:
            made_of = self._made_of(node)
            apart = {one for one in apart if not self._told_by(one) & made_of}
        return [one for one in calls if one not in apart]

    def _suites_around(self, node: ast.AST) -> set[ast.AST]:
        """The loops and the branches that a node is in."""
        branches = {one for one in self.script.around(node) if isinstance(one, ast.If)}
        return branches.union(self.script.loops_around(node))

    def _made_of(self, node: ast.AST) -> set[str]:
        """The variables of its function that a node is made of: of assignments, loops, and what a list is told."""
        found, before = names_in(node), -1
        inside = list(self.script.within(self.script.frame(node)))
        while before < len(found):
            before = len(found)
            for one in inside:
                if (
                    isinstance(one, ast.Assign | ast.AugAssign | ast.For | ast.Call)
                    and self._told_by(one) & found
                ):
                    found |= names_in(one.iter if isinstance(one, ast.For) else getattr(one, "value", one))
        return found

    def _told_by(self, node: ast.AST) -> set[str]:
        """What a statement binds, or the object that it tells something: `rows` of `rows.append(next(batches))`."""
        match self.script.statement(node) if isinstance(node, ast.Call) else node:
            case ast.Assign(targets=targets):
                return {name for target in targets for name in names_in(target)}
            case ast.AugAssign(target=target) | ast.For(target=target):
                return names_in(target)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=of))):
                return names_in(of)
            case ast.Expr(value=ast.Call(args=args)):  # `fill(buffer, next(batches))`
                return {one.id for one in args if isinstance(one, ast.Name)}
        return set()

    def taken_in(self, frame: Frame, node: ast.AST | None = None) -> set[str]:
        """The variables of a frame that hold what `next` has given: `batch, labels = next(batches)`, `[move(x) for x in
        next(batches)]`; with a node, what was taken in the loops around it, where there are any."""
        assigns = [n for n in self.script.within(frame) if isinstance(n, ast.Assign)]
        taken = [
            n for n in assigns if any(isinstance(one, ast.Call) and _is_next(one) for one in walk(n.value))
        ]
        inside = self.script.table.is_inside
        around = [
            one
            for one in (self.script.loops_around(node) if node is not None else ())
            if isinstance(one, ast.While) or (node is not None and not inside(node, one.iter))
        ]
        if around:  # what was taken once, above all of them, is gone over again and again
            taken = [one for one in taken if inside(one, around[-1])]
        return {name for one in taken for target in one.targets for name in names_in(target)}

    def _nexts(self, frame: Frame, calls: list[ast.Call], depth: int) -> list[tuple[Frame, ast.Call]]:
        # `bar.next()` gives no batch.
        kept = (one for one in calls if not is_statement_call(self.script, one))
        found = [(frame, call) for call in kept if _is_next(call)]
        asked = [
            function
            for call in calls
            if depth
            for function in self.script.functions_of(call)
            if not isinstance(self.script.parent(call), ast.Expr) or self._fills(function)
            if not (_is_next(call) and is_method(call, "next") and self._bound(frame, call.func.value, 0))
        ]
        for function in dict.fromkeys(asked):
            inner = [c for c in self.script.calls_in(function) if not self._repeats(c)]
            found += self._nexts(function, inner, depth - 1)
        return found

    def _fills(self, function: Function) -> bool:
        """Whether a function writes what `next` has given into what it is given: `x.data.copy_(rows)`."""
        taken = self.taken_in(function)
        return any(
            isinstance(call.func, ast.Attribute)
            and call.func.attr.endswith("_")
            and root_of(call.func) in self.script.parameters(function)
            and names_in(call) & taken
            for call in self.script.calls_in(function)
        )

    def _repeats(self, call: ast.Call) -> bool:
        """Whether a function takes batch after batch by a call: no loop over the iterators themselves is around it."""
        loops = [loop for loop in self.script.loops_around(call) if isinstance(loop, ast.For)]
        return any(not _is_next(call) or not names_in(loop.target) & names_in(call) for loop in loops)

    def _behind_next(self, frame: Frame, call: ast.Call, calls: list[ast.Call]) -> list[ast.expr]:
        """What a call of `next` takes from. calls: those of the training."""
        iterator = call.func.value if isinstance(call.func, ast.Attribute) else call.args[0]
        if isinstance(iterator, ast.Call):  # next(iter(loader))
            return self.sources(frame, iterator)
        cls = self.script.class_of(frame) if written(iterator) == "self" else None
        if cls is not None:  # an object that is its own iterator
            inside = _iterated_in(cls)
            self.held.update(inside)
            return inside
        given = self._given_to_train(frame, iterator, calls)
        bound = [source for home, node in given for source in self._bound(home, node, 0)]
        found = [one for place, value in bound for one in self._iterated(place, value)]
        if not found and is_function_frame(frame) and written(iterator) in self.script.parameters(frame):
            return [node for _, node in given]
        return list(dict.fromkeys(found))

    # -- what an expression stands for -------------------------------------------------------------------------

    def _bound(self, frame: Frame, node: ast.expr, depth: int) -> list[Bound]:
        """The calls that make what an expression stands for."""
        if isinstance(node, ast.Call):
            return [(frame, node)]
        if depth > DEPTH:
            return []
        if isinstance(node, ast.IfExp):
            return [one for side in (node.body, node.orelse) for one in self._bound(frame, side, depth + 1)]
        if isinstance(node, ast.Subscript):
            key, made = getattr(node.slice, "value", None), self.script.values(frame, written(node.value))
            # By what fills it, where no code here does: `made = library.loaders(rows)`.
            is_kept = isinstance(key, str) and any(isinstance(one, ast.Call) for one in made)
            inside = self._elements(frame, node.value, depth + 1, key)
            return inside or ([(frame, node)] if is_kept else [])
        text = written(node)
        given = self._given(frame, text) if not self.script.stores(frame, text) else []
        found: list[Bound] = [
            (other, value)
            for other in (self.script.frames_in(self.script.module(frame)) if not given else ())
            for value in self.script.values(other, text)
            if isinstance(value, ast.Call | ast.IfExp | ast.Name | ast.Attribute)
        ]
        if isinstance(node, ast.Name):
            found = self._in_force(frame, node, found)
        found = [one for place, value in found for one in self._bound(place, value, depth + 1)]
        if found:  # `loader = Endless(loader)` wraps what the variable was bound to before
            return [one for one in found if not _mentions(one[1], text)] or found
        for container in self._gone_over(frame, text):
            found += self._elements(frame, container, depth + 1)
        if not found and isinstance(node, ast.Attribute):
            found = self._of_other_object(node)
        if not found:
            given = given or self._given(frame, text)
            found = [one for place, argument in given for one in self._bound(place, argument, depth + 1)]
        return found

    def _in_force(self, frame: Frame, read: ast.Name, found: list[Bound]) -> list[Bound]:
        """Of all that a variable is bound to, what a read of it can see: what its own function binds it to, and where a suite
        around the read does, the last value above, what a branch binds between, and what loops around the read bind further
        down. `batches = iter(test)` of the next loop is none."""
        around = [one for one in self.script.around(read) if isinstance(one, ast.stmt)]
        suites = [self.script.suite_of(one) for one in around if self.script.frame(one) is frame]
        own = [value for place, value in found if place is frame]
        above = [
            one
            for one in own
            if place_of(one) < place_of(read) and any(self.script.statement(one) in suite for suite in suites)
        ]
        last, inside = max(above, key=place_of, default=None), self.script.table.is_inside
        if last is None or _mentions(last, read.id):
            return [one for one in found if one[0] is frame] or found
        loops = [loop for loop in self.script.loops_around(read) if not inside(last, loop)]
        return [
            (frame, one)
            for one in own
            if place_of(last) <= place_of(one) < place_of(read) or any(inside(one, loop) for loop in loops)
        ]

    def _of_other_object(self, node: ast.Attribute) -> list[Bound]:
        """What the one class that has an attribute of this name binds it to: `self.batches` for `loop.batches`."""
        by_class: dict[ast.ClassDef, list[Bound]] = {}
        for frame in self.script.frames:
            cls = self.script.class_of(frame)
            values = self.script.values(frame, f"self.{node.attr}") if cls is not None else []
            for value in values:
                if cls is not None and isinstance(value, ast.Call):
                    by_class.setdefault(cls, []).append((frame, value))
        return next(iter(by_class.values())) if len(by_class) == 1 else []

    def _given(self, frame: Frame, text: str) -> list[Bound]:
        """What the calls of a function give for its parameter `text`."""
        if not is_function_frame(frame) or text not in self.script.parameters(frame):
            return []
        calls = self.script.direct_callers(frame)
        given = [(self.script.frame(call), self.script.argument_for(call, frame, text)) for call in calls]
        return [(place, argument) for place, argument in given if argument is not None]

    def _gone_over(self, frame: Frame, text: str) -> list[ast.expr]:
        """The containers that loops bind the variable `text` from: `iters` of `for i, it in enumerate(iters)`."""
        found: list[ast.expr] = []
        for node in self.script.within(frame):
            if isinstance(node, ast.For | ast.comprehension) and text in names_in(node.target):
                found += _containers(node.iter)
        return found

    def _elements(self, frame: Frame, container: ast.expr, depth: int, key: object = None) -> list[Bound]:
        """What a list or a dictionary is filled with, under a key where that is a text."""
        text = written(container)
        found = [
            (other, element)
            for other in self.script.frames_in(self.script.module(frame))
            for element, name in self._put_in(other, text)
            if not isinstance(key, str) or name in (key, None)
        ]
        if not found and depth <= DEPTH:
            given = self._given(frame, text)
            return [one for place, of in given for one in self._elements(place, of, depth + 1, key)]
        return [one for place, element in found for one in self._bound(place, element, depth + 1)]

    def _put_in(self, frame: Frame, text: str) -> Iterator[tuple[ast.expr, object]]:
        """What a frame puts into a container, and the key where it says one."""
        for value in self.script.values(frame, text):
            if isinstance(value, ast.List | ast.Tuple):
                yield from ((element, None) for element in value.elts)
            elif isinstance(value, ast.Dict):
                pairs = zip(value.values, value.keys, strict=True)
                yield from ((element, getattr(key, "value", None)) for element, key in pairs)
            elif isinstance(value, ast.Call) and written(value.func) == "dict":
                yield from ((keyword.value, keyword.arg) for keyword in value.keywords)
            elif isinstance(value, COMPREHENSIONS):
                yield value.value if isinstance(value, ast.DictComp) else value.elt, None
        for node in self.script.within(frame):
            if is_method(node, "append") and len(node.args) == 1:
                assert isinstance(node.func, ast.Attribute)
                if written(node.func.value) == text:
                    yield node.args[0], None
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Subscript) and written(target.value) == text:
                        yield node.value, getattr(target.slice, "value", None)

    # -- what an iterator goes over ----------------------------------------------------------------------------

    def _iterated(self, frame: Frame, value: ast.expr) -> list[ast.expr]:
        inside = self._iterated_inside(value)
        self.held.update(one for one in inside if one not in walk(value))
        return inside or [one for source in self.sources(frame, value) for one in self._filled(frame, source)]

    def _filled(self, frame: Frame, source: ast.expr) -> list[ast.expr]:
        """What a list of loaders is filled with, for any of its elements: `loaders[i]`."""
        if not isinstance(source, ast.Subscript) or isinstance(source.slice, ast.Constant):
            return [source]
        return self.elements(frame, source.value) or [source]

    def elements(self, frame: Frame, container: ast.expr) -> list[ast.expr]:
        """What a list or a dictionary of the file is filled with."""
        text = written(container)
        return [
            one
            for other in self.script.frames_in(self.script.module(frame))
            for one, _ in self._put_in(other, text)
        ]

    def _iterated_inside(self, value: ast.expr) -> list[ast.expr]:
        """What the class of an object goes over with `iter`, where the class is the project's own, or of objects of several
        what this one is given for it."""
        if (cls := self.script.class_behind(value)) is None:
            return []
        found = _iterated_in(cls)
        made = [call for call in self.script.calls if self.script.class_made(call) is cls]
        return (self._given_to(value, cls, found) if len(made) > 1 and value in made else []) or found

    def _given_to(self, value: ast.Call, cls: ast.ClassDef, inside: list[ast.expr]) -> list[ast.expr]:
        """What an object is given of which its class goes over: other objects of the class are none to train on."""
        found: list[ast.expr] = []
        for init in self.script.methods(cls, "__init__"):
            names = {written(v) for one in inside for v in (one, *self.script.values(init, written(one)))}
            found += [given for name, given in self.script.given_by(value, init).items() if name in names]
        return found


def _iterated_in(cls: ast.ClassDef) -> list[ast.expr]:
    """What a class goes over with `iter`: not `self.loader` beside the `loader` that it is bound to, nor itself."""
    assigns = [node for node in walk(cls) if isinstance(node, ast.Assign)]
    kept = [one.value for one in assigns]  # `self.batches = enumerate(loader)`
    calls = [node for node in walk(cls) if isinstance(node, ast.Call) and node.args]
    over = ((call, "iter enumerate" if call in kept else "iter") for call in calls)
    found = [c.args[0] for c, names in over if isinstance(c.func, ast.Name) and c.func.id in words(names)]
    bound_to = {written(target): written(one.value) for one in assigns for target in one.targets}
    names = {written(one) for one in found}
    return [one for one in found if written(one) != "self" and bound_to.get(written(one)) not in names]


def _mentions(node: ast.expr, text: str) -> bool:
    return any(isinstance(one, ast.Name | ast.Attribute) and written(one) == text for one in walk(node))


def _containers(node: ast.expr) -> list[ast.expr]:
    """The containers that a loop's header names."""
    if not isinstance(node, ast.Call):
        return [node]
    if is_method(node, "values", "items"):
        return [node.func.value]
    if last_name(node.func) in ("enumerate", "zip", "list", "tuple", "reversed"):
        return [one for argument in node.args for one in _containers(argument)]
    return []


def _is_next(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id == "next" and bool(call.args)
    return is_method(call, "next", "__next__")


def is_fetched_apart(script: Script, step: ast.AST, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether what a step is given is fetched by a `while` inside a loop, and nothing of it comes from the loop's items."""
    around = script.loops_around(step)
    inner = next((w for w in around if isinstance(w, ast.While) and script.table.is_inside(w, loop)), None)
    if inner is None:
        return False
    given = names_in(step)
    fetched = [
        n.value
        for n in walk(inner)
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call) and given & _bound_by(n)
    ]
    items = _made_of_items(script, loop)
    return bool(fetched) and not any(items & names_in(one) for one in fetched)


def _made_of_items(script: Script, loop: ast.For | ast.AsyncFor) -> set[str]:
    """The variables that hold a loop's item, or what is made of it, and the objects that are told it."""
    found = names_in(loop.target)
    before = -1
    while before < len(found):
        before = len(found)
        for node in walk_all(loop.body):
            if isinstance(node, ast.Assign) and found & names_in(node.value):
                found |= _bound_by(node)
            elif isinstance(node, ast.Call) and is_statement_call(script, node) and found & names_in(node):
                found |= {root_of(node.func)} - {""}
    return found


def _bound_by(node: ast.Assign) -> set[str]:
    return {name for target in node.targets for name in names_in(target)}
