"""Statements moved into a function of their own: what they read becomes parameters, what others read of them is returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst

from tests.corpora.variations.script import Edits, Script, Variable, leaves_early, own_walk, walk


def extracted(script: Script, suite: Sequence[cst.BaseStatement], name: str) -> cst.Module | None:
    """The script with consecutive statements of one suite in a function `name`; None where that is not the same."""
    around = script.function_of(suite[0])
    nested = around is not script.module and script.parents[around] is not script.module
    if nested or leaves_early(suite, loops=True) or any(_defines(one) for s in suite for one in own_walk(s)):
        return None
    found = _flows(script, suite, around)
    if found is None:
        return None
    given, returned = found
    call = f"{name}({', '.join(given)})"
    line: Any = script.one(f"{', '.join(returned)} = {call}" if returned else call)
    end = f"    return {', '.join(returned)}" if returned else "    pass"
    function: Any = script.one(f"def {name}({', '.join(given)}):\n{end}")
    last = function.body.body if returned else []
    function = function.with_changes(
        body=function.body.with_changes(body=[_bare(suite[0]), *suite[1:], *last]),
        leading_lines=[cst.EmptyLine(indent=False)] * 2,
    )
    edits: Edits = {one: lambda updated: cst.RemoveFromParent() for one in suite[1:]}
    edits[suite[0]] = lambda updated: line.with_changes(leading_lines=updated.leading_lines)
    place = _statement_of_module(script, suite[0])
    if place is suite[0]:
        edits[place] = lambda updated: cst.FlattenSentinel(
            [function, line.with_changes(leading_lines=updated.leading_lines)]
        )
    else:
        edits[place] = lambda updated: cst.FlattenSentinel([function, updated])
    return script.edited(edits)


def _bare(statement: Any) -> Any:
    return statement.with_changes(leading_lines=[])


def _defines(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.FunctionDef | cst.ClassDef | cst.Import | cst.ImportFrom)


def _statement_of_module(script: Script, node: cst.CSTNode) -> cst.CSTNode:
    above = [node, *script.around(node)]
    return above[-2]


def _flows(
    script: Script, suite: Sequence[cst.BaseStatement], around: cst.FunctionDef | cst.Module
) -> tuple[list[str], list[str]] | None:
    """The variables of the scope that flow into the statements, and those that flow out."""
    scope = script.scope(around)
    inside = {id(node) for statement in suite for node in walk(statement)}
    first, last = script.line(suite[0]), _last_line(script, suite)
    repeated = _loop_around(script, suite[0], around)
    given, returned = [], []
    for variable in sorted(script.variables(scope).values(), key=lambda one: one.name):
        mine = [one for one in variable.nodes if id(one) in inside]
        if not mine:
            continue
        stored = any(id(one) in inside for one in variable.stores)
        if not variable.plain and not _is_parameter(variable):
            if stored:
                return None
            if isinstance(around, cst.FunctionDef):
                given.append(variable.name)  # what the function imports or defines itself
            continue
        if stored and isinstance(around, cst.Module) and _read_elsewhere(script, variable):
            return None
        before = [s for s in variable.stores if id(s) not in inside and script.line(s) < first]
        bound = bool(before) or _is_parameter(variable)
        if bound:
            given.append(variable.name)
        reads = [one for one in variable.nodes if one in variable.loads or _augments(script, one)]
        after = [n for n in reads if id(n) not in inside and (script.line(n) > last or repeated is not None)]
        # In a loop, what is read again in the next round flows out and in.
        carried = repeated is not None and bound and any(id(n) in inside for n in reads)
        if stored and (after or carried):
            returned.append(variable.name)
    return given, returned


def _last_line(script: Script, suite: Sequence[cst.BaseStatement]) -> int:
    return max(
        script.line(node)
        for node in walk(suite[-1])
        if isinstance(node, cst.BaseExpression | cst.BaseSmallStatement)
    )


def _loop_around(script: Script, node: cst.CSTNode, around: cst.CSTNode) -> cst.CSTNode | None:
    for above in script.around(node):
        if above is around:
            return None
        if isinstance(above, cst.For | cst.While):
            return above
    return None


def _augments(script: Script, node: cst.CSTNode) -> bool:
    return isinstance(script.parents.get(node), cst.AugAssign)


def _is_parameter(variable: Variable) -> bool:
    return any(isinstance(getattr(one, "node", None), cst.Param) for one in variable.scope[variable.name])


def _read_elsewhere(script: Script, variable: Variable) -> bool:
    """Whether functions use a variable of the module."""
    return any(
        script.enclosing(one, cst.FunctionDef, cst.ClassDef, cst.Lambda) is not None for one in variable.nodes
    )
