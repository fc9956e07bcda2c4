"""Where the objects of training are held: in a dictionary, a list, a namespace; and how models are made."""

from collections.abc import Callable
from random import Random

import libcst as cst

from tests.corpora.variations.registry import variation
from tests.corpora.variations.script import (
    Edits,
    Script,
    Variable,
    called,
    is_docstring,
    text_name,
    walk,
    with_import,
    with_top,
)

MADE_BY_CALL = ("DataLoader", "SGD", "Adam", "AdamW", "RMSprop", "Adadelta", "Adagrad")
ENDS = ("Loss", "LR", "Loader")


def _roles(script: Script, variables: dict[str, Variable]) -> list[Variable]:
    """Models, optimizers, loaders, losses and schedulers of one scope."""
    classes = {one.name.value for one in script.models()}
    found = []
    for variable in variables.values():
        if not variable.plain or not variable.stores:
            continue
        values = [
            assign.value
            for store in variable.stores
            if isinstance(target := script.parents[store], cst.AssignTarget)
            and isinstance(assign := script.parents[target], cst.Assign)
            and len(assign.targets) == 1
        ]
        if len(values) != len(variable.stores):
            continue
        names = {called(n) for value in values for n in walk(value)}
        if names & {*MADE_BY_CALL, *classes, "Sequential"} or any(n.endswith(ENDS) for n in names):
            found.append(variable)
    return found


def _held(
    script: Script,
    spelled: Callable[[int, str], str],
    first: Callable[[list[str]], str],
    *,
    quoted: bool = False,
) -> cst.Module | None:
    """The objects of the scope with most of them, each spelled in another way; `first` makes what holds them."""
    if script.dynamic:
        return None
    scopes: list[cst.Module | cst.FunctionDef] = [script.module, *script.functions()]
    found = [(one, _roles(script, script.variables(script.scope(one)))) for one in scopes]
    place, roles = max(found, key=lambda pair: len(pair[1]))
    roles = [one for one in roles if not _is_fixed(script, one, quoted)]
    if len(roles) < 2:
        return None
    edits: Edits = {}
    for number, variable in enumerate(roles):
        for node in variable.nodes:
            edits[node] = text_name(spelled(number, variable.name))
    head = script.one(first([one.name for one in roles]))
    if isinstance(place, cst.FunctionDef):
        at = 1 if is_docstring(place.body.body[0]) else 0
        edits[place.body] = lambda new: new.with_changes(body=[*new.body[:at], head, *new.body[at:]])
        return script.edited(edits)
    return with_top(script.edited(edits), head)


def _is_fixed(script: Script, variable: Variable, quoted: bool) -> bool:
    """Whether a statement names the variable in a way that takes nothing but a name."""
    declared = any(
        isinstance(n, cst.Global | cst.Nonlocal | cst.Del)
        and variable.name in script.code(n).replace(",", " ").split()
        for n in script.nodes
    )
    shown = any(script.in_fstring(n) for n in variable.nodes)
    exported = any(isinstance(n, cst.NamedExpr) for n in map(script.parents.get, variable.stores))
    return declared or exported or (quoted and shown)


@variation
def objects_in_dict(script: Script, rng: Random) -> cst.Module | None:
    """model, optimizer and loaders are entries of a dictionary"""
    name = script.fresh("parts")
    return _held(script, lambda _, key: f'{name}["{key}"]', lambda _: f"{name} = {{}}", quoted=True)


@variation
def objects_in_list(script: Script, rng: Random) -> cst.Module | None:
    """model, optimizer and loaders are items of a list"""
    name = script.fresh("things")
    return _held(script, lambda n, _: f"{name}[{n}]", lambda names: f"{name} = [None] * {len(names)}")


@variation
def objects_in_namespace(script: Script, rng: Random) -> cst.Module | None:
    """model, optimizer and loaders are attributes of a SimpleNamespace"""
    name = script.fresh("run_state")
    made = _held(script, lambda _, key: f"{name}.{key}", lambda _: f"{name} = types.SimpleNamespace()")
    return made and with_import(made, "import types")


@variation
def model_by_name(script: Script, rng: Random) -> cst.Module | None:
    """`getattr(module, name)` finds the model class"""
    names = {one.name.value for one in script.models()}
    inside = {id(node) for one in script.classes() for node in walk(one)}
    edits: Edits = {}
    for call in script.calls(*names):
        if isinstance(call.func, cst.Name) and id(call) not in inside:
            made = cst.parse_expression(f'getattr(sys.modules[__name__], "{call.func.value}")')
            edits[call] = lambda updated, made=made: updated.with_changes(func=made)
    return with_import(script.edited(edits), "import sys") if edits else None
