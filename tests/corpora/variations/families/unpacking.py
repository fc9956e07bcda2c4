"""How a batch is taken apart."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import libcst as cst

from tests.corpora.variations.families.looping import chosen
from tests.corpora.variations.registry import variation
from tests.corpora.variations.script import Edits, Script, called, walk


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
def batch_indexed(script: Script, rng: Random) -> cst.Module | None:
    """`x = batch[0]`, `y = batch[1]`"""
    return _unpacked(
        script, rng, lambda item, parts: "\n".join(f"{p} = {item}[{i}]" for i, p in enumerate(parts))
    )


@variation
def batch_with_star(script: Script, rng: Random) -> cst.Module | None:
    """`x, *rest = batch`"""
    rest = script.fresh("rest")

    def code(item: str, parts: list[str]) -> str:
        others = "\n".join(f"{p} = {rest}[{i}]" for i, p in enumerate(parts[1:]))
        return f"{parts[0]}, *{rest} = {item}\n{others}"

    return _unpacked(script, rng, code)


@variation
def batch_by_field(script: Script, rng: Random) -> cst.Module | None:
    """the batch becomes a dictionary that is read by key"""
    fields = script.fresh("fields")

    def code(item: str, parts: list[str]) -> str:
        keys = ", ".join(f'"{part}"' for part in parts)
        head = f"{fields} = dict(zip([{keys}], {item}))"
        return "\n".join([head, *(f'{part} = {fields}["{part}"]' for part in parts)])

    return _unpacked(script, rng, code)


@variation
def batch_unpacked_in_loop(script: Script, rng: Random) -> cst.Module | None:
    """`for x, y in loader` instead of `x, y = batch` in the body"""
    edits: Edits = {}
    for loop in chosen(script, rng):
        target, body = _batch(loop), loop.body.body
        first = body[0]
        if not isinstance(target, cst.Name) or not isinstance(first, cst.SimpleStatementLine):
            continue
        assign = first.body[0]
        if len(body) < 2 or len(first.body) > 1 or not isinstance(assign, cst.Assign):
            continue
        name, item = assign.targets[0].target, assign.value
        around = walk(script.function_of(loop))
        uses = [one for one in around if isinstance(one, cst.Name) and one.value == target.value]
        if not _parts(script, name) or not isinstance(item, cst.Name) or item.value != target.value:
            continue
        if len(uses) == 2:
            bracketed = cst.parse_expression(f"({script.code(name).strip('()')})")
            edits[target] = lambda updated, new=bracketed: new
            edits[first] = lambda updated: cst.RemoveFromParent()
    return script.edited(edits) if edits else None
