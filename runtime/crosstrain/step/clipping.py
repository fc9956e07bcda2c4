"""Clipping gradients: once per step, unscaled, the same on every rank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, get_total_norm
from torch.optim import Optimizer

from crosstrain.step.model import average_local
from crosstrain.step.precision import Precision
from crosstrain.step.prepared import PreparedObjects
from crosstrain.step.window import Gradients


class ClippingMembers:
    """The members of an Accelerator that unscale and clip the gradients of its models."""

    _prepared: PreparedObjects
    _gradients: Gradients
    _precision: Precision

    @property
    def scaler(self) -> torch.amp.GradScaler | None:
        """The gradient scaler with mixed precision "fp16"; None in other precisions."""
        return self._precision.scaler

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """Whether the scaler skipped the last step of any prepared optimizer; False inside an accumulation window."""
        return self._gradients.sync_gradients and any(
            getattr(optimizer, "step_was_skipped", False) for optimizer in self._prepared.optimizers
        )

    def unscale_gradients(
        self, optimizer: Optimizer | list[Optimizer] | tuple[Optimizer, ...] | None = None
    ) -> None:
        """Divide gradients by the fp16 loss scale, at most once per step; does nothing without a scaler.

        ``optimizer``: one or several; None for all that are prepared.
        """
        if self.scaler is None:
            return
        chosen = [optimizer] if isinstance(optimizer, Optimizer) else optimizer
        for gate in self._prepared.gates:
            if chosen is None or any(gate.optimizer is one for one in chosen):
                gate.unscale()

    def clip_grad_norm_(
        self,
        parameters: Tensor | Iterable[Tensor],
        max_norm: float,
        norm_type: float = 2,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> Tensor:
        """Scale the gradients down to a total norm of at most ``max_norm``; returns their norm before, a 0-d tensor.

        The gradients are averaged and unscaled first. Inside an accumulation window nothing is changed, and the norm
        is that of the gradients so far. The arguments are those of `torch.nn.utils.clip_grad_norm_`; with
        ``error_if_nonfinite``, RuntimeError on every rank where the norm is not finite.
        """
        chosen = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        if not self._gradients.sync_gradients:
            norm = _total_norm([p.grad for p in chosen if p.grad is not None], norm_type)
            scale = None if self.scaler is None else self.scaler._get_scale_async()
            return norm if scale is None else norm / scale  # a tensor: to read it would wait for the device
        self._before_clipping(chosen)
        grads = [param.grad for param in chosen if param.grad is not None]
        if len({_is_sharded(grad) for grad in grads}) > 1:
            return _clip_mixed(grads, max_norm, norm_type, error_if_nonfinite)
        return _whole(clip_grad_norm_(chosen, max_norm, norm_type, error_if_nonfinite, foreach))

    def clip_grad_value_(
        self, parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
    ) -> None:
        """Clamp every element of the gradients, averaged and unscaled, to ``[-clip_value, clip_value]``.

        Inside an accumulation window this does nothing.
        """
        chosen = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        if self._gradients.sync_gradients:
            self._before_clipping(chosen)
            clip_grad_value_(chosen, clip_value, foreach)

    def _before_clipping(self, parameters: list[Tensor]) -> None:
        average_local(self._prepared.syncs)
        if self.scaler is not None:
            for gate in self._prepared.gates:
                if gate.owns(parameters):
                    gate.unscale()


def _is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")


def _total_norm(grads: list[Tensor], norm_type: float) -> Tensor:
    """The norm of all gradients, of which some may be sharded; torch's own functions take only one kind."""
    kinds = [[g for g in grads if _is_sharded(g)], [g for g in grads if not _is_sharded(g)]]
    norms = [_whole(get_total_norm(kind, norm_type)) for kind in kinds if kind or not grads]
    return norms[0] if len(norms) == 1 or not grads else get_total_norm(norms, norm_type)


@torch.no_grad()
def _clip_mixed(grads: list[Tensor], max_norm: float, norm_type: float, error_if_nonfinite: bool) -> Tensor:
    """`clip_grad_norm_` of gradients of which some are sharded, and those of loose parameters are whole."""
    norm = _total_norm(grads, norm_type)
    if error_if_nonfinite and not norm.isfinite():
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be clipped."
        )
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for grad in grads:
        own: Any = grad
        local: Tensor = own.to_local() if _is_sharded(grad) else grad
        local.mul_(factor.to(local.device))
    return norm


def _whole(norm: Tensor) -> Tensor:
    """The norm as one tensor; that of sharded gradients is itself a DTensor."""
    put_together = getattr(norm, "full_tensor", None)
    return norm if put_together is None else put_together()
