"""Hooks inside a run: losses, gradient norms, learning rates, weights. They read and never change a value.

No random number is drawn, no tensor of the script is written, nothing is kept alive but the optimizers and
the first values of their parameters: a traced run computes, bit for bit, what an untraced one does.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from crosstrain.verify.traces import Ending, Event, Parameter, RankTrace


class Tracer:
    """Records from `install()` on. `stop` is called before optimizer step `limit` + 1 is executed."""

    def __init__(self, limit: int | None, stop: Callable[[], None]) -> None:
        self._limit = limit
        self._stop = stop
        self._events: list[Event] = []
        self._steps = 0
        self._inside_backward = False
        self._loss_epsilon = 0.0
        self._optimizers: list[Optimizer] = []
        self._first: dict[Tensor, Tensor] = {}
        self._signal: dict[Tensor, float] = {}

    def install(self) -> None:
        """Hook every backward pass and every optimizer of this process."""
        # A suppressed step (gradient accumulation, a scaler that found infinities) never reaches this hook.
        register_optimizer_step_pre_hook(self._before_step)
        original = torch.autograd.backward

        # Tensor.backward looks this function up at every call, so this one place sees both.
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            # Re-entrant checkpointing calls backward within backward: those are not losses.
            if self._inside_backward:
                return original(tensors, *args, **kwargs)
            self._record_loss(tensors)
            self._inside_backward = True
            try:
                return original(tensors, *args, **kwargs)
            finally:
                self._inside_backward = False

        torch.autograd.backward = backward
        self._watch_autocast()

    def _watch_autocast(self) -> None:
        """Losses computed under autocast are as coarse as its dtype, whatever dtype they end in."""
        original: Callable[[torch.autocast], Any] = torch.autocast.__enter__

        @functools.wraps(original)
        def enter(context: torch.autocast) -> Any:
            entered = original(context)
            if torch.is_autocast_enabled(context.device):
                dtype = torch.get_autocast_dtype(context.device)
                self._loss_epsilon = max(self._loss_epsilon, torch.finfo(dtype).eps)
            return entered

        torch.autocast.__enter__ = enter  # type: ignore[method-assign]

    def _record_loss(self, tensors: Any) -> None:
        roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        total = math.fsum(float(root.detach().double().sum()) for root in roots)
        self._loss_epsilon = max([self._loss_epsilon, *(epsilon(root) for root in roots)])
        self._events.append(Event("loss", 0, (total,)))

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._steps == self._limit:
            self._stop()
        self._steps += 1
        if optimizer not in self._optimizers:
            self._optimizers.append(optimizer)
        parameters = parameters_of(optimizer)
        for parameter in parameters:
            if parameter not in self._first:
                self._first[parameter] = parameter.detach().clone()
        squares = [_square_norm(parameter.grad) for parameter in parameters]
        norm = math.sqrt(math.fsum(squares))
        for parameter, square in zip(parameters, squares, strict=True):
            share = math.sqrt(square) / norm if norm > 0 else 0.0
            self._signal[parameter] = max(self._signal.get(parameter, 0.0), share)
        rates = [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]
        size = math.sqrt(math.fsum(_square_norm(parameter) for parameter in parameters))
        self._events.append(Event("step", self._optimizers.index(optimizer), (norm, size, *rates)))

    def trace(self, ending: Ending, error: str = "", time_ns: int = 0) -> RankTrace:
        """Everything recorded so far, with the weights as they are now."""
        parameters: list[Parameter] = []
        weights: list[NDArray[np.float64]] = []
        names = parameter_names(list(self._first)) if self._first else {}
        for index, optimizer in enumerate(self._optimizers):
            for position, parameter in enumerate(parameters_of(optimizer)):
                final = _flat(parameter)
                first = _flat(self._first[parameter]) if parameter in self._first else np.zeros_like(final)
                parameters.append(
                    Parameter(
                        name=names.get(parameter, f"optimizer {index}, parameter {position}"),
                        shape=tuple(_real(parameter).shape),
                        epsilon=epsilon(parameter),
                        moved=float(np.linalg.norm(final - first)),
                        signal=self._signal.get(parameter, 0.0),
                    )
                )
                weights.append(final)
        return RankTrace(
            ending=ending,
            events=tuple(self._events),
            parameters=tuple(parameters),
            loss_epsilon=self._loss_epsilon,
            error=error,
            time_ns=time_ns,
            weights=np.concatenate(weights) if weights else np.zeros(0),
        )


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """The optimizer's parameters, group by group."""
    return list(itertools.chain.from_iterable(group["params"] for group in optimizer.param_groups))


def parameter_names(parameters: Sequence[Tensor]) -> dict[Tensor, str]:
    """The longest dotted name of each parameter in any module that is alive; unnamed ones are left out."""
    import gc

    wanted = set(parameters)
    names: dict[Tensor, str] = {}
    # type(), not isinstance(): a lazy proxy answers isinstance by loading what it stands for.
    for module in [thing for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Module)]:
        for name, parameter in module.named_parameters():
            if parameter in wanted and len(name) > len(names.get(parameter, "")):
                names[parameter] = name
    return names


def epsilon(tensor: Tensor) -> float:
    """The machine epsilon of a tensor's dtype; 0.0 for integers."""
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return torch.finfo(tensor.dtype).eps
    return 0.0


def _square_norm(tensor: Tensor | None) -> float:
    if tensor is None:  # a parameter without a gradient
        return 0.0
    values = tensor.detach()
    if values.is_sparse:
        values = values.coalesce().values()
    return float(values.abs().double().square().sum())


def _real(tensor: Tensor) -> Tensor:
    """The values, with real and imaginary parts as a last dimension where there are both."""
    values = tensor.detach()
    return torch.view_as_real(values) if values.is_complex() else values


def _flat(tensor: Tensor) -> NDArray[np.float64]:
    flat: NDArray[np.float64] = _real(tensor).double().flatten().cpu().numpy()
    # numpy shares memory with a float64 parameter, which a script's exit handlers may still change.
    return flat.copy()
