"""What the arguments of a call may be: the values from batches among them, and the modules whose parameters they are."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from .arguments import arguments_of
from .interpretation import Interpretation
from .values import External, FromBatch, Instance, Iterator, Member, Parameters, Sequence, Value

WEIGHTS = frozenset({"weight", "bias"})


def batch_values_of(interp: Interpretation, nodes: Iterable[ast.expr]) -> list[FromBatch]:
    """The values from batches among the arguments, those inside literal tuples, lists and dicts included."""
    found: list[FromBatch] = []
    for node in nodes:
        for value in interp.of(node):
            if isinstance(value, FromBatch):
                found.append(value)
            elif isinstance(value, Sequence):
                found.extend(e for e in interp.element(value) if isinstance(e, FromBatch))
            elif isinstance(value, Member) and isinstance(value.receiver, FromBatch):
                found.append(value.receiver)
    return found


def parameters_in(interp: Interpretation, node: ast.Call) -> set[Value]:
    """The modules whose parameters a call is given, also in groups, chains and filters."""
    found: set[Value] = set()
    work = [v for a in arguments_of(node) for v in interp.of(a)]
    seen: set[Value] = set()
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value, Parameters):
            found.add(value.of)
        elif isinstance(value, Sequence):
            work.extend(interp.element(value))
        elif isinstance(value, Iterator):
            work.append(value.of)
        elif isinstance(value, Member) and is_weight(interp, value):
            found.add(value.receiver)
    return found


def is_weight(interp: Interpretation, value: Value) -> bool:
    """`layer.weight`: one of the parameters that torch's own layers have."""
    return isinstance(value, Member) and value.name in WEIGHTS and interp.is_module(value.receiver)


def note_parameters(interp: Interpretation, node: ast.Call) -> None:
    """Notes `x` as a module where a call is given `x.parameters()`, whether or not it makes an optimizer."""
    interp.note_modules({m for m in parameters_in(interp, node) if isinstance(m, External | Instance)})
