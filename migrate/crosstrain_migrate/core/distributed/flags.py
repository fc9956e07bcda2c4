"""What a flag of the author's decides about his group: one that is written into the script follows the launcher, one that a
user has to give is named."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
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
    off = [next((test for test in tests if _is_off(plan, options, test)), None) for tests in asked]
    tests = [test for test in off if test is not None]
    if tests and len(tests) == len(calls):
        reason = f"several processes share the data only where `{script.source(tests[0])}`"
        plan.note(RULE, tests[0], reason, "launch several processes with options under which that holds")


def _tests(script: Script, node: ast.AST, depth: int) -> Iterator[ast.expr]:
    """The tests that must hold where a node is reached, those around the one call of its function as well."""
    below = node
    for one in script.around(node):
        if isinstance(one, FUNCTIONS):
            break
        if isinstance(one, ast.If | ast.IfExp):
            body = one.body if isinstance(one, ast.If) else [one.body]
            if below in body:
                yield one.test
        below = one
    frame = script.frame(node)
    callers = script.callers(frame) if is_function_frame(frame) else []
    if len(callers) == 1 and depth < _DEPTH:
        yield from _tests(script, callers[0], depth + 1)


def _is_off(plan: Plan, options: Options, test: ast.expr) -> bool:
    """Whether a test asks for options alone, and does not hold by their defaults."""
    if isinstance(test, ast.BoolOp):
        every = all if isinstance(test.op, ast.Or) else any
        return every(_is_off(plan, options, one) for one in test.values)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
        asked, compared, value = test.left, _COMPARED.get(type(test.ops[0])), test.comparators[0].value
    else:
        asked, compared, value = test, operator.ne, None
    if compared is None or plan.is_replaced(asked) or not isinstance(asked, ast.Attribute | ast.Name):
        return False
    option = options.read_by(asked)
    attributes = (n for n in plan.script.table.each(ast.Attribute) if isinstance(n.ctx, ast.Store))
    if isinstance(asked, ast.Attribute) and any(n.attr == asked.attr for n in attributes):
        return False  # the script sets it itself
    if option is None:  # of a configuration that is read from a file
        return isinstance(asked, ast.Attribute) and not _is_defined(plan.script, asked.attr)
    default = ast.Constant(False) if option.is_switch else option.default or ast.Constant(None)
    if option.is_local_rank or not isinstance(default, ast.Constant):
        return False
    if asked is test:
        return not default.value
    try:
        return not compared(default.value, value)
    except TypeError:
        return False


def _is_defined(script: Script, name: str) -> bool:
    """Whether the script itself says somewhere what `name` is: a definition, a variable, an argument."""
    names = {node.id for node in script.table.each(ast.Name) if isinstance(node.ctx, ast.Store)}
    names |= {one.arg for one in script.table.each(ast.keyword) if one.arg}
    return name in names or name in script.defined
