"""Who is what in training, by use (CONVERT.md, "Roles come from use"): where a value was made does not matter.

- A backward trains where its function, its class or a caller steps an optimizer.
- What is stepped there is an optimizer, unless it is a scheduler, a scaler or a bar.
- What the loop around the backward iterates is the data (`data`).
- What gives its parameters to an optimizer is a model.

A backward pass that trains no weights, an attack on the inputs or a search for the latents of one batch, has gradients of one
process's batch, as the batch itself is, which are averaged with nobody's.

"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from crosstrain_migrate.syntax.nodes import Function, last_name, place_of, written
from crosstrain_migrate.syntax.walks import walk

from .data import Data
from .forms import Frame, is_function_frame, is_method, names_in
from .frameworks import HIDDEN
from .inputs import is_of_inputs, moves_tensors_alone
from .modes import facts
from .script import Script
from .training_data import TrainingData

STEPS = ("step", "step_and_update_lr", "first_step", "second_step", "ascent_step", "descent_step")
# `x.step()` where x is no optimizer, by the names that people give to such things.
_ABOUT_GRADIENTS = re.compile("optim|grad|param|torch", re.I)
OTHER_STEPS = re.compile(
    r"sched|lr_|env\b|envs\b|writer|pbar|bar$|prof|meter|timer|logger|warm|loss|ema\b", re.I
)


@dataclass(frozen=True)
class Backward:
    """A backward pass that trains."""

    call: ast.Call
    frame: Frame


@dataclass(frozen=True)
class Stepped:
    """An optimizer, as the code names it where it steps it."""

    text: str
    call: ast.Call
    frame: Frame


@dataclass
class Roles:
    """What trains in a script."""

    script: Script

    @cached_property
    def backwards(self) -> list[Backward]:
        """The backward passes behind which an optimizer is stepped, those on inputs left out; all of them where none is."""
        calls = self.script.calls_that(self._goes_backward)
        found = [Backward(call, self.script.frame(call)) for call in calls]
        near = [one for one in found if self._steps_near(one.frame)]
        return [one for one in near if not self._is_of_inputs(one.frame)] or near or found

    @cached_property
    def optimizers(self) -> list[Stepped]:
        found: dict[object, Stepped] = {}
        for backward in self.backwards:
            for one in self._optimizers_near(backward.frame):
                found.setdefault((one.frame, one.text, self._bound_at(one)), one)
        return list(found.values())

    def _bound_at(self, one: Stepped) -> tuple[int, int] | None:
        """Where an optimizer is bound, the last time above its step: a name may stand for several, one after another."""
        stores = map(place_of, self.script.stores(one.frame, one.text))
        above = [store for store in stores if store < place_of(one.call)]
        return max(above, default=None)

    @cached_property
    def schedulers(self) -> list[Stepped]:
        """What is stepped once a batch beside an optimizer, or beside the calls of its function, and is a scheduler."""
        found: dict[tuple[Frame, str], Stepped] = {}
        for optimizer in self.optimizers:
            frame = optimizer.frame
            is_one_step = is_function_frame(frame) and not self.script.loops_around(optimizer.call)
            calls = self._calls_of_step(frame) if is_one_step and is_function_frame(frame) else []
            steps = [call for text, call in self._stepped_in(frame) if text == optimizer.text]
            for beside in (every := (*steps, *calls)):
                frame = self.script.frame(beside)
                for call in self.script.calls_in(frame):
                    if not is_method(call, "step") or call.args or self._is_optimizer(call):
                        continue
                    text = written(call.func.value) if isinstance(call.func, ast.Attribute) else ""
                    is_beside = self._same_batch(call, beside) and not self._goes_round(call, every)
                    if self.is_scheduler(frame, text) and is_beside:
                        found.setdefault((frame, text), Stepped(text, call, frame))
        return list(found.values())

    def _calls_of_step(self, function: Function) -> list[ast.Call]:
        """The calls of a function that steps; `scheduler.step()` calls no method of the class that trains."""
        others = {one.text for one in self.optimizers}
        found = []
        for call in self.script.callers(function):
            of = written(call.func.value) if isinstance(call.func, ast.Attribute) else ""
            if of not in others and not (of and self.is_scheduler(self.script.frame(call), of)):
                found.append(call)
        return found

    @cached_property
    def data(self) -> list[Data]:
        """What the training loops iterate, each place once, in the order of the text."""
        return self._training_data.around((one.call, one.frame) for one in self.backwards)

    def sources(self, frame: Frame, node: ast.expr) -> list[ast.expr]:
        """The iterables that a loop over `node` reads; empty where it goes over no data."""
        return self._training_data.sources(frame, node)

    @cached_property
    def _training_data(self) -> TrainingData:
        return TrainingData(self.script)

    @property
    def trains(self) -> bool:
        return bool(self.backwards and self.optimizers)

    @property
    def trains_no_model(self) -> bool:
        """Whether a script goes over no data, and steps by no more than tensors that it makes: `Adam([latent])`."""
        steps = [(one.frame, one.call.func.value) for one in self.optimizers if is_method(one.call, *STEPS)]
        return not self.data and moves_tensors_alone(self.script, steps)

    @property
    def frames(self) -> list[Frame]:
        """Where the script steps and goes backward; else where it makes what does both inside a library."""
        steps, passes = (one.frame for one in self.optimizers), (one.frame for one in self.backwards)
        hidden = (self.script.frame(c) for c in self.script.calls if self.script.dotted(c.func) in HIDDEN)
        return list(dict.fromkeys([*steps, *passes])) or list(dict.fromkeys(hidden))

    # -- backward and step -------------------------------------------------------------------------------------

    def _goes_backward(self, call: ast.Call) -> bool:
        if self.script.dotted(call.func) == "torch.autograd.backward":
            return True
        if isinstance(call.func, ast.Name):
            if not self._keeps_backward:
                return False
            bound = self.script.values(self.script.frame(call), call.func.id)  # `go = loss.backward`
            return any(isinstance(value, ast.Attribute) and value.attr == "backward" for value in bound)
        if not is_method(call, "backward"):
            return False
        frame, of = self.script.frame(call), call.func.value
        bases = getattr(self.script.class_of(frame), "bases", ())
        if getattr(frame, "name", "") == "backward" and any(last_name(base) == "Function" for base in bases):
            return False  # `class Pool(autograd.Function)` computes a gradient
        is_super = isinstance(of, ast.Call) and last_name(of.func) == "super"
        if isinstance(of, ast.Name) and of.id in ("self", "cls"):
            return False  # a method of the script's own
        if isinstance(self.script.parent(call), ast.AugAssign | ast.BinOp):
            return False  # `total += part.backward()`: a tensor's gives nothing back
        return not is_super and not self.script.in_lambda(call)

    @cached_property
    def _keeps_backward(self) -> bool:
        """Whether a `backward` is more than called: else no plain name is one."""
        named = (n for n in self.script.table.each(ast.Attribute) if n.attr == "backward")
        return any(not isinstance(self.script.parent(n), ast.Call) for n in named)

    def _steps_near(self, frame: Frame) -> bool:
        """Whether a frame, its class or a caller steps something."""
        cls = self.script.class_of(frame)
        frames: list[Frame] = [frame, *self.script.methods(cls)]
        if any(is_method(call, *STEPS) for one in frames for call in self.script.calls_in(one)):
            return True
        if isinstance(frame, ast.Module):
            return False
        return any(self._steps_behind(call) for call in self.script.callers(frame))

    def _is_of_inputs(self, frame: Frame) -> bool:
        training = [call for call in self._calls_through(frame) if self._steps_behind(call)]
        if not all(
            any(map(self._goes_backward, self.script.calls_in(self.script.frame(c)))) for c in training
        ):
            return False  # its gradients are those that the caller steps by
        return is_of_inputs(self.script, frame, bool(training))

    def _calls_through(self, frame: Frame, depth: int = 3) -> list[ast.Call]:
        """The calls of a function, and of functions that do nothing for gradients but call it: `attack` of `_attack`."""
        calls = self.script.callers(frame) if is_function_frame(frame) and depth else []
        found = [*calls]
        for above in dict.fromkeys(map(self.script.frame, calls)):
            if not any(self._goes_backward(c) or is_method(c, *STEPS) for c in self.script.calls_in(above)):
                found += self._calls_through(above, depth - 1)
        return found

    def _steps_behind(self, call: ast.Call) -> bool:
        """Whether a call's frame steps something in the same pass: the loops around the step are around the call too."""
        loops = self.script.loops_around(call)
        frame = self.script.frame(call)
        steps = (
            c
            for c in self.script.calls_in(frame)
            if is_method(c, *STEPS) and not self.is_scheduler(frame, written(c.func.value))
        )
        return any(all(loop in loops for loop in self.script.loops_around(step)) for step in steps)

    def _optimizers_near(self, frame: Frame) -> list[Stepped]:
        """The optimizers that are stepped in a frame, else in its class, its callers, its file."""
        script = self.script
        cls = script.class_of(frame)
        rings: list[list[Frame]] = [[frame], [*script.methods(cls)]]
        rings += self.levels_above(frame)
        module = script.module(frame)
        rings.append([module])
        rings.append(list(filter(script.is_reached, script.frames_in(module))))
        for ring in rings:
            found: dict[object, Stepped] = {}  # each by its first step, above which it is prepared
            for one in (Stepped(text, call, of) for of in ring for text, call in self._stepped_in(of)):
                found.setdefault((one.frame, one.text, self._bound_at(one)), one)
            if found:
                return list(found.values())
        return []

    def levels_above(self, frame: Frame) -> list[list[Frame]]:
        """The frames that call a frame, those that call these, and so on."""
        levels: list[list[Frame]] = [[frame]]
        while levels[-1] and len(levels) < 5:
            seen = {one for level in levels for one in level}
            calls = [c for one in levels[-1] if is_function_frame(one) for c in self.script.callers(one)]
            levels.append([f for f in dict.fromkeys(map(self.script.frame, calls)) if f not in seen])
        return levels[1:]

    def _stepped_in(self, frame: Frame) -> list[tuple[str, ast.Call]]:
        found: list[tuple[str, ast.Call]] = []
        for call in self.script.calls_in(frame):
            if not is_method(call, *STEPS) or not self.script.is_reached(call):
                continue
            of: ast.expr = call.func.value
            if "scaler" in written(of).lower() and call.args:
                of = call.args[0]  # scaler.step(optimizer)
            elif not self._is_optimizer(call):
                continue
            if isinstance(of, ast.Name | ast.Attribute | ast.Subscript):
                found.append((written(of), call))
        return found

    def _is_optimizer(self, call: ast.Call) -> bool:
        assert isinstance(call.func, ast.Attribute)
        of = call.func.value
        if not isinstance(of, ast.Name | ast.Attribute | ast.Subscript):
            return False
        text = written(of)
        if "scaler" in text.lower() or self.is_scheduler(self.script.frame(call), text):
            return False
        if self._is_given_loss(call) and any(text in names for names in self._given_by_blocks(call)):
            return False  # `with higher.innerloop_ctx(...) as (net, inner): inner.step(loss)` steps a copy, differentiably
        made = map(self.script.class_made, self.script.values_anywhere(text))
        if text in self._cleared or any(cls and self._steps_optimizer(cls) for cls in made):
            return True
        if text == "self" and self.script.functions_of(call):
            return False  # a method of the script's own, in which something is stepped
        return not OTHER_STEPS.search(text.rpartition(".")[2]) and not self._is_simulated(call, text)

    def _is_given_loss(self, step: ast.Call) -> bool:
        """Whether a step is given a value, and no closure."""
        given = step.args[0] if step.args else None
        return (
            given is not None
            and not isinstance(given, ast.Lambda)
            and not self.script.functions(written(given))
        )

    def _given_by_blocks(self, node: ast.AST) -> Iterator[set[str]]:
        """The names that the `with` statements around a node bind."""
        for block in (one for one in self.script.around(node) if isinstance(one, ast.With)):
            yield from (names_in(item.optional_vars) for item in block.items if item.optional_vars)

    def _is_simulated(self, call: ast.Call, text: str) -> bool:
        """Whether `step` is that of a class of the project in which nothing is about gradients: `car.step(angle)`."""
        frame = self.script.frame(call)
        values = self.script.values(frame, text) or self.script.values(self.script.module(call), text)
        made = [self.script.class_made(value) for value in values]
        return bool(made) and all(
            cls is not None and not _ABOUT_GRADIENTS.search(ast.unparse(cls)) for cls in made
        )

    @cached_property
    def _cleared(self) -> set[str]:
        """Whose gradients are cleared: `x` of `x.zero_grad()`."""
        calls = (call for call in self.script.calls if is_method(call, "zero_grad"))
        return {written(call.func.value) for call in calls if isinstance(call.func, ast.Attribute)}

    @cached_property
    def _stepped(self) -> set[str]:
        """What `step` is called on, or given: `x` of `x.step()` and of `scaler.step(x)`."""
        calls = [call for call in self.script.calls if is_method(call, *STEPS)]
        of = {written(call.func.value) for call in calls if isinstance(call.func, ast.Attribute)}
        return of | {written(given) for call in calls for given in call.args}

    def is_scheduler(self, frame: Frame, text: str) -> bool:
        if text in self._cleared:
            return False
        name = text.rpartition(".")[2]
        made = self.script.values_anywhere(text) if text else []
        if any(isinstance(v, ast.Call) and "lr_scheduler" in self.script.dotted(v.func) for v in made):
            return True
        for cls in filter(None, map(self.script.class_made, made)):
            if self._steps_optimizer(cls):
                return False  # a wrapper, whatever its name is
            if self._sets_rates(cls):
                return True
        if any(self._is_made_of_optimizer(value) for value in made):
            return True
        stores = map(self.script.parent, self.script.stores(frame, text) if text.isidentifier() else [])
        several = [one.iter for one in stores if isinstance(one, ast.For | ast.comprehension)]
        listed = [one for over in several for one in (over, *getattr(over, "elts", ()))]
        if any(self.is_scheduler(frame, written(one)) for one in listed if written(one) != text):
            return True  # `for one in schedulers: one.step()`
        return re.search(r"sched|lr_", name, re.I) is not None

    def _is_made_of_optimizer(self, value: ast.expr) -> bool:
        """Whether a call is given what the script clears and steps itself, `schedule(optimizer, warmup)`, and no parameters, as an
        optimizer is: `Sharp(model.parameters(), base=self.optimizer)`."""
        given = [*value.args, *(k.value for k in value.keywords)] if isinstance(value, ast.Call) else []
        return not any(is_method(one, "parameters") for one in given) and any(
            written(one) in self._cleared & self._stepped for one in given
        )

    def _steps_optimizer(self, cls: ast.ClassDef) -> bool:
        """Whether a class of the project steps an optimizer that it holds, in its own `step`."""
        own = (n for n in self._in_step(cls) if is_method(n, "step"))
        return any(re.search(r"optim(?!.*sched)", written(n.func), re.I) for n in own)

    def _sets_rates(self, cls: ast.ClassDef) -> bool:
        """Whether a class of the project has a `step` that sets learning rates, and steps nothing."""
        steps = self._in_step(cls)
        stores = (n for n in steps if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store))
        is_rate = any(isinstance(n.slice, ast.Constant) and n.slice.value == "lr" for n in stores)
        return is_rate and not any(is_method(n, "step") for n in steps)

    def _in_step(self, cls: ast.ClassDef) -> list[ast.AST]:
        return [node for one in self.script.methods(cls) if one.name == "step" for node in walk(one)]

    def _same_batch(self, call: ast.Call, other_call: ast.Call) -> bool:
        """Whether two calls are made in the same loop; or in a function that has none, the first under no test of its own but
        for what it is called on."""
        own, other = self.script.loops_around(call), self.script.loops_around(other_call)
        if own or other or not is_function_frame(self.script.frame(call)):
            return own[:1] == other[:1] and bool(own)
        tests = facts(self.script, call) - facts(self.script, other_call)
        return all(written(call.func).rpartition(".")[0] in text for text, _ in tests)

    def _goes_round(self, call: ast.Call, steps: Iterable[ast.Call]) -> bool:
        """Whether one turn of a call's loop takes a loop over data for another of the steps: an epoch, not a batch."""
        loops, data = self.script.loops_around(call), {one.loop for one in self.data}
        around = (self.script.loops_around(one) for one in steps)
        inner = (one[: one.index(loops[0])] for one in around if loops and loops[0] in one)
        return any(not data.isdisjoint(one) for one in inner)

    # -- models ------------------------------------------------------------------------------------------------

    def models_of(self, frame: Frame, text: str) -> list[str]:
        """The variables and attributes whose parameters an optimizer of a frame was given there."""
        found: dict[str, None] = {}
        for value in self.script.values(frame, text):
            for call in walk(value) if isinstance(value, ast.Call) else ():
                if not is_method(call, "parameters", "named_parameters"):
                    continue
                assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
                of = _whole(call.func.value)
                if of:
                    found.setdefault(of)
            cls = self.script.class_made(value)
            if isinstance(value, ast.Call) and cls and self._steps_optimizer(cls):
                given = {written(one) for one in (*value.args, *(k.value for k in value.keywords))}
                for one in sorted(given - {text}):  # `optimizer = Rising(optimizer)`
                    found |= dict.fromkeys(self.models_of(frame, one))
        return list(found)


def _whole(node: ast.expr) -> str:
    """`model` of `model.head`, `self.model` of `self.model.head`; empty for other expressions."""
    parts = written(node).split(".") if isinstance(node, ast.Name | ast.Attribute) else []
    if not parts or not all(part.isidentifier() for part in parts):
        return ""
    return ".".join(parts[:2] if parts[0] == "self" else parts[:1])
