"""`if torch.cuda.is_available(): device = ... else: device = ...`: one choice of a device, written as a statement."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.rules.side_effects import is_pure

from .device import Placement
from .devices import is_cpu, named_by


@dataclass(frozen=True)
class Choice:
    """An `if` whose branches only bind `name` to a device, and the default above it, where there is no `else`."""

    statement: ast.If
    name: ast.Name
    default: ast.stmt | None
    bindings: tuple[ast.Assign, ...]

    @property
    def as_expression(self) -> ast.IfExp:
        """The same choice as `x if test else y`, as far as it tells the CPU from everything else."""
        first = named_by(self.bindings[0].value)
        return ast.IfExp(self.statement.test, first, ast.Constant("cpu"))


def find_choices(facts: Facts, placement: Placement, lines: list[str]) -> list[Choice]:
    found = []
    for node in facts.each(ast.If):
        if not facts.table.is_whole_else(node) and node not in placement.gone:
            choice = _choice(facts, placement, node)
            if choice is not None and not _annotated(lines, choice):
                found.append(choice)
    return found


def _annotated(lines: list[str], choice: Choice) -> bool:
    """A comment in a branch that goes would have no place to go to."""
    first, last = choice.bindings[0].lineno, choice.statement.end_lineno or choice.statement.lineno
    return any("#" in line for line in lines[first:last])


def _choice(facts: Facts, placement: Placement, statement: ast.If) -> Choice | None:
    bindings: list[ast.Assign] = []
    default: ast.stmt | None = None
    current: list[ast.stmt] = [statement]
    while len(current) == 1 and isinstance(current[0], ast.If):
        branch = current[0]
        own = branch is statement or _asks_availability(branch.test)
        if len(branch.body) != 1 or not is_pure(branch.test) or not own:
            return None
        bindings += [s for s in branch.body if isinstance(s, ast.Assign)]
        if len(bindings) == 0 or bindings[-1] is not branch.body[0]:
            return None
        current = branch.orelse
    if current:
        if len(current) != 1 or not isinstance(current[0], ast.Assign):
            return None
        bindings.append(current[0])
    else:
        default = _default_above(facts, statement)
        if default is None:
            return None
    targets = [b.targets[0] for b in (*bindings, *([default] if isinstance(default, ast.Assign) else []))]
    name = targets[0]
    same = all(isinstance(t, ast.Name) and isinstance(name, ast.Name) and t.id == name.id for t in targets)
    if (
        not same
        or not isinstance(name, ast.Name)
        or not all(placement.devices.is_device(b.value) for b in bindings)
    ):
        return None
    if all(is_cpu(b.value) for b in bindings):
        return None
    return Choice(statement, name, default, tuple(bindings))


def _asks_availability(test: ast.expr) -> bool:
    return isinstance(test, ast.Call) and ast.unparse(test.func).endswith("is_available")


def _default_above(facts: Facts, statement: ast.If) -> ast.stmt | None:
    """`device = "cpu"` right above."""
    suite = suite_of(facts, statement)
    position = suite.index(statement)
    above = suite[position - 1] if position else None
    cpu = isinstance(above, ast.Assign) and len(above.targets) == 1 and is_cpu(above.value)
    return above if cpu else None
