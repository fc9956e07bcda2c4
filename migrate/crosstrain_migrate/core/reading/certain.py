"""Which iterables give batches for sure, because a DataLoader is made there, and which never do: rates, names, layers.

A loop over scales or over the heads of a model stands inside the loop over batches, and looks the same as one over a loader
that is a parameter. Where nobody can say, the innermost loop has the data.
What is surely an array or a tensor `prepare` gives back as it is, whoever iterates it.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from crosstrain_migrate.syntax.nodes import Function, last_name, written
from crosstrain_migrate.syntax.walks import walk

from .alike import counters_of
from .forms import RANGES, Frame, is_function_frame, is_method, names_in, root_of
from .ranges import Ranges, numbers_of
from .script import Script

_DEPTH = 6  # how many names and calls are followed
_NUMBERS = {"linspace", "logspace", "geomspace", "product", "permutations", "combinations", "repeat", "count"}
_LAYERS = {"ModuleList", "ModuleDict", "ParameterList", "Sequential"}
# Methods of optimizers, modules and losses.
_ITEM_METHODS = ("zero_grad", "step", "parameters", "backward", "state_dict")
_LISTS = ast.List | ast.Tuple | ast.Set
_KEEPS = (
    "to",
    "cuda",
    "float",
    "double",
    "long",
    "int",
    "view",
    "reshape",
    "unsqueeze",
    "astype",
    "requires_grad_",
)

_MAKES = re.compile(
    r"^(numpy|torch)\.(\w+\.)*(arange|array|asarray|choice|linspace|permutation|randint|randperm|tensor|as_tensor"
    r"|rand|randn|normal|uniform|zeros|ones|full|empty|stack|cat|concatenate)$"
    r"|^torch\.(\w*Tensor|from_numpy)$"
)


class Certain:
    """Answers for the iterables of a script's loops."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._ranges = Ranges(script)

    def gives_batches(self, frame: Frame, node: ast.expr) -> bool:
        """Whether an expression stands for a DataLoader, or for something that is made with one."""
        return any(self._makes_loader(value) for value in self._origins(frame, node, 0))

    def gives_others(self, frame: Frame, node: ast.expr) -> bool:
        """Whether all that an expression is known to stand for is made without a DataLoader, which completes its batches."""
        origins = [one for one in self._origins(frame, node, 0) if isinstance(one, ast.Call)]
        return bool(origins) and not any(self._makes_loader(one) for one in origins)

    def gives_none(self, frame: Frame, node: ast.expr, loop: ast.For | ast.AsyncFor) -> bool:
        """Whether an expression stands for numbers, names, layers, options or optimizers, by its origin or its use."""
        origins = list(self._origins(frame, node, 0))
        if any(self._makes_loader(value) for value in origins):
            return False
        items = names_in(loop.target) - counters_of(loop, self.script) - {"self"}  # `for self.i, x in ...`
        uses = (_is_asked, self._trains_itself, self._loads)
        if any(is_used(inner, items) for inner in walk(loop) for is_used in uses):
            return True
        known = [one for one in origins if not (isinstance(one, ast.Constant) and one.value is None)]
        return bool(known) and all(map(self._holds_none, known))  # what is None yet may be anything

    def _trains_itself(self, node: ast.AST, items: set[str]) -> bool:
        """Whether a method of an item steps an optimizer of its own: `agent.learn(reward)`."""
        is_asked = isinstance(node, ast.Call) and root_of(node.func) in items
        calls = [c for f in self._called(node) for c in self.script.calls_in(f)] if is_asked else []
        return any(is_method(one, "step") and root_of(one.func) == "self" for one in calls)

    def _loads(self, node: ast.AST, items: set[str], depth: int = 1) -> bool:
        """Whether an item is a network's weights: `net.load_state_dict(deepcopy(item))`, also in a function that is given it."""
        if not isinstance(node, ast.Call) or is_method(node, "load_state_dict"):
            return isinstance(node, ast.Call) and any(names_in(one) & items for one in node.args)
        given = ((f, self.script.given_by(node, f).items()) for f in self._called(node) if depth)
        inside = ((f, {name for name, one in told if written(one) in items}) for f, told in given)
        return any(own and self._loads(c, own, 0) for f, own in inside for c in self.script.calls_in(f))

    def is_generated(self, frame: Frame, node: ast.expr) -> bool:
        """Whether an expression can stand for nothing but what generator functions of the project make."""
        origins = list(self._origins(frame, node, 0))
        return bool(origins) and all(map(self._makes_generator, origins))

    def own_iterables(self, frame: Frame, node: ast.expr) -> list[ast.ClassDef]:
        """The classes of the project, with an `__iter__` of their own, of which an expression is an object; no DataLoaders."""
        made = {cls: None for one in self._origins(frame, node, 0) for cls in self._classes_of(one)}
        return [cls for cls in made if self.script.methods(cls, "__iter__") and not self._is_loader(cls)]

    def _is_loader(self, cls: ast.ClassDef, depth: int = 4) -> bool:
        """Whether a class derives from a DataLoader of a library."""
        for base in cls.bases if depth else ():
            own = self.script.classes(self.script.last(base))
            if any(self._is_loader(one, depth - 1) for one in own) or (
                not own and "Loader" in last_name(base)
            ):
                return True
        return False

    def _classes_of(self, value: ast.expr) -> Iterator[ast.ClassDef]:
        """The class that a call makes an object of, or, where a method returns `self`, its own."""
        if (made := self.script.class_made(value)) is not None:
            yield made
        for function in self._called(value):
            own = self.script.class_of(function)
            if own is not None and "self" in map(written, self.script.returned(function)):
                yield own

    def _makes_generator(self, value: ast.expr) -> bool:
        functions = self._called(value)
        return bool(functions) and all(map(self.script.is_generator, functions))

    # -- where an expression comes from ------------------------------------------------------------------------

    def _origins(self, frame: Frame, node: ast.expr, depth: int) -> Iterator[ast.expr]:
        """The expressions that an iterable may have been made by."""
        if isinstance(node, ast.Subscript):
            yield from self._origins(frame, node.value, depth)
        elif not isinstance(node, ast.Name | ast.Attribute):
            yield node
            for function in self._called(node) if depth < _DEPTH else ():
                for one in self.script.within(function):
                    if isinstance(one, ast.Return) and one.value is not None:
                        yield from self._parts(function, one.value, depth + 1)
        elif depth < _DEPTH:
            for place, value in (*self.bound(frame, node), *self._held(node)):
                yield from self._parts(place, value, depth + 1)

    def makers(self, frame: Frame, node: ast.expr, depth: int = 0) -> Iterator[ast.expr]:
        """What makes an object, as far as variables and parameters hand it on."""
        if not isinstance(node, ast.Name | ast.Attribute):
            yield node
        elif depth < _DEPTH:
            for place, value in (*self.bound(frame, node), *self._held(node)):
                yield from self.makers(place, value, depth + 1)

    def _parts(self, frame: Frame, value: ast.expr, depth: int) -> Iterator[ast.expr]:
        """The same of a value, or of each of some that are returned or bound together."""
        inner: list[ast.expr] = []
        if isinstance(value, ast.Tuple | ast.Dict):
            inner = value.elts if isinstance(value, ast.Tuple) else value.values
        named: list[ast.expr] = [one for one in inner if isinstance(one, ast.Name | ast.Attribute)]
        for one in named or [value]:
            yield from self._origins(frame, one, depth)

    def _called(self, node: ast.AST) -> list[Function]:
        return self.script.functions_of(node)

    def bound(self, frame: Frame, node: ast.Name | ast.Attribute) -> Iterator[tuple[Frame, ast.expr]]:
        """What a variable or an attribute is bound to, and what calls give for a parameter."""
        text = written(node)
        places = self.script.homes(frame, text)
        if isinstance(node, ast.Name) and not self.script.binds(frame, node.id):
            places = [self.script.module(frame)]
        for place in places:
            for value in self.script.values(place, text):
                yield place, value
            for call, _ in self.script.unpacked(place, text):  # `train_loader, val_loader = get_loaders()`
                yield place, call
            for value in self._appended.get((place, text), ()):  # `loaders.append(loader)`
                if any(map(self._makes_loader, [value, *self.script.values(place, written(value))])):
                    yield place, value
        if is_function_frame(frame) and text in self.script.parameters(frame):
            made = self.script.callers(frame) if frame.name == "__init__" else []
            for call in (*self.script.direct_callers(frame), *made):
                argument = self.script.argument_for(call, frame, text)
                if argument is not None:
                    yield self.script.frame(call), argument

    @cached_property
    def _appended(self) -> dict[tuple[Frame, str], list[ast.expr]]:
        """What is appended to the lists of each frame."""
        found: dict[tuple[Frame, str], list[ast.expr]] = defaultdict(list)
        for call in self.script.calls:
            if is_method(call, "append") and len(call.args) == 1:
                found[self.script.frame(call), written(call.func.value)].append(call.args[0])
        return found

    def _held(self, node: ast.Name | ast.Attribute) -> list[tuple[Frame, ast.expr]]:
        """What the classes of the project bind to an attribute of another object: `self.heads` for `model.heads`."""
        if not isinstance(node, ast.Attribute) or root_of(node) == "self":
            return []
        frames = [one for one in self.script.frames if self.script.class_of(one) is not None]
        return [(one, value) for one in frames for value in self.script.values(one, f"self.{node.attr}")]

    # -- what it holds -----------------------------------------------------------------------------------------

    def _makes_loader(self, value: ast.expr) -> bool:
        for call in (n for n in walk(value) if isinstance(n, ast.Call)):
            cls = self.script.class_made(call)
            if "DataLoader" in (self.script.last(call.func), *map(last_name, cls.bases if cls else ())):
                return True
        return False

    def _holds_none(self, value: ast.expr) -> bool:
        if isinstance(value, _LISTS):
            return all(self._is_no_batch(one) for one in value.elts)
        if isinstance(value, ast.ListComp):
            return self._is_no_batch(value.elt)
        if not isinstance(value, ast.Call):
            return isinstance(value, ast.Constant)
        name = self.script.last(value.func)
        if name != "range" and (numbers := numbers_of(value)) is not None:
            return not self._ranges.cut(numbers)
        return name in _NUMBERS | _LAYERS or name == "parse_args"

    def _is_no_batch(self, item: ast.expr) -> bool:
        """Whether an item is a number, a name, a module or an optimizer."""
        if isinstance(item, _LISTS):
            return all(isinstance(one, ast.Constant | ast.UnaryOp) for one in item.elts)
        if not isinstance(item, ast.Call):
            return isinstance(item, ast.Constant | ast.UnaryOp | ast.Lambda) or _is_number(item)
        if self.script.dotted(item.func).startswith(("torch.nn.", "torch.optim.")):
            return True
        cls = self.script.class_made(item)
        return cls is not None and any(self.script.dotted(base) == "torch.nn.Module" for base in cls.bases)


def _is_number(item: ast.expr) -> bool:
    """`scale * base / float(height)`"""
    sides = [n for n in walk(item) if isinstance(n, ast.expr) and not isinstance(n, ast.BinOp)]
    return isinstance(item, ast.BinOp) and any(
        isinstance(n, ast.Call) and written(n.func) in ("float", "int", "len") for n in sides
    )


def _is_asked(node: ast.AST, items: set[str]) -> bool:
    """Whether an item is called, or asked for what a module, an optimizer or a loss can do: `head(x)`, `opt.step()`; or is
    a number, `range(size)`."""
    if not isinstance(node, ast.Call):
        return False
    if written(node.func) in RANGES:
        return len(items) == 1 and any(isinstance(one, ast.Name) and one.id in items for one in node.args)
    if isinstance(node.func, ast.Attribute) and node.func.attr in _ITEM_METHODS:
        return written(node.func.value) in items
    return isinstance(node.func, ast.Name) and node.func.id in items


def is_array(script: Script, frame: Frame, node: ast.expr) -> bool:
    """Whether an expression is an array, is computed from one, or is a variable that holds nothing else."""
    if isinstance(node, ast.BinOp):
        return any(is_array(script, frame, side) for side in (node.left, node.right))
    if isinstance(node, ast.Call):
        is_made = _MAKES.match(script.dotted(node.func)) is not None
        return is_made or (is_method(node, *_KEEPS) and is_array(script, frame, node.func.value))
    if not isinstance(node, ast.Name):
        return False
    values = script.values(frame, node.id)
    is_bound_otherwise = len(values) != len(script.stores(frame, node.id))
    return bool(values) and not is_bound_otherwise and all(is_array(script, frame, one) for one in values)
