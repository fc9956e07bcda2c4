"""CT401: one process prints

What:   `print` and `sys.stdout.write` become `accelerator.print` wherever the accelerator is at hand or its callers can
        pass it on; progress bars, TensorBoard writers, wandb and visdom, log levels and log files are silent on the
        other processes.
Why:    Every process runs the script; the terminal needs each line once.
Leaves: prints to a file or to standard error, prints inside modules and data sets, prints before the Accelerator exists.

Example (after_epoch):
    print(f"epoch {epoch}")  # every line once
Becomes (after_epoch):
    accelerator.print(f"epoch {epoch}")  # every line once
Stays (end):
    import sys
    print("done", file=sys.stderr)
"""

from __future__ import annotations

import ast
from collections import defaultdict

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.arguments import keyword_of
from crosstrain_migrate.rules.access import STATE
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.numbers import shapes
from crosstrain_migrate.syntax import edits as e

from . import loggers

RULE = "CT401"
ONCE = "printed once, by the main process"


def plan(context: Context) -> None:
    loggers.plan(context)
    for call in context.facts.calls_to("builtins.print"):
        if isinstance(call.func, ast.Name) and call.func.id == "print" and not _elsewhere(context, call):
            _print_once(context, call)
    for call in context.facts.calls_to("sys.stdout.write"):
        # Its value, the number of characters, is not what `print` returns.
        if len(call.args) == 1 and isinstance(context.facts.table.parents.get(call), ast.Expr):
            _print_once(context, call, end='end=""')
    _report_other_files(context)


def _elsewhere(context: Context, call: ast.Call) -> bool:
    """Whether a print goes somewhere else than to the terminal's standard output."""
    file = keyword_of(call, "file")
    return file is not None and "sys.stdout" not in context.facts.paths(file)


def _print_once(context: Context, call: ast.Call, end: str = "") -> None:
    """Makes `call` the main process's, with one more argument if `end` says one."""
    if _in_callback(context, call):
        return
    if not context.at_hand(call):
        _print_out_of_reach(context, call)
    elif _may_change(context, call):
        context.replace(call.func, RULE, ONCE, f"{context.accelerator(call)}.print")
        if end:
            context.edits.append(e.InsertArgument(call, RULE, position=-1, code=end))


def _print_out_of_reach(context: Context, call: ast.Call) -> None:
    """A print where the accelerator cannot be: one process calls the method that does nothing else, or a note says so."""
    sites = shapes.calls_by_one_process(context, call) if _is_in_module_class(context, call) else []
    for site in sites:
        if any(x.node is site.func for x in context.edits):
            continue  # another print of the same method
        template = context.accelerator(site) + ".on_local_main_process({x})"
        context.replace(site.func, RULE, ONCE, template, x=site.func)
    if sites or not _is_to_be_reported(context, call):
        return
    context.note_unguarded(
        RULE,
        call,
        "every process prints this line, because the accelerator is not available here",
        "print it where the accelerator is available, or under `if PartialState().is_main_process:`",
    )


def _in_callback(context: Context, call: ast.Call) -> bool:
    """Whether it stands in a function that only libraries call, in processes without an accelerator: a loader's workers."""
    facts = context.facts
    function = facts.enclosing_function(call)
    if any(function in closures for _, closures in facts.steps_with_closure):
        return False  # the optimizer calls it
    return function in facts.interp.escaped and not facts.callers.get(function)


def _may_change(context: Context, call: ast.Call) -> bool:
    """Whether the print is the tool's to change: one that only some processes run anyway stays."""
    if not context.allows(RULE, call):
        return False
    tests = (a.test for a in context.facts.table.ancestors(call) if isinstance(a, ast.If))
    return not any("is_main_process" in ast.unparse(test) for test in tests)


def _is_to_be_reported(context: Context, call: ast.Call) -> bool:
    """Whether a print that stays on every process is worth a note."""
    function = context.facts.enclosing_function(call)
    return _may_change(context, call) and not (function and context.is_called_by_a_library(function))


def _is_in_module_class(context: Context, call: ast.Call) -> bool:
    cls = context.method_class(context.facts.enclosing_function(call))
    is_module = cls is not None and context.facts.interp.inherits(cls, api.MODULE_BASES)
    return is_module and context.allows(RULE, call)


def _report_other_files(context: Context) -> None:
    """One note for each imported file that prints: nothing in it changes for that."""
    files: dict[ast.Module, list[ast.Call]] = defaultdict(list)
    for call in context.unguarded_output:
        if context.facts.is_reached(call):
            files[context.facts.table.of_node[call].file].append(call)
    for calls in files.values():
        first = min(calls, key=lambda c: c.lineno)
        others = "" if len(calls) == 1 else f", and {len(calls) - 1} more in this file"
        context.note(
            RULE,
            first,
            f"every process runs this `{ast.unparse(first.func)}`{others}, because functions in other files are not changed for output alone",
            f"put it under `if {STATE}().is_main_process:` if that is a problem",
        )
