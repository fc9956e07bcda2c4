"""Whether a script does more than it offers to others."""

from __future__ import annotations

import ast
import builtins

from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk

from .code import Code
from .forms import FUNCTIONS


def may_act(script: Code, calls: list[ast.Call]) -> bool:
    """Whether the calls of a script's top level come to more than libraries, there and in plain functions of the file: to a
    method of an object, a class, another file, a function that is handed on."""
    own = {one.name: one for one in script.entry.body if isinstance(one, FUNCTIONS)}
    if any(one.decorator_list for one in own.values()):
        return bool(calls)
    work, seen = list(calls), set[str]()
    for call in work:  # grows meanwhile
        text = written(call.func)
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if any(written(one) in own for one in given) or not (text in own or _is_of_library(script, call)):
            return True
        if text in own and text not in seen:
            seen.add(text)
            work += [node for node in walk(own[text]) if isinstance(node, ast.Call)]
    return False


def _is_of_library(script: Code, call: ast.Call) -> bool:
    """Whether a call is a builtin's, or of a module that is none of the project's and runs nothing of it, `unittest.main()`."""
    if last_name(call.func) in ("main", "run"):
        return False
    if not script.is_imported(call.func):
        return isinstance(call.func, ast.Name) and hasattr(builtins, call.func.id)
    return script.is_of_library(call.func)
