"""CT105: `device=x.get_device()` is a number, and -1 where x is on the CPU, which is no device; `x.device` is one everywhere."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import is_method
from crosstrain_migrate.syntax.nodes import last_name

RULE = "CT105"
REASON = "where something is has a number on a GPU alone"


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
        if script.is_reached(call) and not is_known and _is_device(script.parent(call), call):
            plan.replace(call, RULE, REASON, "{of}.device", of=call.func.value)


def _is_device(parent: ast.AST | None, given: ast.expr) -> bool:
    if isinstance(parent, ast.keyword):
        return parent.arg in ("device", "map_location")
    return isinstance(parent, ast.Call) and last_name(parent.func) == "to" and given in parent.args[:1]
