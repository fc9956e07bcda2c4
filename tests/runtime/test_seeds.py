"""Random streams at `Accelerator()`: alike where nobody seeded them, apart where the script seeded by rank."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest
import torch
from crosstrain import Accelerator
from crosstrain.comm.types import DistributedType

from tests.support.ranks import infos, run_ranks


def _start(how: str) -> dict[str, Any]:
    rank = int(os.environ["RANK"])
    said = infos()
    seed = 42 if how == "one seed" else 1000 * rank + 42
    if how == "nothing":  # as processes that were not forked from one begin
        torch.seed()
        random.seed()
        np.random.seed()
    else:
        torch.manual_seed(seed)
    if how in ("one seed", "all"):
        random.seed(seed)
        np.random.seed(seed)
    if how == "torch":
        random.seed()
        np.random.seed()
    seed_of = torch.initial_seed()
    accelerator = Accelerator(cpu=True)
    assert accelerator.distributed_type == DistributedType.MULTI_CPU
    return {
        "torch": torch.rand(1).item(),
        "python": random.random(),
        "numpy": float(np.random.rand()),
        "plain": torch.rand(2, generator=torch.Generator().manual_seed(seed_of))[0].item(),
        "said": said,
    }


@pytest.mark.parametrize(
    ("how", "apart"),
    [("nothing", set()), ("one seed", set()), ("torch", {"torch"}), ("all", {"torch", "python", "numpy"})],
)
def test_streams_stay_apart_only_where_the_script_seeded_them_so(how: str, apart: set[str]) -> None:
    zero, one = run_ranks(_start, 2, how)
    assert {name for name in ("torch", "python", "numpy") if zero[name] != one[name]} == apart
    assert zero["torch"] == zero["plain"]
    if apart:
        assert one["torch"] == one["plain"]  # what the same script draws without an Accelerator
    assert len(zero["said"]) == (1 if apart else 0)
    assert one["said"] == []
