"""How far two runs may be apart, and why.

One process against one process: not at all. The same instructions in the same order give the same bits, so
any difference is a difference of the scripts.

P processes against one: they add the same numbers in another order. Let e be the machine epsilon of the
coarsest dtype that took part in the original (parameters, losses, autocast) and k the optimizer step.

* A sum of n rounded terms is off by about e times a small factor, and each step starts from weights that
  the earlier steps have made a little different, so the error of a loss grows with k:
  `64 e k` relative (8e-6 for fp32 at the first step), plus `64 e` of the largest loss so far, because a
  loss near zero is a difference of larger numbers.
* A gradient norm is one derivative further on: four times that.
* A learning rate is arithmetic on the host: `1e-12` relative, unless the loss decides it, and then it either
  takes the same branch or is plainly different.
* Weights are judged by how far training moved them: the difference must be small against the distance from
  the first value, not against the weight, or a small learning rate would hide any mistake. Adaptive
  optimizers divide by the gradient, so where the gradient is near its own rounding error the update is not
  determined; over a smooth distribution of gradients that is a share of about sqrt(e) of the distance:
  `16 sqrt(e)` (6e-3 for fp32), plus `e k` of the weight itself for rounding each update.
  A parameter whose gradient was never above `64 e` of the whole gradient (a bias in front of a
  normalisation) is all rounding error: it is left out.
* The norm of all weights before a step is there to name the step at which one process's weights part from
  the original's, or one rank's from another's: `16 sqrt(e)` of itself.
* A printed number is off by what a loss is, times four for what is computed from it, or by one unit of
  its last printed digit.

On the golden corpus the largest errors after 8 steps in fp32 are 3e-7 (losses), 1e-5 (gradient norms) and
1e-3 (weights, with Adadelta; 2e-6 without). A wrong factor, a lost batch, a step too many, an average over
the wrong count move these by 1e-2 and more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerance:
    """epsilon: machine epsilon of the coarsest dtype; 0.0 asks for bit-identity."""

    epsilon: float

    def loss(self, step: int, value: float, largest: float) -> float:
        """Allowed absolute error of a loss before optimizer step `step` (from 1); largest: |loss| so far."""
        return 64 * self.epsilon * (step * abs(value) + largest)

    def gradient(self, step: int, norm: float) -> float:
        """Allowed absolute error of a gradient norm."""
        return 256 * self.epsilon * step * norm

    def size(self, step: int, norm: float) -> float:
        """Allowed absolute error of the norm of all weights before a step."""
        return 16 * math.sqrt(self.epsilon) * norm if self.epsilon else 0.0

    def rate(self, value: float) -> float:
        """Allowed absolute error of a learning rate."""
        return 1e-12 * abs(value) if self.epsilon else 0.0

    def weights(self, steps: int, moved: float, size: float) -> float:
        """Allowed 2-norm of a parameter's error; moved and size: 2-norms of its way and of itself."""
        return 16 * math.sqrt(self.epsilon) * moved + self.epsilon * steps * size

    def is_noise(self, signal: float) -> bool:
        """Whether a parameter's gradient was rounding error throughout."""
        return bool(self.epsilon) and signal <= 64 * self.epsilon

    def printed(self, steps: int, value: float, unit: float) -> float:
        """Allowed absolute error of a printed number whose last digit counts `unit`."""
        if not self.epsilon:
            return 0.0
        # A hair above one unit: the two decimals are not exact in binary.
        return 256 * self.epsilon * max(1, steps) * abs(value) + 1.0001 * unit


def same(a: float, b: float, allowed: float) -> bool:
    """|a - b| <= allowed; NaN equals NaN and an infinity itself."""
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or abs(a - b) <= allowed
