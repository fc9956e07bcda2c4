"""Which expression a call gives to which parameter."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import given, keyword_of
from crosstrain_migrate.syntax.nodes import FunctionNode


def option_name(call: ast.Call) -> str:
    """The attribute that `add_argument(...)` fills."""
    keyword = keyword_of(call, "dest")
    if isinstance(keyword, ast.Constant):
        return str(keyword.value)
    names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    chosen = next((n for n in names if n.startswith("--")), names[-1] if names else "")
    return chosen.lstrip("-").replace("-", "_")


def spreads(site: ast.Call) -> bool:
    """Whether a call passes `*args` or `**options`, so that not all it gives is written there."""
    return any(isinstance(a, ast.Starred) for a in site.args) or any(k.arg is None for k in site.keywords)


def default_of(function: FunctionNode, argument: ast.arg) -> ast.expr | None:
    """The default of a parameter; None where it has none."""
    positional = [*function.args.posonlyargs, *function.args.args]
    if argument in positional:
        index = positional.index(argument) - (len(positional) - len(function.args.defaults))
        return function.args.defaults[index] if index >= 0 else None
    if argument in function.args.kwonlyargs:
        return function.args.kw_defaults[function.args.kwonlyargs.index(argument)]
    return None


def spawn_arguments(spawn: ast.Call) -> list[ast.expr] | None:
    """The `args=` of mp.spawn; None when it is no literal tuple."""
    passed = given(spawn, "args", 1)
    if passed is None:
        return []
    return list(passed.elts) if isinstance(passed, ast.Tuple | ast.List) else None
