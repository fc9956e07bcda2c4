"""Keeps sets of values finite and small, so that the fixpoint ends soon: similar values are joined."""

from __future__ import annotations

import ast

from .memory import Heap
from .values import FromBatch, Iterator, Member, Sequence, Symbol, Unknown, Value

WIDEN_ABOVE = 6  # values that differ only in their origins are joined when a set grows beyond this
# Attributes of unknown values, and iterators over iterators, are told apart up to this depth, in sets up to this size.
DEEPEST, CROWD = 4, 40
LONGEST = 6  # parts of a dotted name that surely names something in a module
COVERABLE = frozenset({Sequence, FromBatch})  # what `covered` may be true of


def covered(value: Value, values: set[Value], heap: Heap) -> bool:
    """Whether a widened value already stands for this one: without this test, sets would grow and shrink endlessly."""
    if isinstance(value, Sequence):
        one = heap.stands_for(value.site)
        return one is not value.site and Sequence(one) in values
    return isinstance(value, FromBatch) and any(
        isinstance(v, FromBatch)
        and v.kind == value.kind
        and v.loader == value.loader
        and v.host == value.host
        and v.origins >= value.origins
        for v in values
    )


def widen(values: set[Value]) -> None:
    """Joins the values from batches that differ in nothing but where they were collapsed."""
    groups: dict[tuple[str, Value, bool], frozenset[ast.AST]] = {}
    for value in [v for v in values if isinstance(v, FromBatch)]:
        key = (value.kind, value.loader, value.host)
        groups[key] = groups.get(key, frozenset()) | value.origins
        values.discard(value)
    values.update(FromBatch(kind, loader, origins, host) for (kind, loader, host), origins in groups.items())


def is_attribute(value: Value) -> bool:
    """Whether `value` may be one of an endless chain of attributes of attributes."""
    if isinstance(value, Symbol):
        return value.path.count(".") >= (2 if value.path.startswith("builtins.") else LONGEST)
    return isinstance(value, Member) and isinstance(value.receiver, Member)


def may_have(owner: Value, name: str) -> bool:
    """Whether `owner.name` gets a value of its own: `node = node.next` in a loop would make values without end."""
    depth = 0
    while isinstance(owner, Member):
        depth += 1
        if owner.name == name or depth >= DEEPEST:
            return False
        owner = owner.receiver
    return True


def iterator(over: Value, site: ast.AST, counted: bool = False) -> Value:
    """What `site` makes to iterate `over`; a recursive function does not make iterators of iterators without end."""
    inner, depth = over, 1
    while isinstance(inner, Iterator):
        if inner.site is site or depth >= DEEPEST:
            return Unknown() if counted else over
        inner, depth = inner.of, depth + 1
    return Iterator(over, site, counted)
