"""Learning rate schedulers that keep time with the optimizer steps that really happened."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from crosstrain.state import RUN
from crosstrain.step.closed_form import advance
from crosstrain.step.dynamic_subclass import adopt, original_class
from crosstrain.step.replica_consistency import agreed_metric
from crosstrain.step.window import Gradients


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

    A ReduceLROnPlateau takes an observation, not a batch: every call is one step, with rank 0's metric. Schedulers
    inside another one are stepped by that one alone.
    """
    if isinstance(scheduler, ReduceLROnPlateau):
        _take_observations(scheduler)
    else:
        _follow(scheduler, gradients, times if with_optimizer else None)
    for inner in getattr(scheduler, "_schedulers", ()):
        prepare_scheduler(inner, gradients, times=times, with_optimizer=with_optimizer)


def _take_observations(scheduler: ReduceLROnPlateau) -> None:
    raw = original_class(scheduler).step

    def step(self: ReduceLROnPlateau, metrics: Any, *args: Any, **kwargs: Any) -> None:
        raw(self, agreed_metric(metrics, RUN.comm), *args, **kwargs)

    adopt(scheduler, {"step": step, "scheduler": property(lambda self: self)})


def _follow(scheduler: LRScheduler, gradients: Gradients, times: int | None) -> None:
    """``times``: scheduler steps of an optimizer step; None: every call is one step."""
    raw = original_class(scheduler).step
    left_out = 0

    def step(self: LRScheduler, *args: Any, **kwargs: Any) -> None:
        if times is None:
            raw(self, *args, **kwargs)
            return
        total = getattr(self, "total_steps", None)
        due = 1 if _inside_another(self) else _due(self, gradients, times)
        counted = 0
        if not args and not kwargs:
            counted = advance(self, due if total is None else min(due, total - self.last_epoch))
        for _ in range(due - counted):
            # By the steps made, not by _step_count: that has the micro-batches too, and would end a cycle early.
            if total is None or self.last_epoch < total:
                raw(self, *args, **kwargs)
                if counted:
                    self._step_count += counted
                    counted = 0
                continue
            nonlocal left_out
            left_out += 1
            if left_out == max(times, total // 4) + times:
                _warn_that_it_is_over(self, total, times)

    adopt(scheduler, {"step": step, "scheduler": property(lambda self: self)})


def _due(scheduler: LRScheduler, gradients: Gradients, times: int) -> int:
    """Steps of the scheduler that follow from the last call of the optimizer's `step`."""
    if not gradients.sync_gradients:
        if gradients.adjust_scheduler:
            scheduler._step_count = getattr(scheduler, "_step_count", 0) + 1
        return 0
    if getattr(getattr(scheduler, "optimizer", None), "step_was_skipped", False):
        return 0
    loader = gradients.active.current
    # The length of a loader that the script shards itself is that of one process's share: so is the schedule's.
    return 1 if loader is not None and loader.already_sharded else times


def _inside_another(scheduler: LRScheduler) -> bool:
    """Whether another scheduler makes this step: a SequentialLR, a ChainedScheduler, or a script's own of the kind.

    It need not have been prepared, so it is looked for where the call comes from.
    """
    caller = sys._getframe(2)
    names = caller.f_code.co_varnames[: caller.f_code.co_argcount]
    owner = caller.f_locals.get(names[0]) if names else None
    return isinstance(owner, LRScheduler) and owner is not scheduler


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
