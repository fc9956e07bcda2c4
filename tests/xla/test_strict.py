"""The stand-in for a GPU refuses to mix devices where CUDA does, and only there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.xla.strict import SAID, Strict

Pair = Callable[[Tensor, Tensor], Tensor]  # of a tensor on the CPU and one on the device, both of (3,)


@pytest.mark.parametrize(
    "mixed",
    [
        lambda a, b: a - b,
        lambda a, b: b == a,
        lambda a, b: a.add_(b),
        lambda a, b: torch.cat([a, b]),
        lambda a, b: a[b.long()],
        lambda a, b: torch.nn.functional.mse_loss(a, b),
    ],
)
def test_mixing_is_refused(mixed: Pair) -> None:
    import torch_xla

    pair = torch.ones(3), torch.ones(3, device=torch_xla.device())
    with Strict(), pytest.raises(RuntimeError, match=SAID):
        mixed(*pair)


@pytest.mark.parametrize(
    "allowed",
    [
        lambda a, b: a.copy_(b),
        lambda a, b: a.to(b.device) - b,
        lambda a, b: b * a[0],
        lambda a, b: b[a.long()],
        lambda a, b: (b.__setitem__(slice(0, 3), a), b)[1],
        lambda a, b: a - b.cpu(),
    ],
)
def test_what_cuda_allows_is_allowed(allowed: Pair) -> None:
    import torch_xla

    pair = torch.ones(3), torch.ones(3, device=torch_xla.device())
    with Strict():
        found = allowed(*pair)
    assert torch.equal(found.cpu(), allowed(torch.ones(3), torch.ones(3)))
