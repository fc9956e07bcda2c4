"""What a call returns, by what is called.

`own`: the script's functions and classes. `imported`: names from libraries and builtins. `modules`: layers, models and
losses. `tensor_functions`: what becomes of a batch's share. `methods`: methods of values that have no definition here.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from crosstrain_migrate.facts.arguments import arguments_of
from crosstrain_migrate.facts.interpretation import Interpretation
from crosstrain_migrate.facts.values import (
    NOTHING,
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
    for argument in arguments_of(node):
        interp.eval(argument)
    if len(functions) > 1:
        functions = _without_doubts(interp, functions)
    found: Values = NOTHING
    for function in functions:
        found |= _call(interp, function, node)
    # Nothing is made global inside a module: what is read into Python there is still one rank's.
    if node not in interp.in_modules:
        return found
    return frozenset(replace(v, host=False) if isinstance(v, FromBatch) else v for v in found)


def _without_doubts(interp: Interpretation, functions: Values) -> Values:
    """Drops what is less well known where one function is known in several ways."""
    if any(isinstance(f, External | Instance) and interp.is_module(f) for f in functions):
        # A submodule that was assigned is no unknown method.
        functions = frozenset(
            f for f in functions if not (isinstance(f, Member) and interp.is_module(f.receiver))
        )
    members = [f for f in functions if isinstance(f, Member)]
    if any(isinstance(f.receiver, FromBatch) for f in members):
        # The method of a tensor, of which other calls of this function give something unknown.
        functions -= {f for f in members if isinstance(f.receiver, Unknown)}
    return functions


def _call(interp: Interpretation, function: Value, node: ast.Call) -> Values:
    match function:
        case Symbol():
            return call_symbol(interp, function.path, node)
        case Function():
            return call_function(interp, function.node, node)
        case Method():
            return call_function(interp, function.function.node, node, function.receiver)
        case Class():
            return construct(interp, function.node, node)
        case Instance():
            return call_instance(interp, function, node)
        case External() if is_partial(function):
            return call_partial(interp, function, node) or of_unknown(interp, node)
        case External():
            return call_external(interp, function, node)
        case Member():
            return call_member(interp, function, node)
        case _:
            return of_unknown(interp, node)
