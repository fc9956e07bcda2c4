"""Whether a device is chosen by nothing but what the machine has: `"cuda" if torch.cuda.is_available() else "cpu"`."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.forms import Frame
from crosstrain_migrate.core.reading.reached import files_named
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import written
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.walks import walk, walk_all

from .numbered import numbers_among
from .sides import asks_availability, chosen_as_device, flag_of, side_of

_OF_TENSORS = {"shape", "size", "to", "cuda", "dtype", "parameters", "state_dict", "train", "eval", "weight"}


def is_the_machines(script: Script, frame: Frame, value: ast.expr, depth: int = 0) -> bool:
    """Whether a device is chosen by nothing but what the machine has."""
    if isinstance(value, ast.Call) and script.dotted(value.func) == "torch.device" and len(value.args) == 1:
        value = value.args[0]
    choice = chosen_as_device(script, value)
    if choice is not None:
        arms = (choice.body, choice.orelse)
        return not flag_of(script, frame, choice.test) and all(
            is_the_machines(script, frame, one, depth) for one in arms
        )
    if side_of(script, value) or follows(script, frame, value):
        return True
    if depth > 3:
        return False
    if isinstance(value, ast.Name):
        return is_bound_by_machine(script, frame, value.id, depth + 1)
    if isinstance(value, ast.Attribute):  # `config.device` of a file, where it becomes the accelerator's
        return any(_is_placed_in(script, one, value.attr) for one in files_named(script, value.value))
    functions = script.functions_of(value)
    return bool(functions) and all(_returns_the_machines(script, one, depth + 1) for one in functions)


def follows(script: Script, frame: Frame, value: ast.expr) -> bool:
    """Whether a device is that of a tensor or a module: `x.device`, `next(model.parameters()).device`."""
    if not isinstance(value, ast.Attribute) or value.attr != "device":
        return False
    of = written(value.value)
    uses = [script.parent(read) for read in script.reads(frame, of)]
    return not isinstance(value.value, ast.Name | ast.Attribute) or any(
        (isinstance(use, ast.Attribute) and use.attr in _OF_TENSORS)
        or (isinstance(use, ast.Call) and use.func in script.reads(frame, of))
        for use in uses
    )


def is_bound_by_machine(script: Script, frame: Frame, name: str, depth: int = 0) -> bool:
    """Whether every value of a variable is, and every condition around one asks, what the machine has."""
    values = script.values(frame, name)
    return len(values) == len(script.stores(frame, name)) > 0 and all(
        is_the_machines(script, frame, value, depth) and not _has_condition(script, frame, value)
        for value in values
    )


def _is_placed_in(script: Script, file: ast.Module, name: str) -> bool:
    """Whether a file binds a variable to devices that become the accelerator's there, with the number of a GPU."""
    values = script.values(file, name)
    is_numbered = any(True for _ in numbers_among(script, walk_all(values)))
    return is_bound_by_machine(script, file, name) or (
        is_numbered and all(side_of(script, v) for v in values)
    )


def _has_condition(script: Script, frame: Frame, node: ast.AST) -> bool:
    """Whether a flag chooses a device, or the author the CPU where there is something else: `elif mps.is_available(): "cpu"`."""
    below, is_cpu = node, isinstance(node, ast.expr) and side_of(script, node) == "cpu"
    for one in script.around(node):
        if isinstance(one, ast.If) and not is_main_test(one):
            is_there = below in one.body and asks_availability(one.test) and not _is_negated(one.test)
            if flag_of(script, frame, one.test) or (is_cpu and is_there):
                return True
        below = one
    return False


def _is_negated(test: ast.expr) -> bool:
    return any(isinstance(one, ast.Not) for one in walk(test))


def _returns_the_machines(script: Script, function: Frame, depth: int) -> bool:
    returned = [n for n in script.within(function) if isinstance(n, ast.Return)]
    tests = [n.test for n in script.within(function) if isinstance(n, ast.If)]
    return (
        bool(returned)
        and all(n.value is not None and is_the_machines(script, function, n.value, depth) for n in returned)
        and not any(flag_of(script, function, test) for test in tests)
    )
