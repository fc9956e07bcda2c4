"""Whose random numbers the processes of a run draw while they train: each its own, or all the same ones."""

from __future__ import annotations

from collections.abc import Sequence

from crosstrain_verify.records.traces import RankTrace
from crosstrain_verify.report.report import Difference


def same_noise(ranks: Sequence[RankTrace]) -> Difference | None:
    """A difference where two processes drew the first numbers of a pass from the same streams."""
    seen: dict[tuple[int, ...], int] = {}
    for number, rank in enumerate(ranks):
        if not rank.noise:
            continue
        if (other := seen.setdefault(rank.noise, number)) != number:
            return Difference(
                "noise",
                None,
                f"rank {other}: noise of its own",
                f"rank {number}: the same noise",
                "the first random numbers that training draws in a pass are the same on both",
            )
    return None


def whose(ranks: Sequence[RankTrace]) -> str:
    """A sentence about the random numbers that training drew; "" where it drew none, or only one process trained."""
    if len(ranks) < 2 or not all(rank.noise for rank in ranks):
        return ""
    if len({rank.noise for rank in ranks}) == len(ranks):
        return (
            "random numbers: each process draws its own while it trains (noise, dropout masks, augmentation)"
        )
    why = (
        "" if ranks[0].own_draws or not ranks[0].on_runtime else ", because it was started with common draws"
    )
    return f"random numbers: all processes draw the same ones{why}"
