"""Where all processes meet: what communicates, is prepared or trained, in a call or in what it leads to."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import Function

from .helpers import Helpers, is_collective


class Meetings:
    """What one process must not do alone. `ended`: the guards behind which all wait."""

    def __init__(self, plan: Plan, helpers: Helpers, ended: list[ast.stmt]) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.helpers = helpers
        self._ended = ended
        self._runs: dict[ast.Call, list[Function]] = {}  # the functions of the project that a call may run

    def are_at(self, nodes: list[ast.AST]) -> bool:
        """Whether an edit has put there what every process must come to."""
        places = set(map(id, nodes))
        edited = [edit.node for edit in self.plan.edits if is_collective(edit)]
        return any(id(node) in places for node in (*edited, *self._ended))

    def is_collective(self, call: ast.Call) -> bool:
        """Whether a call may lead to code that communicates: to a function of the project, or one that was replaced."""
        if self.are_at([call, call.func]):
            return True
        run = self._run_by(call)
        met = self.helpers.met_in() if run else set()
        return any(self._communicates(function, set(), met) for function in run)

    def _run_by(self, call: ast.Call) -> list[Function]:
        """The functions of the project that a call may run: those of that name, or the constructors of the class."""
        if call not in self._runs:
            name = self.script.last(call.func)
            cls = self.script.class_made(call)
            named = [] if name == "__init__" else self.script.functions(name)
            inits = (m for m in (self.script.all_methods(cls) if cls else ()) if m.name == "__init__")
            self._runs[call] = [*named, *inits]
        return self._runs[call]

    def _communicates(self, function: Function, seen: set[Function], met: set[ast.AST]) -> bool:
        """Whether something is prepared, trained or merged in a function, or in one that it calls."""
        if function in seen:
            return False
        seen.add(function)
        if function in met:
            return True
        called = (f for c in self.script.calls_in(function) for f in self._run_by(c))
        return any(self._communicates(one, seen, met) for one in called)
