"""How a batch is taken apart."""

from __future__ import annotations

from collections.abc import Callable
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


def _unpacked(script: Script, rng: Random, code: Callable[[str, list[str]], str]) -> cst.Module | None:
    """The loop's target is one name; statements at the head of its body take it apart."""
    item = script.fresh("batch")
    edits: Edits = {}
    for loop in chosen(script, rng):
        target = _batch(loop)
        if parts := _parts(script, target):
            head = script.parsed(code(item, parts))
            edits[target] = lambda updated: cst.Name(item)
            edits[loop.body] = lambda updated, head=head: updated.with_changes(body=[*head, *updated.body])
    return script.edited(edits) if edits else None


def _tuple(parts: list[str]) -> str:
    return ", ".join(parts) + ("," if len(parts) == 1 else "")


@variation
def batch_unpacked_in_body(script: Script, rng: Random) -> cst.Module | None:
    """`x, y = batch` in the body instead of in the loop"""
    return _unpacked(script, rng, lambda item, parts: f"{_tuple(parts)} = {item}")


@variation
def batch_by_field(script: Script, rng: Random) -> cst.Module | None:
    """the batch becomes a dictionary that is read by key"""
    fields = script.fresh("fields")

    def code(item: str, parts: list[str]) -> str:
        keys = ", ".join(f'"{part}"' for part in parts)
        head = f"{fields} = dict(zip([{keys}], {item}))"
        return "\n".join([head, *(f'{part} = {fields}["{part}"]' for part in parts)])

    return _unpacked(script, rng, code)
