"""Steps that take a second derivative, as AdaHessian's do after `loss.backward(create_graph=True)`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim import Optimizer

from crosstrain.comm.protocol import Comm
from crosstrain.data.draws import Draws


@contextmanager
def second_derivatives(optimizer: Optimizer, comm: Comm, draws: Draws) -> Iterator[None]:
    """A context for a step: where gradients have a graph, it draws the same vectors on all ranks, and what it takes with
    `torch.autograd.grad`, which goes through this rank's graph, is averaged over them (collective)."""
    grads = (one.grad for group in optimizer.param_groups for one in group["params"] if one.grad is not None)
    if not getattr(next(grads, None), "requires_grad", False):
        yield
        return
    take, autograd = torch.autograd.grad, vars(torch.autograd)

    def averaged(*args: Any, **kwargs: Any) -> tuple[torch.Tensor | None, ...]:
        return tuple(one if one is None else comm.all_reduce(one, "mean") for one in take(*args, **kwargs))

    autograd["grad"] = averaged
    try:
        with draws.common():
            yield
    finally:
        autograd["grad"] = take
