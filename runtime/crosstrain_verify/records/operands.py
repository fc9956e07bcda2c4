"""The tensors that were gathered for a batch, with and without its rows permuted (see `judging.rows`); without torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Operand:
    """A tensor that a line of the script gathered while the current batch had ``rows`` rows."""

    file: str
    line: int
    rows: int
    values: NDArray[np.float64]


@cache
def permutation(rows: int) -> tuple[int, ...]:
    """A permutation that depends only on the number of rows and is not the identity."""
    order = np.random.default_rng(rows).permutation(rows)
    return tuple(np.roll(order, 1) if (order == np.arange(rows)).all() else order)


def write(file: Path, operands: Sequence[Operand]) -> None:
    """Write what a rank gathered to a file that `read` understands."""
    about = json.dumps([(operand.file, operand.line, operand.rows) for operand in operands])
    arrays: dict[str, Any] = {str(number): one.values for number, one in enumerate(operands)}
    np.savez(file, about=np.array(about), **arrays)


def read(file: Path) -> tuple[Operand, ...]:
    """What a rank gathered; empty if the file does not exist."""
    if not file.exists():
        return ()
    with np.load(file) as kept:
        about: list[tuple[str, int, int]] = json.loads(str(kept["about"]))
        return tuple(Operand(*place, kept[str(number)]) for number, place in enumerate(about))


def misplaced(plain: Operand, permuted: Operand) -> int | None:
    """The dimension that has the rows, if it is not dimension 0; None if it is, or if that cannot be told."""
    values, other, order = plain.values, permuted.values, list(permutation(plain.rows))
    if values.shape != other.shape or _close(values, other):
        return None
    with_rows = [dim for dim, size in enumerate(values.shape) if size == plain.rows]
    moved = [dim for dim in with_rows if _close(np.take(values, order, axis=dim), other)]
    return moved[0] if moved and moved[0] > 0 else None


def _close(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    size = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    return bool(np.allclose(a, b, rtol=1e-3, atol=1e-5 * size, equal_nan=True))
