"""CT401 to CT502 by use: one process prints, shows, writes files and downloads; what is saved is there for all.

In an evaluation that is dealt, what the body does for a batch is done once already, by the process that has the batch.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import Frame, is_function_frame
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import last_name
from crosstrain_migrate.syntax.walks import walk_all

from .alone import plan_alone
from .audience import ALL, TURNS, Audience
from .downloads import Downloads
from .files import Files
from .folders import Folders
from .recorders import PRINT, Recorders
from .saving import plan_saving
from .stamps import Stamps
from .writers import STREAMS, speaks

_LEFT = "files that neither train nor evaluate print on every process"
_EARLY = "what is printed before the device is chosen, every process prints"


class Output:
    """Plans what one process does."""

    def __init__(
        self,
        plan: Plan,
        accelerators: Accelerators,
        training: list[Frame],
        dealt: list[ast.For],
        saved_apart: list[ast.AST],
        ours: Callable[[ast.AST], bool] | None = None,
    ) -> None:
        """training: the code that trains. dealt: the loops of evaluations that are dealt. saved_apart: the tests by which
        each process would save at a time of its own. ours: whether code is not shared out by its author."""
        self.plan = plan
        self.script: Script = plan.script
        self.accelerators = accelerators
        self.audience = Audience(self.script, dealt, [one.loop for one in accelerators.roles.data], ours)
        self._saved_apart = saved_apart
        # The files that speak of the training: the script's own, and those that train or evaluate, or call what does.
        self._training = {*map(self.script.module, (*self.script.above(*training), *dealt))}
        self._speaking = {self.script.entry, *self._training}
        passes = [*dealt, *(one.loop for one in accelerators.roles.data if one.loop is not None)]
        # What the steps call speaks of them, `progress.display(i)`, also in a file of helpers.
        self._in_passes = {id(node) for loop in passes for node in walk_all(loop.body)}

    def run(self) -> None:
        stamps = Stamps(self.plan, self.accelerators, self.audience)
        stamps.run()
        files = Files(self.plan, self.accelerators, self.audience, stamps)
        for statement in stamps.of_one:
            files.let_one(statement)
        plan_alone(self.script, files, self.audience)
        Downloads(self.plan, files, self.audience).run()
        files.run()
        Folders(self.plan, files, self.audience, stamps).run()
        plan_saving(self.plan, self.accelerators, files, self.audience, stamps, self._saved_apart)
        Recorders(self.plan, files, self.audience, self._is_of_others).run()
        files.plan_guards()
        if not any(self.script.class_of(one) is None for one in self.script.functions("print")):
            self._prints()  # the author's own prints as it likes

    def plan_shared_folders(self, but: Callable[[ast.AST], bool]) -> None:
        """The folders that all processes of a script which distributes itself make."""
        stamps = Stamps(self.plan, self.accelerators, self.audience)
        files = Files(self.plan, self.accelerators, self.audience, stamps)
        Folders(self.plan, files, self.audience, stamps).allow(but)

    def _prints(self) -> None:
        for call in self.script.calls:
            if speaks(self.script, call) and self.script.is_shared(call):
                self._leave(call)  # `sys.stdout.write(bar)` in a file of several scripts
            if self.script.dotted(call.func) != "print" or not is_statement_call(self.script, call):
                continue
            if any(
                self.script.binds(one, "print") for one in (self.script.frame(call), self.script.module(call))
            ):
                continue  # `print = logger.info`
            to = [f"{self.script.dotted(k.value)}.write" for k in call.keywords if k.arg == "file"]
            if self.script.in_lambda(call) or not STREAMS.issuperset(to):
                continue
            self._print(call.func)
        for name in filter(self._is_handed_on, self.script.table.each(ast.Name)):
            self._print(name)

    def _print(self, name: ast.expr) -> None:
        is_one = self.audience.is_guarded(name) and TURNS not in self.audience.of(name)
        if not is_one and self._speaks(name):
            knows = self.accelerators.state(name, "print")
            self.plan.replace(name, PRINT, "one process prints", f"{knows}.print", "print")

    def _is_handed_on(self, name: ast.Name) -> bool:
        """Whether another name stands for the `print` that is built in: `say = print`, `print = partial(print, flush=True)`,
        `say = lambda text: print(text, file=sys.stderr)`."""
        bound, outer = self.script.statement(name), self.script.parent(name)
        if name.id != "print" or not isinstance(name.ctx, ast.Load) or not isinstance(bound, ast.Assign):
            return False
        is_partial = isinstance(outer, ast.Call) and last_name(outer.func) == "partial"
        is_first = self.script.stores(self.script.module(name), "print") in ([], [*bound.targets])
        return is_first and (outer is bound or is_partial or self.script.in_lambda(name))

    def _is_of_others(self, call: ast.AST) -> bool:
        """Whether what is shown may be another script's: in a shared file, outside of the functions of one that trains."""
        trains = self.script.module(call) in self._training and is_function_frame(self.script.frame(call))
        return self.script.is_shared(call) and not trains

    def _speaks(self, call: ast.AST) -> bool:
        """Whether a print is one of the training's; what a library of the project says, every process says."""
        frame = self.script.frame(call)
        is_networks = getattr(frame, "name", "") in ("forward", "backward")  # of any
        calls = self.script.callers(frame) if is_function_frame(frame) and not is_networks else []
        is_told = any(id(one) in self._in_passes for one in calls)
        is_ours = is_told or (self.script.module(call) in self._speaking and not self._is_of_others(call))
        if is_ours and not self.accelerators.is_early(call):
            return True
        self._leave(call, _EARLY if is_ours else _LEFT)
        return False

    def _leave(self, call: ast.AST, reason: str = _LEFT) -> None:
        """Says that every process prints here."""
        if self.script.is_reached(call) and self.audience.of(call) & {ALL, TURNS}:
            self.plan.note(PRINT, call, reason, "nothing needs to be done")
