"""The author's own test for training, in a loop that trains in one phase and evaluates in another.

It stands around the backward in the loop, or in the function that the loop calls for each batch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from crosstrain_migrate.core.numbers.accumulators import CLOCK
from crosstrain_migrate.syntax.nodes import Function, defaults_by_name, last_name, written
from crosstrain_migrate.syntax.walks import names_stored_in, walk

from .forms import Replaced, is_function_frame, is_method, names_in
from .modes import is_left_out
from .roles import STEPS, Roles
from .script import Script

Step = tuple[ast.Call, list[ast.expr]]  # a backward or a step, and the tests of the loop's frame around it


class Phases:
    """Finds loops that train by a test."""

    def __init__(self, script: Script, roles: Roles) -> None:
        self.script = script
        self._training = {one.frame for one in roles.backwards if is_function_frame(one.frame)}

    def trains(self, loop: ast.For) -> bool:
        """Whether a loop, or a function that it calls for each batch, goes backward or steps an optimizer."""
        return any(is_training_call(call) for call, _ in self._steps(loop))

    def test(self, loop: ast.For) -> str:
        """The author's own test for training in a loop that also evaluates; empty where there is none."""
        bound = names_stored_in(loop)
        backwards: list[list[str]] = []
        others: list[list[str]] = []  # a schedule steps under a test of its own: `if scheduler is not None:`
        for call, around in self._steps(loop):
            assert isinstance(call.func, ast.Attribute)
            tests = [ast.unparse(test) for test in around if not names_in(test) & bound]
            if call.func.attr == "backward" or tests:
                (backwards if call.func.attr == "backward" else others).append(tests)
            elif is_training_call(call):
                return ""
        # Networks of several kinds may train in branches of their own, each under the same test.
        first, *more = backwards or others or [[]]
        return next((one for one in reversed(first) if all(one in tests for tests in more)), "")

    def _steps(self, loop: ast.For) -> Iterator[Step]:
        frame = self.script.frame(loop)
        for node in walk(loop):
            if not isinstance(node, ast.Call) or self.script.frame(node) is not frame:
                continue
            if is_method(node, "backward", *STEPS) and not self._is_given_batch(node):
                yield node, self._tests(node, loop)
            else:
                yield from self._steps_of_called(node, loop)

    def _is_given_batch(self, call: ast.Call) -> bool:
        """Whether a step is a function of the project that trains on what it is given: `trainer.step(batch)`."""
        return bool(call.args) and not self._training.isdisjoint(self.script.functions(last_name(call.func)))

    def _steps_of_called(self, call: ast.Call, loop: ast.For) -> Iterator[Step]:
        """The same in the functions that a call of the loop runs, in the words of the loop's frame."""
        for function in self.script.functions_of(call):
            if function not in self._training or self.script.frame(loop) is function:
                continue
            for inner in self.script.calls_in(function):
                if is_method(inner, "backward", *STEPS) and not is_left_out(self.script, inner, call):
                    tests = [self._told(test, call, function) for test in self._tests(inner, function)]
                    asked = (one for one in tests if one is not None and not isinstance(one, ast.Constant))
                    yield inner, [*asked, *self._tests(call, loop)]

    def _tests(self, node: ast.AST, top: ast.AST) -> list[ast.expr]:
        """The tests inside a loop or a function under which a node stands, innermost first."""
        tests, below = [], node
        for one in self.script.around(node):
            if one is top:
                break
            if isinstance(one, ast.If) and below not in one.orelse:
                tests.append(one.test)
            below = one
        return [
            one for one in tests if not isinstance(one, ast.Constant) and not CLOCK.search(ast.unparse(one))
        ]

    def _told(self, test: ast.expr, call: ast.Call, function: Function) -> ast.expr | None:
        """A function's test in the words of its caller; None where it asks for what the function computes."""
        given: dict[str, ast.expr] = {}
        for name in names_in(test):
            value = self._value(name, call, function)
            if value is None:
                return None
            given[name] = value
        return Replaced(given).visit(ast.parse(ast.unparse(test), mode="eval").body)  # type: ignore[no-any-return]

    def _value(self, name: str, call: ast.Call, function: Function) -> ast.expr | None:
        if name in self.script.parameters(function):
            argument = self.script.argument_for(call, function, name)
            return argument if argument is not None else defaults_by_name(function.args).get(name)
        caller = self.script.frame(call)
        if (
            not self.script.binds(function, name)
            and self.script.binds(caller, name)
            and self.script.table.is_inside(function, caller)
        ):
            return ast.Name(name, ast.Load())  # a variable of the caller's, in which the function is defined
        values = self.script.values(function, name)
        if (
            len(values) == 1
            and len(self.script.stores(function, name)) == 1
            and name not in names_in(values[0])
        ):
            return self._told(values[0], call, function)
        return None


def is_training_call(call: ast.Call) -> bool:
    """Whether a step is no bar's and no profiler's."""
    assert isinstance(call.func, ast.Attribute)
    return not re.search(r"bar|prof", written(call.func.value))
