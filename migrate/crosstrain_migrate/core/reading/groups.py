"""Which calls make a group of processes."""

from __future__ import annotations

import ast

from .script import Script


def makes_group(script: Script, call: ast.Call) -> bool:
    """Whether a call is torch's `init_process_group`, and not a function of the project with such a name."""
    name, path = "init_process_group", script.dotted(call.func)
    if path.startswith("torch.distributed.") and path.endswith(name):
        return True
    is_own = isinstance(call.func, ast.Name) or script.is_imported(call.func)
    return script.last(call.func) == name and not (is_own and script.functions(name))
