"""One line with what nobody can remember: the global batch at `prepare`, the place in the data after a load."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from crosstrain import summary
from crosstrain.state import quiet

if TYPE_CHECKING:
    from crosstrain.accelerator import Accelerator

logger = logging.getLogger("crosstrain")


def announce_setup(accelerator: Accelerator) -> None:
    """Say it once, on the main process, when a loader and a model are known."""
    if accelerator._announced or not accelerator._dataloaders or not accelerator._models:
        return
    accelerator._announced = True
    if accelerator.is_main_process:
        summary.begin(accelerator)
        say(describe(accelerator))


def announce_resume(loaders: list[Any]) -> None:
    """Where each loader goes on after a load, on the main process: a loop that skips by hand would skip twice."""
    for loader in loaders:
        resume = loader._crosstrain.progress.resume
        if resume is not None:
            say(
                f"the loader over {type(loader.dataset).__name__} goes on by itself behind batch {resume[0]} of "
                f"epoch {loader.epoch}; nothing is to be skipped but by skip_first_batches"
            )


def say(line: str) -> None:
    """One line for the user, unless CROSSTRAIN_QUIET asks for none."""
    if quiet():
        return
    if logger.hasHandlers():
        logger.info(line)
    else:  # a script that configured no logging should see it too
        print(f"crosstrain: {line}", file=sys.stderr)


def describe(accelerator: Accelerator) -> str:
    """``global batch = 8 x 2 ranks x 4 accumulated = 64; 125 steps per epoch; gloo on cpu; bf16``"""
    loader: Any = accelerator._dataloaders[0]
    steps = accelerator.gradient_accumulation_steps
    total = loader.total_batch_size
    world = accelerator.num_replicas
    share = "ranks" if world == accelerator.num_processes else "devices"
    if total is None:
        batch = "batches of varying size"
    else:
        parts = [f"{total} split over {world} {share}" if accelerator.split_batches else f"{total // world}"]
        if world > 1 and not accelerator.split_batches:
            parts.append(f"{world} {share}")
        if steps > 1:
            parts.append(f"{steps} accumulated")
        product = f" = {total * steps}" if len(parts) > 1 else ""
        batch = f"global batch = {' x '.join(parts)}{product}"
    try:
        epoch = f"; {-(-len(loader) // steps)} steps per epoch"
    except TypeError:
        epoch = ""
    backend = accelerator.state.backend or "one process"
    return f"{batch}{epoch}; {backend} on {accelerator.device}; precision {accelerator.mixed_precision}"
