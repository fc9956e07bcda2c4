"""What each rank must get, worked out the slow and obvious way."""

from dataclasses import dataclass
from itertools import chain, cycle, islice, product
from typing import Any


@dataclass(frozen=True)
class Case:
    """One way to shard N samples."""

    n: int
    batch: int
    world: int
    drop_last: bool = False
    even: Any = True
    split: bool = False

    @property
    def allowed(self) -> bool:
        return not self.split or self.even == "weighted" or self.batch % self.world == 0


def grid(sizes: tuple[int, ...], world: int) -> list[tuple[int, Case, int]]:
    """Every way to shard that many samples, each with its number and with batches to skip."""
    options = product(sizes, (1, 2, 3, 4), (True, False), (True, False, "weighted"), (True, False))
    cases = [Case(n, batch, world, *how) for n, batch, *how in options]
    return [(i, case, i % 3) for i, case in enumerate(case for case in cases if case.allowed)]


def expected(order: list[int], case: Case) -> list[list[tuple[list[int], int]]]:
    """For each rank its batches, each with the number of rows that are real."""
    per_step = case.batch if case.split else case.batch * case.world
    ranks: list[list[tuple[list[int], int]]] = [[] for _ in range(case.world)]
    for start in range(0, len(order), per_step):
        rows = order[start : start + per_step]
        if len(rows) < per_step and case.drop_last:
            break
        for rank, share in enumerate(_shares(rows, order, per_step, case)):
            if share[0]:
                ranks[rank].append(share)
    return ranks


def _shares(rows: list[int], order: list[int], full: int, case: Case) -> list[tuple[list[int], int]]:
    if case.even == "weighted" and (case.split or len(rows) < full):
        sizes = [len(rows) // case.world + (r < len(rows) % case.world) for r in range(case.world)]
        starts = [sum(sizes[:r]) for r in range(case.world)]
        shares = zip(starts, sizes, strict=True)
        return [(rows[a : a + size], size) if size else (rows[:1], 0) for a, size in shares]
    width = full // case.world
    real = [len(rows[r * width : (r + 1) * width]) for r in range(case.world)]
    if case.even is True:
        rows = list(islice(chain(rows, cycle(order)), full))
    return [(rows[r * width : (r + 1) * width], real[r]) for r in range(case.world)]


def expected_whole(batches: list[list[int]], world: int, even: Any) -> list[list[tuple[list[int], int]]]:
    """The same for batches of varying size, which stay whole."""
    ranks: list[list[tuple[list[int], int]]] = [[] for _ in range(world)]
    for start in range(0, len(batches), world):
        step = batches[start : start + world]
        for rank in range(world):
            if rank < len(step):
                ranks[rank].append((step[rank], len(step[rank])))
            elif even == "weighted":
                ranks[rank].append((step[0][:1], 0))
            elif even:
                ranks[rank].append((batches[(rank - len(step)) % min(world, len(batches))], 0))
    return ranks
