"""A script that names no device and computes with tensors that are surely on the CPU: it stays there."""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.reading.forms import FUNCTIONS, is_method, names_in, root_of
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import COMPREHENSIONS, written
from crosstrain_migrate.syntax.scopes import suites
from crosstrain_migrate.syntax.walks import walk

from .made_tensors import makes_tensor

_CPU_TYPE = re.compile(r"torch\.\w*Tensor")
_OF_DEVICES = re.compile(r"cuda|gpu|device|accelerat|(?<![a-z])(mps|xla|xpu)(?![a-z])", re.I)
_CHOOSES = re.compile(
    r"\.cuda\(|torch\.cuda\.\w*Tensor|['\"](cuda|mps|xla|xpu)\b|default_device|accelerat", re.I
)
_FOLLOWS = re.compile(r"device\.type|is_cuda")
_COMPOUND = (*FUNCTIONS, ast.ClassDef, ast.If, ast.For, ast.While, ast.With, ast.Try)


def is_made_on_cpu(script: Script) -> bool:
    """Whether no code names a device: what the training computes with stays where it is made. A module that
    is imported and goes by what it is given, `device=x.device`, `if x.is_cuda:`, `torch.device(device)`, names none."""
    return _OF_DEVICES.search(script.text) is None or not any(
        _OF_DEVICES.search(ast.unparse(one)) if module is script.entry else _chooses(one)
        for module in script.modules
        for one in module.body
    )


def _chooses(node: ast.stmt) -> bool:
    if not isinstance(node, _COMPOUND):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        says = is_text or isinstance(node, ast.Raise | ast.Assert)
        return not says and _CHOOSES.search(ast.unparse(node)) is not None
    if isinstance(node, ast.If) and _FOLLOWS.search(ast.unparse(node.test)):
        return any(map(_chooses, node.orelse))
    heads = [one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.stmt | ast.ExceptHandler)]
    return any(_CHOOSES.search(ast.unparse(one)) for one in heads) or any(
        _chooses(one) for suite in suites(node) for one in suite
    )


def computes_with_own_tensors(script: Script, roles: Roles) -> bool:
    """Whether what trains is called with a variable of a file that is bound outside of its loops and functions, so that no
    loader has moved it, `model(test_x)`, or with the items of a list that is made, `[model(x) for x, y in test_loader]`."""
    models = {text for one in roles.optimizers for text in roles.models_of(one.frame, one.text)}
    return any(
        (isinstance(given, ast.Name) and _is_bound_apart(script, given)) or _is_item(script, given)
        for call in script.calls
        if written(call.func) in models
        for given in call.args
    )


def casts_to_cpu(script: Script, roles: Roles) -> bool:
    """Whether a training loop turns tensors into the CPU's: `y_pred.type(torch.DoubleTensor)`."""
    return any(
        is_method(node, "type") and node.args and _CPU_TYPE.fullmatch(script.dotted(node.args[0]))
        for one in roles.data
        if one.loop is not None
        for node in walk(one.loop)
    )


def _is_item(script: Script, node: ast.expr) -> bool:
    """Whether a comprehension gives it, from what is no call: nothing prepares what that goes over."""
    around = (one for one in script.around(node) if isinstance(one, COMPREHENSIONS))
    sources = [one for inner in around for one in inner.generators]
    return any(isinstance(one.iter, ast.Name) and root_of(node) in names_in(one.target) for one in sources)


def _is_bound_apart(script: Script, name: ast.Name) -> bool:
    """Whether plain assignments outside of loops are all that binds a variable of a file, to what is not made on the device."""
    module = script.module(name)
    frame = script.frame(name)
    if frame is not module and script.binds(frame, name.id):
        return False
    stores, values = script.stores(module, name.id), script.values(module, name.id)
    is_plain = len(stores) == len(values) and not any(makes_tensor(script, one) for one in values)
    return bool(stores) and is_plain and not any(map(script.loops_around, stores))
