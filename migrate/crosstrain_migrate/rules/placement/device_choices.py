"""`if torch.cuda.is_available(): device = ... else: device = ...`: one choice of a device, written as a statement."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.rules.side_effects import is_pure
from crosstrain_migrate.syntax.nodes import written

from .device import Placement
from .devices import is_cpu, named_by


@dataclass(frozen=True)
class Choice:
    """An `if` whose branches only bind `name` to a device, and the default above it, where there is no `else`."""

    statement: ast.If
    name: ast.Name
    default: ast.Assign | None
    bindings: tuple[ast.Assign, ...]

    @property
    def as_expression(self) -> ast.IfExp:
        """The same choice as `x if test else y`, as far as it tells the CPU from everything else."""
        first = named_by(self.bindings[0].value)
        return ast.IfExp(self.statement.test, first, ast.Constant("cpu"))


def find_choices(facts: Facts, placement: Placement, lines: list[str]) -> list[Choice]:
    tests = [n for n in facts.each(ast.If) if not facts.table.is_whole_else(n) and n not in placement.gone]
    choices = (_choice(facts, placement, node) for node in tests)
    return [choice for choice in choices if choice is not None and not _annotated(lines, choice)]


def _annotated(lines: list[str], choice: Choice) -> bool:
    """A comment in a branch that goes would have no place to go to."""
    first, last = choice.bindings[0].lineno, choice.statement.end_lineno or choice.statement.lineno
    return any("#" in line for line in lines[first:last])


def _choice(facts: Facts, placement: Placement, statement: ast.If) -> Choice | None:
    bindings: list[ast.Assign] = []
    current: list[ast.stmt] = [statement]
    while len(current) == 1 and isinstance(branch := current[0], ast.If):
        binding = branch.body[0]
        own = is_pure(branch.test) and (branch is statement or _asks_availability(branch.test))
        if len(branch.body) != 1 or not isinstance(binding, ast.Assign) or not own:
            return None
        bindings.append(binding)
        current = branch.orelse
    last = _default_above(facts, statement) if not current else current[0] if len(current) == 1 else None
    if not isinstance(last, ast.Assign):
        return None
    bindings += [last] if current else []
    name = bindings[0].targets[0]
    if not isinstance(name, ast.Name) or {written(b.targets[0]) for b in (*bindings, last)} != {name.id}:
        return None
    devices = [b.value for b in bindings]
    if not all(map(placement.devices.is_device, devices)) or all(map(is_cpu, devices)):
        return None
    return Choice(statement, name, None if current else last, tuple(bindings))


def _asks_availability(test: ast.expr) -> bool:
    return isinstance(test, ast.Call) and ast.unparse(test.func).endswith("is_available")


def _default_above(facts: Facts, statement: ast.If) -> ast.Assign | None:
    """`device = "cpu"` right above."""
    suite = suite_of(facts, statement)
    position = suite.index(statement)
    above = suite[position - 1] if position else None
    if isinstance(above, ast.Assign) and len(above.targets) == 1 and is_cpu(above.value):
        return above
    return None
