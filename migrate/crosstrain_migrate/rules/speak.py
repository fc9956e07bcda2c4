"""CT401: one process speaks.

What:   `print` becomes `accelerator.print` wherever the accelerator is at hand or its callers can pass it on.
Why:    Every process runs the script; the terminal needs each line once.
Before: `print(f"epoch {epoch}")`
After:  `accelerator.print(f"epoch {epoch}")`
Leaves: prints to a file, prints inside modules and data sets, prints before the Accelerator exists.
"""

from __future__ import annotations

import ast

from .base import Context, Refusal

RULE = "CT401"


def plan(context: Context) -> None:
    for call in context.facts.calls_to("builtins.print"):
        if not isinstance(call.func, ast.Name) or not context.reachable(call):
            continue
        if not context.allows(RULE, call):
            continue
        if any(k.arg == "file" for k in call.keywords) or _evaluated_on_one(context, call):
            continue
        try:
            accelerator = context.accelerator(call)
        except Refusal:
            continue
        context.replace(call.func, RULE, "printed once, by the main process", f"{accelerator}.print")


def _evaluated_on_one(context: Context, call: ast.Call) -> bool:
    """Code that only some processes run anyway keeps its print."""
    for around in context.facts.table.ancestors(call):
        if isinstance(around, ast.If) and "is_main_process" in ast.unparse(around.test):
            return True
    return False
