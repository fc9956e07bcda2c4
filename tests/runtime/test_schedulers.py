"""Schedulers that observe a metric, and schedulers inside others."""

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
from crosstrain import Accelerator
from crosstrain.step.scheduler import prepare_scheduler
from crosstrain.step.window import Gradients
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer, lr_scheduler
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, LRScheduler, SequentialLR, StepLR
from torch.utils.data import DataLoader

from tests.support.ranks import on_ranks, run_ranks

BATCH = 2


def _plateau(options: dict[str, Any], metrics: list[list[Any]]) -> list[float]:
    """The rate after each observation; `metrics[rank]` are a rank's own."""
    accelerator = Accelerator(cpu=True, **options)
    model = nn.Linear(3, 1)
    optimizer = SGD(model.parameters(), lr=1.0)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.1)
    batches = DataLoader(torch.randn(8, 3), BATCH)
    model, optimizer, batches, plateau = accelerator.prepare(model, optimizer, batches, plateau)
    rates = []
    for metric in metrics[accelerator.process_index]:
        for x in batches:
            with accelerator.accumulate(model):
                accelerator.backward(model(x).square().mean() * 0)
                optimizer.step()
                optimizer.zero_grad()
            break  # inside the window, where there is one
        plateau.step(metric)
        rates += [group["lr"] for group in optimizer.param_groups]
    return rates


@pytest.mark.parametrize(
    ("world", "follows", "split", "steps"),
    [(1, True, False, 3), (2, True, False, 1), (2, True, False, 3), (2, True, True, 3), (2, False, False, 3)],
)
def test_an_observation_is_one_step(world: int, follows: bool, split: bool, steps: int) -> None:
    """accelerate counts one observation once for each process, and none inside a window."""
    options = {"step_scheduler_with_optimizer": follows, "split_batches": split}
    options |= {"gradient_accumulation_steps": steps}
    for rates in run_ranks(_plateau, world, options, [[3.0, 2.0, 2.0, 1.0, 1.0]] * world):
        assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.01])


def test_the_metric_is_rank_0s_where_ranks_differ_by_rounding() -> None:
    one, two = run_ranks(_plateau, 2, {}, [[1.0, torch.tensor(1.0)], [1.0 + 1e-7, torch.tensor(1.0 - 1e-6)]])
    assert one == two == pytest.approx([1, 0.1])
    half = [[torch.tensor(1.0, dtype=torch.bfloat16)], [torch.tensor(1.0078125, dtype=torch.bfloat16)]]
    assert run_ranks(_plateau, 2, {}, half) == [[1.0], [1.0]]
    nan = [[float("nan")], [float("nan")]]
    assert run_ranks(_plateau, 2, {}, nan) == [[0.1], [0.1]]  # not better than anything


@pytest.mark.parametrize(
    ("metrics", "shown"),
    [
        ([1.0, 1.01], "1.0 on rank 0, 1.01 on rank 1"),
        ([1.0, float("nan")], "1.0 on rank 0, nan on rank 1"),
        ([1.0, None], "1.0 on rank 0, 'a NoneType' on rank 1"),
        ([torch.ones(2), 0.5], "'a Tensor' on rank 0, 0.5 on rank 1"),
    ],
)
@on_ranks(2)
def test_metrics_that_differ_are_an_error_on_all_ranks(metrics: list[Any], shown: str) -> None:
    with pytest.raises(RuntimeError) as error:
        _plateau({}, [[metric] for metric in metrics])
    for part in (shown, f"{__file__}:", "accelerator.reduce(metric, 'mean')"):
        assert part in str(error.value)


# -- schedulers inside others -------------------------------------------------------------------------


class Warmup(LRScheduler):
    """A script's own: hands over to another one after its first step."""

    def __init__(self, optimizer: Any, after: LRScheduler) -> None:
        self.after = after
        super().__init__(optimizer)

    def get_lr(self) -> list[float | Tensor]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def step(self, epoch: int | None = None) -> None:
        self.last_epoch += 1
        if self.last_epoch > 1:
            self.after.step()


def _schedulers(kind: str, optimizer: Any) -> tuple[LRScheduler, list[LRScheduler]]:
    """The outer scheduler and those inside."""
    if kind == "sequential":
        inner = [ExponentialLR(optimizer, 0.5), StepLR(optimizer, 2, 0.1)]
        return SequentialLR(optimizer, inner, milestones=[3]), inner
    if kind == "chained":
        inner = [ExponentialLR(optimizer, 0.5), StepLR(optimizer, 3, 0.1)]
        return lr_scheduler.ChainedScheduler(inner), inner
    if kind == "nested":
        leaves = [ExponentialLR(optimizer, 0.5), ExponentialLR(optimizer, 0.9)]
        inner = [lr_scheduler.ChainedScheduler(leaves)]
        return lr_scheduler.ChainedScheduler(inner), [*leaves, *inner]
    inner = [ExponentialLR(optimizer, 0.5)]
    return Warmup(optimizer, inner[0]), inner


def _rates(kind: str, prepared: str, options: dict[str, Any]) -> list[float]:
    accelerator = Accelerator(cpu=True, **options)
    model = nn.Linear(3, 1)
    optimizer = SGD(model.parameters(), lr=1.0)
    outer, inner = _schedulers(kind, optimizer)
    model, optimizer = accelerator.prepare(model, optimizer)
    if prepared in ("outer", "both"):
        outer = accelerator.prepare(outer)
    if prepared in ("inner", "both"):
        accelerator.prepare(*inner)
    rates = []
    for number in range(1, 9):
        with accelerator.accumulate(model):
            accelerator.backward(model(torch.full((1, 3), accelerator.process_index + 1.0)).sum() * 0)
            optimizer.step()
            if number % options.get("gradient_accumulation_steps", 1) == 0 or prepared in ("outer", "both"):
                outer.step()
            optimizer.zero_grad()
        rates += [group["lr"] for group in optimizer.param_groups]
    return rates


def _plain(kind: str, steps: list[int]) -> list[float]:
    """The rates of plain PyTorch, whose outer scheduler has made so many steps."""
    optimizer = SGD(nn.Linear(3, 1).parameters(), lr=1.0)
    outer, _ = _schedulers(kind, optimizer)
    rates, made = [], 0
    for wanted in steps:
        for _ in range(wanted - made):
            optimizer.step()
            outer.step()
        made = wanted
        rates += [group["lr"] for group in optimizer.param_groups]
    return rates


@pytest.mark.parametrize("kind", ["sequential", "chained", "nested", "warmup"])
@pytest.mark.parametrize("prepared", ["outer", "inner", "both"])
def test_a_scheduler_inside_another_is_stepped_by_that_one_alone(kind: str, prepared: str) -> None:
    """accelerate makes double speed of it, squared with the number of processes."""
    pace = 1 if prepared == "inner" else 2  # unprepared, the outer one works as written
    expected = _plain(kind, [number * pace for number in range(1, 9)])
    for rates in run_ranks(_rates, 2, kind, prepared, {}):
        assert rates == pytest.approx(expected)


@pytest.mark.parametrize("prepared", ["outer", "inner", "both"])
def test_a_scheduler_inside_another_keeps_time_with_windows_and_by_epochs(prepared: str) -> None:
    windows = [number // 2 for number in range(1, 9)]
    for rates in run_ranks(_rates, 1, "sequential", prepared, {"gradient_accumulation_steps": 2}):
        assert rates == pytest.approx(_plain("sequential", windows))
    for rates in run_ranks(_rates, 2, "chained", prepared, {"step_scheduler_with_optimizer": False}):
        assert rates == pytest.approx(_plain("chained", list(range(1, 9))))


def _within_and_by_epochs(ways: str) -> list[float]:
    """The rate after each of two epochs of four batches, of a schedule that moves in these ways."""
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(3, 1)
    optimizer = SGD(model.parameters(), lr=1.0)
    scheduler, batches = ExponentialLR(optimizer, 0.5), DataLoader(torch.randn(8, 3), BATCH)
    model, optimizer, batches, scheduler = accelerator.prepare(model, optimizer, batches, scheduler)
    rates = []
    for _ in range(2):
        for x in batches:
            accelerator.backward(model(x).square().mean() * 0)
            optimizer.step()
            if "steps" in ways:
                scheduler.step()
        if "epochs" in ways:
            scheduler.step()
        rates += [group["lr"] for group in optimizer.param_groups]
    return rates


@pytest.mark.parametrize(
    ("ways", "moves"), [("steps", [4, 8]), ("steps and epochs", [5, 10]), ("epochs", [1, 2])]
)
def test_a_step_behind_a_pass_is_one(ways: str, moves: list[int]) -> None:
    """Also of a scheduler that an option moves by batches. accelerate makes one for each process of it."""
    for rates in run_ranks(_within_and_by_epochs, 2, ways):
        assert rates == pytest.approx([0.5**number for number in moves])


# -- A prepared scheduler ends where stepping it once for each replica's batch ends, however it gets there ---

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


def _with_what_has_no_value() -> Callable[[int], float]:
    def factor(step: int) -> float:
        return 0.999**step if step < 10**9 else least

    if factor(10**9 - 1) > 1:
        least = 0.0
    return factor


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
    linear = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=500)
    return SequentialLR(optimizer, [linear, LambdaLR(optimizer, lambda step: 0.999**step)], milestones=[500])


def _chained(optimizer: Optimizer) -> LRScheduler:
    return lr_scheduler.ChainedScheduler([ExponentialLR(optimizer, 0.999), StepLR(optimizer, 300, 0.5)])


MAKERS: dict[str, Make] = {
    "lambda": lambda o: LambdaLR(o, lambda step: 0.999**step),
    "lambda, partial": lambda o: LambdaLR(o, partial(_cosine, warm=300, total=3000)),
    "lambda over an iterator": lambda o: LambdaLR(o, _over_an_iterator()),
    "lambda with what has no value yet": lambda o: LambdaLR(o, _with_what_has_no_value()),
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
    groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
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
