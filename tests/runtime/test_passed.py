"""`prepare` says at once what it could not prepare."""

import contextlib
import io
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from crosstrain import Accelerator
from crosstrain.state import AcceleratorState
from crosstrain.step.held_objects import gives_batches
from crosstrain.step.model import check_device
from torch import nn
from torch.nn.modules.module import _global_forward_pre_hooks
from torch.optim import SGD, Optimizer
from torch.utils.data import DataLoader, IterableDataset

from tests.support.ranks import on_ranks, run_ranks


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    AcceleratorState._reset_state(True)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(torch.ones(4, 1))


def _loader() -> DataLoader[Any]:
    return DataLoader(torch.linspace(-1, 1, 24).view(8, 3), batch_size=2)


_LINEAR = nn.Linear(1, 1)
GIVES = [list(_loader()), [{"x": torch.ones(2)}], (x for x in range(3)), iter(_loader()), Stream(), range(3)]
NONE = [None, "name", {"train": _loader()}, [_loader()], [], torch.ones(3), [_LINEAR], io.StringIO("text")]


@pytest.mark.parametrize(("given", "gives"), [*((x, True) for x in GIVES), *((x, False) for x in NONE)])
def test_what_a_loop_would_get_batches_from(given: Any, gives: bool) -> None:
    assert gives_batches(given) is gives
    made = Accelerator(cpu=True).prepare(given)
    assert isinstance(made, DataLoader) if gives else made is given


@on_ranks(1, 2)
def test_a_model_on_several_devices() -> None:
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    with pytest.raises(ValueError, match=r"the Sequential is spread over several devices \(cpu, meta\)"):
        accelerator.prepare(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta")))
    beside = nn.Sequential(
        nn.Linear(2, 2), nn.Linear(2, 2, device="meta")
    )  # as on a process whose device that is
    assert check_device(beside, torch.device("meta")) and not check_device(beside[0], torch.device("meta"))


def _train_unfed(kind: str) -> tuple[list[str], int]:
    """What is said on the screen in three steps of a training whose batches `prepare` has not seen, and the hooks left."""
    accelerator = Accelerator(cpu=True)
    rank, said = accelerator.process_index, io.StringIO()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 1))
    optimizer = SGD(model.parameters(), 0.1)
    if kind == "loose":
        accelerator.prepare(optimizer)
    else:
        accelerator.prepare(model, optimizer)
    batches: Any = [x + rank * (kind == "own") for x in _loader()]
    if kind == "prepared":
        batches = accelerator.prepare(_loader())
    elif kind == "dealt":
        batches = accelerator.prepare(list(_loader()))
    with contextlib.redirect_stderr(said):
        batches = accelerator.prepare(torch.stack(batches)) if kind == "an array" else batches
        for x in batches:
            rows = random.sample(range(2), 1) if kind in ("drawn below", "forced") else [0, 1]
            data = (
                torch.randn(2, 3)
                if kind == "random"
                else batches[0]
                if kind in ("drawn below", "picture")
                else x
            )
            loss = model[::2](data) if kind == "loose" else model(data)
            if kind in ("picture", "siamese"):
                loss = loss + model(torch.randn(2, 3) if kind == "picture" else data.flip(0))
            accelerator.backward(loss[rows].square().mean())
            optimizer.step()
            optimizer.zero_grad()
    return said.getvalue().splitlines(), len(_global_forward_pre_hooks)


def test_a_training_on_the_same_data_everywhere_is_said_in_its_second_step() -> None:
    (zero, _), (one, _) = run_ranks(_train_unfed, 2, "an array")
    assert [line for line in zero if "the same data: `torch.stack(batches)` (test_passed.py:" in line]
    for kind in (
        "same",
        "loose",
        "forced",
        "siamese",
    ):  # the last draws in each step, and goes over the same batches
        (zero, hooks), (one, _) = run_ranks(_train_unfed, 2, kind)
        assert [line for line in zero if f"every process trains on the same data: {__file__}:" in line], zero
        assert (one, hooks) == ([], 0)
    for kind in ("own", "random", "prepared", "dealt", "drawn below", "picture"):
        (zero, hooks), (one, _) = run_ranks(_train_unfed, 2, kind)
        assert not [line for line in zero + one if "same data" in line], (kind, zero)
        assert hooks == 0


# -- What was not given to `prepare` is named where the training would go wrong without a word -------------


def run(accelerator: Accelerator, model: Any, optimizer: Optimizer, batches: Any) -> None:
    for x in batches:
        with accelerator.accumulate():
            accelerator.backward(model(x).square().mean())
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"gradient_accumulation_steps": 2}, "inside an accumulation window"),
        ({"mixed_precision": "fp16"}, "multiplied by the fp16 loss scale"),
    ],
)
def test_an_optimizer_that_was_not_prepared(options: dict[str, Any], reason: str) -> None:
    """accelerate steps with it at every micro-batch, or on scaled gradients, and says nothing."""
    accelerator = Accelerator(cpu=True, **options)
    model, batches = accelerator.prepare(nn.Linear(3, 1), _loader())
    with pytest.raises(RuntimeError, match=f"the SGD was not given to `prepare`, and steps .*{reason}"):
        run(accelerator, model, SGD(model.parameters(), 0.1), batches)


@pytest.mark.parametrize("options", [{"gradient_accumulation_steps": 2}, {"mixed_precision": "fp16"}])
def test_optimizers_that_are_none_of_ours_step_as_ever(options: dict[str, Any]) -> None:
    class Outer(Optimizer):
        """Steps through another optimizer, as ZeRO's, Lookahead and SAM do."""

        def __init__(self, params: Any) -> None:
            self.inner = SGD(params, 0.1)
            super().__init__(self.inner.param_groups, {})

        def step(self, closure: Any = None) -> None:
            self.inner.step()

    accelerator = Accelerator(cpu=True, **options)
    model = nn.Linear(3, 1)
    before = model.weight.detach().clone()
    model, optimizer, batches = accelerator.prepare(model, Outer(list(model.parameters())), _loader())
    other = nn.Linear(1, 1)
    own = SGD(other.parameters(), 0.1)
    for x in batches:
        other(torch.ones(1, 1)).sum().backward()
        own.step()
        run(accelerator, model, optimizer, [x])
    assert not torch.equal(model.weight, before)
