"""How models, optimizers and loaders are made."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

import libcst as cst

from tests.corpora.variations.registry import variation
from tests.corpora.variations.script import Edits, Script, full_name, walk, with_import, with_top

OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop", "Adadelta", "Adagrad", "NAdam", "RAdam", "Adamax")
FACTORY = """
def {name}(*args, **kwargs):
    \"\"\"The one place where {what} is made.\"\"\"
    return {made}(*args, **kwargs)
"""
REGISTRY = """
{registry} = {{}}


def {register}(name):
    def add(kind):
        {registry}[name] = kind
        return kind
    return add
"""


def _model_calls(script: Script) -> list[tuple[cst.Call, str]]:
    """Where an object of the script's own model classes is made, outside of the classes."""
    names = {one.name.value for one in script.models()}
    inside = {id(node) for one in script.classes() for node in walk(one)}
    found = [one for one in script.nodes if isinstance(one, cst.Call) and isinstance(one.func, cst.Name)]
    return [
        (one, full_name(one.func)) for one in found if full_name(one.func) in names and id(one) not in inside
    ]


def _optimizer_calls(script: Script) -> list[tuple[cst.Call, str]]:
    """Optimizers of torch that are made from parameters, and what they are called in the script."""
    own = {one.name.value for one in script.classes()}
    found = []
    for call in script.calls(*OPTIMIZERS):
        name = full_name(call.func)
        from_torch = "." not in name or re.match(r"(torch\.)?optim\.", name)
        if (
            from_torch
            and name not in own
            and call.args
            and not call.args[0].keyword
            and not call.args[0].star
        ):
            found.append((call, name))
    return found


def _called_by(
    script: Script, calls: list[tuple[cst.Call, str]], function: Callable[[str], str]
) -> cst.Module | None:
    """The calls with another expression for what is called."""
    edits: Edits = {}
    for call, name in calls:
        made = cst.parse_expression(function(name))
        edits[call] = lambda updated, made=made: updated.with_changes(func=made)
    return script.edited(edits) if edits else None


@variation
def model_from_factory(script: Script, rng: Random) -> cst.Module | None:
    """a function makes the model"""
    calls = _model_calls(script)
    names = {name: script.fresh(f"build_{name.lower()}") for _, name in calls}
    made = _called_by(script, calls, names.__getitem__)
    for name, factory in names.items():
        made = made and with_top(
            made, *script.parsed(FACTORY.format(name=factory, what="the model", made=name))
        )
    return made


@variation
def model_from_registry(script: Script, rng: Random) -> cst.Module | None:
    """model classes register themselves, and are looked up by name"""
    registry, register = script.fresh("MODELS"), script.fresh("register")
    calls = _model_calls(script)
    names = {name for _, name in calls}
    if not names:
        return None
    edits: Edits = {}
    for call, name in calls:
        found = cst.parse_expression(f'{registry}["{name}"]')
        edits[call] = lambda updated, found=found: updated.with_changes(func=found)
    for one in script.models():
        if one.name.value in names:
            mark = cst.Decorator(cst.parse_expression(f'{register}("{one.name.value}")'))
            edits[one] = lambda updated, mark=mark: updated.with_changes(
                decorators=[*updated.decorators, mark]
            )
    return with_top(
        script.edited(edits), *script.parsed(REGISTRY.format(registry=registry, register=register))
    )


@variation
def model_by_name(script: Script, rng: Random) -> cst.Module | None:
    """`getattr(module, name)` finds the model class"""
    made = _called_by(script, _model_calls(script), lambda name: f'getattr(sys.modules[__name__], "{name}")')
    return made and with_import(made, "import sys")


@variation
def optimizer_by_name(script: Script, rng: Random) -> cst.Module | None:
    """`getattr(torch.optim, name)` finds the optimizer's class"""
    calls = _optimizer_calls(script)
    if not re.search(r"^import torch$", script.text, re.MULTILINE):
        return None
    return _called_by(script, calls, lambda name: f'getattr(torch.optim, "{name.rpartition(".")[2]}")')


def _loader_calls(script: Script) -> list[tuple[cst.Call, str]]:
    inside = {id(node) for one in script.classes() for node in walk(one)}
    return [(one, full_name(one.func)) for one in script.calls("DataLoader") if id(one) not in inside]


@variation
def loader_from_factory(script: Script, rng: Random) -> cst.Module | None:
    """a function makes every loader"""
    calls = _loader_calls(script)
    name = script.fresh("make_loader")
    made = _called_by(script, calls, lambda _: name)
    return made and with_top(
        made, *script.parsed(FACTORY.format(name=name, what="a loader", made=calls[0][1]))
    )
