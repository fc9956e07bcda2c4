"""A prepared scheduler ends where stepping it once for each replica's batch ends, however it gets there."""

from __future__ import annotations

import copy
import itertools
import math
import random
import sys
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


class Counting:
    """A factor that remembers how often it was asked for."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, step: int) -> float:
        self.calls += 1
        return 1 / self.calls


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


def _through_a_helper() -> Callable[[int], float]:
    inner = _counting()
    return lambda step: inner(step) * 2


class Renamed(LambdaLR):
    """A script's own that changes nothing of how it steps."""

    def report(self) -> str:
        return f"{self.last_epoch}"


class Momentum(LambdaLR):
    """A script's own whose rate depends on the last one."""

    def get_lr(self) -> list[Any]:
        return [
            0.5 * group["lr"] + 0.5 * new
            for group, new in zip(self.optimizer.param_groups, super().get_lr(), strict=True)
        ]


class Logged(LambdaLR):
    def step(self, epoch: int | None = None) -> None:
        super().step(epoch)
        self.__dict__.setdefault("seen", []).append(self.last_epoch)


class Square(LRScheduler):
    def get_lr(self) -> list[Any]:
        return [base / math.sqrt(1 + self.last_epoch) for base in self.base_lrs]


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
    "lambda that calls one that counts": lambda o: LambdaLR(o, _through_a_helper()),
    "lambda that draws": lambda o: LambdaLR(o, lambda step: random.random()),
    "lambda, an object with state": lambda o: LambdaLR(o, Counting()),
    "lambda over an iterator": lambda o: LambdaLR(o, _over_an_iterator()),
    "multiplicative": lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 0.999),
    "step": lambda o: lr_scheduler.StepLR(o, 300, 0.5),
    "multi step": lambda o: lr_scheduler.MultiStepLR(o, [100, 700, 900], 0.5),
    "constant": lambda o: lr_scheduler.ConstantLR(o, 0.3, 600),
    "linear": lambda o: lr_scheduler.LinearLR(o, 0.1, total_iters=700),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.999),
    "polynomial": lambda o: lr_scheduler.PolynomialLR(o, 900, 2.0),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 600),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 100, 2),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=1100),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 50, mode="triangular2"),
    "cyclic, own scale": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 50, scale_fn=lambda x: 1 / x),
    "cyclic, own scale with state": lambda o: lr_scheduler.CyclicLR(
        o, 0.01, 0.1, 50, scale_fn=_counting(), scale_mode="iterations"
    ),
    "sequential": _sequential,
    "chained": _chained,
    "averaging": lambda o: torch.optim.swa_utils.SWALR(o, 0.05, anneal_epochs=700),
    "own subclass": lambda o: Renamed(o, lambda step: 0.999**step),
    "own get_lr": lambda o: Momentum(o, lambda step: 0.999**step),
    "own step": lambda o: Logged(o, lambda step: 0.999**step),
    "own scheduler": Square,
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


def _calls(factor: Callable[[int], float], steps: int) -> list[int]:
    """The numbers for which a prepared LambdaLR asks."""
    asked: list[int] = []
    optimizer = _optimizer("sgd")
    scheduler = LambdaLR(optimizer, factor)
    prepare_scheduler(scheduler, Gradients(), times=REPLICAS, with_optimizer=True)

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is factor.__code__:
            asked.append(frame.f_locals["step"])

    for _ in range(steps):
        optimizer.step()
        sys.setprofile(profile)
        scheduler.step()
        sys.setprofile(None)
    return asked


def test_a_rate_that_nobody_sees_is_not_computed() -> None:
    assert _calls(lambda step: 0.999**step, 3) == [256, 256, 512, 512, 768, 768]  # for each of two groups
    assert len(_calls(_counting(), 1)) == 2 * REPLICAS


def test_the_rate_may_be_a_tensor() -> None:
    ends = []
    for prepared in (True, False):
        optimizer = Adam(nn.Linear(1, 1).parameters(), lr=torch.tensor(0.1), capturable=False, foreach=False)
        rate = optimizer.param_groups[0]["lr"]
        scheduler = LambdaLR(optimizer, lambda step: 0.999**step)
        if prepared:
            prepare_scheduler(scheduler, Gradients(), times=REPLICAS, with_optimizer=True)
        optimizer.step()
        for _ in range(1 if prepared else REPLICAS):
            scheduler.step()
        assert optimizer.param_groups[0]["lr"] is rate
        ends.append(float(rate))
    assert ends[0] == ends[1]


def test_a_state_that_was_loaded_goes_on() -> None:
    optimizer = _optimizer("sgd")
    scheduler = LambdaLR(optimizer, lambda step: 0.999**step)
    prepare_scheduler(scheduler, Gradients(), times=REPLICAS, with_optimizer=True)
    optimizer.step()
    scheduler.step()
    state = copy.deepcopy(scheduler.state_dict())
    assert (state["last_epoch"], state["_step_count"]) == (256, 257)
    optimizer.step()
    scheduler.step()
    ahead = scheduler.get_last_lr()
    scheduler.load_state_dict(state)
    scheduler.step()
    assert scheduler.get_last_lr() == ahead


def test_the_order_of_the_first_steps_is_still_looked_at() -> None:
    optimizer = _optimizer("sgd")
    scheduler = LambdaLR(optimizer, lambda step: 0.999**step)
    prepare_scheduler(scheduler, Gradients(), times=REPLICAS, with_optimizer=True)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()
