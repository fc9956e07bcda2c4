"""Whole scripts that the tool does not convert yet, converted by hand. The others are golden cases."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from tests.support.ranks import run_ranks

SLICES = Path(__file__).with_name("permutation_slices.py")


def _train(*arguments: str) -> tuple[list[list[int]], list[list[float]]]:
    """The rows of each step, and the weights at the end."""
    sys.argv = [str(SLICES), *arguments]
    names = runpy.run_path(str(SLICES), run_name="__main__")
    return names["seen"], [param.flatten().tolist() for param in names["model"].parameters()]


def test_slices_of_a_permutation_on_one_process_are_those_of_the_original() -> None:
    assert run_ranks(_train, 1) == run_ranks(_train, 1, "--plain")


@pytest.mark.parametrize("processes", [2, 3])
def test_slices_of_a_permutation_are_dealt(processes: int) -> None:
    """Eleven slices an epoch: each once, and the first ones again to complete the last step."""
    results = run_ranks(_train, processes)
    assert all(weights == results[0][1] for _, weights in results)
    steps = -(-11 // processes)
    for epoch in range(3):
        parts = [seen[epoch * steps : (epoch + 1) * steps] for seen, _ in results]
        assert all(len(part) == steps for part in parts)
        dealt = [slices for step in zip(*parts, strict=True) for slices in step]
        assert sorted(row for slices in dealt[:11] for row in slices) == list(range(336))
        assert dealt[11:] == dealt[: steps * processes - 11]
