"""What `prepare` takes beside models and DataLoaders, evaluations that are dealt, and each process's own noise, on XLA."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from crosstrain import Accelerator
from crosstrain.utils import gather_object
from torch import nn

from tests.support.ranks import on_ranks, run_ranks
from tests.xla.support import loader, model, on_xla
from tests.xla.test_processes import APART


def test_loose_parameters_on_the_device_train_as_on_one_process() -> None:
    wanted = on_xla(train_loosely)
    assert wanted["plain"] == pytest.approx(wanted["found"], abs=1e-6)
    first, second = run_ranks(train_loosely, 2, env=APART)
    assert first["found"] == second["found"]
    assert first["found"] == pytest.approx(wanted["plain"], abs=1e-6)


def train_loosely() -> dict[str, Any]:
    accelerator = Accelerator(split_batches=True)
    start = torch.linspace(-1, 1, 18).reshape(6, 3)
    weight = nn.Parameter((start + accelerator.process_index).to(accelerator.device))
    optimizer, batches = accelerator.prepare(
        torch.optim.SGD([weight], lr=0.1, momentum=0.9), loader("mlp", 32, 8)
    )
    for x, y in batches:
        optimizer.zero_grad()
        accelerator.backward(F.cross_entropy(x @ weight, y))
        optimizer.step()
    plain = nn.Parameter(start.clone())
    optimizer = torch.optim.SGD([plain], lr=0.1, momentum=0.9)
    for x, y in loader("mlp", 32, 8):
        optimizer.zero_grad()
        F.cross_entropy(x @ plain, y).backward()
        optimizer.step()
    return {"found": weight.detach().cpu().flatten().tolist(), "plain": plain.detach().flatten().tolist()}


def test_an_evaluation_is_dealt_and_merged_exactly() -> None:
    wanted = on_xla(evaluate)
    assert wanted["rows"] == 30
    for found in run_ranks(evaluate, 2, env=APART):
        assert found == {**wanted, "whole": False}


def evaluate() -> dict[str, Any]:
    accelerator = Accelerator()
    net = accelerator.prepare(model("mlp")).eval()
    batches = accelerator.prepare_evaluation(loader("mlp", 30, 8))
    right, rows, predictions = 0, 0, []
    with torch.no_grad():
        for x, y in batches:
            chosen = net(x).argmax(1)
            right += (chosen == y).sum().item()
            rows += len(y)
            predictions += chosen.tolist()
    right, rows, predictions = accelerator.merge(batches, right, rows, predictions)
    return {"right": right, "rows": rows, "predictions": predictions, "whole": batches.whole}


@pytest.mark.parametrize("own", [True, False])
@on_ranks(2, env=APART)
def test_noise_is_each_processs_own_on_the_host_and_on_the_device(own: bool) -> None:
    accelerator = Accelerator(own_draws=own)
    _, batches = accelerator.prepare(model("mlp"), loader("mlp", 32, 8))
    host, device, dropout = [], [], []
    for x, _ in batches:
        host += torch.randn(2).tolist()
        device += torch.randn(2, device=x.device).tolist()
        dropout += F.dropout(torch.ones(32, device=x.device)).tolist()
    for kind in (host, device, dropout):
        first, second = gather_object([kind])
        assert (first == second) is not own
    first, second = gather_object([torch.randn(2).tolist()])
    assert first == second
