"""What a flag of the author's decides about his group: one that is written into the script follows the launcher, one that a
user has to give is named."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.placing.cuda_alone import holds_with_cuda
from crosstrain_migrate.core.placing.options import Options
from crosstrain_migrate.core.placing.ranks import KNOWN
from crosstrain_migrate.core.placing.ranks import RULE as NUMBERS
from crosstrain_migrate.core.plan import CORE, Plan
from crosstrain_migrate.core.reading.forms import FUNCTIONS, is_function_frame
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import defaults_by_name, written

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
    it is true, also where there is no CUDA."""
    script = plan.script
    for call in (one for one in script.calls if script.makes_group(one)):
        tests = [one.test for one in script.around(call) if isinstance(one, ast.If)]
        for value in (
            off for test in tests for off in (_off_always(script, test), _off_without_cuda(script, test))
        ):
            if value is not None and not accelerators.is_early(value):
                code = f"{plan.state(value)}.num_processes > 1"
                plan.replace(value, RULE, "the launcher's processes are a group", code)


def _off_always(script: Script, test: ast.expr) -> ast.expr | None:
    """The one value of a variable that is bound once, to False."""
    if not isinstance(test, ast.Name):
        return None
    own = script.frame(test)
    frame = own if script.binds(own, test.id) else script.module(test)
    values = script.values(frame, test.id)
    is_off = len(values) == 1 and _is_false(values[0]) and len(script.stores(frame, test.id)) == 1
    return values[0] if is_off else None


def _off_without_cuda(script: Script, test: ast.expr) -> ast.expr | None:
    """`args.many = WORLD_SIZE > 1`, but `if args.cuda and torch.cuda.is_available(): ...`, `else: args.many = False`"""
    values = script.values(script.frame(test), written(test))
    chosen = [(one, script.parent(script.statement(one))) for one in values if _is_false(one)]
    for value, choice in chosen if len(values) == len(chosen) + 1 else ():
        is_else = isinstance(choice, ast.If) and script.statement(value) in choice.orelse
        if is_else and isinstance(choice, ast.If) and holds_with_cuda(script, choice.test):
            return value
    return None


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def tell_ranks(plan: Plan) -> None:
    """`def __init__(self, ..., local_rank=0)`, by which one process writes, and which a call does not give: each is told its own."""
    for call in plan.script.calls:
        cls = plan.script.class_made(call) if all(one.arg for one in call.keywords) else None
        for function in plan.script.methods(cls, "__init__"):
            default = defaults_by_name(function.args).get("local_rank")
            is_first = isinstance(default, ast.Constant) and default.value == 0
            if is_first and plan.script.argument_for(call, function, "local_rank") is None:
                code = f"local_rank={plan.state(call)}.local_process_index"
                plan.add(e.InsertArgument(call, NUMBERS, KNOWN, transaction=CORE, code=code))


def note_options(plan: Plan, roles: Roles) -> None:
    """Says which option shares the data out, where it is off unless a user gives it: launched without it, all processes
    train on the same."""
    script, defaults = plan.script, _Defaults(plan)
    calls = [call for call in script.calls if SAMPLERS.search(script.last(call.func))]
    calls = calls or [call for call in script.calls if script.makes_group(call)]
    training = {t for one in roles.backwards for t, _ in _tests(script, one.call, 0)}  # `if args.do_train:`
    off = [defaults.off_above(call, training) for call in calls]
    tests = [found for found in off if found is not None]
    if tests and len(tests) == len(calls):
        test, wanted = tests[0]
        asked = f"`{script.source(test)}`{'' if wanted else ' does not hold'}"
        reason = f"several processes share the data only where {asked}"
        plan.note(RULE, test, reason, "launch several processes with options under which that is so")


def _tests(script: Script, node: ast.AST, depth: int) -> Iterator[tuple[ast.expr, bool]]:
    """The tests that must hold where a node is reached, or must not, those around the one call of its function as well."""
    below = node
    for one in script.around(node):
        if isinstance(one, FUNCTIONS):
            break
        if isinstance(one, ast.If | ast.IfExp) and below is not one.test:
            yield one.test, below is one.body if isinstance(one, ast.IfExp) else below in one.body
        below = one
    frame = script.frame(node)
    callers = script.callers(frame) if is_function_frame(frame) else []
    if len(callers) == 1 and depth < _DEPTH:
        yield from _tests(script, callers[0], depth + 1)


class _Defaults:
    """Which tests hold, and which do not, where a user gives no option."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.options = Options(plan.script)

    def off_above(
        self, node: ast.AST, but: set[ast.expr] | None = None, depth: int = 0
    ) -> tuple[ast.expr, bool] | None:
        """A test by which a node is not reached, with what it would have to be: that of an option, where a variable of the
        script follows one, `if args.launcher == "none": distributed = False`."""
        for test, wanted in _tests(self.script, node, 0):
            if test in (but or ()):
                continue
            if self.holds(test) is (not wanted):
                return test, wanted
            stores = self._stores_of_flag(test) if wanted and depth < _DEPTH else []
            off = [self.off_above(store, depth=depth + 1) for store in stores]
            if off and None not in off:
                return off[0]
        return None

    def _stores_of_flag(self, test: ast.expr) -> list[ast.AST]:
        """Where the script sets a flag that is asked to anything but False."""
        stores: list[ast.AST] = []
        if isinstance(test, ast.Name) and self.script.binds(frame := self.script.frame(test), test.id):
            stores += self.script.stores(frame, test.id)
        elif isinstance(test, ast.Attribute):
            every = self.script.table.each(ast.Attribute)
            stores += [n for n in every if isinstance(n.ctx, ast.Store) and n.attr == test.attr]
        bound = map(self.script.statement, stores)
        values = [(one, getattr(one, "value", None)) for one in bound]
        return [one for one, value in values if not (isinstance(value, ast.Constant) and not value.value)]

    def holds(self, test: ast.expr) -> bool | None:
        """Whether a test asks for options alone, and holds by their defaults, or does not; None where that is not known."""
        if isinstance(test, ast.BoolOp):
            found, ends = [self.holds(one) for one in test.values], isinstance(test.op, ast.Or)
            return ends if ends in found else None if None in found else not ends
        if (
            isinstance(test, ast.Compare)
            and len(test.ops) == 1
            and isinstance(test.comparators[0], ast.Constant)
        ):
            asked, compared, value = test.left, _COMPARED.get(type(test.ops[0])), test.comparators[0].value
        else:
            asked, compared, value = test, operator.ne, None
        if (
            compared is None
            or self.plan.is_replaced(asked)
            or not isinstance(asked, ast.Attribute | ast.Name)
        ):
            return None
        option = self.options.read_by(asked)
        attributes = (n for n in self.script.table.each(ast.Attribute) if isinstance(n.ctx, ast.Store))
        if isinstance(asked, ast.Attribute) and any(n.attr == asked.attr for n in attributes):
            return None  # the script sets it itself
        if option is None:  # of a configuration that is read from a file
            is_read = isinstance(asked, ast.Attribute) and not _is_defined(self.script, asked.attr)
            return False if is_read else None
        default = ast.Constant(False) if option.is_switch else option.default or ast.Constant(None)
        if option.is_local_rank or not isinstance(default, ast.Constant) or self.plan.is_replaced(default):
            return None
        if any(isinstance(one, e.InsertArgument) and one.node is option.call for one in self.plan.edits):
            return None  # the launcher turns it on
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
