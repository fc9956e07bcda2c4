"""What one call returns: of all that its function may return, what belongs to this call.

Functions are evaluated once, with all that any call gives them. Three things tell calls apart again: the loaders their
arguments come from, the containers that every call makes anew, and the optional arguments that a call leaves out.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from crosstrain_migrate.syntax.nodes import FunctionNode
from crosstrain_migrate.syntax.walks import walk

from . import tensors
from .argument_values import batch_values_of
from .arguments import argument_of, arguments_of
from .interpretation import Interpretation
from .memory import Heap
from .optional import Given
from .values import UNKNOWN, External, FromBatch, Instance, Sequence, Value, Values

MAX_NESTING = 3


@dataclass(frozen=True)
class Call:
    """A call of one of the script's own functions. `belongs` tells whether a value comes from the loaders it is about."""

    interp: Interpretation
    function: FunctionNode
    node: ast.Call
    belongs: Callable[[FromBatch], bool]
    foreign: frozenset[Value] = (
        frozenset()
    )  # objects that the function returns to others, who gave them to it
    done: dict[ast.AST, int] = field(default_factory=dict)  # containers that were copied, and how deep

    def is_foreign(self, value: Value, site: ast.AST) -> bool:
        """Whether a part of a tuple that the function returns is what another call gave."""
        return value in self.foreign and isinstance(self.interp.table.parents.get(site), ast.Return)


def in_context(
    interp: Interpretation, function: FunctionNode, node: ast.Call, results: Values, local: bool
) -> Values:
    """Keeps of a function's results only what comes from the loaders this call is about.

    What a function that runs no model computes from rows (a loss, a metric) counts as collapsed here, at the call.
    local: the function computes from its arguments alone, so without a value from a batch among them the result is none.
    """
    arguments = arguments_of(node)
    passed: set[Value] = {s.loader for s in batch_values_of(interp, arguments)}
    passed |= {v for a in arguments for v in interp.of(a) if interp.is_loader(v)}

    def belongs(batch_value: FromBatch) -> bool:
        own = function in interp.sole_streams and interp.is_made_in(batch_value.loader, function)
        return own or batch_value.loader in passed or (not passed and not local)

    call = Call(interp, function, node, belongs, _of_other_calls(interp, function, node))
    found: set[Value] = set()
    for value in results:
        if isinstance(value, Sequence):
            found.add(_container(call, value, MAX_NESTING))
        elif not isinstance(value, FromBatch):
            found.update({value} - call.foreign)
        elif belongs(value):
            collapsed = value.kind in tensors.SCALARS and function not in interp.touching
            origins = frozenset({node}) if collapsed else value.origins
            found.add(FromBatch(value.kind, value.loader, origins, value.host))
    waits = not results or any(not interp.of(a) for a in arguments)
    return (
        frozenset(found) if found or waits else UNKNOWN
    )  # of other calls' batches: something, and nothing from a batch


def _of_other_calls(interp: Interpretation, function: FunctionNode, node: ast.Call) -> frozenset[Value]:
    """The objects that come back only where they were given: `return model` returns this call's model, not another's."""
    if isinstance(function, ast.Lambda):
        return frozenset()
    own: set[Value] = set()
    foreign: set[Value] = set()
    for part in _returned_parts(interp, function):
        values = {v for v in interp.of(part) if isinstance(v, External | Instance)}
        definitions = interp.reaching.get(part, frozenset()) if isinstance(part, ast.Name) else frozenset()
        given = [_given_as(function, node, d.arg) for d in definitions if isinstance(d, ast.arg)]
        if not given or len(given) < len(definitions) or None in given:
            own |= values
        else:
            own |= values & {v for argument in given if argument is not None for v in interp.of(argument)}
        foreign |= values
    return frozenset(foreign - own)


def _returned_parts(interp: Interpretation, function: FunctionNode) -> list[ast.expr]:
    """What the function's own return statements return: of a tuple, each part."""
    if function not in interp.returned_parts:
        returned = [
            n.value
            for n in walk(function)
            if isinstance(n, ast.Return)
            and n.value is not None
            and interp.table.function_around(n) is function
        ]
        interp.returned_parts[function] = [
            part for value in returned for part in (value.elts if isinstance(value, ast.Tuple) else [value])
        ]
    return interp.returned_parts[function]


def _given_as(function: FunctionNode, node: ast.Call, name: str) -> ast.expr | None:
    first = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][:1]
    return argument_of(node, function, name, first == ["self"])


def _container(call: Call, value: Sequence, depth: int) -> Sequence:
    """A container that the function makes anew, with what of its contents belongs to this call; any other one is the
    object itself, whoever holds it."""
    interp = call.interp
    if not depth or not _is_made_anew(call, value):
        return value
    site = interp.copies.site(call.node, value.site, interp.table)
    if site is None:
        return value
    if call.done.get(value.site, 0) >= depth:
        return Sequence(site)
    call.done[value.site] = depth
    for _, key in list(interp.heap.keys_of(value.site)):
        kept: set[Value] = set()
        for inner in list(interp.heap[value.site, key]):  # a container may hold itself
            if isinstance(inner, Sequence):
                kept.add(_container(call, inner, depth - 1))
            elif (
                call.belongs(inner)
                if isinstance(inner, FromBatch)
                else not call.is_foreign(inner, value.site)
            ):
                kept.add(inner)
        interp.store(site, key, kept or (UNKNOWN if interp.heap[value.site, key] else kept))
    return Sequence(site)


def _is_made_anew(call: Call, value: Sequence) -> bool:
    """Whether every call makes this container, to return something of its batch in it."""
    if isinstance(value.site, ast.Tuple | ast.Call | ast.BinOp):
        return True
    inside = any(around is call.function for around in call.interp.table.ancestors(value.site))
    return inside and value.site in call.interp.batch_containers


def containers_of_batches(heap: Heap) -> frozenset[ast.AST]:
    """Where containers are made that hold values from batches, or containers of such."""
    found: set[ast.AST] = set()
    for _ in range(MAX_NESTING):
        for (site, _), values in heap.items():
            if any(isinstance(v, FromBatch) or (isinstance(v, Sequence) and v.site in found) for v in values):
                found.add(site)
    return frozenset(found)


# -- optional arguments --------------------------------------------------------------------------------------


def returned_by(interp: Interpretation, function: FunctionNode, node: ast.Call) -> Values:
    """What the function returns when it is given what this call gives: `labels=y`, so that `labels is not None`."""
    everything = frozenset(interp.returns[function])
    if isinstance(function, ast.Lambda):
        return everything
    given = _given(interp, function, node)
    if not given or not interp.optional.taken(function, given):
        return everything
    found: set[Value] = set()
    for statement, reaching in interp.optional.returns(function, given):
        value = statement.value
        if value is None:
            continue
        definitions = reaching.get(value, frozenset()) if isinstance(value, ast.Name) else frozenset()
        found |= {v for d in definitions for v in interp.definitions[d]} if definitions else interp.of(value)
    return frozenset(found)


def comes_to(interp: Interpretation, function: FunctionNode, site: ast.Call, node: ast.AST) -> bool:
    """Whether a call may come to `node` in the function: `if opt is not None:` is passed by where no `opt` is given."""
    if isinstance(function, ast.Lambda):
        return True
    taken = interp.optional.taken(function, _given(interp, function, site))
    inner = node
    for around in interp.table.ancestors(node):
        if around is function:
            break
        if isinstance(around, ast.If) and inner is not around.test:
            said = taken.get(around)
            if said is not None and said is not (inner in around.body):
                return False
        inner = around
    return True


def _given(interp: Interpretation, function: ast.FunctionDef | ast.AsyncFunctionDef, node: ast.Call) -> Given:
    """Which parameters that default to None this call gives a value (True), or leaves out (False)."""
    if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
        return frozenset()
    positional = [*function.args.posonlyargs, *function.args.args]
    names = [a.arg for a in positional]
    optional = {
        name
        for name, default in zip(reversed(names), reversed(function.args.defaults), strict=False)
        if isinstance(default, ast.Constant) and default.value is None
    }
    if names[:1] == ["self"]:
        names = names[1:]
    passed = dict(zip(names, node.args, strict=False)) | {k.arg: k.value for k in node.keywords if k.arg}
    found: set[tuple[str, bool]] = set()
    for name in optional:
        argument = passed.get(name)
        if argument is None or (isinstance(argument, ast.Constant) and argument.value is None):
            found.add((name, False))
        elif any(isinstance(v, FromBatch) for v in interp.of(argument)):
            found.add((name, True))
    return frozenset(found)
