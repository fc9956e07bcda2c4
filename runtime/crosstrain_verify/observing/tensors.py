"""How a tensor depends on the batch, found by comparing runs in which only the batches' rows differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crosstrain_verify.records.observations import Observations, Values, half
from crosstrain_verify.records.permutation import permutation

Key = tuple[int, tuple[int, int]]
CLOSE = 1e-3
# Rows that differ by less than this share of their size prove nothing: the difference may be rounding.
ALIKE = 1e-4


@dataclass(frozen=True)
class TensorFact:
    """How the tensors of an expression depend on the batches of a loader.

    Args:
        loader: the loader's number among the objects.
        kind: "rows" if the first dimension has `each` entries for each row of the batch, in its order, which stay the
            same when every row is there twice. "mean" for a number that stays the same when every row is there twice,
            "sum" for one that doubles. "fixed" if the entries stay when the batch's rows are permuted, "misplaced" if they
            move in another way. "no rows" if the batch's rows do not divide the size of the first dimension. "" if the
            runs do not show it.
        shape: of the tensor in the unaltered run.
        alone: each row stays the same when the other rows of the batch change.
    """

    loader: int
    kind: str
    each: int = 0
    shape: tuple[int, ...] = ()
    alone: bool = False


def compared(
    seen: Observations,
    permuted: Observations | None,
    doubled: Observations | None,
    halved: Observations | None = None,
) -> dict[int, TensorFact]:
    """By place, what all its values have in common; the kind is "" if they disagree.

    seen, permuted, doubled, halved: the observations of the unaltered run and of those with altered batches.
    """
    others, twice, halves = _by_key(permuted), _by_key(doubled), _by_key(halved)
    found: dict[int, list[TensorFact]] = defaultdict(list)
    for one in seen.values:
        key = one.place, one.turn
        found[one.place].append(_fact(one, others.get(key), twice.get(key), halves.get(key)))
    return {place: _agreed(facts) for place, facts in found.items()}


def _by_key(seen: Observations | None) -> Mapping[Key, Values]:
    return {(one.place, one.turn): one for one in seen.values} if seen is not None else {}


def _fact(one: Values, permuted: Values | None, doubled: Values | None, halved: Values | None) -> TensorFact:
    if not one.shape:
        return TensorFact(one.loader, _number(one, doubled))
    if not one.numbers.size:
        return TensorFact(one.loader, "no rows", shape=one.shape)
    each = one.shape[0] // one.rows
    kind = _rows(one, permuted, doubled, each)
    return TensorFact(one.loader, kind, each, one.shape, kind == "rows" and _is_alone(one, halved, each))


def _number(one: Values, doubled: Values | None) -> str:
    if doubled is None or doubled.shape:
        return ""
    before, after = float(one.numbers[0]), float(doubled.numbers[0])
    size = max(abs(before), abs(after))
    if size == 0.0 or not np.isfinite(size):
        return ""
    if abs(before - after) <= CLOSE * size:
        return "mean"
    return "sum" if abs(2 * before - after) <= CLOSE * size else ""


def _rows(one: Values, permuted: Values | None, doubled: Values | None, each: int) -> str:
    if permuted is None or permuted.shape != one.shape:
        return ""
    before, after = (values.numbers.reshape(one.rows, each) for values in (one, permuted))
    finite = before[np.isfinite(before)]
    size, spread = float(np.abs(finite).max(initial=0.0)), float(np.ptp(finite)) if finite.size else 0.0
    if spread <= ALIKE * size:
        return ""
    if _close(before[list(permutation(one.rows))], after, spread):
        return "rows" if _stays(one, doubled, spread) else ""
    if _close(before, after, spread):
        return "fixed"
    return "misplaced" if _close(np.sort(before, axis=None), np.sort(after, axis=None), spread) else ""


def _is_alone(one: Values, halved: Values | None, each: int) -> bool:
    """Whether the rows of the first half stay the same when copies of them replace the second half."""
    if halved is None or halved.shape != one.shape:
        return False
    kept = half(one.rows) * each
    return _close(one.numbers[:kept], halved.numbers[:kept], float(np.ptp(one.numbers)))


def _stays(one: Values, doubled: Values | None, spread: float) -> bool:
    """Whether each row stays the same when every row is there twice, so that it does not depend on their number."""
    if doubled is None or len(doubled.numbers) != 2 * len(one.numbers):
        return False
    return _close(np.tile(one.numbers, 2), doubled.numbers, spread)


def _close(a: NDArray[np.float64], b: NDArray[np.float64], spread: float) -> bool:
    return bool(np.allclose(a, b, rtol=0.0, atol=1e-2 * spread, equal_nan=True))


def _agreed(facts: Iterable[TensorFact]) -> TensorFact:
    """What the values of several batches show together; a value that shows nothing does not count."""
    listed = list(facts)
    told = {(fact.loader, fact.kind, fact.each) for fact in listed if fact.kind}
    first = listed[0]
    if len(told) != 1:
        return TensorFact(first.loader, "", shape=first.shape)
    found = [fact for fact in listed if fact.kind]
    return replace(found[0], alone=all(fact.alone for fact in found))
