"""The losses of a script: its backward passes, which of them it reaches, and what their losses are computed from."""

from __future__ import annotations

import ast
from functools import cached_property

from crosstrain_migrate.syntax.program import modules_of

from . import context
from .argument_values import batch_values_of
from .arguments import arguments_of
from .code import Code
from .reachability import entries, reached
from .slices import attributes_of, slice_of
from .values import External, FromBatch, Instance, Sequence, Value

Loop = ast.For | ast.AsyncFor


class Losses(Code):
    """Answers to questions about a script's backward passes."""

    @cached_property
    def backward_calls(self) -> list[tuple[ast.Call, ast.expr]]:
        """(call, loss expression) of every `loss.backward()` and `torch.autograd.backward(loss)` that the script reaches,
        or of all of them in a module that trains only when others call it."""
        return [pair for pair in self._backward_calls if self.is_reached(pair[0])]

    @cached_property
    def unreached_backward_calls(self) -> list[ast.Call]:
        """The backward passes in functions that nothing calls."""
        return [call for call, _ in self._backward_calls if not self.is_reached(call)]

    @cached_property
    def _backward_calls(self) -> list[tuple[ast.Call, ast.expr]]:
        found: list[tuple[ast.Call, ast.expr]] = []
        for call in self.method_calls("backward"):
            assert isinstance(call.func, ast.Attribute)
            if "torch.autograd.backward" in self.paths(call.func):
                if call.args:
                    found.append((call, call.args[0]))
            elif not any(self._goes_backward(v, call) for v in self.of(call.func.value)):
                found.append((call, call.func.value))
        return found

    @staticmethod
    def _goes_backward(value: Value, call: ast.Call) -> bool:
        """Whether an object has a `backward` of its own: an engine, which is given the loss; or what a call without
        arguments made, which can be no loss."""
        if not isinstance(value, External):
            return isinstance(value, Instance)
        return bool(call.args) or (isinstance(value.site, ast.Call) and not arguments_of(value.site))

    @property
    def trains(self) -> bool:
        """Whether there is a backward pass; in a program, one that running the script may come to."""
        program = len(modules_of(self.tree)) > 1
        return self._runs_training if program else bool(self._backward_calls)

    def is_reached(self, node: ast.AST) -> bool:
        """Whether running the script may come to `node`. In a script that runs no training itself, others may call
        everything."""
        return self._is_run(node) or not self._runs_training

    def _is_run(self, node: ast.AST) -> bool:
        function = self.enclosing_function(node)
        return function is None or function in self._run

    @cached_property
    def _run(self) -> frozenset[ast.AST]:
        return reached(self, self.entries)

    @cached_property
    def _runs_training(self) -> bool:
        return any(self._is_run(call) for call, _ in self._backward_calls)

    @cached_property
    def entries(self) -> set[ast.AST]:
        """The functions that a command line names."""
        return entries(self)

    @cached_property
    def loops(self) -> dict[Loop, set[Value]]:
        """Every `for` over a loader, and the loaders it may run over."""
        return {
            n: v for n, v in self.interp.iterations.items() if isinstance(n, ast.For | ast.AsyncFor) and v
        }

    @cached_property
    def loss_origins(self) -> frozenset[ast.AST]:
        """The calls that collapse rows into what `backward` gets."""
        return frozenset(o for s in self.loss_batch_values for o in s.origins)

    @cached_property
    def loss_slice(self) -> frozenset[ast.AST]:
        """Every use of a variable, and every call, that what `backward` gets is computed from, in the script's own
        functions, too; but not Python numbers that a loss is multiplied with or divided by, the same on every rank."""
        return slice_of(self, [loss for _, loss in self.backward_calls])

    @cached_property
    def loss_attributes(self) -> frozenset[str]:
        """The names of attributes that what `backward` gets is computed from: `loss_a` of `self.loss_a + self.loss_b`."""
        return attributes_of(self, [loss for _, loss in self.backward_calls])

    def comes_to(self, node: ast.AST, loaders: set[Value], entered: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether batches of `loaders` may come to `node`. A function may do more for some of its callers than for
        others, as where it says `if opt is not None:`."""
        function = self.enclosing_function(node)
        if function is None or function in entered:
            return True
        entered = entered | {function}
        given = {
            site: {v.loader for v in batch_values_of(self.interp, arguments_of(site))}
            for site in self.callers.get(function, ())
        }
        sites = [site for site, passed in given.items() if loaders & passed]
        return not sites or any(
            context.comes_to(self.interp, function, site, node) and self.comes_to(site, loaders, entered)
            for site in sites
        )

    @cached_property
    def loss_batch_values(self) -> list[FromBatch]:
        """The values from batches that go backward, also in tuples."""
        found: list[FromBatch] = []
        for call, loss in self.backward_calls:
            for value in self.of(loss):
                if isinstance(value, FromBatch):
                    found += [value] if self.comes_to(call, {value.loader}) else []
                elif isinstance(value, Sequence):
                    found.extend(e for e in self.interp.element(value) if isinstance(e, FromBatch))
        return found
