"""CT403 by use: an evaluation that fills a folder, reads it again and takes it away is one process's alone.

`report.on_epoch_end(epoch)` writes what a model finds, scores the files and removes them. No other process may come in
between, and none needs what comes of it, where nothing else reads what the function keeps.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.core.reading.forms import is_method
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import Function, last_name, written
from crosstrain_migrate.syntax.walks import walk, walk_all

from . import on_disk
from .audience import Audience
from .files import Files
from .helpers import draws

_OTHERS = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)


def plan_alone(script: Script, files: Files, audience: Audience) -> None:
    """Plans that the main process alone comes to such calls."""
    for call in script.calls:
        if not is_statement_call(script, call) or script.in_lambda(call) or not audience.is_all(call):
            continue
        function = files.helpers.called(call)
        if function is not None and _removes_folder(script, function):
            run = _Run(script, files, function)
            if run.is_one_processes() and not _gives_objects(call):
                files.let_one(script.statement(call))


def _removes_folder(script: Script, function: Function) -> bool:
    calls = script.calls_in(function)
    makes = any(on_disk.makes_folder(script, one) for one in calls)
    return makes and any(script.dotted(one.func) == "shutil.rmtree" for one in calls)


def _gives_objects(call: ast.Call) -> bool:
    """Whether a call gives more than numbers that it computes: something that the function may change."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(isinstance(one, ast.Name | ast.Attribute | ast.Call) for one in given)


class _Run:
    """What runs when a function is called."""

    def __init__(self, script: Script, files: Files, function: Function) -> None:
        self.script = script
        self.files = files
        self.functions = {function}
        work = [function]
        while work:
            found = {one for call in script.calls_in(work.pop()) for one in self._meant(call)}
            work += found - self.functions
            self.functions |= found
        self.nodes = walk_all(self.functions)
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]

    def _meant(self, call: ast.Call) -> list[Function]:
        """The functions that a call may run; of `self.box.forward()`, the method of the class that `self.box` is made of."""
        run = self.script.run_by(call)
        if len(run) < 2 or not isinstance(call.func, ast.Attribute):
            return run
        cls = self.script.class_of(self.script.frame(call))
        made = [
            value
            for method in self.script.methods(cls)
            for value in self.script.values(method, written(call.func.value))
        ]
        classes = [self.script.class_made(value) for value in made]
        own = [one for one in run if self.script.class_of(one) in classes]
        return own if own and None not in classes else run

    def is_one_processes(self) -> bool:
        """Whether no other process is needed for it, and none needs it."""
        if any(isinstance(node, _OTHERS) for node in self.nodes) or any(map(draws, self.calls)):
            return False
        if any(
            is_method(one, "backward", "step") or self.files.meetings.is_collective(one) for one in self.calls
        ):
            return False
        modes = {one.func.attr for one in self.calls if is_method(one, "train", "eval")}
        if len(modes) == 1 or not any(
            last_name(one.func) in ("no_grad", "inference_mode") for one in self.calls
        ):
            return False
        return all(map(self._is_read_here_alone, set(self._kept())))

    def _kept(self) -> Iterator[str]:
        """The attributes that are changed, of `self` as of anything."""
        effects = self.files.helpers.effects
        for node in self.nodes:
            place = node.func if isinstance(node, ast.Call) else node
            if effects.is_change(node, set()):
                own = [n for n in walk(place) if isinstance(n, ast.Attribute) and written(n.value) == "self"]
                yield from (one.attr for one in own[:1])

    def _is_read_here_alone(self, attribute: str) -> bool:
        reads = (one for one in self.script.table.each(ast.Attribute) if one.attr == attribute)
        frames = {self.script.frame(one) for one in reads if self.script.is_reached(one)}
        return all(one in self.functions or getattr(one, "name", "") == "__init__" for one in frames)
