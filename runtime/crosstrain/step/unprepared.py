"""Checks for objects that were not given to `prepare`, where the training would go wrong without an error."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from crosstrain.run import RUN
from crosstrain.step import model as models
from crosstrain.step.optimizer import gate_of
from crosstrain.utils import checks

_watching: Any = None


def watch_steps() -> None:
    """Check the steps of all optimizers from now on: one that was not prepared may not step inside an accumulation
    window, or on gradients that are scaled for fp16."""
    global _watching
    if _watching is None:
        _watching = register_optimizer_step_pre_hook(_check_step)


def _check_step(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
    window = not RUN.gradients.sync_gradients
    if gate_of(optimizer) is not None or not (window or RUN.mixed_precision == "fp16"):
        return
    if RUN.gradients.stepping:  # an optimizer inside a prepared one
        return
    trained = models.prepared_parameters() | models.averaged_parameters()
    if not any(id(param) in trained for group in optimizer.param_groups for param in group["params"]):
        return
    why = (
        "inside an accumulation window, on the gradients of some of its micro-batches and of this process alone"
        if window
        else "on gradients that are still multiplied by the fp16 loss scale"
    )
    raise RuntimeError(
        f"the {type(optimizer).__name__} was not given to `prepare`, and steps {why}. Prepare it with its model: "
        f"optimizer = accelerator.prepare(optimizer)."
    )


def plain_backward_weight(loss_reduction: str, loose: bool, at_once: bool, rank: int) -> float:
    """The factor by which this rank's gradients count in the averaging after a plain ``loss.backward()``.

    ``loose``: it has only reached parameters that belong to no prepared model; inside an accumulation window these may
    have a scaling of the script's own. ``at_once``: the gradients are averaged at the end of this pass. Then a weight in
    the averaging is as good as one of the loss: the weights of all ranks have the mean 1, so that what earlier passes
    left, which is equal on all ranks, remains as it is. Raises RuntimeError where the loss itself had to be scaled. All
    ranks run the same line of the script, in the same window and loop, so that all raise or none does.
    """
    if not RUN.gradients.sync_gradients and not loose:
        why = "inside an accumulation window, where the loss must be divided by the number of micro-batches"
    elif loss_reduction == "sum":
        why = 'under loss_reduction="sum", where the loss must be multiplied by the number of processes'
    elif at_once or all(
        loader._crosstrain.plan.even_batches != "weighted" for loader in RUN.gradients.active
    ):
        return RUN.gradients.active.weight(rank) if at_once else 1.0
    else:
        why = 'under even_batches="weighted", where the loss must count by this process\'s rows'
    place = checks.here_in_main()
    trained = "parameters of a prepared optimizer" if loose else "a prepared model"
    message = f"{place}: loss.backward() trains {trained} {why}. Use accelerator.backward(loss)."
    checks.failed("mean", message, place)
    raise RuntimeError(message)
