"""Who calls a function, by its name, or by the names that objects of its class have."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .bindings import last_name
from .reach import Reach, Unit


class Callers:
    """The calls within a script's reached code."""

    def __init__(self, reach: Reach) -> None:
        self._units = list(reach.active)
        self._aliases = reach.aliases

    def of(self, unit: Unit) -> Iterator[tuple[Unit, ast.AST]]:
        """Where a unit is called, or handed to something that calls it."""
        if unit.parent is None:
            return
        names = {unit.owner.name if unit.owner and unit.name == "__init__" else unit.name}
        if unit.owner and unit.name in ("__call__", "forward"):
            names = self._instances(unit.owner.name)
        for caller in self._units:
            if caller is unit or not names & caller.mentioned:
                continue
            for node in caller.nodes:
                if isinstance(node, ast.Call) and (
                    last_name(node.func) in names
                    or any(last_name(argument) in names for argument in node.args)
                ):
                    yield caller, node

    def _instances(self, kind: str) -> set[str]:
        """The names that objects of a class are bound to, wherever; their calls are the class's `__call__`."""
        called = {kind, *(alias for alias, names in self._aliases.items() if kind in names)}
        made = (
            target
            for unit in self._units
            for node in unit.nodes
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and last_name(node.value.func) in called
            for target in node.targets
        )
        return {last_name(target) for target in made} - {""}


def called_as(unit: Unit) -> set[str]:
    names = {unit.name}
    if unit.owner is not None and unit.name in ("__init__", "__call__", "forward"):
        names.add(unit.owner.name)
    return names
