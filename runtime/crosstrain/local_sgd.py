"""Local SGD: every rank steps on its own gradients, and the ranks average their parameters every few steps."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from torch import nn

from crosstrain.run import RUN
from crosstrain.step.model import is_sharded, syncs_of

if TYPE_CHECKING:
    from crosstrain.accelerator import Accelerator


class LocalSGD:
    """A context for Local SGD: ``with LocalSGD(accelerator, model, local_sgd_steps=8) as local:``.

    Call ``local.step()`` after each optimizer step. The ranks average the model's parameters every ``local_sgd_steps``
    steps and at the end, unless the body raises. With one process, or with ``enabled=False``, nothing happens. Raises
    NotImplementedError for a sharded model.
    """

    def __init__(
        self, accelerator: Accelerator, model: nn.Module, local_sgd_steps: int, enabled: bool = True
    ) -> None:
        if is_sharded(model):
            raise NotImplementedError(
                "LocalSGD lets every process step on a model of its own, and a sharded model has a part on each: "
                "leave out fsdp_plugin, or LocalSGD"
            )
        self.enabled = enabled and accelerator.num_processes > 1
        self.num_steps = 0
        self.local_sgd_steps = local_sgd_steps
        self._accelerator = accelerator
        self._model = model
        self._stack = ExitStack()

    def __enter__(self) -> LocalSGD:
        if self.enabled:
            self._stack.enter_context(self._accelerator.no_sync(self._model))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.close()
        if self.enabled and exception[0] is None:
            self._average()
            for sync in syncs_of(self._model):
                sync.discard()

    def step(self) -> None:
        """Count an optimizer step; call it after each one, on every rank."""
        self.num_steps += 1
        if self.enabled and self.num_steps % self.local_sgd_steps == 0:
            self._average()

    def _average(self) -> None:
        averaged = dict.fromkeys(self._model.parameters())
        for sync in syncs_of(self._model):  # loose parameters of its optimizer, too
            averaged.update(dict.fromkeys(sync.parameters()))
        for param in averaged:
            param.data.copy_(RUN.comm.all_reduce(param.data, "mean"))
