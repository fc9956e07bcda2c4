"""Whose calls are guarded instead of what they write: those of functions that only write."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import OURS, Plan
from crosstrain_migrate.core.reading.forms import is_function_frame
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import Function

from . import writers
from .audience import OWN, Audience
from .helpers import Helpers


class GuardedCalls:
    """Says of a function which of its calls are guarded."""

    def __init__(self, plan: Plan, accelerators: Accelerators, audience: Audience, helpers: Helpers) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.accelerators = accelerators
        self.audience = audience
        self.helpers = helpers

    def of(self, function: Function) -> list[ast.Call]:
        """All calls to which every process comes, if each stands alone; none where what the function writes is guarded."""
        calls = [c for c in self.script.callers(function) if self._is_ours(c, function)]
        stand_alone = all(self._is_call_of(c, function) for c in calls)
        return calls if calls and stand_alone and self._is_better(function, calls) else []

    def _is_ours(self, call: ast.Call, function: Function) -> bool:
        """Whether all come to a call, or, to one that only speaks, each for batches of its own."""
        if self.audience.is_all(call):
            return True
        is_spoken = all(writers.speaks(self.script, one) for one in self.helpers.writing(function))
        return is_spoken and self.audience.of(call) == {OWN}

    def _is_call_of(self, call: ast.Call, function: Function) -> bool:
        """Whether a call stands alone, and not in a function whose calls are guarded instead."""
        caller = self.script.frame(call)
        is_within = (
            is_function_frame(caller) and self.helpers.only_writes(caller) and self.script.callers(caller)
        )
        is_alone = is_statement_call(self.script, call) and not self.script.in_lambda(call)
        return self.script.last(call.func) == function.name and is_alone and not is_within

    def _is_better(self, function: Function, calls: list[ast.Call]) -> bool:
        """Whether the calls of a function are guarded rather than what it writes."""
        count = self.helpers.writes(function)
        if not count or len(self.script.functions(function.name)) > 1:
            return False
        if not self.helpers.only_writes(function):
            return self._draws_once(function, calls)
        module = self.script.module(function)
        if all(self.script.module(call) is not module for call in calls):
            return True  # other scripts may use that file
        return len(calls) <= count and not self.helpers.saves_weights(function)

    def _draws_once(self, function: Function, calls: list[ast.Call]) -> bool:
        """Whether a function that fills a file of which no second process can have one, and draws random numbers, is called
        outside of the training, where all may wait."""
        if not any(
            self.script.dotted(one.func) in writers.CONTAINERS for one in self.helpers.writing(function)
        ):
            return False
        passes = [data.loop for data in self.accelerators.roles.data]
        may_draw = self.plan.runtime == OURS and self.helpers.only_writes(function, may_draw=True)
        return may_draw and all(
            self.audience.comes_alike(call)
            and not any(one in passes for one in self.script.loops_around(call))
            for call in calls
        )
