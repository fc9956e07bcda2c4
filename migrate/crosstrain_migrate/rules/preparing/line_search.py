"""CT903: a line search on a rank's own loss

What:   What the closure of LBFGS returns is averaged over processes, as its gradients are.
Why:    The loss decides how often LBFGS calls the closure. If each rank returned its own loss, the ranks would call it
        different numbers of times and wait for each other for ever.
Refuses: a closure that is passed to `step` by a name the tool cannot follow, or that returns something other than its
        loss; with `--runtime accelerate`, a value of `step(closure)` that is used (Accelerate's `step` returns none).

Example (optimizer):
    optimizer = torch.optim.LBFGS(model.parameters())
And (loss): nothing
And (backward):
    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss
And (step):
    optimizer.step(closure)
Becomes (backward):
    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        accelerator.backward(loss)
        return accelerator.reduce(loss, reduction="mean")
Stays (step):
    optimizer.step(lambda: loss)
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.values import Instance
from crosstrain_migrate.rules.base import Context, refuse
from crosstrain_migrate.rules.numbers.batch_values import batch_values

RULE = "CT903"


def plan(context: Context) -> None:
    for call, closures in context.facts.line_searches:
        if not closures or any(isinstance(c, ast.Lambda) for c in closures):
            raise refuse(
                RULE,
                call,
                f"{_optimizer(context, call)} evaluates the loss several times per step, and its argument is not a function of "
                "this script that returns a loss: the loss of its own share would decide how often each process evaluates it",
                "pass step a function of this script that returns the loss on which it calls backward",
            )
        for closure in closures:
            for given in context.facts.returned(closure):
                _make_global(context, given)
    for call, _ in context.facts.steps_with_closure if context.runtime == "accelerate" else ():
        if not isinstance(context.facts.table.parents.get(call), ast.Expr):
            raise refuse(
                RULE,
                call,
                "Accelerate's optimizers return nothing from step(closure), and this value is used",
                "migrate with --runtime crosstrain, or keep the loss in the closure",
            )


def _optimizer(context: Context, call: ast.Call) -> str:
    """The class of the optimizer that is stepped, as the script calls it."""
    assert isinstance(call.func, ast.Attribute)
    own = (v.cls.name for v in context.facts.of(call.func.value) if isinstance(v, Instance))
    return next(own, "LBFGS")


def _make_global(context: Context, given: ast.expr) -> None:
    """Averages what a closure returns. A number from a share of a batch is for CT602; all else must be the loss itself."""
    if any(s.loader in context.subject.train_loaders for s in batch_values(context.facts, given)):
        return
    function = context.facts.enclosing_function(given)
    losses = {
        ast.unparse(loss)
        for call, loss in context.facts.backward_calls
        if context.facts.enclosing_function(call) is function
    }
    if context.subject.train_loaders or ast.unparse(given) not in losses:
        raise refuse(
            RULE,
            given,
            f"LBFGS decides by `{ast.unparse(given)}`, which is not what the closure calls backward on: computed from its own "
            "share, it would make each process evaluate the loss a different number of times",
            "return the loss that the closure calls backward on",
        )
    template = context.accelerator(given) + '.reduce({x}, reduction="mean")'
    context.replace(given, RULE, "every process decides by the same loss", template, x=given)
    context.collective.add(given)
