"""Where the code stands: in a class, in another module."""

from collections.abc import Sequence
from random import Random
from typing import Any

import libcst as cst

from tests.corpora.variations.registry import variation
from tests.corpora.variations.script import (
    Edits,
    Project,
    Script,
    is_import,
    own_walk,
    text_name,
    trains,
    walk,
    with_top,
)


def _closed(script: Script, definitions: Sequence[Any]) -> list[Any]:
    """Of definitions, those that use only imports, builtins and each other."""
    imported = {
        name
        for name, variable in script.globals().items()
        if not variable.stores and all("Import" in type(one).__name__ for one in variable.scope[name])
    }
    kept = list(definitions)
    while True:
        names = imported | {one.name.value for one in kept}
        others = [one for name, one in script.globals().items() if name not in names]
        nodes = {id(node) for one in others for node in one.nodes}
        closed = [it for it in kept if not any(isinstance(n, cst.Global) or id(n) in nodes for n in walk(it))]
        if closed == kept:
            return kept
        kept = closed


def _in_module(script: Script, definitions: list[Any], base: str) -> Project | None:
    """The definitions in a module of their own, from which the entry imports them."""
    if not definitions or script.dynamic or "import *" in script.text or "spawn(" in script.text:
        return None
    names = [one.name.value for one in definitions]
    module = script.fresh(base)
    imports = [one for one in script.module.body if is_import(one)]
    moved = [_spaced(one) for one in definitions]
    text = script.module.with_changes(body=[*imports, *moved], header=[]).code
    edits: Edits = {one: lambda updated: cst.RemoveFromParent() for one in definitions}
    line = script.one(f"from {module} import {', '.join(names)}")
    return script.project.with_text(with_top(script.edited(edits), line).code, {f"{module}.py": text})


def _spaced(statement: Any) -> Any:
    comments = [line for line in statement.leading_lines if line.comment]
    return statement.with_changes(leading_lines=[cst.EmptyLine(indent=False)] * 2 + comments)


def _movable_imports(script: Script) -> bool:
    """Whether every import of the module is at its top, where a copy binds the same."""
    others = [one for one in script.module.body if not is_import(one)]
    return not any(isinstance(n, cst.Import | cst.ImportFrom) for one in others for n in own_walk(one))


@variation
def functions_in_module(script: Script, rng: Random) -> Project | None:
    """functions and the model's classes that need nothing of the script move into a module"""
    if not _movable_imports(script):
        return None
    functions = [one for one in script.functions() if one.name.value != "main"]
    return _in_module(script, _closed(script, [*script.models(), *functions]), "common")


@variation
def functions_in_class(script: Script, rng: Random) -> cst.Module | None:
    """functions that train and evaluate become methods of a class"""
    wanted = [
        one
        for one in script.functions()
        if isinstance(one.body, cst.IndentedBlock)
        and not one.decorators
        and one.params.params
        and (trains(one) or ".eval()" in script.code(one))
    ]
    if not wanted or script.dynamic or "spawn(" in script.text:
        return None
    variables = script.globals()
    kind, object_name = script.fresh("Steps"), script.fresh("steps")
    edits: Edits = {}
    for one in wanted:
        variable = variables[one.name.value]
        only_called = all(getattr(script.parents[n], "func", None) is n for n in variable.loads)
        has_self = any(isinstance(n, cst.Name) and n.value == "self" for n in walk(one))
        if len(variable.scope[one.name.value]) != 1 or not only_called or has_self:
            return None
        for node in variable.loads:
            edits[node] = text_name(f"{object_name}.{one.name.value}")
    made_class: Any = script.one(f"class {kind}:\n    pass")
    moved: dict[str, Any] = {}

    def method(updated: Any) -> Any:
        name = updated.name.value
        first = cst.Param(cst.Name("self"))
        moved[name] = updated.with_changes(
            params=updated.params.with_changes(params=[first, *updated.params.params]),
            leading_lines=[cst.EmptyLine(indent=False)] if moved else [],
        )
        if len(moved) < len(wanted):
            return cst.RemoveFromParent()
        whole = made_class.with_changes(
            body=made_class.body.with_changes(body=list(moved.values())),
            leading_lines=[cst.EmptyLine(indent=False)] * 2,
        )
        ready: Any = script.one(f"{object_name} = {kind}()")
        return cst.FlattenSentinel(
            [whole, ready.with_changes(leading_lines=[cst.EmptyLine(indent=False)] * 2)]
        )

    if _used_before(script, wanted):
        return None
    for one in wanted:
        edits[one] = method
    return script.edited(edits)


def _used_before(script: Script, functions: Sequence[cst.FunctionDef]) -> bool:
    """Whether statements of the module run one of the functions before the last of them is defined."""
    last = script.line(functions[-1])
    names = {one.name.value for one in functions}
    return any(
        isinstance(n, cst.Name) and n.value in names
        for one in script.module.body
        if script.line(one) < last and not isinstance(one, cst.FunctionDef | cst.ClassDef)
        for n in own_walk(one)
    )
