"""Above which statement an object is prepared."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.forms import LOOPS, Frame, is_function_frame, names_in
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.files.notebooks.linked import is_mark
from crosstrain_migrate.syntax.nodes import place_of, written
from crosstrain_migrate.syntax.walks import walk

from .holders import Held
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
            if not any(id(store) in inside and not _comes_back(self.script, store) for store in stores):
                return loop
        statement = self.script.statement(one.use)
        bound = [name for name in (root, one.text) if self.script.stores(one.frame, name)]
        if not loops and is_function_frame(one.frame) and not bound:
            return self.script.first_statement(one.frame)
        return self._above_backward(one, statement)

    def _above_backward(self, one: Held, step: ast.stmt) -> ast.stmt:
        """The same place, or above the backward pass that stands between what binds an optimizer and its step."""
        bound = [place_of(s) for s in self.script.stores(one.frame, one.text) if place_of(s) < place_of(step)]
        around = {step, *self.script.around(step)}
        passes = [b.call for b in self.roles.backwards if b.frame is one.frame and bound]
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
        statements = [s for s in around if isinstance(s, ast.stmt) and any(b < place_of(s) for b in stores)]
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
        """`*optimizers` for `optimizers[i]`, where a list or a dictionary is written out."""
        node = ast.parse(text, mode="eval").body
        if not isinstance(node, ast.Subscript) or isinstance(node.slice, ast.Constant):
            return text
        container = written(node.value)
        made = self.script.values(frame, container)
        if any(isinstance(value, ast.List | ast.ListComp) for value in made):
            return f"*{container}"
        return f"*{container}.values()" if any(isinstance(v, ast.Dict | ast.DictComp) for v in made) else text


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
