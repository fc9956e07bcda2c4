"""CT606: metric objects count every row once

What:   `sync_on_compute=False` for each of them.
Why:    In the converted script every process updates them with the rows of all. Left to itself, `compute()` adds up the
        processes' states, and a confusion matrix counts every row once per process.
Leaves: collections and wrappers, which ask the metrics that they hold; (finding) a metric class of the script's own, and
        arguments that cannot be seen.

Example (imports):
    import torchmetrics
And (setup):
    scores = torchmetrics.ConfusionMatrix(task="multiclass", num_classes=3)
And (after_step):
    scores.update(out, y)
And (after_epoch):
    print(scores.compute())
Becomes (setup):
    scores = torchmetrics.ConfusionMatrix(task="multiclass", num_classes=3, sync_on_compute=False)
And (after_step):
    out, y = accelerator.gather_for_metrics((out, y))
    scores.update(out, y)
And (after_epoch):
    accelerator.print(scores.compute())
Stays (imports):
    from torchmetrics.functional import accuracy
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.arguments import keyword_of
from crosstrain_migrate.facts.values import Class, External, Member
from crosstrain_migrate.results import Severity
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax import edits as e

RULE = "CT606"
LIBRARY = "torchmetrics."
OPTION = "sync_on_compute"
BASE = frozenset({"torchmetrics.Metric", "torchmetrics.metric.Metric"})
HOLDERS = frozenset({"torchmetrics.MetricCollection", "torchmetrics.collections.MetricCollection"})


def plan(context: Context) -> None:
    for call in context.facts.calls:
        if any(_is_metric(path) for path in context.facts.paths(call.func)):
            _synchronise_nothing(context, call)
        elif any(
            isinstance(value, Class) and context.facts.interp.inherits(value.node, BASE)
            for value in context.facts.of(call.func)
        ):
            _report(context, call, "is a metric class of the script's own")


def is_updated(context: Context, call: ast.AST) -> bool:
    """Whether a call adds rows to a metric object and does nothing else: `metric.update(out, y)`, `metric(out, y)`."""
    if not isinstance(call, ast.Call) or not isinstance(context.facts.table.parents.get(call), ast.Expr):
        return False
    called = [
        value.receiver if isinstance(value, Member) and value.name == "update" else value
        for value in context.facts.of(call.func)
    ]
    return bool(called) and all(isinstance(v, External) and v.path.startswith(LIBRARY) for v in called)


def _is_metric(path: str) -> bool:
    made = path.startswith(LIBRARY) and api.last(path)[:1].isupper()
    return made and ".wrappers." not in path and path not in HOLDERS | BASE


def _synchronise_nothing(context: Context, call: ast.Call) -> None:
    if not context.allows(RULE, call):
        return
    reason = "every process has the rows of all: their states must not be added up"
    given = keyword_of(call, OPTION)
    if given is not None:
        if not (isinstance(given, ast.Constant) and given.value is False):
            context.replace(given, RULE, reason, "False")
    elif any(k.arg is None for k in call.keywords):
        _report(context, call, "gets its arguments from a dictionary")
    else:
        context.edits.append(e.InsertArgument(call, RULE, reason, position=-1, code=f"{OPTION}=False"))


def _report(context: Context, call: ast.Call, why: str) -> None:
    context.note(
        RULE,
        call,
        f"every process updates this metric with the rows of all, and `compute()` adds up the processes' states unless "
        f"it is told not to; `{ast.unparse(call.func)}` {why}",
        f"see that the metric is made with {OPTION}=False",
        Severity.NOTE,
    )
