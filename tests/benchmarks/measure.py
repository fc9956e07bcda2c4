"""Timing several ways to do the same work so that a noisy machine is fair to all of them."""

import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist

from tests.benchmarks.subjects import ON_CPU


@dataclass(frozen=True)
class Result:
    """One workload of one subject.

    ``ratio`` is the median over the rounds of its time by the baseline's of the same round, ``low`` and ``high``
    are the quartiles; ``seconds`` is the median time of one unit of work. ``processor`` is the same ratio of the
    processor time that all ranks together took: that of ranks which wait for each other on a busy machine says
    more than the clock.
    """

    workload: str
    subject: str
    seconds: float
    ratio: float
    low: float
    high: float
    processor: float = math.nan


def interleaved(
    workload: str,
    calls: Mapping[str, Callable[[], object]],
    *,
    baseline: str = "torch",
    rounds: int = 100,
    inner: int | None = None,
    units: int = 1,
) -> list[Result]:
    """Time every call once per round, in an order that rotates; ``inner`` calls make one measurement.

    ``units``: how many units of work (steps, batches) one call is.
    """
    rounds = int(os.environ.get("CROSSTRAIN_BENCHMARK_ROUNDS", rounds))
    for call in calls.values():
        call()
    inner = inner or _enough(calls[baseline])
    names = list(calls)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    taken: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            spent, processor = _time(calls[name], inner)
            seconds[name].append(spent / inner / units)
            taken[name].append(processor)
    results = [compared(workload, name, seconds[name], seconds[baseline]) for name in names]
    if not dist.is_initialized():
        return results
    ratios = {name: compared(workload, name, taken[name], taken[baseline]).ratio for name in names}
    return [replace(result, processor=ratios[result.subject]) for result in results]


def _enough(call: Callable[[], object], target: float = 0.01) -> int:
    once = min(_time(call, 1)[0] for _ in range(3))
    count = max(1, round(target / max(once, 1e-7)))
    if not dist.is_initialized():
        return count
    shared = torch.tensor(count)  # ranks that take part in one collective must call as often
    dist.broadcast(shared, src=0)
    return int(shared)


def _time(call: Callable[[], object], times: int) -> tuple[float, float]:
    """Seconds, and seconds of processor time of all ranks."""
    # A process by itself is measured in processor time, which other work on the machine does not touch; ranks
    # wait for each other, and on a device the work is done elsewhere: there the clock counts.
    gc.collect(0)
    if dist.is_initialized():
        dist.barrier()  # nobody pays for another rank's being late from the subject before
    gc.disable()  # a full collection takes longer than a pass, and hits whoever comes by
    start, worked = time.perf_counter(), time.process_time()
    for _ in range(times):
        call()
    if not ON_CPU:
        torch.accelerator.synchronize()
    seconds, processor = time.perf_counter() - start, time.process_time() - worked
    gc.enable()
    if not dist.is_initialized():
        return (processor if ON_CPU else seconds), processor
    total = torch.tensor(processor)
    dist.all_reduce(total)
    return seconds, float(total)


def compared(workload: str, subject: str, mine: list[float], base: list[float]) -> Result:
    """One subject's measurements beside the baseline's of the same rounds."""
    ratios = sorted(a / b if b else float("nan") for a, b in zip(mine, base, strict=True))
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
    return Result(workload, subject, statistics.median(mine), statistics.median(ratios), low, high)


def memory_now() -> float:
    """Megabytes that this process holds; `memory_peak` counts from here on (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    return _megabytes("VmRSS")


def memory_peak() -> float:
    """The most megabytes that this process has held since `memory_now`."""
    return _megabytes("VmHWM")


def _megabytes(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024
