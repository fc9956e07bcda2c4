"""CT105: what of the author's choice of a device does not count any more, and is said."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name
from crosstrain_migrate.syntax.walks import walk

from .accelerator import Accelerators
from .numbered import numbers_among
from .options import Options
from .sides import flag_of

RULE = "CT105"
NOT_KEPT = "the script's own choice of the CPU is not kept"


class Lost:
    """Says it for the devices that are replaced."""

    def __init__(self, plan: Plan, accelerators: Accelerators, *, is_mapped: bool) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.accelerators = accelerators
        self._is_mapped = is_mapped
        self._options = Options(plan.script)

    def choice(self, node: ast.IfExp | ast.If) -> None:
        """A flag that chooses the CPU elsewhere than where the accelerator is made is not kept."""
        if not self.accelerators.keeps_cpu and flag_of(self.script, self.script.frame(node), node.test):
            self.plan.note(RULE, node, NOT_KEPT, "use `crosstrain launch --cpu`")

    def setting(self, call: ast.Call) -> None:
        """`torch.device(config.device)`, where that is an option, or the script also asks whether it is the CPU, and the
        accelerator does not."""
        given = call.args[0] if len(call.args) == 1 else None
        if self.accelerators.keeps_cpu:
            return
        asked = (
            one for one in self.script.table.each(ast.Compare) if ast.unparse(one.comparators[0]) == "'cpu'"
        )
        option = self._options.read_by(given) if isinstance(given, ast.Attribute) else None
        is_option = option is not None and not option.is_number
        if isinstance(given, ast.Attribute) and (
            is_option or any(last_name(one.left) == given.attr for one in asked)
        ):
            self.plan.note(RULE, call, NOT_KEPT, "use `crosstrain launch --cpu`")

    def number(self, node: ast.expr, moved: ast.expr | None = None) -> None:
        """What chose a GPU by its number does so no more. moved: what `.cuda(...)` is asked of, whose numbers are no GPU's."""
        if number := self.number_in(node, moved):
            reason = f"`{number}` chooses no GPU any more: each process has its own"
            self.plan.note(RULE, node, reason, "use `crosstrain launch --gpu-ids`")

    def number_in(self, node: ast.expr, moved: ast.expr | None = None) -> str:
        """The number of a GPU, not the first, that the accelerator does not know; or the option that gives it."""
        if self.accelerators.keeps_number:
            return ""
        apart = set(walk(moved)) if moved is not None else set()
        apart |= {
            one.func for one in walk(node) if isinstance(one, ast.Call)
        }  # `.cuda` is no option `--cuda`
        nodes = [one for one in walk(node) if one not in apart]
        for one in nodes:
            option = self._options.read_by(one) if isinstance(one, ast.expr) else None
            if option is not None and option.is_number and not option.is_local_rank:
                return f"--{option.name}"
        for number in () if self._is_mapped else numbers_among(self.script, nodes):
            if not self._is_first(number):
                return (
                    f"cuda:{ast.unparse(number)}" if isinstance(number, ast.Constant) else ast.unparse(number)
                )
        return ""

    def _is_first(self, number: ast.expr) -> bool:
        """Whether a number is that of the first GPU, which a process that nobody launched takes by itself."""
        values = self._options.entries(number.slice) if isinstance(number, ast.Subscript) else [number]
        return bool(values) and all(isinstance(one, ast.Constant) and one.value == 0 for one in values)
