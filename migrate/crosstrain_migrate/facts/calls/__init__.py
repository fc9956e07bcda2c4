"""What a call returns, by what is called.

`own`: the script's functions and classes. `imported`: names from libraries and builtins. `modules`: layers, models and
losses. `tensor_functions`: what becomes of a batch's share. `methods`: methods of values we have no definition of.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from crosstrain_migrate.facts.interpretation import Interpretation
from crosstrain_migrate.facts.regions import in_module
from crosstrain_migrate.facts.values import (
    Class,
    External,
    FromBatch,
    Function,
    Instance,
    Member,
    Method,
    Symbol,
    Unknown,
    Value,
    Values,
)

from .imported import call_symbol
from .methods import call_member
from .modules import call_external
from .own import call_function, call_instance, construct
from .partials import call_partial, is_partial
from .tensor_functions import of_unknown


def evaluate(interp: Interpretation, node: ast.Call) -> Values:
    functions = interp.eval(node.func)
    for argument in (*node.args, *(k.value for k in node.keywords)):
        interp.eval(argument.value if isinstance(argument, ast.Starred) else argument)
        if isinstance(argument, ast.Starred):
            interp.eval(argument)
    if len(functions) > 1:
        functions = _without_doubts(interp, functions)
    found: set[Value] = set()
    for function in functions:
        found |= _call(interp, function, node)
    # Nothing is made global inside a module: what is read into Python there is still one rank's.
    if not in_module(interp, node):
        return frozenset(found)
    return frozenset(replace(v, host=False) if isinstance(v, FromBatch) else v for v in found)


def _without_doubts(interp: Interpretation, functions: Values) -> Values:
    """Of several that may be called, those that are known, where others are the same thing and not known."""
    objects = [f for f in functions if isinstance(f, External | Instance)]
    if objects and any(map(interp.is_module, objects)):  # a submodule that was assigned is no unknown method
        functions = frozenset(
            f for f in functions if not (isinstance(f, Member) and interp.is_module(f.receiver))
        )
    if any(isinstance(f, Member) and isinstance(f.receiver, FromBatch) for f in functions):
        # The method of a tensor, of which other calls of this function give something unknown.
        functions = frozenset(
            f for f in functions if not (isinstance(f, Member) and isinstance(f.receiver, Unknown))
        )
    return functions


def _call(interp: Interpretation, function: Value, node: ast.Call) -> Values:
    if isinstance(function, Symbol):
        return call_symbol(interp, function.path, node)
    if isinstance(function, Function):
        return call_function(interp, function.node, node)
    if isinstance(function, Method):
        return call_function(interp, function.function.node, node, function.receiver)
    if isinstance(function, Class):
        return construct(interp, function.node, node)
    if isinstance(function, Instance):
        return call_instance(interp, function, node)
    if isinstance(function, External) and is_partial(function):
        return call_partial(interp, function, node) or of_unknown(interp, node)
    if isinstance(function, External):
        return call_external(interp, function, node)
    if isinstance(function, Member):
        return call_member(interp, function, node)
    return of_unknown(interp, node)
