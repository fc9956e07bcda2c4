"""Learning rate schedulers that keep time with the optimizer steps that really happened."""

from __future__ import annotations

import warnings
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
    raw = original_class(scheduler).step
    calls_too_many = 0

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
        total = getattr(self, "total_steps", None)
        if total is not None and self.last_epoch >= total:
            nonlocal calls_too_many
            calls_too_many += 1
            if calls_too_many == max(1, total // times // 4) + 1:
                _warn_that_it_is_over(self, total, times)
        for _ in range(times):
            # By the steps made, not by _step_count: that has the micro-batches too, and would end a cycle early.
            if total is None or self.last_epoch < total:
                raw(self, *args, **kwargs)

    adopt(scheduler, {"step": step, "scheduler": property(lambda self: self)})


def _warn_that_it_is_over(scheduler: LRScheduler, total: int, times: int) -> None:
    """Plain torch would have raised. A few steps too many are normal: the last batches are completed."""
    pace = ""
    if times > 1:
        pace = (
            f": each optimizer step moves it by {times}, one for each process's batch, so its length is that of "
            f"the training with the loader as it was before `prepare`. If you divided by the processes yourself, "
            f"don't, or use Accelerator(step_scheduler_with_optimizer=False)"
        )
    warnings.warn(
        f"the {total} steps of the {type(scheduler).__name__} are used up, and the training goes on{pace}.",
        stacklevel=3,
    )
