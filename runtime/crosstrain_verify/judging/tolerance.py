"""How much two runs may differ, and why.

One process and one process may not differ at all. The same instructions in the same order give the same bits, so any
difference comes from the scripts.

P processes add the same numbers as one, in another order. Let e be the machine epsilon of the coarsest dtype that takes
part in the original (parameters, losses, autocast) and k the number of the optimizer step.

* Loss: a sum of n rounded terms is off by about e times a small factor, and each step starts from weights that the
  earlier steps have made slightly different, so the error grows with k. Allowed is a relative error of `64 e k` (8e-6
  for fp32 in the first step), plus `64 e` of the largest loss so far, because a loss near zero is a difference of
  larger numbers.
* Gradient norm: it is one derivative further on. Allowed is four times the error of a loss.
* Learning rate: it is computed on the host. Allowed is a relative error of `1e-12`; a rate that the loss decides either
  takes the same branch or differs by far more.
* Weights: the difference is compared with the distance that training moved them, not with their size, or a small
  learning rate would hide any mistake. Adaptive optimizers divide by the gradient, so an update is undetermined where
  the gradient is close to its own rounding error; over a smooth distribution of gradients that concerns a share of about
  sqrt(e) of the distance. Allowed is `16 sqrt(e)` of it (6e-3 for fp32), plus `e k` of the weight for rounding each
  update. A parameter whose gradient never exceeded `64 e` of the whole gradient (a bias in front of a normalisation)
  consists of rounding error and is left out.
* Norm of all weights before a step: it serves to name the step at which one process's weights part from the original's,
  or one rank's from another's. Allowed is `16 sqrt(e)` of it.
* Printed number: allowed is four times the error of a loss, for what is computed from it, plus one unit of the last
  printed digit.

On the golden corpus the largest errors after 8 steps in fp32 are 3e-7 (losses), 1e-5 (gradient norms) and 1e-3 (weights,
with Adadelta; 2e-6 without). A wrong factor, a lost batch, an additional step or an average over the wrong count changes
these by 1e-2 and more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerance:
    """The errors that are allowed. epsilon: machine epsilon of the coarsest dtype; 0.0 allows no difference."""

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
        """Allowed 2-norm of a parameter's error. moved: 2-norm of its change in training; size: its own 2-norm."""
        return 16 * math.sqrt(self.epsilon) * moved + self.epsilon * steps * size

    def is_noise(self, signal: float) -> bool:
        """Whether a parameter's gradient was rounding error in every step. signal: see `traces.Parameter`."""
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
