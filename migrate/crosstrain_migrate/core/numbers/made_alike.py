"""What decides is made alike: the number that a test asks for becomes its mean over the processes, where it is bound, where a
function is given it, or in the test itself."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence

from crosstrain_migrate.core.output.on_disk import asks_for_files
from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.alike import asks_rank
from crosstrain_migrate.core.reading.differing import Differing
from crosstrain_migrate.core.reading.forms import FUNCTIONS, Frame, is_function_frame, is_method
from crosstrain_migrate.core.reading.keys import has_plain_keys
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.core.training.losses import losses_in, trained_loss
from crosstrain_migrate.syntax.nodes import defaults_by_name, last_name, place_of, written
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.walks import walk

from .accumulators import CLOCK
from .changes import binding, is_filled_below, is_setting
from .means import (
    PASSED_ON,
    has_no_mean,
    holds_other,
    is_number,
    is_of_another,
    is_rows,
    is_sequence,
    number_in,
    tests_in,
)

RULE = "CT605"
GROUP = "decisions"
REASON = "all processes decide by the same number"
_BY_SIZE = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_DEPTH = 4


class MadeAlike:
    """Plans the reductions of the numbers by which processes would part."""

    def __init__(self, plan: Plan, roles: Roles, accelerators: Accelerators, differing: Differing) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.roles = roles
        self.accelerators = accelerators
        self.differing = differing
        steps = [loop for one in roles.backwards for loop in self.script.loops_around(one.call)[:1]]
        self._steps: set[ast.AST] = {*steps, *differing.loops}

    def repair(self, node: ast.expr, at: ast.AST) -> None:
        """Makes what an expression says the same on every process; where it cannot, a part of that would help nobody."""
        edits, known = {*self.plan.edits}, self.differing.known()
        if not self._repair(node, at, 0) and self.differing.level(node):
            self.plan.take_back_to(edits, GROUP)
            self.differing.go_back_to(known)

    def atoms(self, node: ast.AST) -> list[ast.expr]:
        """The variables, and else the calls, of which an expression is made and which may differ."""
        if not isinstance(node, ast.expr | ast.keyword) or not self.differing.level(node):
            return []
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            return [node]
        if isinstance(node, ast.Compare) and all(isinstance(one, ast.In | ast.NotIn) for one in node.ops):
            return []
        if isinstance(node, ast.Call):
            return self._atoms_of_call(node)
        return [one for child in ast.iter_child_nodes(node) for one in self.atoms(child)]

    def _repair(self, node: ast.expr, at: ast.AST, depth: int) -> bool:
        """Makes what an expression says the same on every process: where it is bound, else where `at` reads it."""
        if not self.differing.level(node):
            return True
        if is_setting(self.script, node):
            return False
        if depth == 0 and not self._is_number_there(node):
            return self.where_bound(node, depth, reduces=False) or self._where_collected(node, depth)
        if depth and is_of_another(node):
            return False
        if isinstance(node, ast.Call):
            is_one = is_number(self.script, node)
            return is_one and (self._where_collected(node, depth) or self._where_read(node, at))
        if isinstance(node, ast.Subscript):
            if is_sequence(self.script, node):
                return self._where_collected(node, depth)
            whole = binding(self.script, node.value)
            if (
                whole is not None
                and not isinstance(node.slice, ast.Constant)
                and isinstance(whole[1], ast.Call)
                and self.differing.calls_trained(whole[1])
            ):
                return False  # rows of a model's answer
            return self._where_collected(node, depth) or self._entered(node, at) or self._where_read(node, at)
        if has_no_mean(self.script, node):
            return False
        if self.where_bound(node, depth):
            return True
        bound = binding(self.script, node)
        rows = bound is not None and not self._is_number_there(node) and is_rows(self.script, node, *bound)
        return not rows and not holds_other(self.script, node, bound) and self._where_read(node, at)

    def _atoms_of_call(self, call: ast.Call) -> list[ast.expr]:
        """`loss` of `float(loss)`; the call itself where a function computes something of its own. A path is no number."""
        if asks_for_files(call):
            return []
        of = self._passed_on(call)
        return [one for a in of for one in self.atoms(a)] or [call]

    def _passed_on(self, call: ast.Call) -> list[ast.expr]:
        """What a call gives on in other words, or decides by: what is one of several numbers, or is given to an object."""
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        name = last_name(call.func)
        if self.differing.calls_trained(call):
            return []
        if name in PASSED_ON:
            return [*([call.func.value] if isinstance(call.func, ast.Attribute) else []), *given]
        is_own = self.script.functions(name) or self.differing.variables.is_variable(call.func)
        return given if is_own or (name in ("max", "min") and len(given) > 1) else []

    def _repair_all(self, found: Sequence[tuple[ast.expr, ast.AST]], depth: int) -> bool:
        return all([self._repair(one, at, depth) for one, at in found])  # noqa: C419 - each is repaired

    def _is_number_there(self, node: ast.AST) -> bool:
        """Whether the place where an expression is read takes a number: a comparison by size, a scheduler's step."""
        for one in self.script.around(node):
            if isinstance(one, ast.stmt):
                return False
            tests = [
                s.value for f in self.script.functions_of(one) for s in f.body if isinstance(s, ast.Return)
            ]
            if any(one is not None and compares(one) for one in tests):
                return True  # `is_valid(loss)`
            if isinstance(one, ast.expr) and (compares(one) or is_method(one, "step")):
                return True
        return False

    def where_bound(self, node: ast.expr, depth: int, reduces: bool = True) -> bool:
        """A variable: behind the assignment that is read, or behind that of what is assigned there."""
        frame = self.script.frame(node)
        if depth > _DEPTH or not isinstance(node, ast.Name | ast.Attribute):
            return False
        bound = binding(self.script, node)
        if bound is None:
            return self._where_given(frame, node, depth) or self._where_collected(node, depth)
        statement, value = bound
        if self._is_of_step(statement) or self._goes_backward(node, statement):
            return False
        if isinstance(statement, ast.AugAssign):
            self._repair_all([(one, statement) for one in self.atoms(statement.value)], depth + 1)
            return not self.differing.level(node)
        if value is not None and self._repair_parts(node, value, statement, depth):
            return True
        if tests := tests_in(self.script, node, statement):
            self._repair_all([(atom, at) for at in tests for atom in self.atoms(at)], depth + 1)
            return not self.differing.level(node)
        if not reduces or is_rows(self.script, node, statement, value) or not self.all_come(statement):
            return False
        self.plan.after(statement, RULE, REASON, self._bound_to_mean(node, statement), GROUP)
        self.differing.make_alike(node)
        return True

    def _repair_parts(self, node: ast.expr, value: ast.expr, statement: ast.stmt, depth: int) -> bool:
        """What a variable is another word for: `-loss`, `float(loss)`, `loss < best`, `stopper(loss)`."""
        plain = (ast.Name, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp)
        parts: list[ast.expr] = [value] if isinstance(value, plain) else []
        if isinstance(value, ast.Call):
            parts = self._passed_on(value)
            for function in self.script.functions_of(value):
                returned = self.script.returned(function)
                parts += [one for one in returned if not is_number(self.script, one)]
        self._repair_all([(atom, statement) for one in parts for atom in self.atoms(one)], depth + 1)
        return not self.differing.level(node)

    def _bound_to_mean(self, node: ast.expr, at: ast.AST) -> str:
        text = ast.unparse(node)
        return f'{text} = {self.accelerator(at)}.reduce({text}, "mean")'

    def _entered(self, node: ast.Subscript, at: ast.AST) -> bool:
        """An entry of a dictionary: above the statement that decides by it."""
        statement = self.script.statement(at)
        bound = binding(self.script, node.value)
        if self._must_stay(node, statement) or type(getattr(node.slice, "value", None)) is int:
            return False  # an entry by number may be a tuple's, or a row of the batch
        is_whole = (
            bound is not None
            and bound[0] in self.script.suite_of(statement)
            and not is_filled_below(self.script, node, bound[0], statement)
        )
        if bound is not None and is_whole and self.all_come(bound[0]):
            self.plan.after(bound[0], RULE, REASON, self._bound_to_mean(node, at), GROUP)
            self.differing.make_alike(node)
            return True
        is_elif = isinstance(statement, ast.If | ast.While) and self.script.table.is_whole_else(statement)
        loops = isinstance(statement, ast.While) or self.differing.is_in_pass(at)
        if not has_plain_keys(node) or is_elif or loops or not self.all_come(at):
            return False
        self.plan.before(statement, RULE, REASON, self._bound_to_mean(node, at), GROUP)
        self.differing.make_alike(node)
        return True

    def _must_stay(self, node: ast.Subscript, statement: ast.stmt) -> bool:
        """Whether an entry goes backward, or is made in the block of the statement that asks: `losses["all"] = a + b`."""
        text, frame = ast.unparse(node), self.script.frame(node)
        return text in losses_in(self.roles, frame) or any(
            isinstance(one, ast.Assign) and text in map(ast.unparse, one.targets)
            for one in self.script.suite_of(statement)
        )

    def _where_given(self, frame: Frame, root: ast.expr, depth: int) -> bool:
        """A parameter: where the function is called."""
        if not isinstance(root, ast.Name) or not is_function_frame(frame):
            return False
        if root.id not in self.script.parameters(frame) or self.script.stores(frame, root.id):
            return False
        given = self.script.given_for(frame, root.id)
        atoms = [(one, call) for value, call in given for one in self.atoms(value)]
        return self._repair_all(atoms, depth + 1) and not self.differing.level(root)

    def _where_collected(self, node: ast.expr, depth: int) -> bool:
        """A list of numbers, one of each epoch, or an object that is told them: what it is given."""
        frame = self.script.frame(node)
        holders = {
            ast.unparse(n) for n in walk(node) if isinstance(n, ast.Name | ast.Attribute | ast.Subscript)
        } - {"self"}
        calls = [
            call
            for call in self.script.calls_in(frame)
            if is_statement_call(self.script, call) and call.args and holders & {*_callee(call)}
        ]
        if depth > _DEPTH or not calls or any(self.differing.is_in_pass(call) for call in calls):
            return False
        atoms = [(one, call) for call in calls for given in call.args for one in self.atoms(given)]
        return self._repair_all(atoms, depth + 1) and not self.differing.level(node)

    def _where_read(self, node: ast.expr, at: ast.AST) -> bool:
        """In the test itself, and where its branches keep the same: what flows into backward is never touched."""
        is_of_batch = self.differing.is_in_pass(at) and not self._is_answer(node, 0)
        if not self.all_come(at) or is_of_batch or not self._is_always_asked(node):
            return False
        frame = self.script.frame(node)
        otherwise = defaults_by_name(frame.args).get(written(node)) if is_function_frame(frame) else None
        if isinstance(otherwise, ast.Constant) and otherwise.value is None:
            return False  # nothing, where its caller gives none
        reads = [node]
        if isinstance(at, ast.If | ast.While):
            text = ast.unparse(node)
            kept = [one for n in walk(at) if isinstance(n, ast.Assign) for one in number_in(n.value)]
            reads = [n for n in (*walk(at.test), *kept) if isinstance(n, ast.expr) and ast.unparse(n) == text]
        template = f'{self.accelerator(at)}.reduce({{x}}, "mean")'
        if not all([self.plan.replace(one, RULE, REASON, template, GROUP, x=one) for one in reads]):  # noqa: C419
            return False
        self.differing.make_alike(node, within=at)
        return True

    def _is_always_asked(self, node: ast.expr) -> bool:
        """Whether no `and` or `or` keeps a process from a part of its test: `own > 2 and clock() > end`."""
        below: ast.AST = node
        for one in self.script.around(node):
            if isinstance(one, ast.BoolOp):
                before = one.values[: next(n for n, value in enumerate(one.values) if value is below)]
                if any(self.differing.level(value) or asks_rank(value) for value in before):
                    return False
            below = one
        return True

    def _is_answer(self, node: ast.expr, depth: int) -> bool:
        """Whether a value is a loss, or another of a model's answers, or a clock's: what is the batch's own says nothing of
        others'."""
        kept = self.script.values_anywhere(written(node)) if isinstance(node, ast.Attribute) else []
        if all(CLOCK.search(ast.unparse(one)) for one in kept or [node]):  # `self.end = time.time() + 60`
            return True
        frame = self.script.frame(node)
        losses = losses_in(self.roles, frame)
        for one in walk(node):
            if isinstance(one, ast.Call) and (
                self.differing.calls_trained(one) or self._asks_part(frame, one)
            ):
                return True
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load):
                values = self.script.values(frame, one.id) if depth < _DEPTH else []
                if one.id in losses or any(self._is_answer(value, depth + 1) for value in values):
                    return True
        return False

    def _asks_part(self, frame: Frame, call: ast.Call) -> bool:
        """`net.discriminator(f)` of a network that the same function puts into training mode."""
        of, _, part = written(call.func).rpartition(".")
        modes = [one for one in self.script.calls_in(frame) if is_method(one, "train", "eval", "zero_grad")]
        return part not in ("train", "eval", "zero_grad") and any(
            written(one.func).startswith(f"{of}.") for one in modes if of
        )

    def accelerator(self, at: ast.AST) -> str:
        return self.accelerators.anywhere(at, GROUP)

    # -- what it is, and who comes to it -----------------------------------------------------------------------

    def _is_of_step(self, statement: ast.stmt) -> bool:
        """Whether a statement runs in every step of the training, where a number may flow into backward."""
        loops = [loop for loop in self.script.loops_around(statement) if loop in self._steps]
        return bool(loops) and not any(isinstance(one, ast.If) for one in self._up_to(statement, loops[0]))

    def _goes_backward(self, node: ast.expr, statement: ast.stmt) -> bool:
        """Whether a pass of the function starts from what a statement binds."""
        frame, text, above = self.script.frame(node), ast.unparse(node), place_of(statement)
        passes = [one for one in self.roles.backwards if one.frame is frame]
        starts = [place_of(one.call) for one in passes if written(trained_loss(self.script, one)) == text]
        others = [
            one for one in self.script.stores(frame, text) if self.script.statement(one) is not statement
        ]
        end = min((place for place in map(place_of, others) if place > above), default=(sys.maxsize, 0))
        return any(above < start < end for start in starts)

    def _up_to(self, node: ast.AST, end: ast.AST) -> Iterator[ast.AST]:
        for one in self.script.around(node):
            if one is end:
                return
            yield one

    def all_come(self, node: ast.AST) -> bool:
        """Whether every process comes to a place, and to the calls of its function, when one does: each frame is asked once."""
        if self.accelerators.is_early(node):
            return False
        work: list[tuple[ast.AST, tuple[Frame, ...]]] = [(node, ())]
        seen: set[Frame] = set()
        while work:
            place, path = work.pop(0)
            if not self._comes_within_frame(place):
                return False
            frame = self.script.frame(place)
            if is_function_frame(frame) and frame not in seen and len(path) <= _DEPTH:
                seen.add(frame)
                path = (*path, frame)  # what it calls itself, such as `model.train()`, brings nobody to it
                calls = self.script.direct_callers(frame)
                work += [(call, path) for call in calls if self.script.frame(call) not in path]
        return True

    def _comes_within_frame(self, node: ast.AST) -> bool:
        """Whether every process that runs the function of a place comes to it."""
        if self.is_in_evaluation(node) or self.script.in_lambda(node):
            return False
        below: ast.AST = node
        for one in self.script.around(node):
            if isinstance(one, FUNCTIONS):
                break
            if isinstance(one, ast.ExceptHandler):
                return False
            test = (
                one.test
                if isinstance(one, ast.If | ast.While | ast.IfExp) and not is_main_test(one)
                else None
            )
            if test is not None and below is not test and (self.differing.level(test) or asks_rank(test)):
                return False
            is_of_step = below is not test and not self._steps.isdisjoint(self.script.loops_around(one))
            if test is not None and is_of_step and may_be_missing(self.differing, test):
                return False
            below = one
        return True

    def is_in_evaluation(self, node: ast.AST) -> bool:
        """Whether a node stands in a loop that only evaluates."""
        training = {one.loop for one in self.roles.data}
        backwards = [one.call for one in self.roles.backwards]
        return any(
            loop in self.differing.loops
            and loop not in training
            and not any(self.script.table.is_inside(call, loop) for call in backwards)
            for loop in self.script.loops_around(node)
        )


def _callee(call: ast.Call) -> tuple[str, ...]:
    """What a call calls, and the object whose method that is."""
    func = call.func
    return (ast.unparse(func), *([ast.unparse(func.value)] if isinstance(func, ast.Attribute) else []))


def compares(node: ast.expr) -> bool:
    """Whether an expression compares by size, or asks whether a number is one: what else decides may be none."""
    return any(
        (isinstance(n, ast.Compare) and any(isinstance(op, _BY_SIZE) for op in n.ops))
        or (isinstance(n, ast.Call) and last_name(n.func) in ("isnan", "isinf", "isfinite"))
        for n in walk(node)
    )


def may_be_missing(differing: Differing, test: ast.expr) -> bool:
    """Whether a test asks for `found is None` of what a batch gives: the batch of another process may give something."""
    compared = [n for n in walk(test) if isinstance(n, ast.Compare)]
    return any(ast.unparse(n.comparators[0]) == "None" and differing.level(n.left) for n in compared)
