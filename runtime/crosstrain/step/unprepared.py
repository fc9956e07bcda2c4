"""Checks for objects that were not given to `prepare`, where the training would go wrong without an error."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from crosstrain.comm.protocol import Comm
from crosstrain.state import RUN
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


def refuse_plain_backward(loss_reduction: str, loose: bool) -> None:
    """Raise RuntimeError for a ``loss.backward()`` that reached a prepared model, where the loss must be scaled.

    ``loose``: it has only reached parameters that belong to no prepared model; inside an accumulation window these may
    have a scaling of the script's own. All ranks run the same line of the script, in the same window and loop, so that
    all raise or none does.
    """
    if not RUN.gradients.sync_gradients and not loose:
        why = "inside an accumulation window, where the loss must be divided by the number of micro-batches"
    elif loss_reduction == "sum":
        why = 'under loss_reduction="sum", where the loss must be multiplied by the number of processes'
    elif any(loader._crosstrain.plan.even_batches == "weighted" for loader in RUN.gradients.active):
        why = 'under even_batches="weighted", where the loss must count by this process\'s rows'
    else:
        return
    place = checks.here_in_main()
    trained = "parameters of a prepared optimizer" if loose else "a prepared model"
    message = f"{place}: loss.backward() trains {trained} {why}. Use accelerator.backward(loss)."
    checks.failed("mean", message, place)
    raise RuntimeError(message)


class FirstStep:
    """Compares the ranks' first losses, which must not be equal, before the first step."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self.forget()

    def forget(self) -> None:
        """Begin anew, with nothing compared."""
        self._loss: Tensor | None = None
        self._place = checks.UNKNOWN
        self.wants_loss = True
        self.fed_at: checks.Place | None = None  # the `prepare` that returned an iterable of batches as it is

    def loss(self, loss: Tensor, from_prepared: bool) -> None:
        """Record the first loss of the training.

        ``from_prepared``: whether it was made in a loop over a prepared loader.
        """
        self.wants_loss = False
        self._loss = None if from_prepared or loss.dim() else loss.detach()
        self._place = checks.here()

    def before(self) -> None:
        """Called before each step; collective where there is something to compare.

        Raises RuntimeError on all ranks where all have the same first loss on batches of an iterable that `prepare`
        returned as it is. Warns about the same first loss on other batches.
        """
        loss, self._loss = self._loss, None
        if loss is None:
            return
        mine = repr(loss.item())
        everybody = self._comm.all_gather_object(mine)
        self._check_first(loss.item(), all(first == mine for first in everybody))

    def _check_first(self, loss: float, alike: bool) -> None:
        """Compare the first loss, which comes from no prepared loader's batch."""
        if not alike:
            checks.held("loader", self.fed_at or self._place)
            return
        same = f"the first loss is {loss:.6g} on all {self._comm.world} processes, and comes from no prepared loader"
        if self.fed_at is not None:
            message = (
                f"{self._place}: {same}: what passed through `prepare` at {self.fed_at} feeds the same batches to all "
                f"of them, so that together they do the work of one. Make a torch.utils.data.DataLoader of it and "
                f"use what `prepare` returns for that."
            )
            checks.failed("loader", message, self.fed_at)
            raise RuntimeError(message)
        if self._comm.rank == 0:
            warnings.warn(
                f"{same}: they seem to train on the same batches, so that all together do the work of one. Use "
                f"what `prepare` returns for the DataLoader.",
                stacklevel=6,
            )
