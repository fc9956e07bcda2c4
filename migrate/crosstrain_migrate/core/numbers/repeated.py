"""Evaluations that stay whole and say the same on every process: nothing that they compute needs to be averaged.

Between two passes of training all processes draw alike (contract, decision 34), and a prepared model's weights and buffers
are the same on each (decision 11). So an evaluation that asks models in eval mode, each of which is prepared or has no
part in the training, comes to the same everywhere.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from crosstrain_migrate.core.reading.forms import Frame, is_function_frame, is_method
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.walks import walk_all

from .accumulators import DRAWS
from .dealing import Evaluations

_OF_MODULES = ("eval", "train", "parameters", "named_parameters", "state_dict", "load_state_dict")
_RESTORES = ("update_bn",)  # computes the statistics of a model from a process's own batches
_DEPTH = 3
Roots = Callable[[ast.expr], set[object]]


class Repeated:
    """Finds the loops of such evaluations."""

    def __init__(
        self, script: Script, roles: Roles, evaluations: Evaluations, prepared: set[object], roots: Roots
    ) -> None:
        """prepared: the variables of prepared models. roots: the variables that an expression may stand for."""
        self.script = script
        self.evaluations = evaluations
        self.prepared = prepared
        self.roots = roots
        self._training = {one.loop for one in roles.data}
        self._shared_out = {root for one in roles.data for root in roots(one.node)}
        self._modules = {written(call.func.value) for call in script.calls if is_method(call, *_OF_MODULES)}
        self._trained = {
            root
            for frame in {one.frame for one in roles.backwards}
            for node in self._modules_in(script.within(frame))
            for root in roots(node)
        }

    def loops(self) -> set[ast.AST]:
        if any(last_name(call.func) in _RESTORES for call in self.script.calls):
            return set()
        phases = {*self.evaluations.phases, *(one.loop for one in self.evaluations.dealt)}
        sources = {one.loop: one.sources for one in self.evaluations.whole}
        loops = [one for one in self.script.table.each(ast.For) if one not in phases]
        return {
            one
            for one in loops
            if self._is_same(one) and not self._are_shared_out(sources.get(one, (one.iter,)))
        }

    def _are_shared_out(self, sources: Iterable[ast.expr]) -> bool:
        """Whether the training goes over the same data, which each process has a share of."""
        return any(self.roots(one) & self._shared_out for one in sources)

    def _is_same(self, loop: ast.For) -> bool:
        models = self._modules_in(walk_all(loop.body))
        is_asked = models and not DRAWS.search(ast.unparse(loop)) and not self._is_in_training(loop, 0)
        return bool(is_asked) and all(
            self._has_same_state(one) and self._is_in_eval_mode(one, loop, 0) for one in models
        )

    def _modules_in(self, nodes: Iterable[ast.AST]) -> list[ast.expr]:
        """What code names that is put into a mode, or asked for its parameters, somewhere in the script."""
        return [n for n in nodes if isinstance(n, ast.Name | ast.Attribute) and written(n) in self._modules]

    def _has_same_state(self, model: ast.expr) -> bool:
        roots = self.roots(model)
        return bool(roots & self.prepared) or not roots & self._trained

    def _is_in_training(self, node: ast.AST, depth: int) -> bool:
        """Whether code runs within a pass over the training data, where each process draws for itself."""
        if any(loop in self._training for loop in self.script.loops_around(node)) or depth > _DEPTH:
            return True
        frame = self.script.frame(node)
        calls = self.script.callers(frame) if is_function_frame(frame) else []
        return any(self._is_in_training(call, depth + 1) for call in calls)

    def _is_in_eval_mode(self, model: ast.expr, place: ast.AST, depth: int) -> bool:
        """Whether the last that was said of a model's mode above a place, or above every call of its function, is `eval`."""
        frame, text = self.script.frame(place), written(model)
        modes = [
            (place_of(call), last_name(call.func) == "eval" and not call.args)
            for call in self.script.calls_in(frame)
            if is_method(call, "eval", "train")
            and isinstance(call.func, ast.Attribute)
            and written(call.func.value) == text
            and place_of(call) < place_of(place)
        ]
        if modes:
            return max(modes)[1]
        given = self._given(frame, text) if depth < _DEPTH else []
        return bool(given) and all(self._is_in_eval_mode(one, call, depth + 1) for one, call in given)

    def _given(self, frame: Frame, text: str) -> list[tuple[ast.expr, ast.Call]]:
        """What the calls of a function give for a parameter; the same name for what is no parameter."""
        if not is_function_frame(frame):
            return []
        calls = self.script.direct_callers(frame)
        if text not in self.script.parameters(frame):
            return [(ast.parse(text, mode="eval").body, call) for call in calls]
        given = [(self.script.argument_for(call, frame, text), call) for call in calls]
        return [(one, call) for one, call in given if one is not None] if None not in dict(given) else []
