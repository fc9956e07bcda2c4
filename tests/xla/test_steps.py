"""What surrounds the step: accumulation, clipping, schedules, precision, seeds; and that no step compiles anew."""

import warnings

import crosstrain
import pytest
import torch
import torch.nn.functional as F
from crosstrain import Accelerator
from crosstrain.utils import pad_collate, set_seed
from torch import Tensor

from tests.xla.support import difference, loader, model, on_four_devices, on_xla, optimizer


def compiled() -> int:
    from crosstrain.comm.xla.watch import count

    return count("UncachedCompile")


@on_four_devices
def test_accumulation_clipping_and_schedule_are_plain_torchs_and_compile_nothing_after_step_3() -> None:
    accelerator = Accelerator(gradient_accumulation_steps=2, split_batches=True)
    module = model("mlp")
    optim = optimizer("sgd", module)
    schedule = torch.optim.lr_scheduler.LambdaLR(optim, lambda step: 0.9**step)
    accelerator.prepare(module, optim, schedule)
    batches = accelerator.prepare(loader("mlp", 128, 8))
    counts = []
    for x, y in batches:
        with accelerator.accumulate(module):
            accelerator.backward(F.cross_entropy(module(x), y))
            accelerator.clip_grad_norm_(module.parameters(), 0.5)
            optim.step()
            schedule.step()
            optim.zero_grad()
        counts.append(compiled())
    assert counts[-1] == counts[6]
    assert (optim.param_groups[0]["lr"], schedule.last_epoch) == (pytest.approx(0.1 * 0.9**8), 8)
    assert difference(accelerator.get_state_dict(module), plain_accumulation()) < 1e-6


def plain_accumulation() -> dict[str, Tensor]:
    module = model("mlp")
    optim = optimizer("sgd", module)
    schedule = torch.optim.lr_scheduler.LambdaLR(optim, lambda step: 0.9**step)
    for index, (x, y) in enumerate(loader("mlp", 128, 8)):
        (F.cross_entropy(module(x), y) / 2).backward()
        if index % 2:
            torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
            optim.step()
            schedule.step()
            optim.zero_grad()
    return module.state_dict()


@on_four_devices
def test_bf16_runs_by_autocast() -> None:
    accelerator = Accelerator(mixed_precision="bf16")
    module = model("mlp")
    seen: list[torch.dtype] = []
    module.first.register_forward_hook(lambda _m, _i, out: seen.append(out.dtype))
    module = accelerator.prepare(module)
    x, y = next(iter(accelerator.prepare(loader("mlp", 8, 2))))
    out = module(x)
    with accelerator.autocast():
        seen.append(F.cross_entropy(out, y).dtype)
    accelerator.backward(F.cross_entropy(out, y))
    assert [*seen, out.dtype, module.first.weight.grad.dtype] == [torch.bfloat16] + [torch.float32] * 3
    assert accelerator.scaler is None


@on_four_devices
def test_fp16_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="fp16' is not for XLA: TPUs compute in bfloat16"):
        Accelerator(mixed_precision="fp16")


@on_four_devices
def test_seeds_reach_the_devices_and_rows_get_noise_of_their_own() -> None:
    accelerator = Accelerator()
    ones = next(iter(accelerator.prepare(loader("mlp", 8, 2))))[0] * 0 + 1
    drawn = []
    for seed, how in ((5, set_seed), (5, set_seed), (6, set_seed), (5, torch.manual_seed)):
        accelerator._comm.step_done()
        how(seed)
        drawn.append(F.dropout(ones, 0.5).tolist())
    first, again, other, plain = drawn
    assert plain == first == again != other
    assert len({tuple(row) for row in first}) == len(first)


@on_four_devices
def test_a_step_that_keeps_compiling_names_the_shapes_and_the_loader_once() -> None:
    accelerator = Accelerator()
    module = model("mlp")
    optim = optimizer("sgd", module)
    accelerator.prepare(module, optim)
    rows = iter(range(108))
    batches = [[next(rows) for _ in range(size)] for size in (8, 12, 16, 20, 24, 28)]
    sampler = [batch[i::4] for batch in batches for i in range(4)]
    data = loader("mlp", 108, 1).dataset
    uneven = accelerator.prepare(torch.utils.data.DataLoader(data, batch_sampler=sampler))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x, y in uneven:
            optim.zero_grad()
            accelerator.backward(F.cross_entropy(module(x), y))
            optim.step()
    (said,) = (str(one.message) for one in caught if "compiled" in str(one.message))
    assert "step 4 of the loader over TensorDataset was compiled again" in said
    assert "20x6, 20, after 8x6, 8 / 12x6, 12 / 16x6, 16" in said
    assert "6 batch shapes" in str(crosstrain.xla_report())


def test_padded_sequences_stop_the_compiling() -> None:
    assert on_xla(sequences, False) > on_xla(sequences, True) == 0


def sequences(pad: bool) -> int:
    """Graphs compiled after the third step, over batches of ten different lengths."""
    accelerator = Accelerator()
    module = torch.nn.Embedding(11, 4)
    optim = torch.optim.SGD(module.parameters(), lr=0.1)
    samples = [{"tokens": [row % 7] * (row // 4 % 10 + 3)} for row in range(40)]
    collate = pad_collate(16, ["tokens"], everywhere=False) if pad else pad_collate(1, ["tokens"])
    batches = torch.utils.data.DataLoader(samples, batch_size=1, collate_fn=collate)  # type: ignore[arg-type]
    accelerator.prepare(module, optim)
    counts = []
    for batch in accelerator.prepare(batches):
        optim.zero_grad()
        accelerator.backward(module(batch["tokens"]).square().mean())
        optim.step()
        counts.append(compiled())
    return counts[-1] - counts[2]
