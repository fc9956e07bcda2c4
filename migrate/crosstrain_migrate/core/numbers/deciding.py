"""CT605 by use: processes decide together.

Early stopping, a best model, a plateau of the learning rate: where the number that decides may be another one on each
process, its mean over the processes decides, so that none stops, saves or slows down alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from crosstrain_migrate.core.output.writers import path_of_write, saves_weights
from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import OURS, Plan
from crosstrain_migrate.core.reading.certain import Certain
from crosstrain_migrate.core.reading.differing import Differing
from crosstrain_migrate.core.reading.forms import Frame, Loop, is_function_frame, is_method
from crosstrain_migrate.core.reading.roles import STEPS, Roles
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import exits, last_name, place_of, words, written
from crosstrain_migrate.syntax.walks import walk, walk_all

from .accumulators import CLOCK
from .changes import binding
from .made_alike import GROUP, RULE, MadeAlike, compares, may_be_missing

_SAVES = words("save save_model save_pretrained save_checkpoint copyfile copy dump load_state_dict")
_SAVES_ALONE = ("torch.save", "pickle.dump", "json.dump", "shutil.copyfile", "shutil.copy")
# What a branch that leaves out a batch may call before its `continue`, and what it may say.
_SAYS = words("print info debug warning warn error zero_grad empty_cache")
_TEXTS = words("item format str float int")
# What loaders do not complete: the further sizes of what they give, `boxes.size(1)`, and whether there is any, `len(boxes) == 0`.
_ASKS_CONTENT = re.compile(r"\b(shape\[|size\(|size\(\)\[)-?[1-9]|(== 0|<= 0|< 1|> 0|!= 0|>= 1)$|^not len\(")
_NO_FAULT = ("StopIteration", "KeyboardInterrupt")  # of a batch
_SKIPS = "a process that skips a batch of its own makes the others wait"
_BEFORE = "leave such batches out before the loop"
ANEW = "all processes draw the same new weights"


class Decisions:
    """Plans the reductions of what decides."""

    def __init__(self, plan: Plan, roles: Roles, accelerators: Accelerators, differing: Differing) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.roles = roles
        self.differing = differing
        self._alike = MadeAlike(plan, roles, accelerators, differing)
        self._certain = Certain(self.script)
        # The code that trains, and what calls it.
        self._drivers = {*self.script.above(*roles.frames, *(one.frame for one in roles.data))}

    def run(self) -> list[ast.AST]:
        """Plans them. The tests that stay each process's own, and by which it only saves."""
        saved_apart: list[ast.AST] = []
        decisions = [one for one in self._decisions() if self._is_own(*one)]
        for node, by in decisions:
            # What keeps the best of numbers that are bound here is alike with them.
            atoms = sorted(self._alike.atoms(by), key=lambda one: binding(self.script, one) is None)
            # What only saves by a clock is the main process's own.
            saves_by_clock = CLOCK.search(ast.unparse(by)) and self._only_saves(node)
            for one in () if saves_by_clock else atoms:
                self._alike.repair(one, node)
        for number in self._numbers_of_names():
            self._alike.where_bound(number, 1)
        for node, by in decisions:
            for call in self._redrawing(node) if not self._is_own(node, by) else ():
                context = f"{self._alike.accelerator(call)}.common_draws()"
                self.plan.within(self.script.statement(call), RULE, ANEW, context, GROUP)
        remedy = 'decide by its mean, `accelerator.reduce(x, "mean")`'
        for node, by in decisions:
            if self._is_own(node, by) and not self._skips_batch(node) and compares(by):
                if self._only_saves(node):
                    saved_apart.append(node)
                    continue
                reason = "processes may part here: each decides by a number of its own"
                self.plan.note(RULE, node, reason, remedy)
        for handler in self._leaving_handlers():
            self.plan.note(RULE, handler, _SKIPS, _BEFORE)
        return saved_apart

    # -- what decides ------------------------------------------------------------------------------------------

    def _decisions(self) -> Iterator[tuple[ast.AST, ast.expr]]:
        """The tests, and the observations of plateau schedulers, by which processes may part, in the order of the text."""
        for frame in self.script.reached_frames:
            if self._is_of_library(frame):
                continue
            for node in self.script.within(frame):
                if self._alike.is_in_evaluation(node):
                    continue
                if isinstance(node, ast.If | ast.While):
                    if not self.plan.is_removed(node) and self._matters(frame, node):
                        yield node, node.test
                elif isinstance(node, ast.Call) and node.args and self._steps_scheduler(frame, node):
                    yield node, node.args[0]

    def _numbers_of_names(self) -> list[ast.expr]:
        """The numbers in the names of weights that are saved behind a pass: each process would save, and load, its own."""
        paths = [
            path
            for call in self.script.calls
            if saves_weights(self.script, call) and not self.differing.is_in_pass(call)
            for path in [path_of_write(self.script, call)]
            if path is not None
        ]
        texts = [v for p in paths for v in (p, *self.script.values(self.script.frame(p), written(p)))]
        names = [n for text in texts for n in walk(text) if isinstance(n, ast.Name | ast.Attribute)]
        return [n for n in names if self.differing.level(n) and _is_shown_as_number(self.script, n)]

    def _steps_scheduler(self, frame: Frame, call: ast.Call) -> bool:
        is_step = isinstance(call.func, ast.Attribute) and call.func.attr == "step"
        return is_step and self.roles.is_scheduler(frame, written(call.func).rpartition(".")[0])

    def _is_of_library(self, frame: Frame) -> bool:
        """Whether a function is of a model or a data set, which see one process's batches on purpose."""
        is_own = bool(self._methods_beside(frame) & {"forward", "__getitem__"})
        return (is_own or self._is_of_data(frame, 4)) and frame not in self.roles.frames

    def _methods_beside(self, frame: Frame) -> set[str]:
        cls = next((one for one in self.script.around(frame) if isinstance(one, ast.ClassDef)), None)
        return {method.name for method in self.script.methods(cls)} if cls is not None else set()

    def _is_of_data(self, frame: Frame, depth: int) -> bool:
        """Whether data sets alone call a plain function, themselves or through others: what augments their rows."""
        if not depth or not is_function_frame(frame) or self._methods_beside(frame):
            return "__getitem__" in self._methods_beside(frame)
        calls = [self.script.frame(one) for one in self.script.callers(frame) if self.script.is_reached(one)]
        callers = [one for one in calls if one is not frame]
        return bool(callers) and all(self._is_of_data(one, depth - 1) for one in callers)

    def _matters(self, frame: Frame, node: ast.If | ast.While) -> bool:
        """Whether what follows from a test must happen on every process or on none."""
        if isinstance(node, ast.While):
            return frame in self._drivers
        return any(self._must_agree(frame, node, n) for n in walk_all((*node.body, *node.orelse)))

    def _only_saves(self, node: ast.AST) -> bool:
        """Whether one process is enough for all that follows from a test, also in the functions of the project that it calls."""
        return isinstance(node, ast.If) and all(
            isinstance(n, ast.Call) and is_statement_call(self.script, n) and self._saves_alone(n)
            for n in walk_all((*node.body, *node.orelse))
            if self._must_agree(self.script.frame(node), node, n)
        )

    def _saves_alone(self, call: ast.Call, depth: int = 0) -> bool:
        run = self.script.run_by(call) if depth < 2 else []  # one alone is known to be guarded
        inner = [one for f in run for one in self.script.calls_in(f) if self._call_must_agree(one, 1)]
        is_one = self.script.dotted(call.func) in _SAVES_ALONE
        return is_one or (
            len(run) == 1 and bool(inner) and all(self._saves_alone(n, depth + 1) for n in inner)
        )

    def _must_agree(self, frame: Frame, test: ast.If, node: ast.AST) -> bool:
        if isinstance(node, ast.Break | ast.Continue):
            return frame in self._drivers and self.script.loop_of(node) not in walk(test)
        if isinstance(node, ast.Return) or _ends(test, node):
            return frame in self._drivers
        if isinstance(node, ast.AugAssign):
            is_counter = isinstance(node.value, ast.Constant) and self._is_asked(frame, written(node.target))
            return is_counter or "'lr'" in ast.unparse(node.target)
        if isinstance(node, ast.Assign):
            is_flag = isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool)
            is_rate = any("'lr'" in ast.unparse(target) for target in node.targets)
            is_kept = frame in self._drivers or any("." in written(target) for target in node.targets)
            return (is_flag and is_kept) or is_rate
        return isinstance(node, ast.Call) and (self._steps(frame, node) or self._call_must_agree(node, 0))

    def _steps(self, frame: Frame, call: ast.Call) -> bool:
        """`if isfinite(loss): optimizer.step()`, behind the backward pass"""
        texts = {one.text for one in self.roles.optimizers if one.frame is frame}
        return (
            isinstance(call.func, ast.Attribute)
            and call.func.attr in STEPS
            and written(call.func.value) in texts
        )

    def _is_asked(self, frame: Frame, text: str) -> bool:
        """Whether a test asks for a counter; one of an object may be asked for anywhere."""
        asking = map(self.script.statement, self.script.reads(frame, text))
        tests = (s.test for s in asking if isinstance(s, ast.If | ast.While))
        is_own = frame in self._drivers
        return "." in text or (is_own and any(text in {written(n) for n in walk(test)} for test in tests))

    def _call_must_agree(self, call: ast.Call, depth: int) -> bool:
        """Whether a call saves, steps, communicates or changes the learning rate, itself or in a function of the project."""
        if last_name(call.func) in _SAVES or is_method(call, "backward") or self._redraws(call):
            return True
        functions = self.script.functions_of(call)
        if any(one in self._drivers for one in functions):
            return True
        return depth < 2 and any(
            (isinstance(node, ast.Call) and self._call_must_agree(node, depth + 1))
            or (isinstance(node, ast.Assign) and any("'lr'" in ast.unparse(t) for t in node.targets))
            for function in functions
            for node in self.script.within(function)
        )

    def _redraws(self, call: ast.Call) -> bool:
        """Whether a call draws the weights of a network anew: `net.apply(init_weights)`."""
        return is_method(call, "apply") and any(self.script.functions(written(one)) for one in call.args)

    def _redrawing(self, test: ast.AST) -> list[ast.Call]:
        calls = [n for n in walk(test) if isinstance(n, ast.Call)]
        functions = [f for call in calls for f in self.script.functions_of(call)]
        calls += [call for one in functions for call in self.script.calls_in(one)]
        return [one for one in calls if self._redraws(one)]

    # -- what becomes of it -------------------------------------------------------------------------------------

    def _is_own(self, node: ast.AST, by: ast.expr) -> bool:
        """Whether a test may be another one on each process; batches that are dealt whole have rows of their own number."""
        if self.differing.level(by):
            return True
        loop = self._skipping_loop(node)
        asks = any(_asks_rows(one) for one in walk(by)) and (loop is not None or self._holds_pass(node))
        names = (one for one in walk(by) if isinstance(one, ast.Name | ast.Attribute))
        if asks and _ASKS_CONTENT.search(ast.unparse(by)) and any(map(self.differing.level, names)):
            return True
        if loop is None or not asks:
            return loop is not None and may_be_missing(self.differing, by)
        data = [one for one in self.roles.data if one.loop is loop]
        return any(self._certain.gives_others(one.frame, one.node) for one in data)

    def _holds_pass(self, node: ast.AST) -> bool:
        """Whether a test leaves out a backward pass, `if mask.any(): loss.backward()`, for which there is no other."""
        if not isinstance(node, ast.If):
            return False
        passes = [one.call for one in self.roles.backwards]
        held, others = ([n for n in walk_all(way) if n in passes] for way in (node.body, node.orelse))
        return bool(held) and not others

    def _skips_batch(self, node: ast.AST) -> bool:
        """Leaves a batch out on every process, where a test by which some would leave out a step is of the batch."""
        loop = self._skipping_loop(node)
        if not isinstance(node, ast.If) or (loop is None and not self._holds_pass(node)):
            return False
        if loop is None:
            return self._alike.all_come(node) and self._together(node, "== {}.num_processes")
        passes = [one.call for one in self.roles.backwards if self.script.table.is_inside(one.call, loop)]
        if passes and all(place_of(one) < place_of(node) for one in passes):
            return False  # behind the step
        is_alike = _only_leaves_out(self.script, node.body) and self._alike.all_come(node)
        if not is_alike or not self._together(node, "> 0"):
            self.plan.note(RULE, node, _SKIPS, _BEFORE)
        return True

    def _together(self, node: ast.If, number: str) -> bool:
        """Makes a test true on all processes where it is true on so many of them; Accelerate adds up tensors alone."""
        if self.plan.runtime != OURS:
            return False
        accelerator = self._alike.accelerator(node)
        code = f'{accelerator}.reduce(int(bool({{it}})), "sum") {number.format(accelerator)}'
        reason = "a process that left out a step alone would make the others wait"
        return self.plan.replace(node.test, RULE, reason, code, it=node.test)

    def _leaving_handlers(self) -> Iterator[ast.ExceptHandler]:
        """What leaves out a step where a batch is no good, `except ValueError: continue`."""
        steps = {self.script.loop_of(one.call): place_of(one.call) for one in self.roles.backwards}
        for tried in self.script.table.each(ast.Try):
            loop = self.script.loop_of(tried)
            for one in tried.handlers if loop in steps and place_of(tried) < steps[loop] else ():
                leaves = any(
                    isinstance(n, ast.Continue) and self.script.loop_of(n) is loop for n in walk(one)
                )
                if leaves and (one.type is None or last_name(one.type) not in _NO_FAULT):
                    yield one

    def _skipping_loop(self, node: ast.AST) -> Loop | Frame | None:
        """The loop over data, or of the steps, of which a test leaves out a turn, or the function whose step it leaves out."""
        if not isinstance(node, ast.If):
            return None
        body, loop = walk_all(node.body), self.script.loop_of(node)
        steps = {one.call: self.script.loop_of(one.call) for one in self.roles.backwards}
        if any(isinstance(n, ast.Continue) for n in body):
            return loop if loop in self.differing.loops or loop in steps.values() else None
        frame = self.script.frame(node)
        leaves = loop is None and is_function_frame(frame) and any(isinstance(n, ast.Return) for n in body)
        own = [one for one, around in steps.items() if around is None and self.script.frame(one) is frame]
        is_above = any(place_of(one) > place_of(node) and one not in body for one in own)
        return frame if leaves and is_above else None


def _is_shown_as_number(script: Script, node: ast.expr) -> bool:
    """`"{:.2f}".format(x)`, `"%.2f" % x`, `f"{x:.2f}"`"""
    above = [one for one in script.around(node) if isinstance(one, ast.expr)]
    forms = [one.format_spec or one for one in above if isinstance(one, ast.FormattedValue)]
    forms += [one.func for one in above if is_method(one, "format")]
    forms += [one.left for one in above if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod)]
    return any(re.search(r"\.\d+[efg]", ast.unparse(one)) for one in forms)


def _ends(test: ast.If, node: ast.AST) -> bool:
    """Whether a branch ends the run as if it was over: `exit()`, or with a code by a clock; an error's code ends it for all."""
    codes = [*map(ast.unparse, node.args)] if isinstance(node, ast.Call) and exits(node) else ["1"]
    return codes in ([], ["0"]) or (exits(node) and CLOCK.search(ast.unparse(test.test)) is not None)


def _only_leaves_out(script: Script, body: list[ast.stmt]) -> bool:
    """Whether a branch does nothing up to its `continue` that a process with another batch could not do as well: what it reads
    of a bad batch, `x[bad][0]`, may not be there in a good one."""
    ends = next((n for n, one in enumerate(body) if isinstance(one, ast.Continue | ast.Return)), None)
    return ends is not None and all(_is_harmless(script, one) for one in body[: ends + 1])


def _is_harmless(script: Script, statement: ast.stmt) -> bool:
    calls = [n for n in walk(statement) if isinstance(n, ast.Call)]
    if any(isinstance(n, ast.Subscript | ast.Await | ast.NamedExpr | ast.Lambda) for n in walk(statement)):
        return False
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        given = [call for call in calls if call is not statement.value]
        says = last_name(statement.value.func) in _SAYS and not script.functions(
            last_name(statement.value.func)
        )
        return says and all(last_name(call.func) in _TEXTS for call in given)
    if isinstance(statement, ast.Assign | ast.Return):
        is_variable = all(isinstance(target, ast.Name) for target in getattr(statement, "targets", ()))
        return is_variable and all(script.dotted(call.func).startswith("torch.") for call in calls)
    return isinstance(statement, ast.Pass | ast.Continue)


def _asks_rows(node: ast.AST) -> bool:
    """Whether an expression is a number of rows, or a shape: `len(batch)`, `x.size(0)`, `x.shape[0]`."""
    is_number = isinstance(node, ast.Call) and last_name(node.func) in ("len", "size")
    return is_number or (isinstance(node, ast.Attribute) and node.attr == "shape")
