"""The first backward of a call place tells a sum from a mean."""

import contextlib
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator
from crosstrain.step.loss_reduction import Kind, kinds
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from tests.support.ranks import errors_of

ROWS = 6
_NET = nn.Linear(3, 4)
_WORDS = nn.Embedding(50, 4)
_OTHER = torch.linspace(-1, 1, ROWS * 4).view(ROWS, 4)
_WEIGHTS = torch.linspace(0.1, 0.9, ROWS)
_CLASSES = torch.tensor([0, 1, 0, 1, 2, 3])


def _penalty() -> Tensor:
    return sum((param**2).sum() for param in _NET.parameters())  # type: ignore[return-value]


def _each(out: Tensor, reduction: str) -> list[Tensor]:
    return [F.mse_loss(row, target, reduction=reduction) for row, target in zip(out, _OTHER, strict=True)]


def _divergence(out: Tensor) -> Tensor:
    each = out.view(-1, 1).view(ROWS, 2, 2).log_softmax(2)  # as a layer lays out words
    return F.kl_div(each.view(-1, 2), _OTHER.softmax(1).view(-1, 2), reduction="sum")


def _entropy(out: Tensor, reduction: str = "sum", **options: Any) -> Tensor:
    return F.cross_entropy(out, _CLASSES, reduction=reduction, **options)


SUMS: dict[str, Callable[[Tensor], Tensor]] = {
    "a loss function's own": _entropy,
    "scaled": lambda out: 3 - 0.1 * _entropy(out) / 2 + 1,
    "and a penalty": lambda out: _entropy(out) + 1e-3 * _penalty(),
    "over tokens": lambda out: F.mse_loss(out.view(-1, 2), _OTHER.view(-1, 2), reduction="sum"),
    "over tokens, of a divergence": _divergence,
    "of squares": lambda out: (out - _OTHER).square().sum(),
    "of halves": lambda out: ((out - _OTHER).square() / 2).sum(),
    "in two steps": lambda out: (out - _OTHER).square().sum(1).sum(),
    "of losses": lambda out: (_entropy(out, "none") * torch.ones(ROWS)).sum(),
    "of losses by weights, scaled": lambda out: (_entropy(out, "none") * _WEIGHTS).sum() / 0.7,
    "divided by the whole batch": lambda out: _entropy(out) / (2 * ROWS),
    "of two": lambda out: (
        F.binary_cross_entropy(out.sigmoid(), _OTHER.sigmoid(), reduction="sum") - out.exp().sum()
    ),
    "smoothed": lambda out: _entropy(out, label_smoothing=0.1),
    "of embeddings": lambda out: _WORDS(_CLASSES).square().sum(),
    "in another dtype": lambda out: _entropy(out).half().float(),
    "as a list": lambda out: torch.stack([_entropy(out), _entropy(-out)]).sum(),
}
NO_SUMS: dict[str, Callable[[Tensor], Tensor]] = {
    "a mean": lambda out: _entropy(out, "mean"),
    "two means": lambda out: torch.stack([_entropy(out, "mean"), F.mse_loss(out, _OTHER)]).sum(),
    "two means added": lambda out: 100 * _entropy(out, "mean") + F.mse_loss(out, _OTHER),
    "a mean and a penalty": lambda out: _entropy(out, "mean") + 1e-3 * _penalty(),
    "a mean and an anchor": lambda out: (
        F.mse_loss(out, _OTHER) + F.mse_loss(_NET.weight, torch.zeros(4, 3), reduction="sum")
    ),
    "divided by rows": lambda out: _entropy(out) / len(out),
    "times one by rows": lambda out: _entropy(out) * (1 / ROWS),
    "divided before": lambda out: ((out - _OTHER).square() / 2 / ROWS).sum(),
    "divided by elements": lambda out: (out - _OTHER).square().sum() / out.numel(),
    "divided by a tensor": lambda out: _entropy(out) / torch.ones(ROWS).sum(),
    "divided by what it counted": lambda out: _entropy(out) / int((_CLASSES > 0).sum()),
    "divided by its weights": lambda out: (
        torch.sum(_WEIGHTS * _entropy(out, "none")) / torch.sum(_WEIGHTS).item()
    ),
    "divided by weights that learn": lambda out: (
        torch.sum(out[:, :1] * _entropy(out, "none")[:, None]) / torch.sum(out[:, :1]).detach().item()
    ),
    "the mean of sums over columns": lambda out: (out - _OTHER).square().sum(1).mean(),
    "a mean, summed": lambda out: _entropy(out, "mean").sum(),
    "rows one by one": lambda out: sum(_each(out, "sum")) / ROWS,  # type: ignore[return-value]
    "rows as a list": lambda out: torch.stack(_each(out, "sum")).mean(),
    "the batch's mean of a divergence": lambda out: F.kl_div(
        out.log_softmax(1), _OTHER.softmax(1), reduction="batchmean"
    ),
    "soft targets": lambda out: F.cross_entropy(out, _OTHER.softmax(1)),
    "a sum over classes": lambda out: out.mean(0).sum(),
    "parts of a whole, by its elements": lambda out: (
        (out[:, :2].square().sum() + out.square().sum() + out[:, :1].exp().sum()) / out.numel()
    ),
    "a divergence by tokens": lambda out: _divergence(out) / (2 * ROWS),
    "a mean and weights in a row": lambda out: (
        _entropy(out, "mean") + (nn.Parameter(torch.ones(ROWS, 4)).view(-1) ** 2).sum()
    ),
    "no sum at all": lambda out: out.norm(),
}


@pytest.mark.parametrize("loss", SUMS.values(), ids=SUMS)
def test_sums_over_rows_are_known(loss: Callable[[Tensor], Tensor]) -> None:
    assert Kind.SUM in kinds(loss(_NET(torch.ones(ROWS, 3))), ROWS, 2)


@pytest.mark.parametrize("loss", NO_SUMS.values(), ids=NO_SUMS)
def test_what_is_no_sum(loss: Callable[[Tensor], Tensor]) -> None:
    assert Kind.SUM not in kinds(loss(_NET(torch.ones(ROWS, 3))), ROWS, 2)


def _line(function: Callable[..., Any], part: str) -> str:
    """Where in this file the part of a function's text is."""
    lines, first = inspect.getsourcelines(function)
    (found,) = [number for number, line in enumerate(lines, first) if part in line]
    return f"{__file__}:{found}"


def _data(rows: int = 8) -> DataLoader[Any]:
    x = torch.randn(rows, 3, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)


def _train(reduction: str, of_loss: str, steps: int = 1, **options: Any) -> None:
    accelerator = Accelerator(
        cpu=True, loss_reduction=reduction, split_batches=True, gradient_accumulation_steps=steps, **options
    )
    model = nn.Linear(3, 1)
    model, optimizer, loader = accelerator.prepare(model, SGD(model.parameters(), 0.0), _data())
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(F.mse_loss(model(x), y, reduction=of_loss))
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("steps", [1, 2])
def test_a_sum_under_mean_is_an_error_on_every_rank(steps: int, tmp_path: Path) -> None:
    journal = tmp_path / "checks.jsonl"
    for said in errors_of(_train, 2, "mean", "sum", steps, env={"CROSSTRAIN_CHECKS": str(journal)}):
        assert 'Use Accelerator(loss_reduction="sum")' in said
        assert f"{_line(_train, 'accelerator.backward')}: the loss is a sum over the rows" in said
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    assert {entry["status"] for entry in entries if entry["kind"] == "mean"} == {"failed"}


def test_a_mean_under_sum_is_an_error_on_every_rank() -> None:
    for said in errors_of(_train, 2, "sum", "mean"):
        assert 'Leave loss_reduction="sum" out' in said


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_what_was_said_is_what_is_trained(reduction: str, tmp_path: Path) -> None:
    journal = tmp_path / "checks.jsonl"
    env = {"CROSSTRAIN_CHECKS": str(journal)}
    assert errors_of(_train, 2, reduction, reduction, env=env) == ["no error"] * 2
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [entry["status"] for entry in entries if entry["kind"] == "mean"] == ["held"] * 2
    assert errors_of(_train, 1, "mean", "sum") == ["no error"]


def _apart() -> None:
    """Only rank 1's first loss is a sum (of as many elements as there are rows)."""
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(3, 1)
    model, optimizer, loader = accelerator.prepare(model, SGD(model.parameters(), 0.0), _data())
    for x, _ in loader:
        accelerator.backward(model(x)[: 4 if accelerator.process_index else 3].sum())
        optimizer.step()


def test_all_ranks_raise_what_one_of_them_sees() -> None:
    zero, one = errors_of(_apart, 2)
    assert "another process cannot train on its loss" in zero
    assert 'loss_reduction="sum"' in one


def _two_places(second: str) -> None:
    accelerator = Accelerator(cpu=True)
    maker, judge = nn.Linear(3, 3), nn.Linear(3, 1)
    first, other = SGD(maker.parameters(), 0.1), SGD(judge.parameters(), 0.1)
    maker, judge, first, other, loader = accelerator.prepare(maker, judge, first, other, _data())
    entropy = F.binary_cross_entropy_with_logits
    for x, _ in loader:
        other.zero_grad()
        accelerator.backward(entropy(judge(maker(x).detach()), torch.zeros(len(x), 1)))
        other.step()
        first.zero_grad()
        accelerator.backward(entropy(judge(maker(x)), torch.ones(len(x), 1), reduction=second))
        first.step()


def test_both_places_of_a_gan_are_looked_at() -> None:
    assert errors_of(_two_places, 2, "mean") == ["no error"] * 2
    line = _line(_two_places, "reduction=second")
    assert all(f"{line}: the loss is a sum" in said for said in errors_of(_two_places, 2, "sum"))


def _plain(options: dict[str, Any], no_sync: bool = False) -> None:
    accelerator = Accelerator(cpu=True, **options)
    model = nn.Linear(3, 1)
    model, optimizer, loader = accelerator.prepare(model, SGD(model.parameters(), 0.0), _data())
    for x, y in loader:
        window = accelerator.no_sync(model) if no_sync else accelerator.accumulate(model)
        with window if no_sync or accelerator.gradient_accumulation_steps > 1 else contextlib.nullcontext():
            F.mse_loss(model(x), y, reduction=accelerator.loss_reduction).backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"gradient_accumulation_steps": 2, "split_batches": True}, "inside an accumulation window"),
        ({"loss_reduction": "sum"}, 'under loss_reduction="sum"'),
    ],
)
def test_a_plain_backward_where_the_loss_must_be_scaled(options: dict[str, Any], why: str) -> None:
    line = _line(_plain, ".backward()")
    for said in errors_of(_plain, 2, options):
        assert f"{line}: loss.backward() trains a prepared model {why}" in said
        assert "Use accelerator.backward(loss)" in said


def test_a_plain_backward_elsewhere_is_as_good() -> None:
    assert errors_of(_plain, 2, {}) == ["no error"] * 2
    assert errors_of(_plain, 2, {}, True) == ["no error"] * 2
