"""How models are made."""

from __future__ import annotations

from random import Random

import libcst as cst

from tests.corpora.variations.registry import variation
from tests.corpora.variations.script import Edits, Script, full_name, walk, with_import


def _model_calls(script: Script) -> list[tuple[cst.Call, str]]:
    """Where an object of the script's own model classes is made, outside of the classes."""
    names = {one.name.value for one in script.models()}
    inside = {id(node) for one in script.classes() for node in walk(one)}
    found = [one for one in script.nodes if isinstance(one, cst.Call) and isinstance(one.func, cst.Name)]
    return [
        (one, full_name(one.func)) for one in found if full_name(one.func) in names and id(one) not in inside
    ]


@variation
def model_by_name(script: Script, rng: Random) -> cst.Module | None:
    """`getattr(module, name)` finds the model class"""
    edits: Edits = {}
    for call, name in _model_calls(script):
        made = cst.parse_expression(f'getattr(sys.modules[__name__], "{name}")')
        edits[call] = lambda updated, made=made: updated.with_changes(func=made)
    return with_import(script.edited(edits), "import sys") if edits else None
