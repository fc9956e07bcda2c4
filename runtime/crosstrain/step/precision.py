"""Mixed precision: autocast around a model's forward, and the gradient scaler of fp16."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

from crosstrain.step.dynamic_subclass import adopt, original_class, restore
from crosstrain.utils.nested import convert_to_fp32

if TYPE_CHECKING:
    from crosstrain.utils.dataclasses import AutocastKwargs, GradScalerKwargs

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


class LossScale:
    """The fp16 loss scale of one Accelerator, adjusted once for all optimizers that stepped.

    With several optimizers (``wait``) the adjustment waits for the next backward pass, because another optimizer may
    still use gradients with the present scale.
    """

    def __init__(self, scaler: torch.amp.GradScaler) -> None:
        self.scaler = scaler
        self.wait = False
        self._due = False

    def stepped(self) -> None:
        """Called after an optimizer's step."""
        self._due = True
        if not self.wait:
            self.adjust()

    def adjust(self) -> None:
        """Adjust the scale, if an optimizer has stepped since the last time."""
        if self._due:
            self.scaler.update()
        self._due = False

    def forget(self, optimizer: Optimizer) -> None:
        """Forget that this optimizer's gradients were unscaled; they were dropped without a step."""
        self.scaler._per_optimizer_states.pop(id(optimizer), None)


class Precision:
    """The dtype in which prepared models compute.

    ``scaler`` is the gradient scaler of fp16, None in other precisions. ``loss_scale`` is None where no loss is scaled:
    in other precisions, and with GradScalerKwargs(enabled=False).
    """

    def __init__(
        self,
        name: str,
        device: torch.device,
        autocast: AutocastKwargs | None = None,
        scaling: GradScalerKwargs | None = None,
    ) -> None:
        self.name = name
        self.dtype = _DTYPES.get(name)
        self._device_type = device.type
        self._set(autocast)
        self.scaler: torch.amp.GradScaler | None = None
        self.loss_scale: LossScale | None = None
        if self.dtype is torch.float16:
            options = {} if scaling is None else scaling.to_kwargs()
            self.scaler = torch.amp.GradScaler(self._device_type, **options)
            if self.scaler.is_enabled():
                self.loss_scale = LossScale(self.scaler)

    def _set(self, autocast: AutocastKwargs | None) -> None:
        self._enabled = autocast is None or autocast.enabled
        self._cache = True if autocast is None or autocast.cache_enabled is None else autocast.cache_enabled
        self._upcast = autocast is None or autocast.convert_outputs_to_fp32

    def under(self, autocast: AutocastKwargs | None) -> Precision:
        """The same precision and loss scale with other options of autocast."""
        other = copy(self)
        other._set(autocast)
        return other

    def autocast(self, options: AutocastKwargs | None = None) -> AbstractContextManager[Any]:
        """A context in which operations run in the run's dtype; without mixed precision it has no effect."""
        enabled = self._enabled if options is None else options.enabled
        cache = self._cache if options is None or options.cache_enabled is None else options.cache_enabled
        if self.dtype is None:
            return nullcontext()
        return torch.autocast(self._device_type, dtype=self.dtype, enabled=enabled, cache_enabled=cache)

    def wrap(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """``forward`` under autocast, with half-precision outputs converted to float32.

        Where autocast is active already, in a script with its own AMP region, neither the call nor its outputs are
        changed, so that the script's numbers stay the same.
        """
        device_type = self._device_type
        upcast = self._upcast

        @wraps(forward)
        def in_precision(*args: Any, **kwargs: Any) -> Any:
            if torch.is_autocast_enabled(device_type):
                return forward(*args, **kwargs)
            with self.autocast():
                outputs = forward(*args, **kwargs)
            return convert_to_fp32(outputs) if upcast else outputs

        return in_precision

    def apply_to(self, model: nn.Module) -> None:
        """Make the model's forward compute in this precision."""
        if self.dtype is None or not self._enabled:
            return
        target = compiled_inner(model)
        if "forward" in target.__dict__:  # the user replaced it on the instance
            if not hasattr(target.__dict__["forward"], "_crosstrain_plain"):
                wrapped: Any = self.wrap(target.__dict__["forward"])
                wrapped._crosstrain_plain = target.__dict__["forward"]
                target.forward = wrapped
            return
        adopt(target, {"forward": self.wrap(_forward_of(original_class(target)))})


def _forward_of(kind: type[Any]) -> Callable[..., Any]:
    """The class's forward as a function of the model. In TorchScript only the instances have one."""
    own: Callable[..., Any] | None = getattr(kind, "forward", None)
    if own is not None:
        return own

    def forward(model: Any, *args: Any, **kwargs: Any) -> Any:
        return model.__getattr__("forward")(*args, **kwargs)

    return forward


def remove_precision(model: nn.Module) -> None:
    """Give the model its own forward back."""
    target = compiled_inner(model)
    plain = getattr(target.__dict__.get("forward"), "_crosstrain_plain", None)
    if plain is not None:
        target.forward = plain
    restore(target, "forward")


def compiled_inner(model: nn.Module) -> nn.Module:
    """The module that torch.compile wraps; any other model is returned itself."""
    children = model.__dict__.get("_modules", {})  # TorchScript's modules have no `get`
    inner = children["_orig_mod"] if "_orig_mod" in children else None  # noqa: SIM401
    return inner if isinstance(inner, nn.Module) else model
