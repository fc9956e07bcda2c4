"""One line with what nobody can remember: the global batch, the steps of an epoch, the backend, the precision."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import torch

from crosstrain.step.optimizer import Gate
from crosstrain.utils import run_summary
from crosstrain.utils.messages import say


class Setup(Protocol):
    """What is said and counted of an Accelerator."""

    state: Any
    _announced: bool
    _models: list[Any]
    _dataloaders: list[Any]
    _gates: list[Gate]

    @property
    def gradient_accumulation_steps(self) -> int: ...
    @property
    def split_batches(self) -> bool: ...
    @property
    def num_processes(self) -> int: ...
    @property
    def num_replicas(self) -> int: ...
    @property
    def is_main_process(self) -> bool: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def mixed_precision(self) -> str: ...


def announce_setup(accelerator: Setup) -> None:
    """Say it once, on the main process, when a loader and a model are known."""
    if accelerator._announced or not accelerator._dataloaders or not accelerator._models:
        return
    accelerator._announced = True
    if accelerator.is_main_process:
        run_summary.begin(partial(_counts, accelerator))
        say(describe(accelerator))


def _counts(accelerator: Setup) -> run_summary.Progress | None:
    if not accelerator._dataloaders:
        return None
    rows = accelerator._dataloaders[0].total_batch_size
    steps = max((gate.steps for gate in accelerator._gates), default=0)
    return run_summary.Progress(
        steps, None if rows is None else rows * accelerator.gradient_accumulation_steps
    )


def describe(accelerator: Setup) -> str:
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
