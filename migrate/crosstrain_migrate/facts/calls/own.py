"""Calls of the script's own functions and classes: arguments flow into parameters, results come back."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import replace

from crosstrain_migrate.facts import containers, context
from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.argument_values import note_parameters
from crosstrain_migrate.facts.arguments import argument_of, keywords_of, positional_of
from crosstrain_migrate.facts.interpretation import Interpretation
from crosstrain_migrate.facts.memory import ANY
from crosstrain_migrate.facts.values import External, Generator, Instance, Sequence, Value, Values
from crosstrain_migrate.syntax.nodes import FunctionNode, all_arguments, fields_of
from crosstrain_migrate.syntax.scopes import Scope

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
    results = context.results_of(interp, function, node)
    if function in interp.factories:
        results = frozenset(
            replace(v, via=node) if isinstance(v, External) and interp.is_made_in(v, function) else v
            for v in results
        )
    return context.in_context(interp, function, node, results, local)


def bind_arguments(
    interp: Interpretation, function: FunctionNode, node: ast.Call, receiver: Instance | None = None
) -> None:
    """Lets a call's arguments flow into a function's parameters."""
    interp.merge_calls(function, node)
    scope = interp.table.scopes[function]
    parameters = positional_of(function)
    taken: set[str] = {k.arg for k in node.keywords if k.arg}
    if receiver is not None and parameters:
        taken.add(parameters[0].arg)
        interp.bind_argument(scope, parameters.pop(0), {receiver})
    taken |= {p.arg for p in parameters[: len(node.args)]}
    for index, argument in enumerate(node.args):
        values = interp.of(argument)
        if isinstance(argument, ast.Starred):
            for parameter in parameters[index:]:
                interp.bind_argument(scope, parameter, values)
            break
        if index < len(parameters):
            interp.bind_argument(scope, parameters[index], values)
        else:
            _collect(interp, scope, function.args.vararg, values)
    known = {a.arg: a for a in all_arguments(function)}
    for keyword in node.keywords:
        values = interp.of(keyword.value)
        if keyword.arg is None:
            # All parameters but `self` and those that the call gives by name or by position.
            for name in (name for name in known if name not in taken):
                spread = {e for v in values for e in interp.element(v, name)}
                interp.bind_argument(scope, known[name], spread)
            _collect(interp, scope, function.args.kwarg, {e for v in values for e in interp.element(v)})
        elif keyword.arg in known:
            interp.bind_argument(scope, known[keyword.arg], values)
        else:
            _collect(interp, scope, function.args.kwarg, values)


def _collect(
    interp: Interpretation, scope: Scope, parameter: ast.arg | None, values: Collection[Value]
) -> None:
    """Adds to what `*args` or `**kwargs` holds."""
    if parameter is not None:
        interp.bind_argument(scope, parameter, {Sequence(parameter)})
        interp.store(parameter, ANY, values)


def construct(interp: Interpretation, cls: ast.ClassDef, node: ast.Call) -> Values:
    """What a call of a class makes: an object of it."""
    if node in interp.in_modules and containers.is_record(interp, cls):
        return containers.record(interp, node, fields_of(cls))  # what the model returns, made anew
    instance = Instance(cls, node)
    init = interp.method(cls, "__init__")
    if init is not None:
        moved = argument_of(node, init, interp.wrappers.get(cls, ""), True)
        if moved is not None:
            return interp.of(moved)
        bind_arguments(interp, init, node, instance)
    else:  # a data class
        given = dict(zip(fields_of(cls), node.args, strict=False)) | keywords_of(node)
        for name, argument in given.items():
            interp.store(cls, name, interp.of(argument))
    if interp.inherits(cls, api.OPTIMIZER_BASES):
        note_parameters(interp, node)
    return frozenset({instance})


def call_instance(interp: Interpretation, instance: Instance, node: ast.Call) -> Values:
    module = interp.is_module(instance)
    method = interp.method(instance.cls, "forward" if module else "__call__")
    if method is None:
        return call_module(interp, node) if module else of_unknown(interp, node)
    bind_arguments(interp, method, node, instance)
    results = context.results_of(interp, method, node)
    return context.in_context(interp, method, node, results, local=module)
