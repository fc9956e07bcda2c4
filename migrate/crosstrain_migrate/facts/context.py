"""What one call returns: of all that its function may return, what belongs to this call.

Functions are evaluated once, with the arguments of all their calls. Three things tell the calls apart again: the loaders
that their arguments come from, the containers that every call makes anew, and the optional arguments that a call leaves
out.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from crosstrain_migrate.syntax.nodes import FunctionNode

from . import tensors
from .argument_values import batch_values_of
from .arguments import argument_of, arguments_of, keywords_of, positional_of, returned_by
from .interpretation import Interpretation
from .memory import Heap
from .optional import Given
from .values import UNKNOWN, External, FromBatch, Instance, Sequence, Value, Values

MAX_NESTING = 3


@dataclass(frozen=True)
class _Call:
    """A call of one of the script's own functions.

    belongs: whether a value comes from the loaders that the call is about. foreign: objects that the function returns
    to others, who gave them to it. done: containers that were copied, and how deep.
    """

    interp: Interpretation
    function: FunctionNode
    node: ast.Call
    belongs: Callable[[FromBatch], bool]
    foreign: frozenset[Value] = frozenset()
    done: dict[ast.AST, int] = field(default_factory=dict)

    def copy(self, value: Sequence, depth: int = MAX_NESTING) -> Sequence:
        """A container that the function makes anew, with those of its contents that belong to this call; any other
        container as it is, whoever holds it."""
        interp = self.interp
        site = (
            interp.copies.site(self.node, value.site, interp.table) if depth and self._makes(value) else None
        )
        if site is None:
            return value
        if self.done.get(value.site, 0) >= depth:
            return Sequence(site)
        self.done[value.site] = depth
        for _, key in list(interp.heap.keys_of(value.site)):
            held = list(interp.heap[value.site, key])  # a container may hold itself
            kept = {
                self.copy(v, depth - 1) if isinstance(v, Sequence) else v
                for v in held
                if self._keeps(v, value)
            }
            interp.store(site, key, kept or (UNKNOWN if interp.heap[value.site, key] else kept))
        return Sequence(site)

    def _makes(self, value: Sequence) -> bool:
        """Whether every call makes this container, to return something of its batch in it."""
        if isinstance(value.site, ast.Tuple | ast.Call | ast.BinOp):
            return True
        inside = any(around is self.function for around in self.interp.table.ancestors(value.site))
        return inside and value.site in self.interp.batch_containers

    def _keeps(self, value: Value, container: Sequence) -> bool:
        """Whether a part of a container belongs to this call. In a tuple that is returned, another call may have given
        it."""
        if isinstance(value, FromBatch):
            return self.belongs(value)
        return value not in self.foreign or not isinstance(
            self.interp.table.parents.get(container.site), ast.Return
        )


def in_context(
    interp: Interpretation, function: FunctionNode, node: ast.Call, results: Values, local: bool
) -> Values:
    """Keeps of a function's results only what comes from the loaders that this call is about.

    What a function that runs no model computes from rows (a loss, a metric) counts as collapsed here, at the call.
    local: the function computes from its arguments alone, so that without a value from a batch among them, it returns
    none.
    """
    arguments = arguments_of(node)
    passed: set[Value] = {v.loader for v in batch_values_of(interp, arguments)}
    passed |= {v for a in arguments for v in interp.of(a) if interp.is_loader(v)}

    def belongs(value: FromBatch) -> bool:
        own = function in interp.sole_streams and interp.is_made_in(value.loader, function)
        return own or value.loader in passed or (not passed and not local)

    call = _Call(interp, function, node, belongs, _of_other_calls(interp, function, node))
    found: set[Value] = set()
    for value in results:
        if isinstance(value, Sequence):
            found.add(call.copy(value))
        elif not isinstance(value, FromBatch):
            found.update({value} - call.foreign)
        elif belongs(value):
            collapsed = value.kind in tensors.SCALARS and function not in interp.touching
            found.add(replace(value, origins=frozenset({node})) if collapsed else value)
    waits = not results or any(not interp.of(a) for a in arguments)
    # A call to which no value belongs returns something that depends on no batch of its own.
    return frozenset(found) if found or waits else UNKNOWN


def _of_other_calls(interp: Interpretation, function: FunctionNode, node: ast.Call) -> frozenset[Value]:
    """The objects that come back only where they were given: `return model` returns this call's model, not another's."""
    if isinstance(function, ast.Lambda):
        return frozenset()
    bound = [a.arg for a in positional_of(function)][:1] == ["self"]
    own: set[Value] = set()
    foreign: set[Value] = set()
    for part in _returned_parts(interp, function):
        values = {v for v in interp.of(part) if isinstance(v, External | Instance)}
        definitions = interp.bindings(part)
        parameters = [d.arg for d in definitions if isinstance(d, ast.arg)]
        given = [a for name in parameters if (a := argument_of(node, function, name, bound)) is not None]
        if given and len(given) == len(definitions):
            own |= values & {v for argument in given for v in interp.of(argument)}
        else:
            own |= values
        foreign |= values
    return frozenset(foreign - own)


def _returned_parts(interp: Interpretation, function: FunctionNode) -> list[ast.expr]:
    """What the function's own return statements return: of a tuple, each part."""
    if function not in interp.returned_parts:
        interp.returned_parts[function] = [
            part
            for value in returned_by(interp.table, function)
            for part in (value.elts if isinstance(value, ast.Tuple) else [value])
        ]
    return interp.returned_parts[function]


def containers_of_batches(heap: Heap) -> frozenset[ast.AST]:
    """Where containers are made that hold values from batches, or containers of such."""
    found: set[ast.AST] = set()
    for _ in range(MAX_NESTING):
        for (site, _), values in heap.items():
            if any(isinstance(v, FromBatch) or (isinstance(v, Sequence) and v.site in found) for v in values):
                found.add(site)
    return frozenset(found)


# -- optional arguments --------------------------------------------------------------------------------------


def results_of(interp: Interpretation, function: FunctionNode, node: ast.Call) -> Values:
    """What the function returns when it is given what this call gives: `labels=y`, so that `labels is not None`."""
    everything = frozenset(interp.returns[function])
    if isinstance(function, ast.Lambda):
        return everything
    given = _given(interp, function, node)
    if not given or not interp.optional.decided_tests(function, given):
        return everything
    found: set[Value] = set()
    for statement, reaching in interp.optional.returns(function, given):
        value = statement.value
        definitions = reaching.get(value, ()) if isinstance(value, ast.Name) else ()
        if definitions:
            found.update(*(interp.definitions[d] for d in definitions))
        elif value is not None:
            found |= interp.of(value)
    return frozenset(found)


def comes_to(interp: Interpretation, function: FunctionNode, site: ast.Call, node: ast.AST) -> bool:
    """Whether a call may come to `node` in the function: not past `if opt is not None:` where it gives no `opt`."""
    if isinstance(function, ast.Lambda):
        return True
    taken = interp.optional.decided_tests(function, _given(interp, function, site))
    inner = node
    for around in interp.table.ancestors(node):
        if around is function:
            break
        if (
            isinstance(around, ast.If)
            and inner is not around.test
            and taken.get(around) is (inner not in around.body)
        ):
            return False
        inner = around
    return True


def _given(interp: Interpretation, function: ast.FunctionDef | ast.AsyncFunctionDef, node: ast.Call) -> Given:
    """Which parameters that default to None this call gives a value (True), or leaves out (False)."""
    if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
        return frozenset()
    names = [a.arg for a in positional_of(function)]
    defaults = zip(reversed(names), reversed(function.args.defaults), strict=False)
    optional = [name for name, default in defaults if _is_none(default)]
    own = names[1:] if names[:1] == ["self"] else names
    passed = dict(zip(own, node.args, strict=False)) | keywords_of(node)
    found: set[tuple[str, bool]] = set()
    for name in optional:
        argument = passed.get(name)
        if argument is None or _is_none(argument):
            found.add((name, False))
        elif any(isinstance(v, FromBatch) for v in interp.of(argument)):
            found.add((name, True))
    return frozenset(found)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
