"""Timing several ways to do the same work so that a noisy machine is fair to all of them."""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Result:
    """One workload of one subject.

    ``ratio`` is the median over the rounds of its time by the baseline's of the same round, ``low`` and ``high``
    are the quartiles; ``seconds`` is the median time of one unit of work.
    """

    workload: str
    subject: str
    seconds: float
    ratio: float
    low: float
    high: float
    note: str = ""


def interleaved(
    workload: str,
    calls: Mapping[str, Callable[[], object]],
    *,
    baseline: str = "torch",
    rounds: int = 25,
    inner: int | None = None,
    units: int = 1,
) -> list[Result]:
    """Time every call once per round, in an order that rotates; ``inner`` calls make one measurement.

    ``units``: how many units of work (steps, batches) one call is.
    """
    for call in calls.values():
        call()
    inner = inner or _enough(calls[baseline])
    names = list(calls)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            samples[name].append(_time(calls[name], inner) / inner / units)
    return [_result(workload, name, samples[name], samples[baseline]) for name in names]


def _enough(call: Callable[[], object], target: float = 0.03) -> int:
    once = min(_time(call, 1) for _ in range(3))
    count = max(1, round(target / max(once, 1e-7)))
    if not dist.is_initialized():
        return count
    shared = torch.tensor(count)  # ranks that take part in one collective must call as often
    dist.broadcast(shared, src=0)
    return int(shared)


def _time(call: Callable[[], object], times: int) -> float:
    # A process by itself is measured in processor time, which other work on the machine does not touch; ranks
    # wait for each other, and what counts is the clock.
    clock = time.perf_counter if dist.is_initialized() else time.process_time
    gc.collect(0)
    start = clock()
    for _ in range(times):
        call()
    return clock() - start


def _result(workload: str, subject: str, mine: list[float], base: list[float]) -> Result:
    ratios = sorted(a / b for a, b in zip(mine, base, strict=True))
    quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
    return Result(
        workload, subject, statistics.median(mine), statistics.median(ratios), quartiles[0], quartiles[2]
    )


def dump(results: list[Result]) -> str:
    """One line of JSON that `load` reads."""
    return json.dumps([asdict(result) for result in results])


def load(text: str) -> list[Result]:
    """What `dump` wrote."""
    return [Result(**entry) for entry in json.loads(text)]
