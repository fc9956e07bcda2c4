"""What a flag of the author's decides about his group: one that is written into the script follows the launcher, one that a
user has to give is named."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.placing.options import Options
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import FUNCTIONS, is_function_frame
from crosstrain_migrate.core.reading.groups import makes_group
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script

RULE = "CT303"
SAMPLERS = re.compile(r"Distributed\w*Sampler$|^RASampler$")
Asked = tuple[ast.expr, bool]
_DEPTH = 3  # how many calls are followed upwards
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def plan_flags(plan: Plan, accelerators: Accelerators) -> None:
    """`distributed = False`, written into the script, under which it makes no group: where several processes are launched,
    it is true."""
    script = plan.script
    for call in (one for one in script.calls if makes_group(script, one)):
        tests = [one.test for one in script.around(call) if isinstance(one, ast.If)]
        for test in (one for one in tests if isinstance(one, ast.Name)):
            own, module = script.frame(test), script.module(test)
            frame = own if script.binds(own, test.id) else module
            values = script.values(frame, test.id)
            is_off = len(values) == 1 and isinstance(values[0], ast.Constant) and values[0].value is False
            if not is_off or len(script.stores(frame, test.id)) != 1:
                continue
            if not accelerators.is_early(values[0]):
                code = f"{plan.state(values[0])}.num_processes > 1"
                plan.replace(values[0], RULE, "the launcher's processes are a group", code)


def note_options(plan: Plan, roles: Roles) -> None:
    """Says which option shares the data out, where it is off unless a user gives it: launched without it, all processes
    train on the same."""
    script, options = plan.script, Options(plan.script)
    calls = [call for call in script.calls if SAMPLERS.search(script.last(call.func))]
    calls = calls or [call for call in script.calls if makes_group(script, call)]
    training = {t for one in roles.backwards for t in _tests(script, one.call, 0)}  # `if args.do_train:`
    asked = [[test for test in _tests(script, call, 0) if test not in training] for call in calls]
    off = [_first_off(plan, options, tests) for tests in asked]
    found = [test for test in off if test is not None]
    if found and len(found) == len(calls):
        test, holds = found[0]
        code = script.source(test) if holds else f"not ({script.source(test)})"
        reason = f"several processes share the data only where `{code}`"
        plan.note(RULE, test, reason, "launch several processes with options under which that holds")


def _tests(script: Script, node: ast.AST, depth: int) -> Iterator[Asked]:
    """The tests on the way to a node and whether they hold there, those around the one call of its function as well."""
    below = node
    for one in script.around(node):
        if isinstance(one, FUNCTIONS):
            break
        if isinstance(one, ast.If | ast.IfExp) and below is not one.test:
            body = one.body if isinstance(one, ast.If) else [one.body]
            yield one.test, below in body
        below = one
    frame = script.frame(node)
    callers = script.callers(frame) if is_function_frame(frame) else []
    if len(callers) == 1 and depth < _DEPTH:
        yield from _tests(script, callers[0], depth + 1)


def _first_off(plan: Plan, options: Options, tests: Iterable[Asked], depth: int = 2) -> Asked | None:
    """The first of these tests that is not as it must be by the options' defaults, or that asks for what the script sets
    under such a test: `if args.launcher == "none": args.distributed = False`, `else: args.distributed = True`."""
    for test, holds in tests:
        if _by_default(plan, options, test) is (not holds):
            return test, holds
        if not holds or not isinstance(test, ast.Attribute) or not depth:
            continue
        stores = [n for n in plan.script.table.each(ast.Attribute) if isinstance(n.ctx, ast.Store)]
        sets = [plan.script.statement(n) for n in stores if n.attr == test.attr]
        values = [one.value for one in sets if isinstance(one, ast.Assign)]
        on = [v for v in values if isinstance(v, ast.Constant) and v.value]
        off = [_first_off(plan, options, _tests(plan.script, v, 0), depth - 1) for v in on]
        if off and all(off) and len(sets) == len([v for v in values if isinstance(v, ast.Constant)]):
            return off[0]
    return None


def _by_default(plan: Plan, options: Options, test: ast.expr) -> bool | None:
    """Whether a test that asks for options alone holds by their defaults."""
    if isinstance(test, ast.BoolOp):
        ends = isinstance(test.op, ast.Or)
        values = [_by_default(plan, options, one) for one in test.values]
        return ends if ends in values else None if None in values else not ends
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        value = _by_default(plan, options, test.operand)
        return None if value is None else not value
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
        asked, compared, value = test.left, _COMPARED.get(type(test.ops[0])), test.comparators[0].value
    else:
        asked, compared, value = test, operator.ne, None
    if compared is None or plan.is_replaced(asked) or not isinstance(asked, ast.Attribute | ast.Name):
        return None
    option = options.read_by(asked)
    attributes = (n for n in plan.script.table.each(ast.Attribute) if isinstance(n.ctx, ast.Store))
    if isinstance(asked, ast.Attribute) and any(n.attr == asked.attr for n in attributes):
        return None  # the script sets it itself
    if option is None:  # of a configuration that is read from a file
        is_read = isinstance(asked, ast.Attribute) and not _is_defined(plan.script, asked.attr)
        return False if is_read else None
    default = ast.Constant(False) if option.is_switch else option.default or ast.Constant(None)
    if option.is_local_rank or not isinstance(default, ast.Constant):
        return None
    if asked is test:
        return bool(default.value)
    try:
        return bool(compared(default.value, value))
    except TypeError:
        return None


def _is_defined(script: Script, name: str) -> bool:
    """Whether the script itself says somewhere what `name` is: a definition, a variable, an argument."""
    names = {node.id for node in script.table.each(ast.Name) if isinstance(node.ctx, ast.Store)}
    names |= {one.arg for one in script.table.each(ast.keyword) if one.arg}
    return name in names or name in script.defined
