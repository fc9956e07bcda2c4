"""The order into which observation puts the rows of a batch; without torch."""

from __future__ import annotations

from functools import cache

import numpy as np


@cache
def permutation(rows: int) -> tuple[int, ...]:
    """A permutation that depends only on the number of rows and is not the identity."""
    order = np.random.default_rng(rows).permutation(rows)
    return tuple(np.roll(order, 1) if (order == np.arange(rows)).all() else order)
