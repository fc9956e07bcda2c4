"""A model that the script has wrapped is adopted: DistributedDataParallel averages, DataParallel has one device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from tests.runtime.nets import WEIGHTED, Net, State, data, same
from tests.support.ranks import run_ranks


def _train(wrapped: bool, steps: int, options: dict[str, Any], sums: bool = False) -> State:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=steps, **options)
    model: Any = DistributedDataParallel(Net()) if wrapped else Net()
    optimizer = SGD(model.parameters(), 0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, data(30))
    calls = _count_averagings(model) if wrapped else []
    for (x,) in loader:
        with accelerator.accumulate(model):
            loss = (model(x) - x).square()
            accelerator.backward(loss.sum() if sums else loss.mean())
            optimizer.step()
            optimizer.zero_grad()
    if wrapped:
        assert isinstance(model, DistributedDataParallel)
        assert len(calls) == -(-len(loader) // steps)  # one bucket, once a window
        assert accelerator.unwrap_model(model) is model.module
    return {name: value.clone() for name, value in accelerator.get_state_dict(model).items()}


def _count_averagings(model: DistributedDataParallel) -> list[int]:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    calls: list[int] = []

    def hook(state: Any, bucket: Any) -> Any:
        calls.append(bucket.index())
        return allreduce_hook(state, bucket)

    hook.__annotations__.clear()  # torch checks them, and these are strings
    model.register_comm_hook(None, hook)
    return calls


@pytest.mark.parametrize("steps", [1, 2])
def test_it_trains_like_any_other_model(steps: int) -> None:
    """And like plain DistributedDataParallel: averaged once, in an accumulation window at its end."""
    zero, one = run_ranks(_train, 2, True, steps, {})
    assert list(zero) == list(Net().state_dict())  # no `module.`
    assert all(torch.equal(zero[name], one[name]) for name in zero)
    assert same(run_ranks(_train, 2, False, steps, {})[0], zero)


def test_losses_are_scaled_for_it() -> None:
    (alone,) = run_ranks(_train, 1, False, 1, WEIGHTED)
    assert all(same(alone, state) for state in run_ranks(_train, 2, True, 1, WEIGHTED))
    options = {"loss_reduction": "sum", **WEIGHTED}
    (alone,) = run_ranks(_train, 1, False, 1, options, True)
    assert all(same(alone, state, 1e-5) for state in run_ranks(_train, 2, True, 1, options, True))


def _local_then_not(folder: str) -> None:
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    model: Any = DistributedDataParallel(nn.Linear(1, 1, bias=False))
    model = accelerator.prepare(model)
    seen = []
    model.module.register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
    x = torch.tensor([[float(accelerator.process_index + 1)]])
    weight = model.module.weight
    with accelerator.no_sync(model):
        accelerator.backward(model(x).mean())
        assert weight.grad.item() == accelerator.process_index + 1
        with accelerator.trigger_sync_in_backward(model):
            accelerator.backward(model(x).mean())
    assert (weight.grad.item(), seen[0], model(x).dtype) == (3.0, True, torch.float32)
    accelerator.save_model(model, Path(folder) / "model.pt")
    accelerator.wait_for_everyone()
    assert sorted(torch.load(Path(folder) / "model.pt")) == ["weight"]


def test_no_sync_precision_and_files(tmp_path: Path) -> None:
    run_ranks(_local_then_not, 2, str(tmp_path))


def _data_parallel(inner: bool) -> tuple[State, str]:
    accelerator = Accelerator(cpu=True)
    wrapper: Any = nn.DataParallel(Net())
    wrapper.device_ids = [0, 1]  # as where there are two GPUs
    model = nn.Sequential(wrapper) if inner else wrapper
    optimizer = SGD(model.parameters(), 0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, data(30))
    for (x,) in loader:
        accelerator.backward((model(x) - x).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    names = next(iter(model.state_dict()))
    model.load_state_dict(model.state_dict())
    return {name: value.clone() for name, value in wrapper.module.state_dict().items()}, names


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("inner", [False, True])
def test_data_parallel_computes_on_one_device_and_keeps_its_names(world: int, inner: bool) -> None:
    plain = run_ranks(_train, world, False, 1, {})
    for expected, (state, name) in zip(plain, run_ranks(_data_parallel, world, inner), strict=True):
        assert all(torch.equal(expected[key], state[key]) for key in expected)
        assert name == ("0.module.encoder.weight" if inner else "module.encoder.weight")


def _with_frozen_weights() -> list[float]:
    """The script wrapped a model whose first weights never train: a fixed table of positions."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].requires_grad_(False)
    model = DistributedDataParallel(model)
    model, optimizer = accelerator.prepare(model, SGD(model.parameters(), 0.1))
    rows = torch.full((3, 2), 1.0 + accelerator.process_index)
    accelerator.backward(model(rows).mean())
    optimizer.step()
    return [round(float(value), 6) for param in model.parameters() for value in param.flatten()]


def test_a_wrapped_model_may_have_frozen_weights() -> None:
    first, second = run_ranks(_with_frozen_weights, 2)
    assert first == second
