"""CT801: a notebook's training goes through notebook_launcher

What:   The statements of each cell that trains go into a function, where the Accelerator is made and everything prepared;
        models, optimizers and loaders of other cells are passed in, what later cells read is returned. Other cells
        stay as they are.
Why:    The kernel is one process. Only a function can run in several, and each of them needs its own Accelerator.
Before: `for epoch in range(3): train(model, loader, optimizer)`
After:  `notebook_launcher(training, (model, loader, optimizer))`
Leaves: (note) training in the kernel's one process, where a cell reads what cannot come back from another process, or
        gives the training what belongs to the kernel's own: an open file, a tensor on its device.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from crosstrain_migrate.files.notebooks.linked import is_time, masked
from crosstrain_migrate.results import RoleFact
from crosstrain_migrate.syntax.bindings import bindings
from crosstrain_migrate.syntax.nodes import line_of

from .cell_dependencies import Obstacle, Statements, assignments
from .kernel import Kernel
from .local_modules import Module
from .mutations import changes, is_container, is_filled, uses_methods
from .statement_forms import (
    HOLDER,
    base_of,
    calls_one_of,
    chooses_device,
    is_construct,
    is_device,
    is_evaluation,
    is_maker,
    is_own,
    is_prepare,
    makes_plain_loss,
    names_in,
    prepared_by,
    short,
    targets_of,
)
from .trainings import Training, is_loader
from .writing import NotebookWriter

CODE = "CT801"
REASON = "the training runs in a function that notebook_launcher starts on every device"
_STATEFUL = {"module", "optimizer", "scheduler"}  # whose state comes back
_STAYING = _STATEFUL | {"data loader", "training loader", "evaluation loader"}
_ONE_CELL = "Put it into the cell that trains"
_OWN_PROCESS = ("SummaryWriter", "open", "Run", "init")  # made here, they cannot be used from another process
_BY_NAME = {"exec", "eval", "globals", "locals", "vars"}


@dataclass(frozen=True)
class Launch:
    """The notebook with its training in functions; `lines` are where each training was."""

    text: str
    lines: tuple[int, ...]


def launched(
    before: str, after: str, roles: Sequence[RoleFact], runtime: str, modules: Sequence[Module] = ()
) -> Launch | None:
    """`after`, a migration of `before`, with its training in a function; None where no cell trains.

    `modules`: the local modules that it imports, as they were migrated with it. Raises Obstacle where the training cannot
    be moved, or the result is not proven to be the same.
    """
    return _LaunchPlanner(before, after, roles, runtime, modules).made()


class _LaunchPlanner:
    """Decides which statements move into functions, and what the functions are given and return."""

    def __init__(
        self, before: str, after: str, roles: Sequence[RoleFact], runtime: str, modules: Sequence[Module]
    ) -> None:
        self.before, self.after, self.runtime = before, after, runtime
        self.now = Statements(after, modules)
        tree = ast.parse(before)
        self.roles = _roles_by_name(tree, roles)
        stateful = (fact for fact in roles if fact.role in _STATEFUL)
        self.given = {name: {fact.role} for fact in stateful for name in _given_for(tree, fact)}
        for name in (n for s in self.now.running if is_evaluation(s) for n in targets_of(s)):
            self.roles.setdefault(name, set()).add("evaluation loader")
        constructors = [s for s in self.now.running if is_construct(s)]
        self.construct = constructors[0] if len(constructors) == 1 else None
        # The notebook's functions and classes, and those that it imports from local modules.
        self.definitions = {name: [node] for name, node in self.now.defined.items()} | self.now.outside
        self.makers = {
            name
            for name, nodes in self.definitions.items()
            if any(is_maker(n) for node in nodes for n in ast.walk(node))
        }

    def made(self) -> Launch | None:
        if self.construct is None and not self.makers:
            lines = (line_of(n) for n in ast.walk(self.now.tree) if is_maker(n))
            reason = "the Accelerator would be made inside a block, and its training is not in a function of its own"
            raise Obstacle(next(lines, 1), reason, "Put the training into a function")
        training = [s for s in self.now.training if self._needs(s)]
        if not training:
            return None
        self._check_commands()
        cells = dict.fromkeys(self.now.cell(s) for s in training)
        works = [self._training([s for s in training if self.now.cell(s) == cell]) for cell in cells]
        kernel = Kernel(Statements(self.before), self.now, {s for work in works for s in work.body})
        self._check_steps(kernel)
        for work in works:
            self._check_earlier(work, kernel)
            self._check_body(work)
            self._settle_results(work)
        text = NotebookWriter(self.after, self.runtime, self.now, kernel, works).written()
        return Launch(text, tuple(work.body[0].lineno for work in works))

    # -- the training ----------------------------------------------------------------------------------------

    def _needs(self, statement: ast.stmt) -> bool:
        """Whether a statement uses the accelerator, itself or through functions."""
        reach = self.now.reach([statement])
        return HOLDER in reach if self.construct is not None else bool(reach & self.makers)

    def _only_prints(self, statement: ast.stmt) -> bool:
        """Whether a statement uses the accelerator for nothing but printing."""
        direct = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == HOLDER]
        printing = [n for n in ast.walk(statement) if is_own(n, "print")]
        inner = any(HOLDER in self.now.reads.get(d.name, ()) for d in self.now.uses([statement]))
        return len(direct) == len(printing) > 0 and not inner

    def _training(self, training: list[ast.stmt]) -> Training:
        suite = self.now.of_cell(self.now.cell(training[0]))
        first = suite.index(training[0])
        last = max(i for i, s in enumerate(suite) if i >= first and (s in training or self._belongs(s)))
        needed = self.now.read_by(suite[first : last + 1]).keys()
        inside = [i for i, s in enumerate(suite[:first]) if self._places(s, needed)]
        inside += [i for i, s in enumerate(suite[:first]) if self._reads_prepared(s, suite[i + 1 : first])]
        first = min([first, *inside])
        body = suite[first : last + 1]
        earlier = [s for s in self.now.running if s.lineno < body[0].lineno]
        work = Training(body, earlier, self.construct, self.roles)
        work.ready = self._ready(earlier)
        work.devices = [s for s in earlier if is_device(s)]
        return work

    def _belongs(self, statement: ast.stmt) -> bool:
        """Whether a statement below the start of a training is a part of it: a step, or what needs the accelerator."""
        if not self._runs(statement):
            return False
        return self._steps(statement) or (self._needs(statement) and not self._only_prints(statement))

    def _reads_prepared(self, statement: ast.stmt, below: list[ast.stmt]) -> bool:
        """Whether statements between a prepare and its training read a loader, whose length is another after it."""
        if not is_prepare(statement):
            return False
        loaders = {n for n in targets_of(statement) if is_loader(n, self.roles)}
        return any(loaders & set(self.now.read_by([s])) for s in below if self._runs(s))

    def _ready(self, earlier: list[ast.stmt]) -> dict[str, ast.Assign]:
        """The names that statements above have prepared, and nothing has assigned since: each with its prepare."""
        ready: dict[str, ast.Assign | None] = {}
        for statement in earlier:
            if is_prepare(statement):
                # In the order that it names them, also what was prepared before.
                names = prepared_by(statement)
                ready = {name: one for name, one in ready.items() if name not in names}
                ready |= dict.fromkeys(names, statement)
            else:
                anew = bindings([statement])
                ready |= dict.fromkeys(name for name in ready if base_of(name) in anew)
        found = [(name, statement) for name, statement in ready.items() if statement is not None]
        found.sort(key=lambda one: (is_loader(one[0], self.roles), one[1].lineno))
        return dict(found)

    def _places(self, statement: ast.stmt, needed: Collection[str]) -> bool:
        """`x = x.to(device)` of what the training reads: each process has a device of its own."""
        if not self._runs(statement) or chooses_device(statement) or makes_plain_loss(statement):
            return False
        devices = {n for s in self.now.running if is_device(s) for n in targets_of(s)}
        return bool(names_in(statement) & devices and bindings([statement]) & set(needed))

    def _runs(self, statement: ast.stmt) -> bool:
        return statement in self.now.running

    # -- obstacles -------------------------------------------------------------------------------------------

    def _check_commands(self) -> None:
        """`%time train(...)`: the call in it was not migrated with the function."""
        touched = {n for n, reads in self.now.reads.items() if HOLDER in reads} | self.makers
        functions = ((n, node) for n, node in self.now.defined.items() if isinstance(node, ast.FunctionDef))
        touched |= {name for name, node in functions if any(a.arg == HOLDER for a in node.args.args)}
        for line, own in masked(self.after):
            if own.startswith("%") and touched & set(re.split(r"[(.=\s]+", own)):
                reason = f"`{own}` runs training code in IPython, where it would train on one process"
                raise Obstacle(line, reason, "Write it as Python")

    def _steps(self, statement: ast.stmt) -> bool:
        """`optimizer.step()`, in a statement of its own."""
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="step"))):
                return bool(self.roles.get(name))
        return False

    def _check_steps(self, kernel: Kernel) -> None:
        for statement in kernel.statements:
            if self._steps(statement):
                reason = f"`{short(statement)}` is in another cell than the training whose gradients it uses"
                raise Obstacle(statement.lineno, reason, _ONE_CELL)

    def _check_earlier(self, work: Training, kernel: Kernel) -> None:
        needed = self.now.read_by(work.body).keys()
        above = [s for s in kernel.statements if s.lineno < work.body[0].lineno]
        prepared: set[str] = set()
        for position, statement in enumerate(above):
            if is_construct(statement) or chooses_device(statement) or is_prepare(statement):
                self._check_own_lines(statement)
                prepared |= bindings([statement]) if is_prepare(statement) else set()
                continue
            if any(is_own(n, "prepare") for n in ast.walk(statement)):
                reason = f"`{short(statement)}` is prepared where it is made, before the function that trains with it"
                raise Obstacle(statement.lineno, reason, _ONE_CELL)
            anew = {n for s in above[position + 1 :] for n in bindings([s]) - self.now.read_by([s]).keys()}
            made = bindings([statement]) & (needed - anew)
            if self._places(statement, made - work.ready.keys()):
                reason = f"`{short(statement)}` uses the notebook's own device, and each process of the training has another"
                raise Obstacle(statement.lineno, reason, _ONE_CELL)
            used = {n for n in self.now.read_by([statement]) if n in prepared and is_loader(n, self.roles)}
            if used and made:
                reason = f"`{short(statement)}` uses `{min(used)}` between its preparation and the training"
                raise Obstacle(statement.lineno, reason, _ONE_CELL)
        for name, value in assignments(work.earlier):
            if calls_one_of(value, _OWN_PROCESS) and name in self.now.reach(work.body):
                reason = f"`{name}` is opened in the notebook's own process, and the training would write to it from others"
                raise Obstacle(value.lineno, reason, _ONE_CELL)

    def _check_body(self, work: Training) -> None:
        self._check_own_lines(work.body[0])
        self._check_own_lines(work.body[-1])
        for node in (n for statement in work.body for n in ast.walk(statement)):
            match node:
                case ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                    reason = "the training awaits something, which a plain function cannot"
                    raise Obstacle(node.lineno, reason, "Take it out")
                case ast.Call(func=ast.Name(id=name)) if name in _BY_NAME:
                    reason = f"the training uses `{name}`, to which variables of a function are others"
                    raise Obstacle(node.lineno, reason, "Take it out")
                case ast.ImportFrom(names=[ast.alias(name="*")]):
                    reason = "a star import cannot stand in a function"
                    raise Obstacle(node.lineno, reason, "Move it to a cell above")

    def _check_own_lines(self, statement: ast.stmt) -> None:
        if any(not is_time(other) for other in self.now.sharing_lines(statement)):
            raise Obstacle(statement.lineno, "two statements share this line", "Give each a line of its own")

    # -- results ---------------------------------------------------------------------------------------------

    def _settle_results(self, work: Training) -> None:
        """What later cells read of the training comes back: the state of objects they made, and other values."""
        in_body = bindings(work.body)
        outer = bindings(work.earlier)
        set_inside = in_body | self.now.written_by(work.body)
        reach = self.now.reach(work.body) | set(work.ready)
        for name, reader in sorted(self.now.used_after(work.body[-1]).items()):
            roles = self.roles.get(name, set())
            is_code = name in self.now.defined or name in self.now.imported
            if name == HOLDER or (is_code and name not in in_body):
                continue
            # Set by the training, and not by its own prepare alone.
            anew = any(name in bindings([s]) for s in work.body if not is_prepare(s))
            if is_loader(name, self.roles) and name in outer and not anew:
                continue  # later cells iterate the author's own
            held = roles or self.given.get(name, set())
            if held and held <= _STATEFUL and name in outer and not anew:
                if name in reach:
                    (work.models if held == {"module"} else work.states).append(name)
            elif name in set_inside or (name in reach and self._changed(name, work)):
                if roles & _STAYING or self._cannot_travel(name, work):
                    reason = f"cell {self.now.cell(reader)} reads `{name}`, which the training leaves behind in its own processes"
                    raise Obstacle(work.body[0].lineno, reason, f"Use `{name}` in the cell that trains")
                work.results.append(name)
        work.models += [n for n in self._held_by_read(work) if n in outer and n not in work.models]
        if (work.results or work.models or work.states) and self.runtime != "crosstrain":
            name = (work.results + work.models + work.states)[0]
            reason = f"later cells read `{name}`, and Accelerate's notebook_launcher returns nothing"
            raise Obstacle(work.body[0].lineno, reason, "Save it in the cell that trains and load it below")

    def _held_by_read(self, work: Training) -> list[str]:
        """The trained models that later cells read through another object alone: `model = pruner.prepare()`, and below
        `pruner.report()`."""
        known = {HOLDER, *self.now.imported, *self.now.defined}
        read = {n for n in self.now.used_after(work.body[-1]) if not self.roles.get(n)} - known
        made = [(name, value) for name, value in assignments(work.earlier) if isinstance(value, ast.Call)]
        here = [n for s in work.body if is_prepare(s) for n in prepared_by(s)]
        trained = {*here, *work.ready} & {*here, *self.now.reach(work.body)}
        models = sorted(n for n in trained if self.roles.get(n) == {"module"})
        return [
            model
            for model in models
            if any(n == model and names_in(v.func) & read for n, v in made)
            or any(n in read and model in names_in(v) for n, v in made)
        ]

    def _cannot_travel(self, name: str, work: Training) -> bool:
        """Iterators, files and functions without a name are of the process that made them."""
        values = [v for found, v in assignments([*work.earlier, *work.body]) if found == name]
        return any(
            isinstance(v, ast.Lambda | ast.GeneratorExp) or calls_one_of(v, (*_OWN_PROCESS, "iter"))
            for v in values
        )

    def _changed(self, name: str, work: Training) -> bool:
        """Whether the training may change what a variable of an earlier cell holds."""
        if roles := self.roles.get(name):
            return bool(roles & _STATEFUL)
        places = (*work.body, *self.now.uses(work.body))
        if any(changes(name, place) for place in places):
            return True
        values = [value for found, value in assignments(work.earlier) if found == name]
        own = name in self.now.made or any(calls_one_of(v, self.now.defined) for v in values)
        if own and any(uses_methods(name, place) for place in places):
            return True
        if not own and not any(map(is_container, values)):
            return False
        # Whether a function of the notebook gets it, and may fill it.
        classes = {n for n, node in self.now.defined.items() if isinstance(node, ast.ClassDef)}
        functions = {n: nodes for n, nodes in self.definitions.items() if n not in classes}
        return any(is_filled(name, place, functions) for place in places)


def _roles_by_name(tree: ast.Module, roles: Sequence[RoleFact]) -> dict[str, set[str]]:
    """What each variable is: by its name, and by the line where its value was made."""
    found: dict[str, set[str]] = {}
    for fact in roles:
        found.setdefault(fact.name, set()).add(fact.role)
        for name, value in assignments(tree.body):
            if value.lineno <= fact.line <= (value.end_lineno or 0) and not isinstance(value, ast.Tuple):
                found.setdefault(name, set()).add(fact.role)
    return found


def _given_for(tree: ast.Module, fact: RoleFact) -> Iterator[str]:
    """The variables that calls in the cells give for a parameter of which a role is known: `net` of `train(net, loader)`."""
    for function in (one for one in tree.body if isinstance(one, ast.FunctionDef)):
        names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        if fact.name in names and function.lineno <= fact.line <= (function.end_lineno or 0):
            for call in (n for s in tree.body if s is not function for n in ast.walk(s)):
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == function.name:
                    given = dict(zip(names, call.args, strict=False))
                    given |= {k.arg: k.value for k in call.keywords if k.arg is not None}
                    if isinstance(value := given.get(fact.name), ast.Name):
                        yield value.id
