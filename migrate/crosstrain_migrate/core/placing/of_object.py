"""A device that is an attribute of an object: `self.device = config.device`, which only the object's own code can tell."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.forms import Frame, is_function_frame
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import written
from crosstrain_migrate.syntax.walks import walk

from .asked import may_be_device, moves
from .by_machine import is_the_machines
from .elsewhere import behind
from .first import needs_accelerator
from .known import Choice
from .options import of_class, origin
from .sides import has_condition, is_read_as_text, side_of


def choice_of_object(script: Script, roles: Roles, frames: list[Frame]) -> Choice | None:
    """The choice of an attribute that something is moved to and that more than the machine has a say in: without code, but
    where the one object that trains is told its settings."""
    for frame, given in moves(script, frames):
        home, text = origin(script, frame, written(given))
        told = written(given).startswith("self.") and not text.startswith("self.")
        values = of_class(script, home, text) if text.startswith("self.") else []
        values = of_class(script, frame, written(given)) if told else values
        text = written(given) if told else text
        for owner, value in values if may_be_device(script, text, [one for _, one in values]) else ():
            if not is_the_machines(script, owner, value):
                own = _of_one_object(script, roles, owner, text, value) if len(values) == 1 else None
                if own is not None or not told:
                    return own or Choice("", frames[0], script.statement(value))
    return None


def _of_one_object(script: Script, roles: Roles, owner: Frame, text: str, value: ast.expr) -> Choice | None:
    """Below `self.device = config.device` in a method of the class that trains, which runs once, and before all that needs
    the accelerator."""
    chosen = value
    while isinstance(chosen, ast.IfExp | ast.Call) and (given := _of_device(script, chosen)) is not None:
        chosen = given
    trains = script.class_of(owner) in map(script.class_of, roles.frames)
    names_gpu = any(side_of(script, one) == "gpu" for one in script.table.each(ast.Constant))  # placed there
    if not trains or not isinstance(chosen, ast.Attribute | ast.Subscript) or names_gpu:
        return None
    calls: list[ast.expr] = [value]
    while len(calls) == 1 and script.is_entry(calls[0]) and not _runs_otherwise(script, calls[0]):
        place = script.statement(calls[0])
        frame, suite = script.frame(place), script.suite_of(place)
        if any(needs_accelerator(script, s) for s in suite[: suite.index(place)]):
            return None
        if not is_function_frame(frame):
            return _chosen_below(script, owner, text) if _only_trains(script, suite, place) else None
        calls = [*script.callers(frame)]
    return None


def _of_device(script: Script, node: ast.IfExp | ast.Call) -> ast.expr | None:
    """`config.device` of `torch.device(config.device)`, and of `config.device if torch.cuda.is_available() else "cpu"`"""
    if isinstance(node, ast.IfExp):
        return node.body
    return node.args[0] if script.dotted(node.func) == "torch.device" and len(node.args) == 1 else None


def _runs_otherwise(script: Script, node: ast.expr) -> bool:
    return bool(script.loops_around(node)) or has_condition(script, node)


def _only_trains(script: Script, suite: list[ast.stmt], made: ast.stmt) -> bool:
    """Whether the file's own statements, which run before the choice is known, do no more behind an object than to call it."""
    calls = [n for s in suite[suite.index(made) + 1 :] for n in walk(s) if isinstance(n, ast.Call)]
    return all(script.functions_of(one) for one in calls)


def _chosen_below(script: Script, owner: Frame, text: str) -> Choice | None:
    below, as_text = behind(script, owner, script.stores(owner, text)[0]), is_read_as_text(script, text)
    code = f'str({text}) == "cpu"'
    return Choice(code, owner, below, device=text, option=text, as_text=as_text) if below else None
