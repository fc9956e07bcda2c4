"""A file that only the main process writes is the null device on the others."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.syntax import edits as e


def null_device(
    plan: Plan, path: ast.expr, state: str, rule: str, reason: str, group: str, made: str = ""
) -> None:
    """The file at `path` is the null device on all but the main process, which `state` knows. made: what makes a path, where
    `path` is asked to open itself."""
    module = plan.script.module(path)
    given = "({path})" if isinstance(path, ast.IfExp | ast.Lambda) else "{path}"
    other = f"{made}(os.devnull)" if made else "os.devnull"
    code = f"{given} if {state}.is_main_process else {other}"
    plan.replace(path, rule, reason, f"({code})" if made else code, group, path=path)
    names = {
        a.asname or a.name for n in plan.script.within(module) if isinstance(n, ast.Import) for a in n.names
    }
    if "os" not in {name.split(".")[0] for name in names}:
        plan.add(e.AddImport(module, rule, transaction=group, code="import os"))
