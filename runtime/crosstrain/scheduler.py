"""Learning rate schedulers that keep time with the optimizer steps that really happened."""

from __future__ import annotations

from typing import Any

from torch.optim.lr_scheduler import LRScheduler

from crosstrain.state import Gradients
from crosstrain.transparent import adopt, original_class


def prepare_scheduler(
    scheduler: LRScheduler,
    gradients: Gradients,
    *,
    times: int,
    with_optimizer: bool,
) -> None:
    """Make ``scheduler.step()`` follow the optimizer, in place.

    ``with_optimizer``: one executed optimizer step makes ``times`` scheduler steps (as many batches of the
    script's own size were consumed), none inside an accumulation window or after a step that the scaler
    skipped; a `total_steps` is never exceeded. Otherwise every call is one step.
    """
    raw = original_class(scheduler).step  # type: ignore[attr-defined]

    def step(self: LRScheduler, *args: Any, **kwargs: Any) -> None:
        if not with_optimizer:
            raw(self, *args, **kwargs)
            return
        if not gradients.sync_gradients:
            if gradients.adjust_scheduler:
                self._step_count = getattr(self, "_step_count", 0) + 1
            return
        if getattr(getattr(self, "optimizer", None), "step_was_skipped", False):
            return
        for _ in range(times):
            total = getattr(self, "total_steps", None)
            # By the steps made, not by _step_count: that has the micro-batches too, and would end a cycle early.
            if total is None or self.last_epoch < total:
                raw(self, *args, **kwargs)

    adopt(scheduler, {"step": step, "scheduler": property(lambda self: self)})
