"""How a batch is taken apart."""

from __future__ import annotations

from random import Random

import libcst as cst

from tests.corpora.variations.families.looping import chosen
from tests.corpora.variations.registry import variation
from tests.corpora.variations.script import Edits, Script, called


def _batch(loop: cst.For) -> cst.BaseExpression:
    """The part of the target that is the batch."""
    target: cst.BaseExpression = loop.target
    if called(loop.iter) == "enumerate" and isinstance(target, cst.Tuple) and len(target.elements) == 2:
        return target.elements[1].value
    return target


def _parts(script: Script, target: cst.BaseExpression) -> list[str]:
    """The names that a batch is unpacked to; none if it is not unpacked to names alone."""
    if not isinstance(target, cst.Tuple | cst.List) or not target.elements:
        return []
    names = [one.value for one in target.elements if isinstance(one, cst.Element)]
    if len(names) < len(target.elements) or not all(isinstance(one, cst.Name) for one in names):
        return []
    return [script.code(one) for one in names]


@variation
def batch_by_field(script: Script, rng: Random) -> cst.Module | None:
    """the batch becomes a dictionary that is read by key"""
    item, fields = script.fresh("batch"), script.fresh("fields")
    edits: Edits = {}
    for loop in chosen(script, rng):
        target = _batch(loop)
        if parts := _parts(script, target):
            keys = ", ".join(f'"{part}"' for part in parts)
            lines = [f"{fields} = dict(zip([{keys}], {item}))"]
            lines += [f'{part} = {fields}["{part}"]' for part in parts]
            head = script.parsed("\n".join(lines))
            edits[target] = lambda updated: cst.Name(item)
            edits[loop.body] = lambda updated, head=head: updated.with_changes(body=[*head, *updated.body])
    return script.edited(edits) if edits else None
