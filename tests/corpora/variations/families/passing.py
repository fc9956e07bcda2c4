"""How functions get what they work with: parameters, globals, keywords."""

from __future__ import annotations

from random import Random
from typing import Any

import libcst as cst

from tests.corpora.variations.registry import variation
from tests.corpora.variations.script import Edits, Script


def _calls_of(script: Script, function: cst.FunctionDef) -> list[cst.Call] | None:
    """Every call of a function of the module; None if it is used in another way, or defined twice."""
    variable = script.globals()[function.name.value]
    calls = []
    for node in variable.loads:
        above = script.parents[node]
        if not isinstance(above, cst.Call) or above.func is not node or any(one.star for one in above.args):
            return None
        calls.append(above)
    once = len(variable.scope[variable.name]) == 1
    return calls if once and calls and not function.decorators else None


def _plain_parameters(function: cst.FunctionDef) -> bool:
    p = function.params
    return (
        not p.star_kwarg
        and not p.kwonly_params
        and not p.posonly_params
        and not isinstance(p.star_arg, cst.Param)
    )


@variation
def parameters_as_globals(script: Script, rng: Random) -> cst.Module | None:
    """functions read the objects that they were given from the module"""
    if script.dynamic or "spawn(" in script.text:
        return None
    functions = {one.name.value: one for one in script.functions()}
    taken = set(script.globals())
    for function in functions.values():
        calls = _calls_of(script, function)
        if calls is None or not _plain_parameters(function):
            continue
        names = [p.name.value for p in function.params.params]
        for at, parameter in enumerate(function.params.params):
            name = parameter.name.value
            given = [_given(call, at, name) for call in calls]
            callers = [script.function_of(call) for call in calls]
            if not all(
                isinstance(g, cst.Arg) and isinstance(g.value, cst.Name) and g.value.value == name
                for g in given
            ):
                continue
            if not all(_owns(script, caller, name) for caller in callers) or len(names) < 2:
                continue
            variable = script.variables(script.scope(function))[name]
            if variable.stores or (name in taken and any(c is not script.module for c in callers)):
                continue
            return _without_parameter(script, function, at, calls, name)
    return None


def _given(call: cst.Call, at: int, name: str) -> cst.Arg | None:
    """What a call gives for a parameter."""
    for number, one in enumerate(call.args):
        if (one.keyword is None and number == at) or (one.keyword is not None and one.keyword.value == name):
            return one
    return None


def _owns(script: Script, caller: Any, name: str) -> bool:
    """Whether a function, or the module, binds the name by assignments alone."""
    variable = script.variables(script.scope(caller)).get(name)
    if caller is not script.module and script.parents[caller] is not script.module:
        return False
    nested = variable is not None and any(
        script.enclosing(n, cst.FunctionDef, cst.Lambda) not in (caller, None) for n in variable.nodes
    )
    return (
        variable is not None
        and variable.plain
        and bool(variable.stores)
        and (caller is script.module or not nested)
    )


def _without_parameter(
    script: Script, function: cst.FunctionDef, at: int, calls: list[cst.Call], name: str
) -> cst.Module:
    edits: Edits = {
        function.params: lambda updated: updated.with_changes(
            params=_joined([p for i, p in enumerate(updated.params) if i != at])
        )
    }
    for call in calls:
        given = call.args.index(_given(call, at, name))  # type: ignore[arg-type]
        edits[call] = lambda updated, given=given: updated.with_changes(
            args=_joined([a for i, a in enumerate(updated.args) if i != given])
        )
    for caller in {script.function_of(call) for call in calls}:
        if isinstance(caller, cst.FunctionDef):
            line = script.one(f"global {name}")
            edits[caller.body] = lambda updated, line=line: updated.with_changes(body=[line, *updated.body])
    return script.edited(edits)


def _joined(items: list[Any]) -> list[Any]:
    return [*items[:-1], items[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)] if items else []
