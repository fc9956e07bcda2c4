"""The most memory that three training steps hold: ``python -m tests.gpu_check.memory DEVICE SUBJECT WIDTH``."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tests.benchmarks.measure import memory_now, memory_peak
from tests.support.ranks import run_ranks

LAYERS = 6


def peak(kind: str, subject: str, width: int) -> float:
    """Megabytes: of the device, or, on the CPU, of the process above what it had before."""
    torch.manual_seed(0)
    before = memory_now() if kind == "cpu" else 0.0
    model: Any = nn.Sequential(*(nn.Linear(width, width) for _ in range(LAYERS)))
    if subject == "plain":
        model, step = _plain(model, kind)
    else:
        model, step = _crosstrain(model, kind, views=subject == "views")
    for _ in range(3):
        step(torch.ones(8, width, device=kind))
    if kind == "cpu":
        return memory_peak() - before
    return torch.accelerator.max_memory_allocated() / 2**20


def _plain(model: nn.Module, kind: str) -> tuple[Any, Any]:
    dist.init_process_group("gloo")
    wrapped = nn.parallel.DistributedDataParallel(model.to(kind))
    optimizer = torch.optim.AdamW(wrapped.parameters())

    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        wrapped(x).mean().backward()
        optimizer.step()

    return wrapped, step


def _crosstrain(model: nn.Module, kind: str, views: bool) -> tuple[Any, Any]:
    from crosstrain import Accelerator, DistributedDataParallelKwargs

    handlers = [DistributedDataParallelKwargs(gradient_as_bucket_view=views)]
    accelerator = Accelerator(cpu=kind == "cpu", kwargs_handlers=handlers)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))

    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        accelerator.backward(model(x).mean())
        optimizer.step()

    return model, step


if __name__ == "__main__":
    kind, subject, width = sys.argv[1:]
    os.environ["CROSSTRAIN_SHARE_DEVICES"] = "1"
    shared = {"CROSSTRAIN_SHARE_DEVICES": "1"}
    print(f"{max(run_ranks(peak, 2, kind, subject, int(width), env=shared, timeout=500)):.0f}")
