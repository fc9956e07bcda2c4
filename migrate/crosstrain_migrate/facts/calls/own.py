"""Calls of the script's own functions and classes: arguments flow into parameters, results come back."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import replace

from crosstrain_migrate.facts import containers, context
from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.argument_values import note_parameters
from crosstrain_migrate.facts.arguments import argument_of, keywords_of
from crosstrain_migrate.facts.interpretation import Interpretation
from crosstrain_migrate.facts.memory import ANY
from crosstrain_migrate.facts.regions import in_module
from crosstrain_migrate.facts.values import External, Generator, Instance, Sequence, Value, Values
from crosstrain_migrate.syntax.nodes import FunctionNode, all_arguments, fields_of

from .modules import call_module
from .tensor_functions import of_unknown


def call_function(
    interp: Interpretation, function: FunctionNode, node: ast.Call, receiver: Instance | None = None
) -> Values:
    bind_arguments(interp, function, node, receiver)
    moved = argument_of(node, function, interp.movers.get(function, ""), receiver is not None)
    if moved is not None:
        return interp.of(moved)
    # A module's methods run its layers on their arguments, and hold no batch.
    local = function not in interp.touching or function in interp.module_methods
    if function in interp.generators and local:
        yielded = frozenset(interp.yields[function])
        interp.store(node, ANY, context.in_context(interp, function, node, yielded, local))
        return frozenset({Generator(node)})
    results = context.returned_by(interp, function, node)
    if function in interp.factories:
        results = frozenset(_by_this_call(v, node) if interp.is_made_in(v, function) else v for v in results)
    return context.in_context(interp, function, node, results, local)


def _by_this_call(value: Value, node: ast.Call) -> Value:
    return replace(value, via=node) if isinstance(value, External) else value


def bind_arguments(
    interp: Interpretation, function: FunctionNode, node: ast.Call, receiver: Instance | None = None
) -> None:
    """Lets a call's arguments flow into a function's parameters."""
    interp.merge_calls(function, node)
    scope = interp.table.scopes[function]
    parameters = [*function.args.posonlyargs, *function.args.args]
    if receiver is not None and parameters:
        interp.bind_argument(scope, parameters.pop(0), {receiver})
    for index, argument in enumerate(node.args):
        if isinstance(argument, ast.Starred):
            for parameter in parameters[index:]:
                interp.bind_argument(scope, parameter, interp.of(argument))
            break
        if index < len(parameters):
            interp.bind_argument(scope, parameters[index], interp.of(argument))
        elif function.args.vararg is not None:
            interp.bind_argument(scope, function.args.vararg, {Sequence(function.args.vararg)})
            interp.store(function.args.vararg, ANY, interp.of(argument))
    known = {a.arg: a for a in all_arguments(function)}
    taken = {a.arg for a in (*function.args.posonlyargs, *function.args.args)} - {p.arg for p in parameters}
    taken |= {p.arg for p in parameters[: len(node.args)]} | {k.arg for k in node.keywords if k.arg}
    for keyword in node.keywords:
        if keyword.arg is None:
            for name, parameter in known.items():
                if name in taken:
                    continue  # `self`, and what is given by position
                spread = {e for v in interp.of(keyword.value) for e in interp.element(v, name)}
                interp.bind_argument(scope, parameter, spread)
            _bind_rest(interp, function, {e for v in interp.of(keyword.value) for e in interp.element(v)})
        elif keyword.arg in known:
            interp.bind_argument(scope, known[keyword.arg], interp.of(keyword.value))
        else:
            _bind_rest(interp, function, interp.of(keyword.value))


def _bind_rest(interp: Interpretation, function: FunctionNode, values: Collection[Value]) -> None:
    """What goes into `**kwargs`."""
    rest = function.args.kwarg
    if rest is not None:
        interp.bind_argument(interp.table.scopes[function], rest, {Sequence(rest)})
        interp.store(rest, ANY, values)


def construct(interp: Interpretation, cls: ast.ClassDef, node: ast.Call) -> Values:
    if in_module(interp, node) and containers.is_record(interp, cls):
        return containers.record(interp, node, fields_of(cls))  # what the model returns, made anew
    instance = Instance(cls, node)
    init = interp.method(cls, "__init__")
    moved = argument_of(node, init, interp.wrappers.get(cls, ""), True) if init is not None else None
    if moved is not None:
        return interp.of(moved)
    if init is not None:
        bind_arguments(interp, init, node, instance)
    else:
        _bind_fields(interp, cls, node)
    if interp.inherits(cls, api.OPTIMIZER_BASES):
        note_parameters(interp, node)
    return frozenset({instance})


def _bind_fields(interp: Interpretation, cls: ast.ClassDef, node: ast.Call) -> None:
    """A dataclass's generated constructor."""
    for name, argument in zip(fields_of(cls), node.args, strict=False):
        interp.store(cls, name, interp.of(argument))
    for key, argument in keywords_of(node).items():
        interp.store(cls, key, interp.of(argument))


def call_instance(interp: Interpretation, instance: Instance, node: ast.Call) -> Values:
    name = "forward" if interp.is_module(instance) else "__call__"
    method = interp.method(instance.cls, name)
    if method is None:
        return call_module(interp, node) if interp.is_module(instance) else of_unknown(interp, node)
    bind_arguments(interp, method, node, instance)
    results = context.returned_by(interp, method, node)
    return context.in_context(interp, method, node, results, local=interp.is_module(instance))
