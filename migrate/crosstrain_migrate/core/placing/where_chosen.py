"""Where a script's choice of its device is known: above the statement that makes it, or the calls of its function."""

from __future__ import annotations

import ast
from dataclasses import replace

from crosstrain_migrate.core.reading.forms import Frame, Replaced, is_function_frame, names_in
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import place_of, written
from crosstrain_migrate.syntax.walks import walk

from .first import needs_accelerator
from .known import (
    Choice,
    Place,
    are_alike,
    imports_of,
    is_given_back,
    is_known_above,
    known_at,
    own_statement,
    set_by_calls,
)


def placed(script: Script, frame: Frame, code: str, at: ast.AST, *, at_head: bool) -> Choice:
    """Above the statement of the frame's own block in which the choice is made, or above an earlier one that draws what
    all processes share, downloads or makes folders, where what the choice asks is known there.

    at_head: at the head of the function, where what the choice asks is known there.
    """
    asked = ast.parse(code, mode="eval").body
    stores = _set_at(script, frame, asked)
    statement = own_statement(script, frame, at, stores)
    if statement is at and not script.loops_around(at):  # `if args.gpu >= 0: args.gpu = torch.device(...)`
        stores = [s for s in stores if not script.table.is_inside(s, at)]
    later = [s for s in stores if place_of(s) >= place_of(statement)]
    stores = [s for s in stores if s not in later and not is_given_back(script, s)]
    known = max([(0, 0), *map(place_of, stores), *imports_of(frame, names_in(asked))])
    if later and not is_known_above(script, statement, stores, later):
        code = ""
    elif at_head and not stores and is_function_frame(frame):
        statement = script.first_statement(frame)
    else:
        suite = script.suite_of(statement)
        needing = next((s for s in suite[: suite.index(statement)] if needs_accelerator(script, s)), None)
        if needing is not None and known < place_of(needing):
            statement = needing
        elif needing is not None and (sooner := known_at(script, frame, asked, needing)):
            return Choice(sooner, frame, needing)
        else:
            earlier = [s for s in suite[: suite.index(statement)] if place_of(s) > known]
            statement = next((s for s in earlier if needs_accelerator(script, s)), statement)
    return Choice(code, frame, statement)


def _set_at(script: Script, frame: Frame, asked: ast.expr) -> list[Place]:
    """Where a frame sets what an expression asks, itself or in functions that it calls."""
    texts = names_in(asked) | {written(n) for n in walk(asked) if isinstance(n, ast.Attribute)}
    return [s for text in texts for s in (*script.stores(frame, text), *set_by_calls(script, frame, text))]


def lifted(script: Script, choice: Choice) -> Choice | None:
    """The same choice in the function that calls that of the choice, in the words of its calls; None where it has none."""
    function = choice.frame
    calls = script.direct_callers(function) if is_function_frame(function) else []
    if (
        not calls
        or not are_alike(script, calls)
        or not is_function_frame(function)
        or not script.is_entry(calls[0])
        or choice.is_of_option
        or not choice.code
    ):
        return None
    call, caller = calls[0], script.frame(calls[0])
    asked = ast.parse(choice.code, mode="eval").body
    for name in names_in(asked):
        if name in script.parameters(function):
            given = script.argument_for(call, function, name)
            if not isinstance(given, ast.Name | ast.Attribute):
                return None
            asked = Replaced({name: given}).visit(asked)
        elif script.binds(function, name) or _set_at(script, function, ast.Name(name)):
            return None  # `global args`, too
    choice = placed(script, caller, ast.unparse(asked), _around_all(script, calls), at_head=False)
    return earliest(script, choice) if choice.code else None


def _around_all(script: Script, calls: list[ast.Call]) -> ast.AST:
    """The one call, or the statement around the first that stands beside those of the others, or holds them."""
    if len(calls) == 1:
        return calls[0]
    statements = (one for one in script.around(calls[0]) if isinstance(one, ast.stmt))
    return next(
        one
        for one in statements
        if all(any(script.table.is_inside(call, s) for s in script.suite_of(one)) for call in calls)
    )


def earliest(script: Script, choice: Choice) -> Choice:
    """A choice above the first statement of its suite at which what it asks is known, and never below its own."""
    asked = ast.parse(choice.code, mode="eval").body
    set_at = map(place_of, _set_at(script, choice.frame, asked))
    known = max([(0, 0), *set_at, *imports_of(choice.frame, names_in(asked))])
    behind = [s for s in script.suite_of(choice.before) if place_of(s) > known]
    return replace(choice, before=min(behind[0], choice.before, key=place_of)) if behind else choice
