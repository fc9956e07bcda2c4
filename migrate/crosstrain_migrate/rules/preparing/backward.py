"""CT202: backward goes through the accelerator

What:   Every backward pass of a loss, its keyword arguments kept; `torch.autograd.backward` too.
Why:    It scales the loss for mixed precision, accumulation and uneven batches, and the gradients get averaged.
Refuses: gradients that `torch.autograd.grad` takes by the parameters, without a backward pass: nothing averages them.

Example (backward):
    loss.backward(retain_graph=True)
Becomes (backward):
    accelerator.backward(loss, retain_graph=True)
Refused (backward):
    for p, g in zip(model.parameters(), torch.autograd.grad(loss, model.parameters())):
        p.grad = g
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import arguments_of
from crosstrain_migrate.facts.tensors import PER_SAMPLE
from crosstrain_migrate.results import Severity
from crosstrain_migrate.rules.base import Context, finding, refuse
from crosstrain_migrate.rules.numbers.batch_values import batch_values
from crosstrain_migrate.rules.numbers.ragged_batches import is_padded, padded_parts
from crosstrain_migrate.syntax.nodes import place_of

RULE = "CT202"
ENDS = frozenset({"StopIteration", "KeyboardInterrupt"})  # no failures
GRADIENTS = frozenset({"gradient", "grad_tensors", "grad_variables"})


def plan(context: Context) -> None:
    for call, given in context.facts.backward_calls:
        if context.requested.mapped and not context.at_hand(call):
            continue  # the prepared model averages the gradients of a plain backward pass, too
        accelerator = context.accelerator(call)
        losses = given.elts if isinstance(given, ast.List | ast.Tuple) else [given]
        factor = _factor(context, call, given, losses)
        keywords = [k for k in call.keywords if k.arg and k.arg not in GRADIENTS]
        extra = f", gradient={factor}" if factor else ""
        extra += "".join(f", {k.arg}={context.source(k.value)}" for k in keywords)
        scale = " + ".join(
            _scale(context, accelerator, loss, f"{{loss_{n}}}") for n, loss in enumerate(losses)
        )
        holes = {f"loss_{n}": loss for n, loss in enumerate(losses)}
        code = f"{accelerator}.backward({scale}{extra})"
        context.replace(call, RULE, "the gradients of the global batch", code, **holes)
        context.collective.add(call)
        if context.facts.is_assumed_loss(given):
            claim = f"`{context.source(given)}` is a mean over the rows of the batch that the loop around it goes over"
            context.assume("mean", RULE, call, claim, about=given)
    _loss_reduction(context)
    _report_caught(context)
    _report_idle(context)


def _report_idle(context: Context) -> None:
    """Notes each function with a backward pass that the script never calls."""
    facts = context.facts
    idle = {facts.enclosing_function(call): call for call in reversed(facts.unreached_backward_calls)}
    for function, call in idle.items():
        name = function.name if function is not None else "it"
        reason = f"nothing in this script calls `{name}`, so its backward pass was left as it is"
        remedy = "nothing to do, unless another script calls it: migrate that one, too"
        context.findings.append(finding(RULE, call, reason, remedy, Severity.NOTE))


def _report_caught(context: Context) -> None:
    """Notes a handler that hides the failure of a step: the other processes would wait for the one that failed."""
    facts = context.facts
    for call, _ in facts.backward_calls:
        loop = facts.batch_loop_around(call)
        for around in facts.table.ancestors(call):
            if around is loop or around in facts.table.scopes:
                break
            handler = _that_goes_on(around, call) if isinstance(around, ast.Try) else None
            if handler is not None:
                context.note(
                    RULE,
                    handler,
                    "if a single process fails here (out of memory, a bad sample), it goes on to the next step while the others wait for it in this one",
                    "let the exception propagate, or filter bad samples in the data set",
                )
                return


def _that_goes_on(around: ast.Try, call: ast.Call) -> ast.ExceptHandler | None:
    """The handler that catches a failure of the step and does not raise."""
    if not any(node is call for statement in around.body for node in ast.walk(statement)):
        return None
    going_on = (h for h in around.handlers if not any(isinstance(n, ast.Raise) for n in ast.walk(h)))
    return next((h for h in going_on if ast.unparse(h.type or ast.Name("")) not in ENDS), None)


def _factor(context: Context, call: ast.Call, given: ast.expr, losses: list[ast.expr]) -> str:
    """The gradient that backward begins with: `one` of `loss.backward(one)`. Empty where it is 1 anyway.

    For a loss that is one number it is a factor, such as the sign of a critic's loss.
    """
    arguments = call.args[1:] if given in call.args else call.args
    factors = [*arguments[:1], *(k.value for k in call.keywords if k.arg in GRADIENTS)]
    if not factors or (isinstance(factors[0], ast.Constant) and factors[0].value is None):
        return ""
    by_row = any(s.kind in PER_SAMPLE for loss in losses for s in batch_values(context.facts, loss))
    if by_row or len(losses) > 1 or isinstance(given, ast.List | ast.Tuple):
        raise refuse(
            RULE,
            call,
            "backward gets one weight per value of the loss here, so it minimises their weighted sum: each process would sum "
            "only the rows of its own share, and the average over N processes would be N times smaller",
            "multiply and sum first: `(loss * weights).sum().backward()`",
        )
    return context.source(factors[0])


def _scale(context: Context, accelerator: str, loss: ast.expr, hole: str) -> str:
    """What is handed to backward. Accelerate averages gradients over processes, so a sum is multiplied back."""
    if context.runtime == "crosstrain" or {s.kind for s in context.facts.loss_batch_values} != {"sum"}:
        return hole
    value = hole if isinstance(loss, ast.Name | ast.Attribute | ast.Call) else f"({hole})"
    return f"{value} * {accelerator}.num_processes"


def _loss_reduction(context: Context) -> None:
    """A sum over rows stays a sum over the global batch; anything that is neither is reported."""
    kinds = {s.kind for s in context.facts.loss_batch_values}
    if kinds == {"sum"}:
        if context.runtime == "crosstrain":
            context.options["loss_reduction"] = '"sum"'
    elif kinds & {"sum", "mixture"}:
        raise refuse(
            RULE,
            context.facts.backward_calls[0][0],
            "this loss adds sums over rows to means or to terms that have no rows, so no one rule makes all of it global",
            "use one reduction: divide what is summed by the number of rows",
        )
    elif kinds == {"mean"}:
        _averages_padding(context)
    elif kinds - {"mean"}:
        context.note(
            RULE,
            context.facts.backward_calls[0][0],
            "this loss is neither a mean nor a sum over rows, as far as the tool can see (a class weight, an ignored index, "
            "pairs within the batch, a constant divisor, a function from elsewhere): each process computes it on its own rows, and the gradients are averaged. With row weights that is close to the loss of the global batch; a loss over pairs or batch statistics sees fewer of them; and with --split-batches a constant divisor such as the batch size also counts the rows of other processes",
            "check it with `crosstrain verify`, or divide by the actual number of rows (`x.size(0)`); a mean over rows needs no change",
        )


def _averages_padding(context: Context) -> None:
    """Notes a mean that may count padding: every process pads its share to a length of its own."""
    facts = context.facts
    for batch_value in facts.loss_batch_values:
        if not batch_value.origins or not padded_parts(context, batch_value.loader):
            continue
        origin = min(batch_value.origins, key=place_of)
        targets = arguments_of(origin) if isinstance(origin, ast.Call) else []
        if any(is_padded(context, t) is False for t in targets if facts.of(t)):
            reason = (
                "there is one label a row, but every process pads the rows to the longest of its own share: a model that "
                "does not mask the padding computes other losses than for the global batch"
            )
            remedy = (
                "nothing to do where the model masks it; else pad to a fixed length in the collate function"
            )
        else:
            reason = (
                "the collate function pads a batch to its longest row, and every process its own share of it: where this "
                "mean counts the padding, or is one over all positions, it is close to, not equal to, the loss of the "
                "global batch"
            )
            remedy = "mask the padding and divide by what is left, or pad to a fixed length; one label a row needs no change"
        context.note(RULE, origin, reason, remedy)
        return
