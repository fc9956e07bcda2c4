"""Writes the training of a notebook as a function, its launch, and what the cells around it need."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from functools import cached_property

from crosstrain_migrate.files.notebooks.linked import without_time
from crosstrain_migrate.rules.notebooks.trainings import (
    KernelAccelerator,
    Training,
    is_loader,
    is_plain_prepare,
)
from crosstrain_migrate.syntax.bindings import bindings

from .cell_dependencies import Obstacle, Statements
from .kernel import Kernel
from .statement_forms import (
    HOLDER,
    base_of,
    end_of,
    first_of,
    is_own,
    is_prepare,
    names_in,
    names_in_order,
    prepared_by,
    short,
    string_lines,
    targets_of,
    tuple_of,
)

OWN = "# in the notebook's own process"


class NotebookWriter:
    """The notebook with its functions, their launches, and the kernel's own cells."""

    def __init__(
        self, after: str, runtime: str, now: Statements, kernel: Kernel, works: Sequence[Training]
    ) -> None:
        self.after, self.runtime, self.now, self.kernel, self.works = after, runtime, now, kernel, works
        self.lines = after.split("\n")
        self.taken = names_in(now.tree) | set(now.defined)
        self.names: dict[str, str] = {}
        self.roles = works[0].roles
        self.has_own = False  # whether the kernel has an Accelerator already

    def written(self) -> str:
        changed: dict[int, list[str]] = {}
        self._write_kernel(changed)
        starts = [work.body[0].lineno for work in self.works]
        first_training = starts[0]
        above = self._own([], first_training)
        for number, (work, until) in enumerate(zip(self.works, [*starts[1:], None], strict=True), 1):
            first, last = work.body[0].lineno, end_of(work.body[-1])
            new = [*changed.get(first, [])[:-1], *FunctionWriter(self, work).written()]
            done = self.works[:number]
            new += self._placed(done, until, last)
            if below := self._own(done, until, last):
                device = self.kernel.device_of(self._section(last, until))
                placed = [f"{device} = {HOLDER}.device"] if device.isidentifier() else []
                lines = [*below.construct, *placed, *below.prepare]
                new += ["", "# for the cells below, in the notebook's own process", *lines]
            changed |= _instead(first, last, new)
        if above:
            where = self._first_in_need(first_training)
            ready = max(where, self._first_use(above.prepared, first_training))
            for line, new in ((ready, above.prepare), (where, [OWN, *above.construct])):
                changed[line] = [*new, *changed.get(line, [self.lines[line - 1]])]
        text = "\n".join(out for n, line in enumerate(self.lines, 1) for out in changed.get(n, [line]))
        # A `prepare` that has moved into the function leaves the gap above it at the top of the cell.
        text = re.sub(r"(^'crosstrain [^\n]*\n)\n(?=def \w+\()", r"\1", text, flags=re.M)
        state = ", PartialState" if "PartialState(" in text else ""
        plain = f"\nfrom {self.runtime} import Accelerator"
        return re.sub(rf"{plain}(?:, PartialState)?\n", f"{plain}{state}, notebook_launcher\n", text, count=1)

    def _write_kernel(self, changed: dict[int, list[str]]) -> None:
        """Replaces the kernel's statements by the originals that come back."""
        for statement in self.kernel.statements:
            own = self.kernel.own(statement)
            if own != [statement]:
                changed |= _instead(statement.lineno, end_of(statement), self.kernel.source(*own))
        for name, original in self.kernel.definitions.items():
            node = self.now.defined[name]
            changed |= _instead(first_of(node), end_of(node), self.kernel.source(original))

    def _own(self, done: Sequence[Training], until: int | None, since: int = 0) -> KernelAccelerator | None:
        """The Accelerator of the kernel's one process, where cells from line `since` on need it."""
        section = self._section(since, until)
        loaders = self._altered_loaders(section, done)
        if loaders is None:
            return None
        self._check_raw(loaders, section[0].lineno)
        lines = []
        if not self.has_own and self.works[0].construct is not None:
            lines = (ast.get_source_segment(self.after, self.works[0].construct) or "").split("\n")
        self.has_own = True
        used, prepared = self.now.reach(section), self._prepared(section, done)
        return KernelAccelerator(
            lines, [n for n in prepared if n in loaders or (n in used and self._is_model(n))]
        )

    def _check_raw(self, loaders: Collection[str], since: int) -> None:
        """Raises Obstacle where a cell that stays as it was reads one of these loaders: prepared, it moves its batches."""
        altered = self.kernel.altered(self.kernel.statements)
        for statement in self.kernel.statements:
            if statement.lineno < since or statement in altered or not self.kernel.own(statement):
                continue
            if read := self.now.read_by([statement]).keys() & set(loaders):
                reason = f"`{min(read)}` is used by functions of the training, and by `{short(statement)}`, which is none"
                raise Obstacle(statement.lineno, reason, "Make a loader of its own for this cell")

    def _placed(self, done: Sequence[Training], until: int | None, since: int) -> list[str]:
        """The lines that move trained models to the device on which the cells below, up to the next training, use them."""
        section = self._section(since, until)
        device, used = self.kernel.device_of(section), self.now.reach(section)
        before, cell = self.kernel.before, self.now.cells(since)[0]
        made = {n for s in before.running if before.cell(s) <= cell for n in bindings([s])}
        if not device or (device.isidentifier() and device not in made):
            return []
        if self._altered_loaders(section, done) is not None:
            return []
        trained = [n for n in self._prepared([], done) if n in made and n in used and self._is_model(n)]
        return [f"{n}.to({device})" for n in trained]

    def _altered_loaders(self, section: list[ast.stmt], done: Sequence[Training]) -> list[str] | None:
        """The prepared loaders that altered statements use; None where those need no Accelerator of the kernel."""
        reach = self.now.reach(self.kernel.altered(section))
        prepared = self._prepared(section, done)
        loaders = [n for n in prepared if base_of(n) in reach and is_loader(n, self.roles)]
        return loaders if loaders or HOLDER in reach else None

    def _first_in_need(self, until: int) -> int:
        """The line of the first statement of the kernel that needs its Accelerator."""
        altered = self.kernel.altered(self._section(0, until))
        return next(s.lineno for s in altered if self._altered_loaders([s], self.works) is not None)

    def _first_use(self, names: Collection[str], until: int) -> int:
        """The line of the first statement of the kernel that uses one of these variables, once all are made."""
        section, held = self._section(0, until), set(map(base_of, names))
        made = max((end_of(s) for s in section if bindings([s]) & held and not is_prepare(s)), default=0)
        using = (s for s in section if s.lineno > made and self.now.reach([s]) & held)
        return next((s.lineno for s in using if not is_prepare(s)), 0)

    def _section(self, since: int, until: int | None) -> list[ast.stmt]:
        """The kernel's statements between two trainings."""
        return [s for s in self.kernel.statements if since < s.lineno < (until or len(self.lines) + 1)]

    def _is_model(self, name: str) -> bool:
        return "module" in self.roles.get(name, ())

    def _prepared(self, section: list[ast.stmt], done: Sequence[Training]) -> list[str]:
        """The names that trainings so far, or these statements, prepare."""
        ready = [n for work in done for n in work.ready]
        inside = [*(s for work in done for s in work.body), *section]
        return list(dict.fromkeys([*ready, *(n for s in inside if is_prepare(s) for n in prepared_by(s))]))

    # -- shared by the functions -----------------------------------------------------------------------------

    def source(self, statement: ast.stmt) -> list[str]:
        """The lines of a statement."""
        return self.lines[statement.lineno - 1 : end_of(statement)]

    def quoted(self, name: str) -> str:
        """An item's key in the quotes that the author prefers."""
        return name.replace("'", '"') if self.after.count('"') > self.after.count("'") else name

    def fresh(self, name: str) -> str:
        """A variable that the notebook does not have: the name, or the name with a number."""
        found, number = name, 1
        while found in self.taken:
            number += 1
            found = f"{name}_{number}"
        self.taken.add(found)
        return found

    def state(self, name: str) -> str:
        """The variable for a state that the function returns: always the same one for a name."""
        if name not in self.names:
            self.names[name] = self.fresh(name)
        return self.names[name]

    @cached_property
    def unit(self) -> str:
        """The author's indentation."""
        for statement in ast.walk(self.now.tree):
            inner = getattr(statement, "body", None)
            if isinstance(statement, ast.stmt) and isinstance(inner, list) and statement.col_offset == 0:
                line: str = self.lines[inner[0].lineno - 1]
                if unit := line[: len(line) - len(line.lstrip())]:
                    return unit
        return "    "


def _instead(first: int, last: int, new: list[str]) -> dict[int, list[str]]:
    """New lines in place of the lines from first to last."""
    return {first: new} | {line: [] for line in range(first + 1, last + 1)}


class FunctionWriter:
    """One training as a function, and its launch."""

    def __init__(self, notebook: NotebookWriter, work: Training) -> None:
        self.notebook, self.work, self.now, self.unit = notebook, work, notebook.now, notebook.unit
        self.reach = self.now.reach(work.body)
        self.prepares, self.verbatim = self._preparation()
        self.opening = self._opening()

    def written(self) -> list[str]:
        return [*self._gap(self.work.body[0].lineno), *self._function(), "", "", *self._launch()]

    def _gap(self, line: int) -> list[str]:
        """A blank line, unless the code above ends with a blank line, a comment or a mark."""
        above = self.notebook.lines[line - 2].strip()
        return [] if not above or above.startswith(("#", "'crosstrain")) else [""]

    # -- the function ----------------------------------------------------------------------------------------

    def _function(self) -> list[str]:
        work, unit = self.work, self.unit
        self.name = self.notebook.fresh("training")
        shared, self.arguments = self._names()
        lines = [f"def {self.name}({', '.join(self.arguments)}):"]
        if shared:
            lines.append(f"{unit}global {', '.join(shared)}")
        start = work.body[0] if self.opening is None else work.body[1]
        body = self.notebook.lines[start.lineno - 1 : end_of(work.body[-1])]
        inside = [*self._setup(), *map(without_time, body)]
        frozen = string_lines(inside)
        lines += [
            f"{unit}{line}" if line.strip() and n not in frozen else line for n, line in enumerate(inside)
        ]
        if returned := [*(what for _, what in self._states()), *work.results]:
            lines.append(f"{unit}return {', '.join(returned)}")
        return lines

    def _setup(self) -> list[str]:
        """The Accelerator, its device, and everything prepared."""
        construct = [] if self.work.construct is None else [self.work.construct]
        copied = [*construct, *self._needed_devices(), *self.verbatim]
        lines = [line for statement in copied for line in self.notebook.source(statement)]
        names = list(dict.fromkeys([*self.prepares, *(prepared_by(self.opening) if self.opening else ())]))
        names = [self.notebook.quoted(name) for name in names]
        if not names:
            return lines
        listed = ", ".join(names)
        return [*lines, f"{listed} = {HOLDER}.prepare({listed})"]

    def _preparation(self) -> tuple[list[str], list[ast.Assign]]:
        """What cells above prepare for this training: names for a joint prepare, and statements that stay as they are.

        Less the loaders that it does not iterate, and all of what belongs to another training.
        """
        ready = self.work.ready
        own = {s for n, s in ready.items() if base_of(n) in self.reach}
        # What belongs together is prepared together, even if it is not reached by name: a model through its optimizer.
        objects = {n for n in ready if not is_loader(n, self.work.roles)}
        together = {s for n, s in ready.items() if n in objects and n in self.reach}
        plain = [(n, s) for n, s in ready.items() if s in own and is_plain_prepare(s)]
        names = [n for n, s in plain if base_of(n) in self.reach or (n in objects and s in together)]
        names = [n for n in names if not self._is_prepared_in_place(n)]
        here = {ast.dump(s) for s in self.work.body if is_prepare(s)}
        others = [s for s in dict.fromkeys(ready.values()) if s in own and not is_plain_prepare(s)]
        return names, [s for s in others if ast.dump(s) not in here]

    def _is_prepared_in_place(self, name: str) -> bool:
        """Whether the body has a variable in nothing but `for batch in accelerator.prepare(loader):`."""
        nodes = [n for s in self.work.body for n in ast.walk(s)]
        calls = [n for n in nodes if isinstance(n, ast.Call) and is_own(n.func, "prepare")]
        given = {id(a) for call in calls if len(call.args) == 1 for a in call.args}
        uses = [n for n in nodes if isinstance(n, ast.Name) and n.id == name]
        return bool(uses) and all(id(use) in given for use in uses)

    def _opening(self) -> ast.Assign | None:
        """The prepare that the body begins with, if one statement can do both it and ours."""
        first, *more = self.work.body
        joins = more and is_prepare(first) and is_plain_prepare(first) and self.prepares
        return first if joins and isinstance(first, ast.Assign) else None

    def _prepared(self) -> list[str]:
        inside = [s for s in (*self.verbatim, *self.work.body) if is_prepare(s)]
        return list(dict.fromkeys([*self.prepares, *(n for s in inside for n in targets_of(s))]))

    def _names(self) -> tuple[list[str], list[str]]:
        """(global names, parameters): names that functions of the notebook read stay global, the others are passed in."""
        work = self.work
        prepared, devices = self._prepared(), self._needed_devices()
        read = {n for d in self.now.uses(work.body) for n in self.now.reads.get(d.name, ())}
        read |= self.now.written_by(work.body)
        own = bindings([*work.body, *devices]) | {*prepared, HOLDER}
        # What belongs together travels together: an optimizer holds its model's parameters.
        if read & set(prepared):
            read |= set(prepared)
        order = [HOLDER, *prepared, *names_in_order([*devices, *work.body])]
        order = [n for n in dict.fromkeys(order) if n in own]
        outer = bindings(work.earlier) - {HOLDER} - {n for d in work.devices for n in targets_of(d)}
        first = self.now.read_by([*self.verbatim, *devices, *work.body]).keys() | set(self.prepares)
        shared = [n for n in order if n in read]
        return shared, [n for n in order if n in first & outer and n not in shared]

    def _needed_devices(self) -> list[ast.Assign]:
        return [d for d in self.work.devices if set(targets_of(d)) & self.reach]

    # -- the launch ------------------------------------------------------------------------------------------

    def _states(self) -> list[tuple[str, str]]:
        """(variable, returned expression) of each state that the function returns."""
        own, state = "{}.state_dict()", self.notebook.state
        of_model = own if self.work.construct is None else f"{HOLDER}.get_state_dict({{}})"
        found = []
        for name in self.work.models:
            found.append((state(f"{name}_state"), of_model.format(name)))
            if self._evaluates():
                found.append((state(f"{name}_training"), f"{name}.training"))
        return found + [(state(f"{name}_state"), own.format(name)) for name in self.work.states]

    def _evaluates(self) -> bool:
        """Whether a model may end the training in evaluation mode."""
        places: list[ast.AST] = [*self.work.earlier, *self.work.body, *self.now.uses(self.work.body)]
        return any(isinstance(n, ast.Attribute) and n.attr == "eval" for p in places for n in ast.walk(p))

    def _launch(self) -> list[str]:
        work = self.work
        targets = ", ".join([*(name for name, _ in self._states()), *work.results])
        start = f"{targets} = " if targets else ""
        lines = [f"{start}notebook_launcher({self.name}{tuple_of(self.arguments)})"]
        for name in (*work.models, *work.states):
            lines.append(f"{name}.load_state_dict({self.notebook.state(f'{name}_state')})")
            if name in work.models and self._evaluates():
                lines.append(f"{name}.train({self.notebook.state(f'{name}_training')})")
        return lines
