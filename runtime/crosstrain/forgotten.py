"""What was not given to `prepare`, noticed where the training would go wrong without a word."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from crosstrain import model as models
from crosstrain.comm import Comm
from crosstrain.optimizer import gate_of
from crosstrain.state import RUN

_watching: Any = None


def watch_steps() -> None:
    """From now on an optimizer that was not prepared may not step where it would take gradients for what they are
    not: inside an accumulation window, or scaled for fp16."""
    global _watching
    if _watching is None:
        _watching = register_optimizer_step_pre_hook(_check_step)


def _check_step(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
    window = not RUN.gradients.sync_gradients
    if gate_of(optimizer) is not None or not (window or RUN.mixed_precision == "fp16"):
        return
    if RUN.gradients.stepping:  # an optimizer inside of a prepared one
        return
    trained = models.prepared_parameters()
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


class FirstStep:
    """Looks once at what the ranks are about to step with, because it could differ where it must not, or not
    differ where it should."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self._looked_at: set[tuple[int, int]] = set()  # optimizers, and of how many parameters
        self._loss: Tensor | None = None
        self.wants_loss = True

    def loss(self, loss: Tensor, from_prepared: bool) -> None:
        """The first loss of the training; ``from_prepared``: in a loop over a prepared loader."""
        self.wants_loss = False
        self._loss = None if from_prepared or loss.dim() else loss.detach()

    def before(self, optimizer: Optimizer) -> None:
        """Before each step. RuntimeError on all ranks if the optimizer trains loose parameters apart; a warning if
        all ranks do the same work."""
        key = (id(optimizer), sum(len(group["params"]) for group in optimizer.param_groups))
        if key in self._looked_at:
            return
        self._looked_at.add(key)
        loose = _loose(optimizer)
        loss, self._loss = self._loss, None
        if not loose and loss is None:
            return
        mine = ([_digest(param.grad) for param in loose], None if loss is None else repr(loss.item()))
        everybody = self._comm.all_gather_object(mine)
        if any(gradients != mine[0] for gradients, _ in everybody):
            raise RuntimeError(
                f"the {type(optimizer).__name__} trains {len(loose)} parameters that no model had when it was "
                f"prepared (the first has the shape {tuple(loose[0].shape)}), with different gradients on the ranks: "
                f"their values would differ from rank to rank. Give the module that holds them to `prepare`, put "
                f"layers in before that, or average them before the step: param.grad = "
                f"accelerator.reduce(param.grad, 'mean')."
            )
        if loss is not None and all(first == mine[1] for _, first in everybody) and self._comm.rank == 0:
            warnings.warn(
                f"the first loss is {loss.item():.6g} on all {self._comm.world} processes, and comes from no prepared "
                f"loader: they seem to train on the same batches, so that all together do the work of one. Use "
                f"what `prepare` returns for the DataLoader.",
                stacklevel=5,
            )


def _loose(optimizer: Optimizer) -> Sequence[Tensor]:
    """The parameters whose gradients nobody averages."""
    averaged = models.averaged_parameters()
    held = [param for group in optimizer.param_groups for param in group["params"]]
    return [param for param in held if param.requires_grad and id(param) not in averaged]


def _digest(grad: Tensor | None) -> str:
    return "none" if grad is None else repr(grad.detach().double().sum().item())
