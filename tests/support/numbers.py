"""How tests compare numbers that another CPU, another library or another number of processes rounds differently.

CONTRIBUTING.md, "Comparing numbers", says which comparison to choose.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

# A gradient of size 1 in float32 is known to about this much, whatever the order of its sum (a few hundred terms).
ROUNDING = 4 * torch.finfo(torch.float32).eps


def steady_adamw(params: Iterable[Any], lr: float = 0.01) -> torch.optim.AdamW:
    """AdamW whose steps do not magnify rounding.

    A step is ``lr * g / (|g| + eps)`` at first: with the usual eps of 1e-8 a gradient that should be zero, and is 1e-9
    on one CPU and -1e-9 on another, moves its weight by a full ``lr`` in either direction. With an eps of 1e-3 an error
    of d in the gradient changes a step by at most ``1000 * lr * d``; a real mistake, a gradient wrong by a hundredth,
    still changes it by far more than any tolerance here.
    """
    return torch.optim.AdamW(params, lr=lr, eps=1e-3)


def steady_tolerance(lr: float, steps: int, size: float = 1.0) -> float:
    """How far apart weights may be after ``steps`` of `steady_adamw`, for gradients of ``size`` or less."""
    return 1000 * lr * ROUNDING * size * steps


def furthest(a: dict[str, Tensor], b: dict[str, Tensor]) -> tuple[float, str]:
    """The largest absolute difference between two states, and the name of the tensor that has it."""
    assert list(a) == list(b)
    return max(((a[name] - b[name]).abs().max().item(), name) for name in a)
