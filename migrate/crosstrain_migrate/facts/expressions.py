"""What each kind of expression may be."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from crosstrain_migrate.syntax.walks import children

from . import calls, containers, tensors
from . import torch_api as api
from .assignment import assign
from .attributes import attribute, by_unknown_name
from .evidence import with_rows_of
from .interpretation import Interpretation
from .iteration import iterate
from .memory import ANY, key_of
from .values import (
    ABSENT,
    NOTHING,
    UNKNOWN,
    External,
    FromBatch,
    Function,
    Instance,
    Member,
    Method,
    Parameters,
    Sequence,
    Symbol,
    Value,
    Values,
)


def evaluate_parts(interp: Interpretation, node: ast.expr) -> Values:
    """Evaluates what an expression without a meaning of its own consists of."""
    for child in children(node):
        if isinstance(child, ast.expr):
            interp.eval(child)
    return UNKNOWN


def _name(interp: Interpretation, node: ast.Name) -> Values:
    reaching = interp.reaching.get(node)
    if reaching is not None:
        found = NOTHING.union(*map(interp.definitions.get, reaching))
    else:
        scope = interp.table.of_node[node].resolve(node.id)
        if scope is None:
            return frozenset({Symbol(interp.stars.get(node.id, f"builtins.{node.id}"))})
        found = interp.env.get((scope, node.id))
    functions = [v.node for v in found if v.__class__ is Function]
    if functions and not interp.is_called(node):
        interp.escaped.update(functions)
    return found


def _attribute(interp: Interpretation, node: ast.Attribute) -> Values:
    found: set[Value] = set()
    for owner in _present(interp.eval(node.value)):
        found |= attribute(interp, owner, node.attr, node)
    functions = [v.function.node for v in found if v.__class__ is Method]
    if functions and not interp.is_called(node):
        interp.escaped.update(functions)
    return frozenset(found)


def _present(owners: Values) -> Values:
    """Without None, if there is anything else: None has no attributes and no items."""
    return owners - ABSENT or owners


def _subscript(interp: Interpretation, node: ast.Subscript) -> Values:
    owners, index = interp.eval(node.value), interp.eval(node.slice)
    row_index = any(isinstance(v, FromBatch) and v.kind in tensors.PER_SAMPLE for v in index)
    permutes = _permutes(interp, node.slice)
    found: set[Value] = set()
    for owner in _present(owners):
        if isinstance(owner, FromBatch):
            batch_value = tensors.subscript(owner, node.slice, node, row_index, permutes)
            found |= {batch_value} if batch_value is not None else UNKNOWN
        elif isinstance(owner, Symbol) and owner.path.endswith(".__dict__"):
            found |= by_unknown_name(interp, Symbol(owner.path.removesuffix(".__dict__")))
        elif isinstance(owner, External) and interp.is_module(owner):
            found.add(External(api.SUBMODULE, owner.site))
        elif isinstance(owner, Sequence) and isinstance(node.slice, ast.Slice):
            found.add(owner)  # a part of a list is a list of the same things
        elif row_index and not isinstance(owner, Sequence | Instance | External):
            found |= _looked_up(index, node)
        else:
            found |= interp.element(owner, key_of(node.slice))
    return frozenset(found)


def _permutes(interp: Interpretation, index: ast.expr) -> bool:
    """`x[order]` and `x[order, :, 2:5]`: the same rows in another order."""
    first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    found = interp.of(first)
    return bool(found) and all(isinstance(v, FromBatch) and v.kind == "order" for v in found)


def _looked_up(index: Values, node: ast.Subscript) -> Values:
    """`table[labels]`: one row of the table for each of the batch; a mask selects another number of them."""
    mask = isinstance(node.slice, ast.Compare | ast.UnaryOp | ast.BoolOp)
    batch_values = [v for v in index if isinstance(v, FromBatch) and v.kind in tensors.PER_SAMPLE]
    return frozenset(tensors.other(v, node) if mask or v.kind == "order" else v for v in batch_values)


def _literal_sequence(interp: Interpretation, node: ast.Tuple | ast.List | ast.Set) -> Values:
    for index, part in enumerate(node.elts):
        key = ANY if isinstance(part, ast.Starred) or isinstance(node, ast.Set) else index
        interp.store(node, key, interp.eval(part))
    return frozenset({Sequence(node)})


def _literal_dict(interp: Interpretation, node: ast.Dict) -> Values:
    for key, value in zip(node.keys, node.values, strict=True):
        values = interp.eval(value)
        if key is None:
            values = frozenset(e for v in values for e in interp.element(v))
        else:
            interp.eval(key)
        interp.store(node, key_of(key) if key is not None else ANY, values)
    return frozenset({Sequence(node)})


def _comprehension(interp: Interpretation, node: containers.Comprehension) -> Values:
    for generator in node.generators:
        assign(interp, generator.target, iterate(interp, interp.eval(generator.iter), generator))
        for test in generator.ifs:
            interp.eval(test)
    if isinstance(node, ast.DictComp):
        interp.eval(node.key)
    element = interp.eval(node.value if isinstance(node, ast.DictComp) else node.elt)
    if containers.store_by_key(interp, node, element):
        return frozenset({Sequence(node)})
    batch_values = [v for v in element if isinstance(v, FromBatch)]
    if batch_values:
        return frozenset(_collected(interp, v, node) for v in batch_values)
    interp.store(node, ANY, element)
    return frozenset({Sequence(node)})


def _collected(interp: Interpretation, value: FromBatch, node: containers.Comprehension) -> FromBatch:
    """One element per tensor of a batch makes a batch again; anything else is some function of the rows."""
    iterated = [v for generator in node.generators for v in interp.of(generator.iter)]
    over = [v.kind for v in iterated if isinstance(v, FromBatch)]
    items = any(isinstance(v, Member) and isinstance(v.receiver, FromBatch) for v in iterated)
    if value.kind in {"mean", "sum"} and all(kind == "batch" for kind in over):
        return value  # `[criterion(out, y) for out in outputs]`
    if value.kind == "rows" and (items or "batch" in over or not over):
        return replace(value, kind="batch")
    return tensors.other(value, node)


def _conditional(interp: Interpretation, node: ast.IfExp) -> Values:
    interp.eval(node.test)
    said = interp.constants.decided(node.test)
    if said is not None:
        return interp.eval(node.body if said else node.orelse)
    return interp.eval(node.body) | interp.eval(node.orelse)


def _bool_operation(interp: Interpretation, node: ast.BoolOp) -> Values:
    return NOTHING.union(*map(interp.eval, node.values))


def _named_expression(interp: Interpretation, node: ast.NamedExpr) -> Values:
    values = interp.eval(node.value)
    assign(interp, node.target, values)
    return values


def _starred(interp: Interpretation, node: ast.Starred) -> Values:
    return frozenset(e for v in interp.eval(node.value) for e in interp.element(v))


def _inner(interp: Interpretation, node: ast.Await | ast.FormattedValue) -> Values:
    return interp.eval(node.value)


def _lambda(interp: Interpretation, node: ast.Lambda) -> Values:
    return frozenset({Function(node)})


def _yield(interp: Interpretation, node: ast.Yield | ast.YieldFrom) -> Values:
    values = interp.eval(node.value) if node.value is not None else UNKNOWN
    if isinstance(node, ast.YieldFrom):
        values = iterate(interp, values, node)
    function = interp.table.function_around(node)
    if function is not None:
        interp.merge(interp.yields.cell(function), values)
    return UNKNOWN


def _unary_operation(interp: Interpretation, node: ast.UnaryOp) -> Values:
    values = interp.eval(node.operand)
    if not isinstance(node.op, ast.Not):
        return values
    return frozenset(tensors.other(v, node) if isinstance(v, FromBatch) else v for v in values)


def _binary_operation(interp: Interpretation, node: ast.BinOp) -> Values:
    left, right = interp.eval(node.left), interp.eval(node.right)
    if api.names_a_device(node):
        return frozenset({External("torch.device", node)})
    if isinstance(node.op, ast.Add) and any(isinstance(v, Sequence | Parameters) for v in left | right):
        return containers.concatenated(interp, node) or left | right
    text = isinstance(node.left, ast.JoinedStr) or (
        isinstance(node.left, ast.Constant) and not isinstance(node.left.value, int | float)
    )
    if text and isinstance(node.op, ast.Mod):
        return UNKNOWN
    return combine(node.op, left, right, node)


def _comparison(interp: Interpretation, node: ast.Compare) -> Values:
    found = interp.eval(node.left)
    if all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops) or _asks_for_a_key(node):
        for comparator in node.comparators:
            interp.eval(comparator)
        return UNKNOWN  # neither reads numbers
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = interp.eval(comparator)
        if isinstance(op, ast.Eq | ast.NotEq):
            found, right = with_rows_of(interp, found, right), with_rows_of(interp, right, found)
        found = combine(op, found, right, node)
    return found


def _asks_for_a_key(node: ast.Compare) -> bool:
    """`"aux" in outputs`"""
    text = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
    return text and all(isinstance(op, ast.In | ast.NotIn) for op in node.ops)


def combine(op: ast.operator | ast.cmpop, left: Values, right: Values, node: ast.AST) -> Values:
    """What `left op right` may be: each value from a batch on the one side with each on the other."""
    if not left or not right:
        return NOTHING
    left_values: list[FromBatch | None] = [*(v for v in left if isinstance(v, FromBatch))] or [None]
    right_values: list[FromBatch | None] = [*(v for v in right if isinstance(v, FromBatch))] or [None]
    found: set[Value] = set()
    for a in left_values:
        for b in right_values:
            result = tensors.binary(op, a, b, node)
            if result is None:
                found |= UNKNOWN
                continue
            found.add(result)
            if a is not None and b is not None and a.loader != b.loader:
                found.add(FromBatch(result.kind, b.loader, result.origins, result.host))
    return frozenset(found)


def _call(interp: Interpretation, node: ast.Call) -> Values:
    found = calls.evaluate(interp, node)
    return frozenset({External("torch.device", node)}) if api.names_a_device(node) else found


def _constant(interp: Interpretation, node: ast.Constant) -> Values:
    if node.value is None:
        return ABSENT
    if isinstance(node.value, str) and api.DEVICE_STRING.match(node.value):
        return frozenset({External("torch.device", node)})
    return UNKNOWN


def _joined_string(interp: Interpretation, node: ast.JoinedStr) -> Values:
    evaluate_parts(interp, node)
    return frozenset({External("torch.device", node)}) if api.names_a_device(node) else UNKNOWN


EVALUATORS: dict[type[ast.AST], Callable[[Interpretation, Any], Values]] = {
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    **dict.fromkeys((ast.Tuple, ast.List, ast.Set), _literal_sequence),
    ast.Dict: _literal_dict,
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp), _comprehension),
    ast.IfExp: _conditional,
    ast.BoolOp: _bool_operation,
    ast.NamedExpr: _named_expression,
    ast.Starred: _starred,
    **dict.fromkeys((ast.Await, ast.FormattedValue), _inner),
    ast.Lambda: _lambda,
    **dict.fromkeys((ast.Yield, ast.YieldFrom), _yield),
    ast.UnaryOp: _unary_operation,
    ast.BinOp: _binary_operation,
    ast.Compare: _comparison,
    ast.Call: _call,
    ast.Constant: _constant,
    ast.JoinedStr: _joined_string,
}
