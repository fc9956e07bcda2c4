"""Mixed precision: autocast around the forward, float32 outputs, and a scaler that knows what it skipped."""

from typing import Any

import pytest
import torch
from crosstrain import Accelerator, AutocastKwargs, GradScalerKwargs
from torch import Tensor, nn

from tests.support.ranks import on_ranks


class Probe(nn.Module):
    """Notes the dtype that its linear layer computes in."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        self.inside: list[torch.dtype] = []

    def forward(self, x: Tensor) -> dict[str, Any]:
        y = self.layer(x)
        self.inside.append(y.dtype)
        return {"y": y, "mask": y > 0, "n": 3}


@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_forward_computes_low_and_returns_float32(name: str, dtype: torch.dtype) -> None:
    accelerator = Accelerator(cpu=True, mixed_precision=name)
    model = accelerator.prepare(Probe())
    for call in (model, model.forward):
        out = call(torch.ones(1, 4))
        assert (out["y"].dtype, out["mask"].dtype, out["n"]) == (torch.float32, torch.bool, 3)
    assert model.inside == [dtype, dtype]
    assert model.layer.weight.dtype == torch.float32
    assert accelerator.native_amp
    with accelerator.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
    with accelerator.autocast(AutocastKwargs(enabled=False)):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    assert accelerator.unwrap_model(model, keep_fp32_wrapper=False) is model
    assert model(torch.ones(1, 4))["y"].dtype == torch.float32
    assert model.inside[-1] == torch.float32


def _amp(accelerated: bool) -> tuple[float, Tensor]:
    torch.manual_seed(0)
    model, x = nn.Linear(8, 8), torch.randn(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if accelerated:
        accelerator = Accelerator(cpu=True, mixed_precision="bf16")
        model, optimizer = accelerator.prepare(model, optimizer)
        region, backward = accelerator.autocast, accelerator.backward
    else:
        region, backward = (lambda: torch.autocast("cpu", torch.bfloat16)), (lambda loss: loss.backward())
    loss = torch.zeros(())
    for _ in range(5):
        with region():
            loss = model(x).sigmoid().sum()
        optimizer.zero_grad()
        backward(loss)
        optimizer.step()
    return loss.item(), model.weight.detach()


def test_a_script_with_its_own_amp_region_keeps_its_bits() -> None:
    """accelerate turns the outputs into float32 inside the region, and the sigmoid's bits change."""
    plain, ours = _amp(False), _amp(True)
    assert plain[0] == ours[0]
    assert torch.equal(plain[1], ours[1])


def test_a_skipped_step_is_known_and_the_scheduler_waits() -> None:
    handler = GradScalerKwargs(init_scale=4.0, growth_interval=2)
    accelerator = Accelerator(cpu=True, mixed_precision="fp16", kwargs_handlers=[handler])
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    assert accelerator.scaler is not None
    seen = []
    for factor in (1.0, float("inf"), 1.0, 1.0):
        before = model.weight.item()
        accelerator.backward(model(torch.ones(1, 1)).sum() * factor)
        norm = accelerator.clip_grad_norm_(model.parameters(), 0.5)
        accelerator.clip_grad_norm_(model.parameters(), 0.5)  # a second time must not unscale again
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        skipped = accelerator.optimizer_step_was_skipped
        seen.append((skipped, model.weight.item() == before, scheduler.get_last_lr()[0]))
        if factor == 1.0:
            assert norm.item() == pytest.approx(1.0)
    assert seen == [(False, False, 0.25), (True, True, 0.25), (False, False, 0.125), (False, False, 0.0625)]
    assert accelerator.scaler.get_scale() == 4.0  # halved once, doubled once


def test_scaled_accumulation_equals_plain_amp() -> None:
    def train(accelerated: bool) -> Tensor:
        torch.manual_seed(0)
        model, xs = nn.Linear(4, 1), torch.randn(6, 2, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if accelerated:
            accelerator = Accelerator(cpu=True, mixed_precision="fp16", gradient_accumulation_steps=3)
            model, optimizer = accelerator.prepare(model, optimizer)
            for x in xs:
                with accelerator.accumulate(model):
                    accelerator.backward(model(x).square().mean())
                    accelerator.clip_grad_norm_(model.parameters(), 0.1)
                    optimizer.step()
                    optimizer.zero_grad()
            return model.weight.detach()
        scaler = torch.amp.GradScaler("cpu")
        for i, x in enumerate(xs):
            with torch.autocast("cpu", torch.float16):
                out = model(x)
            scaler.scale(out.float().square().mean() / 3).backward()
            if i % 3 == 2:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        return model.weight.detach()

    assert torch.equal(train(False), train(True))


def test_two_optimizers_share_a_scale_that_changes_only_between_iterations() -> None:
    """An update after the first optimizer's step would leave the second one's gradients in the old scale."""
    handler = GradScalerKwargs(init_scale=4.0, growth_interval=1)
    accelerator = Accelerator(cpu=True, mixed_precision="fp16", kwargs_handlers=[handler])
    models = [nn.Linear(1, 1, bias=False) for _ in range(2)]
    for model in models:
        nn.init.zeros_(model.weight)
    optimizers = [torch.optim.SGD(model.parameters(), lr=1.0) for model in models]
    one, two, of_one, of_two = accelerator.prepare(*models, *optimizers)
    for _ in range(2):
        x = torch.ones(1, 1)
        accelerator.backward(one(x).sum() + two(x).sum())
        of_one.step()
        of_two.step()
        of_one.zero_grad()
        of_two.zero_grad()
    assert (one.weight.item(), two.weight.item()) == (-2.0, -2.0)


@on_ranks(2)
def test_an_overflow_on_one_rank_skips_the_step_on_all() -> None:
    handler = GradScalerKwargs(init_scale=1024.0)
    accelerator = Accelerator(cpu=True, mixed_precision="fp16", kwargs_handlers=[handler])
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    skipped = []
    for step in range(3):
        factor = float("inf") if (step, accelerator.process_index) == (1, 1) else 1.0
        accelerator.backward(model(torch.ones(1, 2)).sum() * factor)
        optimizer.step()
        optimizer.zero_grad()
        skipped.append(accelerator.optimizer_step_was_skipped)
    assert skipped == [False, True, False]
    first, second = accelerator.gather(model.weight.detach())
    assert torch.equal(first, second)


@pytest.mark.parametrize("when", ["before", "after"])
def test_compiled_models_keep_clean_keys(when: str) -> None:
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    model: Any = nn.Linear(2, 2)
    if when == "before":
        model = torch.compile(model, backend="eager")
        model = accelerator.prepare(model)
    else:
        model = torch.compile(accelerator.prepare(model), backend="eager")
    assert model(torch.ones(1, 2)).dtype == torch.float32
    assert list(accelerator.get_state_dict(model)) == ["weight", "bias"]
    assert type(accelerator.unwrap_model(model, keep_torch_compile=False)).__name__ == "Linear"
