"""Learning rate schedulers that follow the optimizer steps that were really made."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from crosstrain.run import RUN
from crosstrain.step.closed_form import advance
from crosstrain.step.dynamic_subclass import adopt, original_class
from crosstrain.step.replica_consistency import agreed_metric
from crosstrain.step.window import Gradients


def prepare_scheduler(
    scheduler: LRScheduler, gradients: Gradients, *, times: int, with_optimizer: bool
) -> None:
    """Make ``scheduler.step()`` follow the optimizer, in place.

    ``with_optimizer``: an optimizer step makes ``times`` scheduler steps, because it has used that many batches of the
    script's own size. A call inside an accumulation window, or after a step that the scaler skipped, makes none, and
    the scheduler's `total_steps` is never exceeded. Otherwise every call is one step, as is one behind the pass over a
    loader within which the optimizer's last step was made: it comes once an epoch.

    A ReduceLROnPlateau gets an observation, not a batch: every call is one step, with rank 0's metric. A scheduler
    inside another one is stepped by that one alone.
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
    """Make ``times`` scheduler steps per optimizer step; with None, one per call."""
    raw = original_class(scheduler).step
    left_out = 0

    def step(self: LRScheduler, *args: Any, **kwargs: Any) -> None:
        if times is None:
            raw(self, *args, **kwargs)
            return
        total = getattr(self, "total_steps", None)
        is_of_epoch = gradients.stepped_within and not gradients.is_within
        due = 1 if is_of_epoch or _inside_another(self) else _due(self, gradients, times)
        counted = 0
        if not args and not kwargs:
            counted = advance(self, due if total is None else min(due, total - self.last_epoch))
        for _ in range(due - counted):
            # Compare the steps made, not _step_count, which counts micro-batches too and would end a cycle early.
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
    """The number of scheduler steps for the last call of the optimizer's `step`."""
    if not gradients.sync_gradients:
        if gradients.adjust_scheduler:
            scheduler._step_count = getattr(scheduler, "_step_count", 0) + 1
        return 0
    if getattr(getattr(scheduler, "optimizer", None), "step_was_skipped", False):
        return 0
    loader = gradients.active.current
    # Where the script shards the loader, the length of its schedule is that of one process's share.
    return 1 if loader is not None and loader.already_sharded else times


def _inside_another(scheduler: LRScheduler) -> bool:
    """Whether another scheduler makes this step: a SequentialLR, a ChainedScheduler, or one of the script's own.

    It may not have been prepared, so the calling frame tells.
    """
    caller = sys._getframe(2)
    names = caller.f_code.co_varnames[: caller.f_code.co_argcount]
    owner = caller.f_locals.get(names[0]) if names else None
    return isinstance(owner, LRScheduler) and owner is not scheduler


def _warn_that_it_is_over(scheduler: LRScheduler, total: int, times: int) -> None:
    """Warn that `total_steps` is exceeded, where plain torch raises.

    A few steps too many are normal and give no warning.
    """
    pace = ""
    if times > 1:
        pace = (
            f": each optimizer step moves it by {times}, one for each process's batch, so its length must be the number "
            f"of steps with the loader as it was before `prepare`. Do not divide that by the number of processes, "
            f"or use Accelerator(step_scheduler_with_optimizer=False)"
        )
    warnings.warn(
        f"the {type(scheduler).__name__} has made all of its {total} steps, and the training continues{pace}.",
        stacklevel=3,
    )
