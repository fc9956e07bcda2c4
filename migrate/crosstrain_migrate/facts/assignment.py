"""Assignments to variables, attributes, items, and tuples of these."""

from __future__ import annotations

import ast
from dataclasses import replace

from .interpretation import Interpretation
from .memory import key_of
from .values import Class, External, FromBatch, Instance, Member, Sequence, Value, Values


def assign(interp: Interpretation, target: ast.expr, values: Values | set[Value]) -> None:
    if target in interp.tensor_targets:
        values = frozenset(
            replace(v, kind="rows") if isinstance(v, FromBatch) and v.kind == "batch" else v for v in values
        )
    values = frozenset(values)
    if interp.observed:
        values = interp.with_observed(target, values)
    if interp.assumed:
        values = interp.with_assumed(target, values)
    interp.merge(interp.values.cell(target), values)
    if isinstance(target, ast.Name):
        scope = interp.table.of_node[target].resolve(target.id)
        if scope is not None:
            interp.bind(scope, target.id, values, target)
    elif isinstance(target, ast.Attribute):
        for owner in interp.eval(target.value):
            if isinstance(owner, Instance | Class):
                interp.store(owner.cls if isinstance(owner, Instance) else owner.node, target.attr, values)
            elif isinstance(owner, Member | External):
                interp.store(interp.tree, (owner, target.attr), values)
    elif isinstance(target, ast.Subscript):
        interp.eval(target.slice)
        for owner in interp.eval(target.value):
            if isinstance(owner, Sequence):
                interp.store(owner.site, key_of(target.slice), values)
    elif isinstance(target, ast.Starred):
        assign(interp, target.value, values)
    elif isinstance(target, ast.Tuple | ast.List):
        for index, part in enumerate(target.elts):
            assign(interp, part, frozenset(v for value in values for v in interp.element(value, index)))
