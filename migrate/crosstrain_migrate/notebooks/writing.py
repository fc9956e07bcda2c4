"""Writes the training of a notebook as a function, its launch, and what the cells around it need."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from .forms import (
    HOLDER,
    WIDTH,
    end_of,
    is_construct,
    is_prepare,
    is_print,
    names_in_order,
    put_at,
    string_lines,
    targets_of,
    tuple_of,
    wrapped,
)
from .needs import Obstacle, Statements, stored


@dataclass
class Training:
    """The statements that become the function's body, and what is known of them."""

    body: list[ast.stmt]
    earlier: list[ast.stmt]  # what runs before it, definitions left out
    later: list[ast.stmt]  # and after it
    construct: ast.stmt | None  # where it stands, if that is no function
    roles: dict[str, set[str]]  # of the notebook's variables
    moved: list[ast.stmt] = field(default_factory=list)  # the constructor and prepare, from where they were
    devices: list[ast.Assign] = field(default_factory=list)  # `device = accelerator.device`, outside
    prints: list[ast.stmt] = field(default_factory=list)  # before it, and the accelerator's
    later_prints: list[ast.stmt] = field(default_factory=list)
    prepared: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)  # plain values that later cells read
    models: list[str] = field(default_factory=list)  # trained, and used by later cells


class Text:
    """Writes the function, the launch and what the cells below need."""

    def __init__(self, before: str, after: str, runtime: str, now: Statements, work: Training) -> None:
        self.before, self.after, self.runtime = before, after, runtime
        self.now, self.work = now, work
        self.lines = after.split("\n")
        self.reach = self.now.reach(work.body)
        self.idle: set[str] = set()  # prepared loaders that the training does not iterate
        self.taken = {n.id for n in ast.walk(self.now.tree) if isinstance(n, ast.Name)} | set(
            self.now.defined
        )

    def written(self) -> str:
        work = self.work
        first, last = work.body[0].lineno, end_of(work.body[-1])
        single = self._single_call()
        new = (
            single if single is not None else [*self._gap(first), *self._function(), "", "", *self._launch()]
        )
        new += self._below()
        changed: dict[int, list[str]] = {first: new} | {line: [] for line in range(first + 1, last + 1)}
        for statement in work.moved:
            changed |= {line: [] for line in range(statement.lineno, end_of(statement) + 1)}
        for device in work.devices:
            changed |= {line: [] for line in range(device.lineno, end_of(device) + 1)}
            changed[device.lineno] = self._own_device(device)
        for line, text in self._plain_prints():
            changed.setdefault(line, [text])
        text = "\n".join(out for n, line in enumerate(self.lines, 1) for out in changed.get(n, [line]))
        package = self.runtime
        plain = f"from {package} import Accelerator"
        return text.replace(f"\n{plain}\n", f"\n{plain}, notebook_launcher\n", 1)

    def _gap(self, line: int) -> list[str]:
        """A blank line where the function would stick to the code above it."""
        above = self.lines[line - 2].strip()
        return [] if not above or above.startswith(("#", "'crosstrain")) else [""]

    # -- the function ----------------------------------------------------------------------------------------

    def _function(self) -> list[str]:
        work = self.work
        self.name = self._fresh("training")
        unit = self._unit()
        preparation = [line for s in work.moved if is_prepare(s) for line in self._preparation(s)]
        shared, self.arguments = self._names()
        head = wrapped(f"def {self.name}(", self.arguments, "):", unit)
        lines = [*head]
        if shared:
            lines.append(f"{unit}global {', '.join(shared)}")
        moved = [line for s in work.moved if is_construct(s) for line in self._of(s)]
        moved += [line for s in self._needed_devices() for line in self._of(s)]
        inside = [*moved, *preparation, *self.lines[work.body[0].lineno - 1 : end_of(work.body[-1])]]
        frozen = string_lines(inside)
        lines += [
            f"{unit}{line}" if line.strip() and n not in frozen else line for n, line in enumerate(inside)
        ]
        state = "{}.state_dict()" if work.construct is None else f"{HOLDER}.get_state_dict({{}})"
        returned = [
            what for name in work.models for what in self._left(state.format(name), f"{name}.training")
        ]
        if returned + work.results:
            lines.append(f"{unit}return {', '.join(returned + work.results)}")
        return lines

    def _left(self, state: str, mode: str) -> list[str]:
        """What a trained model leaves: its weights and, where the training evaluates, which mode it ended in."""
        places: list[ast.AST] = [*self.work.body, *self.now.uses(self.work.body)]
        evaluates = any(
            isinstance(n, ast.Attribute) and n.attr == "eval" for p in places for n in ast.walk(p)
        )
        return [state, mode] if evaluates else [state]

    def _preparation(self, statement: ast.stmt) -> list[str]:
        """The prepare from another cell, less the loaders that only later cells iterate."""
        assert isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)
        given = [n.id for n in statement.value.args if isinstance(n, ast.Name)]
        names = targets_of(statement)
        if given != names or statement.value.keywords or len(given) != len(statement.value.args):
            return self._of(statement)
        idle = {n for n in names if n not in self.reach and self._is_loader(n)}
        self.idle |= idle
        kept = [n for n in names if n not in idle]
        if not idle:
            return self._of(statement)
        start, names_kept = f"{', '.join(kept)} = {HOLDER}.prepare(", ", ".join(kept)
        unit = self._unit()
        short = len(unit) + len(start) + len(names_kept) < WIDTH
        return [f"{start}{names_kept})"] if short else [start, f"{unit}{names_kept}", ")"]

    def _indented(self, names: Sequence[str]) -> list[str]:
        return [f"{self._unit()}{name}," for name in names]

    def _is_loader(self, name: str) -> bool:
        return any("loader" in role for role in self.work.roles.get(name, ()))

    def _names(self) -> tuple[list[str], list[str]]:
        """(global names, parameters): what functions of the notebook read stays global, the rest is handed in."""
        work = self.work
        used = self.now.uses(work.body)
        read = {n for d in used for n in self.now.reads.get(d.name, ())} | self.now.written_by(work.body)
        own = stored([*work.moved, *work.body]) - self.idle | {
            n for d in self._needed_devices() for n in targets_of(d)
        }
        prepared = [n for n in work.prepared if n not in self.idle]
        # What belongs together travels together: an optimizer holds its model's parameters.
        if read & set(prepared):
            read |= set(prepared)
        order = [HOLDER, *prepared, *names_in_order([*work.moved, *self._needed_devices(), *work.body])]
        order = [n for n in dict.fromkeys(order) if n in own]
        outer = stored(work.earlier) - {HOLDER}
        devices = {n for d in work.devices for n in targets_of(d)}
        shared = [n for n in order if n in read]
        first = self.now.read_by([*work.moved, *work.body]).keys()
        return shared, [n for n in order if n in first & outer - devices and n not in shared]

    def _needed_devices(self) -> list[ast.Assign]:
        return [d for d in self.work.devices if set(targets_of(d)) & self.reach]

    def _single_call(self) -> list[str] | None:
        """`main()` is launched as it is, where the function makes its own Accelerator."""
        work = self.work
        if len(work.body) != 1 or work.moved or work.devices or work.models:
            return None
        statement = work.body[0]
        inner = statement.body[0] if isinstance(statement, ast.If) and len(statement.body) == 1 else statement
        if isinstance(statement, ast.If) and statement.orelse:
            return None
        value = inner.value if isinstance(inner, ast.Expr | ast.Assign) else None
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name) or value.keywords:
            return None
        function = self.now.defined.get(value.func.id)
        if not isinstance(function, ast.FunctionDef):
            return None
        if any(isinstance(a, ast.Starred) for a in value.args) or value.lineno != value.end_lineno:
            return None
        if isinstance(inner, ast.Assign) and targets_of(inner) != work.results:
            return None
        if isinstance(inner, ast.Expr) and (work.results or _returns(function)):
            return None
        arguments = [ast.get_source_segment(self.after, a) or "" for a in value.args]
        call = f"notebook_launcher({value.func.id}{tuple_of(arguments)})"
        lines = self.lines[statement.lineno - 1 : end_of(statement)]
        index = value.lineno - statement.lineno
        lines[index] = put_at(lines[index], value, call)
        return lines

    # -- the launch ------------------------------------------------------------------------------------------

    def _launch(self) -> list[str]:
        work = self.work
        left = [
            self._left(self._fresh(f"{name}_state"), self._fresh(f"{name}_training")) for name in work.models
        ]
        targets = ", ".join([*(name for names in left for name in names), *work.results])
        start = f"{targets} = " if targets else ""
        lines = [f"{start}notebook_launcher({self.name}{tuple_of(self.arguments)})"]
        if len(lines[0]) > WIDTH:
            unit = self._unit()
            inner = [f"{unit}{line}" for line in self._indented(self.arguments)]
            lines = [
                f"{start}notebook_launcher(",
                f"{unit}{self.name},",
                f"{unit}(",
                *inner,
                f"{unit}),",
                ")",
            ]
        for model, (state, *mode) in zip(work.models, left, strict=True):
            lines.append(f"{model}.load_state_dict({state})")
            lines += [f"{model}.train({name})" for name in mode]
        return lines

    def _below(self) -> list[str]:
        """The notebook's own Accelerator, one process, for the cells below that use it."""
        work = self.work
        if work.construct is None:
            return []
        reach = self.now.reach([s for s in work.later if s not in work.later_prints])
        again = [n for n in work.prepared if n in reach]
        loaders = [n for n in again if self._is_loader(n)]
        devices = [d for d in work.devices if set(targets_of(d)) & reach]
        if not (HOLDER in reach or loaders or devices):
            work.prints += work.later_prints
            return []
        again = [n for n in again if n in loaders or "module" in self.work.roles.get(n, ())]
        lines = (ast.get_source_segment(self.after, work.construct) or "").split("\n")
        lines += [line for d in devices for line in self._of(d)]
        if again:
            lines.append(f"{', '.join(again)} = {HOLDER}.prepare({', '.join(again)})")
        return ["", "# for the cells below, in the notebook's own process", *lines]

    # -- the cells around ------------------------------------------------------------------------------------

    def _own_device(self, device: ast.Assign) -> list[str]:
        """The author's choice of a device: cells that do not train still use it."""
        (name,) = targets_of(device)
        before = Statements(self.before)
        cell = self.now.cell(device)
        found = [s for s in before.of_cell(cell) if isinstance(s, ast.Assign) and targets_of(s) == [name]]
        if len(found) != 1:
            reason = f"cells besides the training's use `{name}`, which is chosen in several steps"
            raise Obstacle(device.lineno, reason, f"Choose `{name}` in one statement")
        lines = self.before.split("\n")
        return lines[found[0].lineno - 1 : end_of(found[0])]

    def _plain_prints(self) -> list[tuple[int, str]]:
        """The lines in which `accelerator.print` is `print` again."""
        found: dict[int, str] = {}
        nodes = [n for s in self.work.prints for n in ast.walk(s) if is_print(n)]
        for node in sorted(nodes, key=lambda n: (n.lineno, n.col_offset), reverse=True):
            line = found.get(node.lineno, self.lines[node.lineno - 1])
            found[node.lineno] = put_at(line, node, "print")
        return list(found.items())

    def _of(self, statement: ast.stmt) -> list[str]:
        return self.lines[statement.lineno - 1 : end_of(statement)]

    def _fresh(self, name: str) -> str:
        while name in self.taken:
            name = f"{name}_"
        self.taken.add(name)
        return name

    def _unit(self) -> str:
        """What the author indents by."""
        for statement in ast.walk(self.now.tree):
            inner = getattr(statement, "body", None)
            if isinstance(statement, ast.stmt) and isinstance(inner, list) and statement.col_offset == 0:
                line: str = self.lines[inner[0].lineno - 1]
                if unit := line[: len(line) - len(line.lstrip())]:
                    return unit
        return "    "


def _returns(function: ast.FunctionDef) -> bool:
    return any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(function))
