"""CT102 by use: where the accelerator is made, and where it is at hand.

The script makes one where its training begins: at the head of the function that it calls, or at its top level before the
first statement that does anything. Another function that needs one makes its own, which shares the run's state
(contract, decision 37), so that no signature changes. In other files it is always so.
"""

from __future__ import annotations

import ast
from functools import cached_property
from itertools import pairwise

from crosstrain_migrate.core.plan import CORE, Plan, told_by
from crosstrain_migrate.core.reading.forms import FUNCTIONS, Frame, is_function_frame, is_method
from crosstrain_migrate.core.reading.roles import STEPS, Roles
from crosstrain_migrate.core.reading.script import Script, calls_plain
from crosstrain_migrate.syntax.nodes import last_name, place_of
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.walks import statements, walk, walk_all

from .elsewhere import behind
from .first import choose_visible, needs_accelerator, only_sets, tells_visible
from .known import Choice, asks_alike, calls_to, done_instead
from .waiting import given_timeout

RULE = "CT102"
REASON = "one Accelerator knows the processes, the devices and the precision"
_DEPTH = 4  # how many calls are followed


def _names_all(node: ast.AST) -> bool:
    """`locals()`, which names all that a function holds."""
    return isinstance(node, ast.Call) and not node.args and last_name(node.func) == "locals"


class Accelerators:
    """Where accelerators are made."""

    def __init__(
        self, plan: Plan, roles: Roles, choice: Choice | None, options: list[str], *, mapped: bool = False
    ) -> None:
        self.plan = plan
        self._mapped = mapped
        self.script: Script = plan.script
        self.roles = roles
        self.choice = choice
        self.options = options
        self.name = "accelerator"
        own = (
            n for n in self.script.table.each(ast.Name) if self.script.module(n) not in self.script.converted
        )
        taken = {name.id for name in own}
        while self.name in taken:
            self.name += "_"
        self.home = choice.frame if choice is not None else self._home()
        self._made: dict[Frame, ast.stmt] = {}
        self._in_step = self._called_in_steps()
        self._early = self._runs_before_choice()
        self._make(self.home)

    # -- asked by the others -----------------------------------------------------------------------------------

    def at(self, node: ast.AST) -> str:
        """The accelerator at a node; one is made in its function where none is at hand."""
        if not self.at_hand(node):
            self._make(self.script.frame(node))
        return self.name

    def may_be_at(self, node: ast.AST) -> str | None:
        """The accelerator, where one is at hand or a function around the node may make one: none runs in every step."""
        if self.at_hand(node):
            return self.name
        frame = self.script.frame(node)
        functions = [one for one in (frame, *self.script.around(frame)) if isinstance(one, FUNCTIONS)]
        makers = [one for one in functions if one not in self._in_step and one not in self._early]
        if not makers or makers[0] in self._made:  # below the node
            return None
        self._make(makers[0])
        return self.name

    def anywhere(self, node: ast.AST, group: str = CORE) -> str:
        """The same, or one that is made on the spot."""
        if (name := self.may_be_at(node)) is not None:
            return name
        self.plan.imports(node, "Accelerator", group)
        return "Accelerator()"

    def state(self, node: ast.AST, group: str = CORE) -> str:
        """What knows the process at a node: the accelerator, or the state of the processes where none is at hand."""
        return self.name if self.at_hand(node) else self.plan.state(node, group)

    def at_hand(self, node: ast.AST) -> bool:
        """Whether code that runs before has bound the accelerator where `node` reads it."""
        frame: Frame | None = self.script.frame(node)
        while frame is not None:
            place = self._made.get(frame)
            if (
                place is not None
                and (self.script.frame(node) is not frame or place_of(place) <= place_of(node))
                and self._guards(place) <= self._guards(node)
            ):
                return True
            frame = next((one for one in self.script.around(frame) if isinstance(one, FUNCTIONS)), None)
            if (
                frame is None
                and self.script.is_entry(node)
                and not isinstance(self.script.frame(node), ast.Module)
            ):
                module = self.script.entry
                if module not in self._made or self.is_early(node) or self._runs_above(node):
                    return False
                guards = self._guards(self._made[module])
                return guards <= self._guards(node) and (
                    not guards or place_of(self._made[module]) <= place_of(node)
                )
        return False

    def _runs_above(self, node: ast.AST) -> bool:
        """Whether the top level calls the function of a node above its accelerator."""
        frame = self.script.frame(node)
        calls = self.script.direct_callers(frame) if is_function_frame(frame) else []
        made, module = self._made[self.script.entry], self.script.entry
        return any(self.script.frame(c) is module and place_of(c) < place_of(made) for c in calls)

    def _guards(self, node: ast.AST) -> set[ast.AST]:
        """What a node stands under that may not have run: `if __name__ == "__main__":`, since a script that imports the file,
        and calls its functions, has no accelerator that is made there, and a `try`, which its handlers leave anywhere; a
        function that is defined there has it."""
        path = [node, *self.script.around(node)]
        guards = pairwise(path)
        return {one for n, one in guards if is_main_test(one) or (isinstance(one, ast.Try) and n in one.body)}

    def is_early(self, node: ast.AST) -> bool:
        """Whether code runs before the script has chosen its device: it must not bring the processes to life.

        The number alone may come later, when a process that nobody launched goes to that GPU.
        """
        if self.choice is None or not self.keeps_cpu:
            return False
        frame = self.script.frame(node)
        if isinstance(frame, ast.Module) and frame is not self.choice.frame:
            return True
        if frame is self.choice.frame:
            return place_of(node) < place_of(self.choice.before)
        if (made := self._ways_to_object.get(frame)) is not None:
            return place_of(node) <= place_of(made)
        return frame in self._early

    @cached_property
    def _ways_to_object(self) -> dict[Frame, ast.Call]:
        """Where functions make, or call, the object that is told its device, which they have then."""
        choice = self.choice.frame if self.choice is not None else None
        if choice is None or self.script.class_of(choice) is None:
            return {}
        return {self.script.frame(call): call for call in calls_to(self.script, choice)}

    def comes_late(self) -> bool:
        """Whether a function on the way to the choice makes an accelerator, which then is the run's first."""
        return self.choice is not None and any(
            (place := self._made.get(self.script.frame(call))) is not None
            and self.script.frame(call) is not self.choice.frame
            and place_of(place) <= place_of(call)
            for call in calls_to(self.script, self.choice.frame)
        )

    def is_begun(self) -> bool:
        """Whether the state of the processes, which then have a device, is asked for before the choice."""
        asking = [one.node for one in self.plan.edits if "PartialState()" in told_by(one)]
        return any(self.script.is_entry(one) and self.is_early(one) for one in asking)

    def choices_behind(self) -> list[ast.stmt]:
        """The statements that say which GPUs there are and to which all ways lead over the accelerator."""
        visible = choose_visible(self.script, statements(self.script.tree))
        found = [s for s in visible if self.script.is_reached(s) and self._is_behind(s)]
        return [s for s in found if not any(one in found for one in self.script.around(s))]

    def _is_behind(self, statement: ast.stmt) -> bool:
        made = place_of(self._made[self.home])
        work, seen = list[ast.AST]([statement]), set[Frame]()
        while work:
            node = work.pop()
            frame = self.script.frame(node)
            if frame is self.home:
                if place_of(node) < made:
                    return False
            elif not is_function_frame(frame):
                return False  # a file's top level runs before its functions
            elif frame not in seen:
                seen.add(frame)
                work += self.script.callers(frame)
        return True

    def statement(self, frame: Frame) -> ast.stmt:
        """The statement above which a frame's accelerator is made."""
        return self._made[frame]

    def is_made_above(self, statement: ast.stmt) -> bool:
        """Whether an accelerator, which every process needs, is made right above a statement."""
        return statement in self._made.values()

    @property
    def keeps_cpu(self) -> bool:
        """Whether the accelerator has the author's choice of the CPU."""
        return self.choice is not None and bool(self.choice.code)

    @property
    def keeps_number(self) -> bool:
        """Whether the accelerator has the number of the author's GPU."""
        return self.choice is not None and bool(self.choice.device)

    # -- where -------------------------------------------------------------------------------------------------

    def _home(self) -> Frame:
        """The function in which the script's own file begins to train, or its top level."""
        work, seen, above = list(self.roles.frames), set[Frame](), dict[Frame, Frame]()
        while work:
            frame = work.pop(0)
            if isinstance(frame, ast.Module):
                if frame is self.script.entry:
                    return self._below(frame, above)
                continue
            if frame in seen:
                continue
            seen.add(frame)
            cls = self.script.class_of(frame)
            calls = list(self.script.callers(frame))
            if cls is not None and not calls:
                calls = [c for c in self.script.calls if self.script.last(c.func) == cls.name]
            for call in calls:
                caller = self.script.frame(call)
                if caller not in seen:
                    above.setdefault(caller, frame)
                    work.append(caller)
        starts = [f for f in seen if is_function_frame(f) and self.script.is_entry_point(f)]
        return min(starts, key=place_of) if starts else self.script.entry

    def _below(self, module: ast.Module, above: dict[Frame, Frame]) -> Frame:
        """The function of the script's own file that its top level calls, unless the top level trains itself."""
        own = {*self.roles.frames, *(data.frame for data in self.roles.data)}
        first = above.get(module)
        if (
            module in own
            or first is None
            or not self.script.is_entry(first)
            or self.script.class_of(first) is not None
        ):
            return module
        if not isinstance(self.script.parent(first), ast.Module):
            return module
        if self._mapped and self._is_called_by_guard(first):
            return first
        calls = (
            [c for c in self.script.direct_callers(first) if self.script.frame(c) is module]
            if is_function_frame(first)
            else []
        )
        others = self._acting(module.body)
        runs_only_it = others is None or (len(calls) == 1 and self.script.table.is_inside(calls[0], others))
        return first if runs_only_it else module

    def _is_called_by_guard(self, frame: Frame) -> bool:
        """Whether the top level calls a function once, under `if __name__ == "__main__":`; another file may call it too."""
        calls = self.script.direct_callers(frame) if is_function_frame(frame) else []
        top = [c for c in calls if isinstance(self.script.frame(c), ast.Module)]
        return len(top) == 1 and any(is_main_test(one) for one in self.script.around(top[0]))

    def _make(self, frame: Frame) -> None:
        if frame in self._made:
            return
        statement = self._place(frame)
        self._made[frame] = statement
        waits = given_timeout(self.plan, frame) if self._mapped and frame is self.home else []
        given = [*self._device_options(frame), *waits, *self.options]
        self.plan.imports(frame, "Accelerator")
        self.plan.before(statement, RULE, REASON, f"{self.name} = Accelerator({', '.join(given)})")
        if self.choice is not None and self.choice.option and frame is self.choice.frame:
            device = f"{self.name}.device.type" if self.choice.as_text else f"{self.name}.device"
            self.plan.before(statement, RULE, REASON, f"{self.choice.option} = {device}")

    def _device_options(self, frame: Frame) -> list[str]:
        """What the run's first accelerator is told of the author's device."""
        if self.choice is None:
            return []
        code, device = self.choice.code, self.choice.device
        given = [("cpu", code), ("device", device)]
        if frame is not self.choice.frame:
            given = [one for one in given if asks_alike(self.script, frame, self.choice.frame, one[1])]
        elif code in (f'str({device}) == "cpu"', f'{device} == "cpu"'):
            given = given[1:]  # the device says both whether and which
        return [f"{name}={text}" for name, text in given if text]

    def _place(self, frame: Frame) -> ast.stmt:
        if self.choice is not None and frame is self.choice.frame:
            return self.choice.before
        if isinstance(frame, ast.Module):
            return self._acting(frame.body) or self.script.first_statement(frame)
        made = self._ways_to_object.get(frame)
        if made is not None and (below := behind(self.script, frame, made)) is not None:
            return below
        visible = [s for s in frame.body if tells_visible(self.script, s)]
        # What the run's first accelerator leaves without effect holds no other one back.
        visible = [s for s in visible if frame is self.home or not self._is_behind(s)]
        if visible and visible[-1] is not frame.body[-1]:
            return frame.body[frame.body.index(visible[-1]) + 1]
        return self._below_locals(frame.body, self.script.first_statement(frame))

    def _below_locals(self, body: list[ast.stmt], first: ast.stmt) -> ast.stmt:
        """The statement, or one below `config = locals()`, which would hold the accelerator; nothing above needs it."""
        above = body[body.index(first) : -1]
        named = [n for n, s in enumerate(above) if any(map(_names_all, walk(s)))]
        if not named or any(needs_accelerator(self.script, s) for s in above[: named[0] + 1]):
            return first
        return body[body.index(above[named[0]]) + 1]

    def _acting(self, body: list[ast.stmt]) -> ast.stmt | None:
        """The first statement that does something."""
        acts = [(n, s) for n, s in enumerate(body) if not isinstance(s, (*FUNCTIONS, ast.ClassDef))]
        past = max((n for n, s in acts if tells_visible(self.script, s)), default=-1)
        for statement in body[past + 1 :]:
            if is_main_test(statement):
                assert isinstance(statement, ast.If)
                return self._acting(statement.body) or statement.body[0]
            if not only_sets(self.script, statement):
                return statement
        return None

    # -- functions that must not make one ----------------------------------------------------------------------

    def _called_in_steps(self) -> set[Frame]:
        """The functions that a loop over data calls, directly or not."""
        loops = [one.loop for one in self.roles.data if one.loop is not None]
        loops += [n for one in self.roles.backwards for n in self.script.loops_around(one.call)[:1]]
        found = self._functions_called_in([statement for loop in loops for statement in loop.body])
        frames = (one.frame for one in self.roles.backwards if not self._loops_over_steps(one.call))
        steps = {f for f in frames if is_function_frame(f)}
        return found | {f for f in steps if any(map(self.script.loops_around, self.script.callers(f)))}

    def _loops_over_steps(self, backward: ast.Call) -> bool:
        """Whether a loop of its own function repeats a backward and the step behind it."""
        loops = self.script.loops_around(backward)
        return any(is_method(node, *STEPS) for node in walk_all(loops))

    def _runs_before_choice(self) -> set[Frame]:
        """The functions that run before the script has chosen its device."""
        if self.choice is None:
            return set()
        home, last = self.choice.frame, place_of(self.choice.before)
        inside = {self.choice.before, *self.script.around(self.choice.before)}
        suites = (self.script.suite_of(one) for one in inside if isinstance(one, ast.stmt))
        before = [s for suite in suites for s in suite if place_of(s) < last and s not in inside]
        before += [s for module in self.script.modules if module is not home for s in module.body]
        running = [s for s in before if not isinstance(s, (*FUNCTIONS, ast.ClassDef)) and not is_main_test(s)]
        return self._functions_called_in(running, without=home)

    def _functions_called_in(self, statements: list[ast.stmt], without: Frame | None = None) -> set[Frame]:
        """without: a function that is left out, and with it what is done instead of calling it."""
        instead = done_instead(self.script, without) if without is not None else []
        found: set[Frame] = set()
        work: list[ast.AST] = list(statements)
        while work:
            for node in walk(work.pop()):
                if not isinstance(node, ast.Call) or any(s in instead for s in self.script.around(node)):
                    continue
                name = self.script.last(node.func)
                functions = (
                    []
                    if name == "__init__"
                    else [
                        one
                        for one in self.script.functions(name)
                        if (
                            node in self.script.callers(one)
                            if self.script.class_of(one) is not None
                            else calls_plain(self.script, node, one)
                        )
                    ]
                )
                for cls in self.script.classes(name):
                    functions += self.script.methods(cls, "__init__")
                for function in functions:
                    if function not in found and function is not without:
                        found.add(function)
                        work.append(function)
        return found
