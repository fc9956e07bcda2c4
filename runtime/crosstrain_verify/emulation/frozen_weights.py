"""Freezes models: each optimizer step is undone, and running statistics stay as they were.

The model in an evaluation is then the same at any time and for any number of processes, so what the evaluation prints must
not depend on how many processes share it. Gradients, learning rates and the optimizer's state develop as usual.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from crosstrain_verify.emulation.eager_compile import replace_batch_norm


def install() -> None:
    """Freeze every model, for the rest of this process."""
    kept: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def keep(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        kept[id(optimizer)] = [(parameter, parameter.detach().clone()) for parameter in parameters]

    def undo(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        with torch.no_grad():
            for parameter, value in kept.pop(id(optimizer), ()):
                parameter.copy_(value)

    register_optimizer_step_pre_hook(keep)
    register_optimizer_step_post_hook(undo)
    replace_batch_norm(_normalise)


def _normalise(
    real: Any, values: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *rest: Any
) -> Tensor:
    if training:
        mean, var = (None if buffer is None else buffer.clone() for buffer in (mean, var))
    normalised: Tensor = real(values, weight, bias, mean, var, training, *rest)
    return normalised
