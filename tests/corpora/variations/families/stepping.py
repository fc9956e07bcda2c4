"""What is around a training step: a closure, a partial, helpers."""

from collections.abc import Callable
from random import Random
from typing import Any

import libcst as cst

from tests.corpora.variations.registry import variation
from tests.corpora.variations.script import (
    Edits,
    Script,
    is_docstring,
    leaves_early,
    name_targets,
    walk,
    with_import,
    with_top,
)


def _closure(script: Script, call: Callable[[str, list[str]], str], *, given: bool) -> cst.Module | None:
    """The body of the first training loop as a function beside it. given: the batch is its parameter."""
    if script.dynamic:
        return None
    for loop in script.training_loops():
        body: Any = loop.body.body
        if any(map(leaves_early, body)) or any(_binds_otherwise(n) for s in body for n in walk(s)):
            continue
        around = script.function_of(loop)
        targets = name_targets(loop.target) if given else []
        inside = {id(n) for one in body for n in walk(one)}
        shared, unbound = [], []
        for variable in script.variables(script.scope(around)).values():
            stored = [s for s in variable.stores if id(s) in inside]
            outside = [n for n in variable.nodes if id(n) not in inside]
            if variable.name in targets or not stored:
                continue
            if not variable.plain:
                outside = outside or [cst.Name("parameter")]
            if outside:
                shared.append(variable.name)
                if variable.plain and not any(id(s) not in inside for s in variable.stores):
                    unbound.append(variable.name)
        if any(not _local_only(script, around, t, loop) for t in targets):
            continue
        name = script.fresh("one_step")
        word = "global" if isinstance(around, cst.Module) else "nonlocal"
        head = script.parsed(f"{word} {', '.join(sorted(shared))}") if shared else []
        function: Any = script.one(f"def {name}({', '.join(targets)}):\n    pass")
        function = function.with_changes(body=function.body.with_changes(body=[*head, *body]))
        first = script.parsed("\n".join(f"{one} = None" for one in unbound)) if unbound else []
        line = script.one(call(name, targets))

        def edit(updated: Any, function: Any = function, first: Any = first, line: Any = line) -> Any:
            lead = [*first, function]
            lead[0] = lead[0].with_changes(leading_lines=updated.leading_lines)
            new = updated.with_changes(leading_lines=[], body=updated.body.with_changes(body=[line]))
            return cst.FlattenSentinel([*lead, new])

        return script.edited({loop: edit})
    return None


def _local_only(script: Script, around: Any, name: str, loop: cst.For) -> bool:
    """Whether a loop's target is used in the loop alone."""
    variable = script.variables(script.scope(around)).get(name)
    inside = {id(n) for n in walk(loop)}
    return variable is not None and all(id(n) in inside for n in variable.nodes)


def _binds_otherwise(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Import | cst.ImportFrom | cst.ClassDef | cst.FunctionDef)


@variation
def step_in_closure(script: Script, rng: Random) -> cst.Module | None:
    """the step is a function beside the loop that takes nothing"""
    return _closure(script, lambda name, _: f"{name}()", given=False)


@variation
def step_as_partial(script: Script, rng: Random) -> cst.Module | None:
    """the step is called as a `functools.partial` of the batch"""
    made = _closure(script, lambda name, of: f"functools.partial({name}, {', '.join(of)})()", given=True)
    return made and with_import(made, "import functools")


@variation
def backward_and_step_in_helper(script: Script, rng: Random) -> cst.Module | None:
    """one helper function calls `backward` and the optimizer's `step` after it"""
    name = script.fresh("update_weights")
    edits: Edits = {}
    for block in script.nodes:
        if not isinstance(block, cst.IndentedBlock):
            continue
        for first, second in zip(block.body, block.body[1:], strict=False):
            loss, optimizer = _bare_call(first, "backward"), _bare_call(second, "step")
            if loss is not None and optimizer is not None and first not in edits:
                line: Any = script.one(f"{name}({script.code(loss)}, {script.code(optimizer)})")
                edits[first] = lambda new, line=line: line.with_changes(leading_lines=new.leading_lines)
                edits[second] = lambda updated: cst.RemoveFromParent()
    code = f"\n\ndef {name}(loss, optimizer):\n    loss.backward()\n    optimizer.step()\n\n"
    return with_top(script.edited(edits), *script.parsed(code)) if edits else None


def _bare_call(statement: cst.CSTNode, method: str) -> cst.CSTNode | None:
    """The object whose method a statement calls without arguments."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    one = statement.body[0]
    if not isinstance(one, cst.Expr) or not isinstance(one.value, cst.Call) or one.value.args:
        return None
    function = one.value.func
    named = isinstance(function, cst.Attribute) and function.attr.value == method
    return function.value if named and isinstance(function.value, cst.Name | cst.Attribute) else None  # type: ignore[union-attr]


@variation
def backward_as_bound_method(script: Script, rng: Random) -> cst.Module | None:
    """the loss goes backward through a bound method in a variable"""
    name = script.fresh("go_backward")
    edits: Edits = {}
    for block in script.nodes:
        for one in block.body if isinstance(block, cst.IndentedBlock) else ():
            loss = _bare_call(one, "backward")
            if loss is not None and not is_docstring(one):
                lines = script.parsed(f"{name} = {script.code(loss)}.backward\n{name}()")
                edits[one] = lambda updated, lines=lines: cst.FlattenSentinel(
                    [lines[0].with_changes(leading_lines=updated.leading_lines), lines[1]]
                )
    return script.edited(edits) if edits else None
