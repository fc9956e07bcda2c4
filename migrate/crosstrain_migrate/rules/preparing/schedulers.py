"""CT205: schedulers step as they are written

What:   All schedulers of one kind are prepared; per-epoch ones with `step_scheduler_with_optimizer=False`. Where a
        script has both kinds, the per-epoch ones stay unprepared.
Why:    A prepared per-batch scheduler advances by the number of processes at each step, so that a schedule written for
        the loader's full length still ends on time; one stepped per epoch must not.
Leaves: a scheduler that gets the length of a loader which must be prepared first: that length is its number of steps.
        So it is for a scheduler whose function asks for the length at every step.
Refuses: such a loader beside another training loader.

Example (setup):
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
And (after_epoch):
    scheduler.step()
Becomes (device):
    accelerator = Accelerator(step_scheduler_with_optimizer=False)  # the fastest there is
And (prepare): nothing
And (setup):
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model, optimizer, train_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, scheduler
    )
Stays (after_epoch):
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
"""

from __future__ import annotations

import ast
import sys

from crosstrain_migrate.facts.arguments import arguments_of
from crosstrain_migrate.facts.values import Function, Length, Member, Value
from crosstrain_migrate.rules.base import Context, refuse
from crosstrain_migrate.syntax.nodes import line_of
from crosstrain_migrate.syntax.walks import walk

from .holders import stores

RULE = "CT205"


def plan(context: Context) -> None:
    facts = context.facts
    per_batch: list[Value] = []
    per_epoch: list[Value] = []
    for scheduler in facts.schedulers:
        calls = _steps_of(context, scheduler)
        if not calls or not any(stores(facts, scope, scheduler) for scope in context.subject.scopes):
            continue
        inside = [facts.in_batch_loop(c, set(context.subject.train_loaders)) for c in calls]
        if not any(inside):
            per_epoch.append(scheduler)
        elif not _asks_later(context, scheduler):
            per_batch.append(scheduler)
    if per_batch:
        context.subject.schedulers = per_batch
        for scheduler in per_batch:
            _report_lengths(context, scheduler)
    elif per_epoch:
        context.subject.schedulers = per_epoch
        context.options["step_scheduler_with_optimizer"] = "False"


def _steps_of(context: Context, scheduler: Value) -> list[ast.Call]:
    facts = context.facts
    return [c for c in facts.method_calls("step") if Member(scheduler, "step") in facts.of(c.func)]


def _asks_later(context: Context, scheduler: Value) -> bool:
    """Whether a function of the schedule asks for the length of a loader each time: `lambda step: step / len(loader)`.

    After `prepare` that is the length of a process's share, which is its number of steps, so the scheduler stays as it is.
    """
    site = getattr(scheduler, "site", None)
    given = arguments_of(site) if isinstance(site, ast.Call) else []
    values = {v for argument in given for part in walk(argument) for v in context.facts.of(part)}
    functions = [v.node for v in values if isinstance(v, Function)]
    asked = (n for function in functions for n in walk(function) if isinstance(n, ast.Call))
    return any(_of_what_is_prepared(context, call) for call in asked)


def _of_what_is_prepared(context: Context, call: ast.Call) -> bool:
    """Whether a call asks for the length of a loader by the name that prepare binds again."""
    facts = context.facts
    loaders = [v for v in context.subject.loaders if Length(v) in facts.of(call)]
    if not loaders or not call.args:
        return False
    asked = call.args[0]
    if not isinstance(asked, ast.Name):
        return True
    scope = facts.table.of_node[asked].resolve(asked.id)
    held = (h for v in loaders for h in (stores(facts, scope, v) if scope is not None else ()))
    return scope in context.subject.scopes and any(h.name == asked.id for h in held)


def _report_lengths(context: Context, scheduler: Value) -> None:
    """Notes a condition on a step counter around a per-batch scheduler: several processes count fewer steps."""
    for call in _steps_of(context, scheduler):
        for around in context.facts.table.ancestors(call):
            if isinstance(around, ast.For | ast.While | ast.FunctionDef):
                break
            if isinstance(around, ast.If) and any(isinstance(n, ast.Compare) for n in walk(around.test)):
                context.note(
                    RULE,
                    around,
                    "this condition depends on a step count, and by default several processes take fewer steps (the global batch is larger)",
                    "launch with --split-batches to keep the number of steps",
                )


class CountsItsShare(Exception):
    """A per-batch schedule gets the length of a loader that is prepared before: the length of one process's share."""

    def __init__(self, loader: Value, node: ast.AST) -> None:
        super().__init__()
        self.loader, self.node = loader, node


def check_uncounted(context: Context, loader: Value, node: ast.AST) -> None:
    """Raises CountsItsShare where a loader is prepared, at `node`, before its length is read for a per-batch scheduler:
    a prepared scheduler expects the batches of all processes, and a prepared loader has those of one."""
    if not context.subject.schedulers or "step_scheduler_with_optimizer" in context.options:
        return
    facts, scope = context.facts, context.subject.scope
    held = (h for s in context.subject.schedulers for h in stores(facts, scope, s)[:1])
    made = max((h.last.lineno for h in held), default=sys.maxsize)
    for read, values in facts.interp.values.items():
        late = facts.table.of_node[read] is scope and line_of(read) > made
        if Length(loader) in values and not late:
            raise CountsItsShare(loader, node)


def leave_unprepared(context: Context, counted: CountsItsShare) -> None:
    """Leaves the schedulers as they are: they step once per step, and are made for the length of one process's share.

    Raises Refusal where another training loader exists, whose length may count all batches.
    """
    if len(context.subject.train_loaders) > 1:
        raise refuse(
            RULE,
            counted.node,
            "this loader is prepared before its length is read, so its length counts the batches of one process, while that of "
            "another training loader counts all batches: a scheduler that steps once per batch can follow only one of them",
            "make the loaders, the optimizer and the scheduler in one function, and begin a stream of batches after the "
            "scheduler is made",
        )
    context.subject.schedulers = []
