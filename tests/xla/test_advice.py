"""What the notes of CT7 promise, counted: each flagged form beside the form that the note recommends."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from crosstrain import Accelerator
from crosstrain.utils import pad_collate
from torch import Tensor, nn

from tests.xla.support import model, on_xla

STEPS = 8


Collate = Callable[[list[Tensor]], Tensor]


def batches(accelerator: Accelerator, collate: Collate | None) -> Iterator[Tensor]:
    """Eight batches whose numbers of positive entries differ; or, to be collated, whose sequences get longer."""
    torch.manual_seed(0)
    rows: Any = torch.randn(STEPS * 8, 6) + torch.linspace(-2, 2, STEPS).repeat_interleave(8)[:, None]
    if collate is not None:
        rows = [torch.ones(3 + index // 8) for index in range(STEPS * 8)]
    loader: Any = torch.utils.data.DataLoader(rows, batch_size=2, collate_fn=collate)
    yield from accelerator.prepare(loader)


def counted(step: Callable[[Tensor, int], Any], collate: Collate | None = None) -> tuple[int, int, int]:
    """Graphs compiled after the second step, values read, operations on the CPU, over eight steps."""
    from crosstrain.comm.xla.watch import count

    accelerator = Accelerator()
    warnings.simplefilter("ignore")  # the watch speaks, as it should
    start = before = accelerator._comm.watch.report()  # type: ignore[attr-defined]
    for index, x in enumerate(batches(accelerator, collate)):
        result = step(x, index)  # what nobody keeps, XLA never computes
        accelerator._comm.step_done()
        del result
        if index == 1:
            before = accelerator._comm.watch.report()  # type: ignore[attr-defined]
    report = accelerator._comm.watch.report()  # type: ignore[attr-defined]
    assert count("UncachedCompile") == report.compiled
    fallbacks = sum(report.fallbacks.values()) - sum(start.fallbacks.values())
    return report.compiled - before.compiled, report.reads - start.reads, fallbacks


def indexing(x: Tensor, _: int) -> Tensor:
    return (x[x > 0] * 2).sum()


def masking(x: Tensor, _: int) -> Tensor:
    return (x * (x > 0) * 2).sum()


def assigning(x: Tensor, _: int) -> Tensor:
    x[x > 0] = 0.0
    return (x[x < -1] * 2).sum()


def choosing(x: Tensor, _: int) -> Tensor:
    x = torch.where(x > 0, 0.0, x)
    return (x * (x < -1) * 2).sum()


def finding_places(x: Tensor, _: int) -> Tensor:
    return (torch.nonzero(x > 0) * 2).sum()


def selecting(x: Tensor, _: int) -> Tensor:
    return (torch.masked_select(x, x > 0) * 2).sum()


def slicing(x: Tensor, index: int) -> Tensor:
    return (x[:, index % 5 :] * 2).sum()


def picking(x: Tensor, index: int) -> Tensor:
    kept = torch.arange(6, device=x.device) >= torch.tensor([index % 5]).to(x.device)
    return (x * kept * 2).sum()


def rounds(x: Tensor, index: int) -> Tensor:
    for _ in range(index + 1):
        x = x * 2
    return x.sum()


def masked_rounds(x: Tensor, index: int) -> Tensor:
    times = torch.tensor([index + 1]).to(x.device)
    for number in range(STEPS):
        x = torch.where(times > number, x * 2, x)
    return x.sum()


@pytest.mark.parametrize(
    ("flagged", "fixed"),
    [
        (indexing, masking),
        (assigning, choosing),
        (finding_places, masking),
        (selecting, masking),
        (slicing, picking),
        (rounds, masked_rounds),
    ],
)
def test_the_flagged_form_keeps_compiling_and_the_fixed_one_does_not(
    flagged: Callable[[Tensor, int], Any], fixed: Callable[[Tensor, int], Any]
) -> None:
    compiled, _, _ = on_xla(counted, flagged)
    settled, reads, fallbacks = on_xla(counted, fixed)
    assert compiled >= 3
    assert (settled, reads, fallbacks) == (0, 0, 0)


def to_the_longest(rows: list[Tensor]) -> Tensor:
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def to_multiples(rows: list[Tensor]) -> Tensor:
    return pad_collate(multiple_of=16, fields=["x"])([{"x": row} for row in rows])["x"]


def doubling(x: Tensor, _: int) -> Tensor:
    return (x * 2).sum()


def test_padding_to_the_longest_keeps_compiling_and_multiples_do_not() -> None:
    assert on_xla(counted, doubling, to_the_longest)[0] == STEPS - 2
    assert on_xla(counted, doubling, to_multiples) == (0, 0, 0)


def branching(x: Tensor, _: int) -> Tensor:
    total = x.sum()
    if total > 0:
        total = total * 2
    return (total + 1).abs()


def no_branch(x: Tensor, _: int) -> Tensor:
    total = x.sum()
    return (torch.where(total > 0, total * 2, total) + 1).abs()


TOTAL: list[float] = []
SUMS: list[Tensor] = []


def reading(x: Tensor, _: int) -> None:
    TOTAL.append(x.sum().item())


def summing(x: Tensor, index: int) -> None:
    SUMS[:] = [SUMS[0] + x.sum().detach() if SUMS else x.sum().detach()]
    if index == STEPS - 1:
        TOTAL.append(SUMS[0].item())


@pytest.mark.parametrize(("flagged", "fixed", "left"), [(branching, no_branch, 0), (reading, summing, 1)])
def test_the_flagged_form_reads_every_step(
    flagged: Callable[[Tensor, int], Any], fixed: Callable[[Tensor, int], Any], left: int
) -> None:
    assert on_xla(counted, flagged)[1] == STEPS
    assert on_xla(counted, fixed)[1] == left


def test_recurrent_layers_compile_for_each_length_and_refuse_packed_sequences() -> None:
    assert on_xla(recurrent) == (3, 1, True)


def recurrent() -> tuple[int, int, bool]:
    from crosstrain.comm.xla.watch import count

    accelerator = Accelerator()
    layer = accelerator.prepare(nn.LSTM(2, 2, batch_first=True))

    def graphs(lengths: list[int]) -> int:
        before = count("UncachedCompile")
        for length in lengths:
            out = layer(torch.ones(4, length, 2).to(accelerator.device))[0].sum()
            accelerator._comm.step_done()
            del out
        return count("UncachedCompile") - before

    each, padded = graphs([2, 3, 4]), graphs([5, 5, 5])
    packed = nn.utils.rnn.pack_padded_sequence
    try:
        layer(
            packed(torch.ones(4, 3, 2).to(accelerator.device), torch.tensor([3, 2, 2, 1]), batch_first=True)
        )
    except RuntimeError:
        return each, padded, True
    return each, padded, False


def test_autocast_for_cuda_does_not_reach_xla() -> None:
    assert on_xla(autocasts) == (True, "torch.bfloat16")


def autocasts() -> tuple[bool, str]:
    accelerator = Accelerator(mixed_precision="bf16")
    layer = nn.Linear(6, 2).to(accelerator.device)
    x = torch.ones(4, 6).to(accelerator.device)
    try:
        with warnings.catch_warnings(), torch.autocast("cuda"):
            warnings.simplefilter("ignore")
            useless = layer(x).dtype is torch.float32
    except RuntimeError:
        useless = True
    with accelerator.autocast():
        return useless, str(layer(x).dtype)


def test_processes_are_not_what_shares_a_batch() -> None:
    assert on_xla(shares) == (1, 4)


def shares() -> tuple[int, int]:
    accelerator = Accelerator()
    return accelerator.num_processes, accelerator.num_replicas


def test_tied_weights_stay_tied_in_a_plain_move_and_in_prepare() -> None:
    assert on_xla(ties) == (True, True)


def ties() -> tuple[bool, bool]:
    accelerator = Accelerator()
    moved, prepared = model("tied").to(accelerator.device), accelerator.prepare(model("tied"))
    return moved.out.weight is moved.embed.weight, prepared.out.weight is prepared.embed.weight


def for_cuda(x: Tensor, _: int) -> Tensor:
    with warnings.catch_warnings(), contextlib.suppress(RuntimeError), torch.autocast("cuda"):
        warnings.simplefilter("ignore")
        return (x @ x.T).sum()
    return x.sum()


def for_xla(x: Tensor, _: int) -> Tensor:
    with torch.autocast("xla", dtype=torch.bfloat16):
        return (x @ x.T).sum()


def by_processes(x: Tensor, _: int) -> Tensor:
    return (x * 0.1 * Accelerator().num_processes).sum()


def by_replicas(x: Tensor, _: int) -> Tensor:
    return (x * 0.1 * Accelerator().num_replicas).sum()


@pytest.mark.parametrize(("flagged", "fixed"), [(for_cuda, for_xla), (by_processes, by_replicas)])
def test_what_is_wrong_for_another_reason_compiles_no_more_than_its_fix(
    flagged: Callable[[Tensor, int], Any], fixed: Callable[[Tensor, int], Any]
) -> None:
    """CT707 and CT708 are about numbers: neither form keeps compiling, so nothing but the note tells."""
    assert on_xla(counted, flagged)[0] == 0
    assert on_xla(counted, fixed)[0] == 0
