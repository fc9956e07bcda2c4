"""A prepared scheduler ends where stepping it once for each replica's batch ends, however it gets there."""

from __future__ import annotations

import copy
import itertools
import math
import random
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from crosstrain.step.scheduler import prepare_scheduler
from crosstrain.step.window import Gradients
from torch import nn
from torch.optim import SGD, Adam, Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

REPLICAS = 256
Make = Callable[[Optimizer], LRScheduler]


def _cosine(step: int, *, warm: int, total: int) -> float:
    if step < warm:
        return step / max(1, warm)
    return max(0.0, 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm))))


def _counting() -> Callable[[int], float]:
    calls = 0

    def factor(step: int) -> float:
        nonlocal calls
        calls += 1
        return 1 / calls

    return factor


def _over_an_iterator() -> Callable[[int], float]:
    numbers = itertools.count(1)
    return lambda step: 1 / next(numbers)


class Momentum(LambdaLR):
    """A script's own whose rate depends on the last one."""

    def get_lr(self) -> list[Any]:
        return [
            0.5 * group["lr"] + 0.5 * new
            for group, new in zip(self.optimizer.param_groups, super().get_lr(), strict=True)
        ]


def _patched(optimizer: Optimizer) -> LRScheduler:
    scheduler: Any = LambdaLR(optimizer, lambda step: 0.999**step)
    plain = scheduler.get_lr
    scheduler.get_lr = lambda: [
        group["lr"] * 0.5 + new * 0.5 for group, new in zip(optimizer.param_groups, plain(), strict=True)
    ]
    return scheduler  # type: ignore[no-any-return]


def _sequential(optimizer: Optimizer) -> LRScheduler:
    parts = [
        lr_scheduler.LinearLR(optimizer, 0.1, total_iters=500),
        LambdaLR(optimizer, lambda step: 0.999**step),
    ]
    return lr_scheduler.SequentialLR(optimizer, parts, milestones=[500])


def _chained(optimizer: Optimizer) -> LRScheduler:
    return lr_scheduler.ChainedScheduler(
        [lr_scheduler.ExponentialLR(optimizer, 0.999), lr_scheduler.StepLR(optimizer, 300, 0.5)]
    )


MAKERS: dict[str, Make] = {
    "lambda": lambda o: LambdaLR(o, lambda step: 0.999**step),
    "lambda, partial": lambda o: LambdaLR(o, partial(_cosine, warm=300, total=3000)),
    "lambda over an iterator": lambda o: LambdaLR(o, _over_an_iterator()),
    "multiplicative": lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 0.999),
    "step": lambda o: lr_scheduler.StepLR(o, 300, 0.5),
    "multi step": lambda o: lr_scheduler.MultiStepLR(o, [100, 700, 900], 0.5),
    "linear": lambda o: lr_scheduler.LinearLR(o, 0.1, total_iters=700),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.999),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 600),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 100, 2),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=1100),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 50, mode="triangular2"),
    "cyclic, own scale with state": lambda o: lr_scheduler.CyclicLR(
        o, 0.01, 0.1, 50, scale_fn=_counting(), scale_mode="iterations"
    ),
    "sequential": _sequential,
    "chained": _chained,
    "averaging": lambda o: torch.optim.swa_utils.SWALR(o, 0.05, anneal_epochs=700),
    "own get_lr": lambda o: Momentum(o, lambda step: 0.999**step),
    "patched": _patched,
}


def _optimizer(kind: str) -> Optimizer:
    layers = nn.Linear(2, 1), nn.Linear(2, 1)
    groups = [{"params": list(layer.parameters())} for layer in layers]
    return Adam(groups, lr=0.1) if kind == "adam" else SGD(groups, lr=0.1, momentum=0.9)


def _seen(optimizer: Optimizer, scheduler: Any) -> dict[str, Any]:
    kept = {name: value for name, value in vars(scheduler).items() if isinstance(value, (int, float, list))}
    groups = [
        {name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups
    ]
    hidden = ("lr_lambdas", "_schedulers", "_is_initial")
    return {
        "groups": copy.deepcopy(groups),
        "kept": {name: copy.deepcopy(value) for name, value in kept.items() if name not in hidden},
        "last": list(scheduler.get_last_lr()),
    }


def _run(make: Make, kind: str, prepared: bool) -> list[dict[str, Any]]:
    """What is seen after each of five optimizer steps."""
    random.seed(1)
    optimizer = _optimizer(kind)
    scheduler = make(optimizer)
    if prepared:
        prepare_scheduler(scheduler, Gradients(), times=REPLICAS, with_optimizer=True)
    seen = []
    for _ in range(5):
        optimizer.step()
        for _ in range(1 if prepared else REPLICAS):
            total = getattr(scheduler, "total_steps", None)
            if prepared or total is None or scheduler.last_epoch < total:
                scheduler.step()
        seen.append(_seen(optimizer, scheduler))
    return seen


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("name", MAKERS)
def test_the_end_is_that_of_single_steps(name: str, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert _run(MAKERS[name], kind, prepared=True) == _run(MAKERS[name], kind, prepared=False)
