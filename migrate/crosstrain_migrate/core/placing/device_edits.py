"""What becomes of an expression that names a device: it is the accelerator's.

`device=x.get_device()` is a number, and -1 where x is on the CPU, which is no device; `x.device` is one everywhere.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import FUNCTIONS, is_method, names_in
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import defaults_by_name, last_name
from crosstrain_migrate.syntax.walks import walk

from .accelerator import Accelerators
from .given_devices import runs
from .lost import Lost
from .sides import asks_place, side_of

RULE = "CT105"
REASON = "each process has a device of its own"
NUMBERED = "where something is has a number on a GPU alone"


class DeviceEdits:
    """Plans that expressions are the device of the process. `whole`: those that are replaced with all that is in them."""

    def __init__(self, plan: Plan, accelerators: Accelerators, *, is_mapped: bool) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.accelerators = accelerators
        self._is_mapped = is_mapped
        self.lost = Lost(plan, accelerators, is_mapped=is_mapped)
        self.whole: set[ast.AST] = set()

    def device(self, node: ast.AST) -> str:
        """The device of the process, for code at a node."""
        return f"{self.accelerators.state(node)}.device"

    def place(self, node: ast.expr, as_text: bool = False) -> None:
        outer = self.script.parent(node)
        if isinstance(
            outer, ast.arguments
        ):  # it is computed where the function is defined, which may be early
            self.whole.add(node)
            self._default(node, outer)
            return
        if self.is_numbered_by_file(node) and not as_text:
            self.plan.imports(node, "Accelerator")
            self.plan.replace(node, RULE, REASON, "Accelerator(device={of}).device", of=node)
            self.whole.add(node)
            return
        device = self.device(node)
        if as_text:  # one that is numbered stays so
            device = f"{device}.type" if isinstance(node, ast.Constant | ast.IfExp) else f"str({device})"
        self.plan.replace(node, RULE, REASON, device)
        self.whole.add(node)
        self.lost.number(node)

    def is_numbered_by_file(self, node: ast.expr) -> bool:
        """Whether a device is one of a file that the script imports, `config.device`, which takes a GPU by its number: that file
        is read before the script begins, and only it knows the number, or the test that takes the CPU instead."""
        file, bound = self.script.frame(node), self.script.statement(node)
        if self._is_mapped or self.script.is_entry(node) or not isinstance(file, ast.Module):
            return False
        if not isinstance(bound, ast.Assign) or bound.value is not node:
            return False
        values = self.script.values(file, ast.unparse(bound.targets[0]))
        return not self.accelerators.keeps_cpu and any(map(self.lost.number_in, values))

    def _default(self, node: ast.expr, arguments: ast.arguments) -> None:
        """`def f(device="cuda")`: calls that give none give the accelerator's; where no call is seen, that is said."""
        function = self.script.parent(arguments)
        if not isinstance(function, FUNCTIONS):
            return
        name = next((name for name, given in defaults_by_name(arguments).items() if given is node), "")
        if "device" not in name:
            return
        cls = self.script.class_of(function)
        names_called = {function.name} | ({cls.name} if cls is not None else set())
        calls = [
            call
            for call in self.script.callers(function)
            if self.script.last(call.func) in names_called and runs(self.script, call, function)
        ]
        if not calls and self.script.reads(function, name):
            self.plan.note(
                RULE, node, "this default may be used, and names a GPU", "give the device in the call"
            )
        for call in calls:
            given = self.script.argument_for(call, function, name)
            if given is None and not self.accelerators.is_early(call):
                code = f"{name}={self.device(call)}"
                self.plan.add(e.InsertArgument(call, RULE, REASON, code=code))

    def is_callers(self, chosen: ast.IfExp | ast.If) -> bool:
        """Whether a caller chooses the device, in a file that other scripts read: it is theirs to choose the CPU; or a group
        of processes does, `"cpu" if backend == "gloo" else "cuda"`."""
        if {"gloo", "nccl"} & {n.value for n in walk(chosen.test) if isinstance(n, ast.Constant)}:
            return True
        given = self.script.parameters(self.script.frame(chosen))
        return self.script.is_shared(chosen) and not names_in(chosen.test).isdisjoint(given)

    def follows_a_tensor(self, node: ast.AST) -> bool:
        """Whether the author chooses a device by where something is already, as in `torch.device(at.type, at.index)`."""
        if [getattr(one, "attr", "") for one in getattr(node, "args", [])] == ["type", "index"]:
            return True
        tests = [one.test for one in (node, *self.script.around(node)) if isinstance(one, ast.If | ast.IfExp)]
        return any(asks_place(test) for test in tests)

    def makes_device(self, node: ast.AST | None) -> bool:
        return isinstance(node, ast.Call) and self.script.dotted(node.func) == "torch.device"

    def sides(self, node: ast.IfExp) -> set[str]:
        return {side_of(self.script, node.body), side_of(self.script, node.orelse)}


def plan_beside(plan: Plan) -> None:
    """Names the device of a tensor, where a call is given its number as a device and its author asks nothing first."""
    script = plan.script
    for call in script.calls:
        if not is_method(call, "get_device") or not isinstance(call.func, ast.Attribute):
            continue
        if call.args or call.keywords or script.is_imported(call.func) or script.functions("get_device"):
            continue
        tests = [ast.unparse(n.test) for n in script.around(call) if isinstance(n, ast.If | ast.IfExp)]
        is_known = any("cuda" in test or "get_device" in test for test in tests)
        if script.is_reached(call) and not is_known and _is_given_as_device(script.parent(call), call):
            plan.replace(call, RULE, NUMBERED, "{of}.device", of=call.func.value)


def _is_given_as_device(parent: ast.AST | None, given: ast.expr) -> bool:
    if isinstance(parent, ast.keyword):
        return parent.arg in ("device", "map_location")
    return isinstance(parent, ast.Call) and last_name(parent.func) == "to" and given in parent.args[:1]
