"""CT801: a notebook's training becomes a function that notebook_launcher starts.

What:   The statements that train go into a function of their cell: there the Accelerator is made and everything prepared;
        models, optimizers and loaders of other cells are passed in, what later cells read is returned.
Why:    The kernel is one process. Only a function can run in several, and each of them needs its own Accelerator.
Before: `for epoch in range(3): train(model, loader, optimizer)`
After:  `notebook_launcher(training, (model, loader, optimizer))`
Refuses: training that is spread over cells, that other cells need the accelerator for, or that leaves behind in its
        processes what later cells read.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from crosstrain_migrate.results import RoleFact

from .linked import masked
from .needs import Obstacle, Statements, assignments, stored
from .plainness import Plain, changes, is_container

CODE = "CT801"
REASON = "the training runs in a function that notebook_launcher starts on every device"
HOLDER = "accelerator"
_WIDTH = 88
_ONE_CELL = "Put it into the cell that trains"
_OWN_PROCESS = ("SummaryWriter", "open", "Run", "init")  # made here, they cannot be used from another process
_BY_NAME = {"exec", "eval", "globals", "locals", "vars"}


@dataclass(frozen=True)
class Launch:
    """The notebook with its training in a function; `line` is where the training was."""

    text: str
    line: int


def launched(before: str, after: str, roles: Sequence[RoleFact], runtime: str) -> Launch | None:
    """`after`, a migration of `before`, with its training in a function; None where no cell trains.

    Raises Obstacle where that cannot be done, or not proven to be the same.
    """
    return _Move(before, after, roles, runtime).made()


@dataclass
class _Training:
    """The statements that become the function's body, and what is known of them."""

    body: list[ast.stmt]
    earlier: list[ast.stmt]  # what runs before it, definitions left out
    moved: list[ast.stmt] = field(default_factory=list)  # the constructor and prepare, from where they were
    devices: list[ast.Assign] = field(default_factory=list)  # `device = accelerator.device`, outside
    prints: list[ast.stmt] = field(default_factory=list)  # outside, and the accelerator's
    prepared: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)  # plain values that later cells read
    models: list[str] = field(default_factory=list)  # trained, and used by later cells


class _Move:
    def __init__(self, before: str, after: str, roles: Sequence[RoleFact], runtime: str) -> None:
        self.before, self.after, self.runtime = before, after, runtime
        self.now = Statements(after)
        self.plain = Plain(self.now)
        self.roles: dict[str, set[str]] = {}
        for fact in roles:
            self.roles.setdefault(fact.name, set()).add(fact.role)
        constructors = [s for s in self.now.running if _is_construct(s)]
        self.construct = constructors[0] if len(constructors) == 1 else None
        self.makers = {
            name for name, node in self.now.defined.items() if any(_is_maker(n) for n in ast.walk(node))
        }

    def made(self) -> Launch | None:
        training = [s for s in self.now.running if self._needs(s) and self.now.trains(s)]
        if not training:
            return None
        self._check_commands()
        self._check_one_cell(training)
        work = self._training(training)
        self._check_earlier(work)
        self._check_body(work)
        self._settle_results(work)
        return Launch(_Text(self, work).written(), training[0].lineno)

    # -- what it is ------------------------------------------------------------------------------------------

    def _needs(self, statement: ast.stmt) -> bool:
        reach = self.now.reach([statement])
        return HOLDER in reach if self.construct is not None else bool(reach & self.makers)

    def _only_prints(self, statement: ast.stmt) -> bool:
        direct = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == HOLDER]
        printing = [n for n in ast.walk(statement) if _is_print(n)]
        inner = any(HOLDER in self.now.reads.get(d.name, ()) for d in self.now.uses([statement]))
        return len(direct) == len(printing) > 0 and not inner

    def _training(self, training: list[ast.stmt]) -> _Training:
        suite = self.now.of_cell(self.now.cell(training[0]))
        first = suite.index(training[0])
        last = max(
            i for i, s in enumerate(suite)
            if i >= first and (s in training or (self._runs(s) and self._needs(s) and not self._only_prints(s)))
        )  # fmt: skip
        prepares = [i for i, s in enumerate(suite) if _is_prepare(s) and i < first]
        first = min([first, *prepares])
        while first and self._is_start_value(suite[first - 1], suite[first : last + 1]):
            first -= 1
        body = suite[first : last + 1]
        earlier = [s for s in self.now.running if s.lineno < body[0].lineno]
        work = _Training(body, earlier)
        work.moved = [s for s in earlier if s is self.construct] + [s for s in earlier if _is_prepare(s)]
        for statement in (*work.moved, *body):
            if _is_prepare(statement):
                work.prepared += [n for n in _targets(statement) if n not in work.prepared]
        return work

    def _runs(self, statement: ast.stmt) -> bool:
        return statement in self.now.running

    @staticmethod
    def _is_start_value(statement: ast.stmt, body: list[ast.stmt]) -> bool:
        """`losses = []`, `best = 0.0` above the loop that changes them."""
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            return False
        name, value = statement.targets[0].id, statement.value
        simple = isinstance(value, ast.Constant) or (
            is_container(value) and not any(ast.iter_child_nodes(value))
        )
        empty = isinstance(value, ast.List | ast.Dict) and not ast.unparse(value).strip("[]{}")
        changed = name in stored(body) or any(changes(name, s) for s in body)
        return (simple or empty) and changed

    # -- what stands in its way ------------------------------------------------------------------------------

    def _check_commands(self) -> None:
        """`%time train(...)`: the call in it was not migrated with the function."""
        touched = {n for n, reads in self.now.reads.items() if HOLDER in reads} | self.makers
        touched |= {name for name, node in self.now.defined.items() if _has_parameter(node, HOLDER)}
        for line, own in masked(self.after):
            words = set(own.replace("(", " ").replace(".", " ").replace("=", " ").split())
            if own.startswith("%") and words & touched:
                raise Obstacle(
                    line, f"`{own}` runs training code that cannot be followed there", "Write it as Python"
                )

    def _check_one_cell(self, training: list[ast.stmt]) -> None:
        cells = list(dict.fromkeys(self.now.cell(s) for s in training))
        if len(cells) > 1:
            other = next(s for s in training if self.now.cell(s) == cells[1])
            listed = f"{', '.join(map(str, cells[:-1]))} and {cells[-1]}"
            reason = f"the training is spread over the cells {listed}, and what runs in several processes is one function"
            raise Obstacle(other.lineno, reason, "Put it into one cell")

    def _check_earlier(self, work: _Training) -> None:
        prepared_above = False
        for statement in work.earlier:
            if statement in work.moved:
                prepared_above = prepared_above or _is_prepare(statement)
                self._check_own_lines(statement)
                continue
            if _is_device(statement):
                assert isinstance(statement, ast.Assign)
                work.devices.append(statement)
                self._check_own_lines(statement)
            elif self._needs(statement) and self._only_prints(statement):
                work.prints.append(statement)
            elif self._needs(statement):
                reason = f"`{_short(statement)}` needs the accelerator before the function that makes it runs"
                raise Obstacle(statement.lineno, reason, _ONE_CELL)
            used = self.now.reach([statement]) & set(work.prepared)
            if prepared_above and used and not _is_plain_print(statement):
                reason = f"`{_short(statement)}` uses `{min(used)}` between its preparation and the training"
                raise Obstacle(statement.lineno, reason, _ONE_CELL)
        for name, value in assignments(work.earlier):
            if _calls(value, _OWN_PROCESS) and name in self.now.reach(work.body):
                reason = f"`{name}` is opened in the notebook's own process, and the training would write to it from others"
                raise Obstacle(value.lineno, reason, _ONE_CELL)

    def _check_body(self, work: _Training) -> None:
        self._check_own_lines(work.body[0])
        self._check_own_lines(work.body[-1])
        for statement in work.body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
                    raise Obstacle(
                        node.lineno,
                        "the training awaits something, which a plain function cannot",
                        "Take it out",
                    )
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id in _BY_NAME
                ):
                    reason = (
                        f"the training uses `{node.func.id}`, to which variables of a function are others"
                    )
                    raise Obstacle(node.lineno, reason, "Take it out")
                if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                    raise Obstacle(
                        node.lineno, "a star import cannot stand in a function", "Move it to a cell above"
                    )

    def _check_own_lines(self, statement: ast.stmt) -> None:
        for other in self.now.tree.body:
            if (
                other is not statement
                and other.lineno <= (statement.end_lineno or 0)
                and statement.lineno <= (other.end_lineno or 0)
            ):
                raise Obstacle(
                    statement.lineno, "two statements share this line", "Give each a line of its own"
                )

    # -- what it leaves behind -------------------------------------------------------------------------------

    def _settle_results(self, work: _Training) -> None:
        """What later cells read of the training comes back as the function's result; other things must not matter."""
        in_body = stored(work.body)
        scope = [*work.earlier, *work.body, *(s for d in self.now.uses(work.body) for s in d.body)]
        set_inside = in_body | self.now.written_by(work.body)
        for name, reader in self.now.used_after(work.body[-1]).items():
            roles = self.roles.get(name, set())
            if name == HOLDER or (self._is_code(name) and name not in in_body):
                continue
            if name in work.prepared and "module" in roles:
                work.models.append(name)
            elif name in work.prepared and not roles & {"optimizer", "scheduler"}:
                continue  # a loader, which the cells below prepare for themselves
            elif name in set_inside or self._changed(name, work):
                if not self.plain.name(name, scope) or roles & {"optimizer", "scheduler"}:
                    cell = self.now.cell(reader)
                    reason = (
                        f"cell {cell} reads `{name}`, which the training leaves behind in its own processes"
                    )
                    raise Obstacle(work.body[0].lineno, reason, f"Use `{name}` in the cell that trains")
                work.results.append(name)
        if (work.results or work.models) and self.runtime != "crosstrain":
            name = (work.results + work.models)[0]
            reason = f"later cells read `{name}`, and Accelerate's notebook_launcher returns nothing"
            raise Obstacle(work.body[0].lineno, reason, "Save it in the cell that trains and load it below")

    def _is_code(self, name: str) -> bool:
        return name in self.now.defined or name in self.now.imported

    def _changed(self, name: str, work: _Training) -> bool:
        places: list[ast.AST] = [*work.body, *self.now.uses(work.body)]
        values = [value for found, value in assignments(work.earlier) if found == name]
        handed = () if not any(is_container(v) for v in values) and values else self.now.defined
        if any(_is_harmless(v) for v in values):
            handed = ()
        return any(changes(name, place, handed) for place in places)


class _Text:
    """Writes the function, the launch and what the cells below need."""

    def __init__(self, move: _Move, work: _Training) -> None:
        self.move, self.work, self.now = move, work, move.now
        self.lines = move.after.split("\n")
        self.reach = self.now.reach(work.body)
        self.idle: set[str] = set()  # prepared loaders that the training does not iterate
        self.taken = {n.id for n in ast.walk(self.now.tree) if isinstance(n, ast.Name)} | set(
            self.now.defined
        )

    def written(self) -> str:
        work = self.work
        first, last = work.body[0].lineno, _end(work.body[-1])
        single = self._single_call()
        new = single if single is not None else [*self._function(), "", "", *self._launch()]
        new += self._below()
        changed: dict[int, list[str]] = {first: new} | {line: [] for line in range(first + 1, last + 1)}
        for statement in work.moved:
            changed |= {line: [] for line in range(statement.lineno, _end(statement) + 1)}
        for device in work.devices:
            changed |= {line: [] for line in range(device.lineno, _end(device) + 1)}
            changed[device.lineno] = self._own_device(device)
        for line, text in self._plain_prints():
            changed.setdefault(line, [text])
        text = "\n".join(out for n, line in enumerate(self.lines, 1) for out in changed.get(n, [line]))
        package = self.move.runtime
        plain = f"from {package} import Accelerator"
        return text.replace(f"\n{plain}\n", f"\n{plain}, notebook_launcher\n", 1)

    # -- the function ----------------------------------------------------------------------------------------

    def _function(self) -> list[str]:
        work = self.work
        self.name = self._fresh("training")
        unit = self._unit()
        preparation = [line for s in work.moved if _is_prepare(s) for line in self._preparation(s)]
        shared, self.arguments = self._names()
        head = _wrapped(f"def {self.name}(", self.arguments, "):", unit)
        lines = [*head]
        if shared:
            lines.append(f"{unit}global {', '.join(shared)}")
        moved = [line for s in work.moved if _is_construct(s) for line in self._of(s)]
        moved += [line for s in self._needed_devices() for line in self._of(s)]
        inside = [*moved, *preparation, *self.lines[work.body[0].lineno - 1 : _end(work.body[-1])]]
        frozen = _string_lines(inside)
        lines += [
            f"{unit}{line}" if line.strip() and n not in frozen else line for n, line in enumerate(inside)
        ]
        returned = [f"{HOLDER}.get_state_dict({name})" for name in work.models] + work.results
        if returned:
            lines.append(f"{unit}return {', '.join(returned)}")
        return lines

    def _preparation(self, statement: ast.stmt) -> list[str]:
        """The prepare from another cell, less the loaders that only later cells iterate."""
        assert isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)
        given = [n.id for n in statement.value.args if isinstance(n, ast.Name)]
        names = _targets(statement)
        if given != names or statement.value.keywords or len(given) != len(statement.value.args):
            return self._of(statement)
        idle = {n for n in names if n not in self.reach and self._is_loader(n)}
        self.idle |= idle
        kept = [n for n in names if n not in idle]
        if not idle:
            return self._of(statement)
        start, names_kept = f"{', '.join(kept)} = {HOLDER}.prepare(", ", ".join(kept)
        unit = self._unit()
        short = len(unit) + len(start) + len(names_kept) < _WIDTH
        return [f"{start}{names_kept})"] if short else [start, f"{unit}{names_kept}", ")"]

    def _indented(self, names: Sequence[str]) -> list[str]:
        return [f"{self._unit()}{name}," for name in names]

    def _is_loader(self, name: str) -> bool:
        return any("loader" in role for role in self.move.roles.get(name, ()))

    def _names(self) -> tuple[list[str], list[str]]:
        """(global names, parameters): what functions of the notebook read stays global, the rest is handed in."""
        work = self.work
        used = self.now.uses(work.body)
        read = {n for d in used for n in self.now.reads.get(d.name, ())} | self.now.written_by(work.body)
        own = stored([*work.moved, *work.body]) - self.idle | {
            n for d in self._needed_devices() for n in _targets(d)
        }
        prepared = [n for n in work.prepared if n not in self.idle]
        order = [HOLDER, *prepared, *_in_order([*work.moved, *self._needed_devices(), *work.body])]
        order = [n for n in dict.fromkeys(order) if n in own]
        outer = stored(work.earlier) - {HOLDER}
        devices = {n for d in work.devices for n in _targets(d)}
        shared = [n for n in order if n in read]
        return shared, [n for n in order if n in outer - devices and n not in shared]

    def _needed_devices(self) -> list[ast.Assign]:
        return [d for d in self.work.devices if set(_targets(d)) & self.reach]

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
        if not isinstance(self.now.defined.get(value.func.id), ast.FunctionDef):
            return None
        if any(isinstance(a, ast.Starred) for a in value.args) or value.lineno != value.end_lineno:
            return None
        arguments = [ast.get_source_segment(self.move.after, a) or "" for a in value.args]
        call = f"notebook_launcher({value.func.id}{_tuple(arguments)})"
        lines = self.lines[statement.lineno - 1 : _end(statement)]
        index = value.lineno - statement.lineno
        lines[index] = _put(lines[index], value, call)
        return lines

    # -- the launch ------------------------------------------------------------------------------------------

    def _launch(self) -> list[str]:
        work = self.work
        states = [self._fresh(f"{name}_state") for name in work.models]
        targets = ", ".join([*states, *work.results])
        start = f"{targets} = " if targets else ""
        lines = [f"{start}notebook_launcher({self.name}{_tuple(self.arguments)})"]
        if len(lines[0]) > _WIDTH:
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
        pairs = zip(work.models, states, strict=True)
        return lines + [f"{model}.load_state_dict({state})" for model, state in pairs]

    def _below(self) -> list[str]:
        """The notebook's own Accelerator, one process, for the cells below that use it."""
        work = self.work
        if self.move.construct is None:
            return []
        later = [s for s in self.now.running if s.lineno > work.body[-1].lineno]
        reach = self.now.reach([s for s in later if not self.move._only_prints(s)])
        again = [n for n in work.prepared if n in reach]
        loaders = [n for n in again if self._is_loader(n)]
        devices = [d for d in work.devices if set(_targets(d)) & reach]
        if not (HOLDER in reach or loaders or devices):
            work.prints += [s for s in later if self.move._only_prints(s)]
            return []
        again = [n for n in again if n in loaders or "module" in self.move.roles.get(n, ())]
        lines = [self._of(self.move.construct)[0].split("#")[0].rstrip()]
        lines += [line for d in devices for line in self._of(d)]
        if loaders or devices:
            names = ", ".join(again)
            lines += [f"{names} = {HOLDER}.prepare({names})"] if again else []
        return ["", "# for the cells below, in the notebook's own process", *lines]

    # -- the cells around ------------------------------------------------------------------------------------

    def _own_device(self, device: ast.Assign) -> list[str]:
        """The author's choice of a device: cells that do not train still use it."""
        (name,) = _targets(device)
        found = [
            s for s in ast.parse(self.move.before).body
            if isinstance(s, ast.Assign) and _targets(s) == [name]
        ]  # fmt: skip
        if len(found) != 1:
            reason = f"cells besides the training's use `{name}`, which is chosen in several steps"
            raise Obstacle(device.lineno, reason, f"Choose `{name}` in one statement")
        lines = self.move.before.split("\n")
        return lines[found[0].lineno - 1 : _end(found[0])]

    def _plain_prints(self) -> list[tuple[int, str]]:
        """The lines in which `accelerator.print` is `print` again."""
        found: dict[int, str] = {}
        nodes = [n for s in self.work.prints for n in ast.walk(s) if _is_print(n)]
        for node in sorted(nodes, key=lambda n: (n.lineno, n.col_offset), reverse=True):
            line = found.get(node.lineno, self.lines[node.lineno - 1])
            found[node.lineno] = _put(line, node, "print")
        return list(found.items())

    def _of(self, statement: ast.stmt) -> list[str]:
        return self.lines[statement.lineno - 1 : _end(statement)]

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


# -- small questions -----------------------------------------------------------------------------------------


def _is_maker(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Accelerator"


def _is_construct(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Assign) and _targets(statement) == [HOLDER] and _is_maker(statement.value)
    )


def _is_prepare(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Assign) else None
    called = value.func if isinstance(value, ast.Call) else None
    return _is_own(called, "prepare")


def _is_device(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Assign)
        and len(_targets(statement)) == 1
        and _is_own(statement.value, "device")
    )


def _is_print(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return _is_own(node, "print")


def _is_own(node: ast.AST | None, attribute: str) -> TypeGuard[ast.Attribute]:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == attribute
        and isinstance(node.value, ast.Name)
        and node.value.id == HOLDER
    )


def _is_plain_print(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    called = value.func if isinstance(value, ast.Call) else None
    return (
        _is_print(called) if called is not None else isinstance(value, ast.Name)
    )  # a name alone is displayed


def _is_harmless(value: ast.expr) -> bool:
    """Made by a constructor whose objects no training changes: data, transforms, losses."""
    called = value.func if isinstance(value, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name.endswith(("Loss", "Loader", "Dataset", "Compose", "Subset")) or isinstance(
        value, ast.Constant
    )


def _calls(value: ast.expr, names: Sequence[str]) -> bool:
    called = value.func if isinstance(value, ast.Call) else None
    return getattr(called, "attr", getattr(called, "id", "")) in names


def _has_parameter(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and any(a.arg == name for a in node.args.args)


def _targets(statement: ast.stmt) -> list[str]:
    assert isinstance(statement, ast.Assign)
    target = statement.targets[0]
    elements = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return [n.id for n in elements if isinstance(n, ast.Name)]


def _in_order(statements: Sequence[ast.stmt]) -> list[str]:
    nodes = [n for s in statements for n in ast.walk(s) if isinstance(n, ast.Name)]
    return [n.id for n in sorted(nodes, key=lambda n: (n.lineno, n.col_offset))]


def _end(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def _short(statement: ast.stmt) -> str:
    text = ast.unparse(statement).split("\n")[0]
    return text if len(text) <= 60 else f"{text[:57]}..."


def _tuple(names: Sequence[str]) -> str:
    return f", ({', '.join(names)}{',' if len(names) == 1 else ''})" if names else ""


def _wrapped(start: str, names: Sequence[str], end: str, unit: str) -> list[str]:
    line = f"{start}{', '.join(names)}{end}"
    if len(line) <= _WIDTH:
        return [line]
    return [start, *(f"{unit}{name}," for name in names), end.lstrip(",")]


def _put(line: str, node: ast.expr, text: str) -> str:
    """The line with what stands at the node replaced; columns of the tree count bytes."""
    data = line.encode()
    before, behind = data[: node.col_offset], data[node.end_col_offset :]
    return before.decode() + text + behind.decode()


def _string_lines(lines: list[str]) -> set[int]:
    """Indexes of lines that begin inside a string, whose blanks are the string's."""
    nodes = ast.walk(ast.parse("\n".join(lines)))
    strings = [n for n in nodes if isinstance(n, ast.Constant | ast.JoinedStr)]
    return {index for n in strings for index in range(n.lineno, n.end_lineno or n.lineno)}
