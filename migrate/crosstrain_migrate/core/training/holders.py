"""Where what trains is held: upwards from its use, to the scope that binds it, and through parameters to who gives it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from crosstrain_migrate.core.reading.forms import FUNCTIONS, Frame, is_function_frame, names_in
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import Function, place_of, written


@dataclass(frozen=True)
class Held:
    """An object in the scope that holds it: `text` names it there, `use` is where it is used, or given on."""

    kind: str
    text: str
    frame: Frame
    use: ast.AST


class Holders:
    """Follows an object upwards."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def lifted(self, held: Held, depth: int = 0) -> list[Held]:
        """Where an object is held: an optimizer of a function that gets a different one at each call, once for each."""
        held = self.rooted(held)
        above = self.above(held.frame, held.text)
        several = len({text for text, _ in above}) > 1
        if not above or depth > 3 or (several and held.kind != "optimizer"):
            return [held]
        found: dict[tuple[str, tuple[int, int]], list[ast.Call]] = defaultdict(list)
        for text, call in above:  # a variable that is bound anew between two calls is another object
            stores = map(place_of, self.script.stores(self.script.frame(call), text))
            found[text, max((s for s in stores if s < place_of(call)), default=(0, 0))].append(call)
        return [
            one
            for (text, bound), calls in found.items()
            for one in self.lifted(
                Held(held.kind, text, self.script.frame(calls[0]), self.on_every_way(calls, bound)), depth + 1
            )
        ]

    def on_every_way(self, calls: Sequence[ast.Call], bound: tuple[int, int]) -> ast.AST:
        """The first of some calls, or the statement around it that has no other of them beside it in another branch, if that
        stands below what binds the variable."""
        around = [{id(one) for one in self.script.around(call)} for call in calls]
        for one in self.script.around(calls[0]):
            if isinstance(one, ast.stmt):
                suite = {id(s) for s in self.script.suite_of(one)}
                if all(suite & those for those in around):
                    is_own = one is self.script.statement(calls[0]) or place_of(one) < bound
                    return calls[0] if is_own else one
        return calls[0]

    def rooted(self, held: Held) -> Held:
        """The same, in the scope that binds the variable: a file's, or that of a function around."""
        root = held.text.partition(".")[0]
        if root == "self" or not root.isidentifier() or self.script.binds(held.frame, root):
            return held
        scope = self.script.table.scopes[held.frame].resolve(root)
        if scope is None or scope.node not in self.script.frames:
            return held
        binding: Frame = scope.node
        use = self._way_down(binding, held.frame)
        if use is None:
            return held
        stores = self.script.stores(binding, held.text)
        if any(place_of(store) > place_of(use) for store in stores):
            return held
        return Held(held.kind, held.text, binding, use)

    def _way_down(self, binding: Frame, frame: Frame) -> ast.AST | None:
        """The place in `binding` from which `frame` runs: its first call on the way, or its definition."""
        if binding in self.script.around(frame) and is_function_frame(binding):
            below = frame
            for one in self.script.around(frame):
                if one is binding:
                    return below
                below = one if isinstance(one, FUNCTIONS) else below
        work, seen, found = [frame], set[Frame](), list[ast.Call]()
        while work:
            one = work.pop()
            if one in seen or not is_function_frame(one):
                continue
            seen.add(one)
            for call in self.script.callers(one):
                caller = self.script.frame(call)
                if caller is binding:
                    found.append(call)
                else:
                    work.append(caller)
        return min(found, key=place_of, default=None)

    def above(self, frame: Frame, text: str) -> list[tuple[str, ast.Call]]:
        """What the calls of a function give for its parameter `text`, or for the one that holds it, where all that give it
        do so from one scope."""
        root = text.partition(".")[0].partition("[")[0]
        if not is_function_frame(frame) or root not in self.script.parameters(frame):
            return []
        if any(self.script.stores(frame, one) for one in (root, text)) or names_in(ast.parse(text)) != {root}:
            return []
        found: list[tuple[str, ast.Call]] = []
        for call in self.script.callers(frame):
            if not self._calls(call, frame):
                return []
            given = self.script.argument_for(call, frame, root)
            if given is None or (isinstance(given, ast.Constant) and given.value is None):
                if any(isinstance(a, ast.Starred) for a in call.args) or any(
                    k.arg is None for k in call.keywords
                ):
                    return []
                continue  # an evaluation, which is given none
            is_own = isinstance(given, ast.Attribute) and written(given.value) == "self"
            if not is_own and not isinstance(given, ast.Name):
                return []
            if not self.script.is_entry(call) and self.script.is_shared(call):
                return []
            found.append((written(given) + text.removeprefix(root), call))
        one_scope = len({self.script.frame(call) for _, call in found}) == 1
        return sorted(found, key=lambda pair: place_of(pair[1])) if one_scope else []

    def _calls(self, call: ast.Call, function: Function) -> bool:
        """Whether a caller calls a function itself; it may also give the function to another one."""
        is_object = function.name in ("__call__", "forward")
        cls = self.script.class_of(function)
        return is_object or self.script.last(call.func) in (function.name, getattr(cls, "name", ""))


def is_of_comprehension(script: Script, frame: Frame, text: str) -> bool:
    """Whether a variable of a frame, or what it is part of, is bound in comprehensions alone, and can be bound nowhere else."""
    stores = script.stores(frame, re.split(r"[.\[]", text)[0])
    return bool(stores) and all(
        any(isinstance(n, ast.comprehension) for n in script.around(one)) for one in stores
    )
