"""Optimizers whose `step` and `zero_grad` do nothing inside an accumulation window."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from crosstrain.step.precision import LossScale
from crosstrain.step.window import Gradients

GATE = "_crosstrain_gate"


class Gate:
    """Replaces `step` and `zero_grad` of one optimizer, which stays the user's object.

    ``pending``: whether micro-batches wait for a step. Only then is `zero_grad` ignored, so that a script may call it
    before the forward pass or after the step. ``steps``: how many steps were made. ``unscaled``: whether the gradients
    were divided by the loss scale since the last step.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        gradients: Gradients,
        loss_scale: LossScale | None,
        before_step: Callable[[Optimizer], AbstractContextManager[None]] | None,
        after_step: Callable[[], None] | None,
        after_growth: Callable[[Optimizer], None] | None = None,
    ) -> None:
        """``before_step`` gives a context for the step; ``after_growth`` is called where `add_param_group` has added parameters."""
        self.optimizer = optimizer
        self.pending = False
        self.steps = 0
        self.unscaled = False
        self._gradients = gradients
        self._loss_scale = loss_scale
        self._before_step = before_step
        self._after_step = after_step
        self._after_growth = after_growth
        self._inside = False
        self._last: tuple[str, int] | None = None  # file and line of the last step
        self._made = False  # whether the scaler made the last step
        self._raw_step = optimizer.step
        self._raw_zero_grad = optimizer.zero_grad
        self._raw_add_param_group = optimizer.add_param_group
        self._bind()

    def _bind(self) -> None:
        gate = self

        def step(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
            return gate.step(*args, **kwargs)

        def zero_grad(self: Optimizer, *args: Any, **kwargs: Any) -> None:
            gate.zero_grad(*args, **kwargs)

        def add_param_group(self: Optimizer, param_group: dict[str, Any]) -> None:
            gate._raw_add_param_group(param_group)
            if gate._after_growth is not None:
                gate._after_growth(gate.optimizer)

        if hasattr(self._raw_step, "_wrapped_by_lr_sched"):
            # A scheduler that was made before `prepare` counts the original steps, and looks for its mark here.
            vars(step)["_wrapped_by_lr_sched"] = True
        optimizer: Any = self.optimizer
        optimizer.step = MethodType(step, optimizer)
        optimizer.zero_grad = MethodType(zero_grad, optimizer)
        optimizer.add_param_group = MethodType(add_param_group, optimizer)
        optimizer.step_was_skipped = False
        if not hasattr(optimizer, "optimizer"):  # an optimizer that wraps another one keeps it there
            optimizer.optimizer = optimizer
        setattr(optimizer, GATE, self)

    def step(self, *args: Any, **kwargs: Any) -> Any:
        if self._inside:  # the scaler calls the step that it was asked to make
            self._made = True
            return self._raw_step(*args, **kwargs)
        if not self._gradients.sync_gradients:
            self.pending = True
            return None
        inside: AbstractContextManager[None] = nullcontext()
        if self._before_step is not None:
            frame = sys._getframe(2)
            # A scheduler's, which counts steps.
            if frame.f_code.co_name == "wrapper" and frame.f_back is not None:
                frame = frame.f_back
            self._last = frame.f_code.co_filename, frame.f_lineno
            inside = self._before_step(self.optimizer)
        with inside:
            if self._loss_scale is not None:
                result = self._scaled_step(self._loss_scale, *args, **kwargs)
            else:
                result = self._raw_step(*args, **kwargs)
        self.pending = False
        self.steps += 1
        self._gradients.stepped_within = self._gradients.is_within
        if self._after_step is not None:
            self._after_step()
        return result

    @property
    def last_place(self) -> str:
        """The line of the last step, as " (file:line)"; "" before the first one."""
        return "" if self._last is None else f" ({self._last[0]}:{self._last[1]})"

    def _scaled_step(self, loss_scale: LossScale, *args: Any, **kwargs: Any) -> Any:
        optimizer: Any = self.optimizer
        scaler = loss_scale.scaler
        self._inside = self._gradients.stepping = True
        self._made = False
        try:
            result = scaler.step(optimizer, *args, **kwargs)
        finally:
            self._inside = self._gradients.stepping = False
        optimizer.step_was_skipped = not self._made or self._skipped_itself(scaler)
        self.unscaled = False
        loss_scale.stepped()
        return result

    def _skipped_itself(self, scaler: torch.amp.GradScaler) -> bool:
        """Whether a fused optimizer, whose step the scaler always calls, has found infinite gradients.

        This waits for the device. For any other optimizer the scaler has looked itself.
        """
        if not getattr(self.optimizer, "_step_supports_amp_scaling", False):
            return False
        found = scaler._found_inf_per_device(self.optimizer)
        return any(flag.item() > 0 for flag in found.values())

    def unscale(self) -> None:
        """Divide the gradients by the loss scale, once per step."""
        if self._loss_scale is not None and not self.unscaled and self._gradients.sync_gradients:
            self._loss_scale.scaler.unscale_(self.optimizer)
            self.unscaled = True

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        if not self.pending:
            self._raw_zero_grad(*args, **kwargs)

    def discard(self) -> None:
        """Drop the gradients of a window that was given up; no micro-batch waits for a step then."""
        self.pending = False
        self._raw_zero_grad()
        if self.unscaled and self._loss_scale is not None:
            self._loss_scale.forget(self.optimizer)
        self.unscaled = False

    def serves(self, gradients: Gradients, *, several: bool) -> bool:
        """Whether the gate was made for this run; a notebook's optimizer may go from one process to several."""
        return self._gradients is gradients and (self._before_step is not None) == several

    def release(self) -> None:
        """Give the optimizer its own methods back."""
        optimizer: Any = self.optimizer
        optimizer.step, optimizer.zero_grad = self._raw_step, self._raw_zero_grad
        optimizer.add_param_group = self._raw_add_param_group
        delattr(optimizer, GATE)

    @contextmanager
    def bypassed(self) -> Iterator[None]:
        """A context in which `step` and `zero_grad` are the optimizer's own, for code that makes its state by a step."""
        waiting, self.pending = self.pending, False
        self._inside = True
        try:
            yield
        finally:
            self._inside = False
            self.pending = waiting

    def owns(self, parameters: Iterable[Tensor]) -> bool:
        """Whether any of the parameters is this optimizer's."""
        mine = {id(param) for group in self.optimizer.param_groups for param in group["params"]}
        return any(id(param) in mine for param in parameters)


def gate_of(optimizer: Optimizer) -> Gate | None:
    """The gate of a prepared optimizer; None for any other."""
    return getattr(optimizer, GATE, None)
