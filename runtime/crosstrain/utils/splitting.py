"""Divides inputs between processes, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def share(inputs: Any, rank: int, world: int, apply_padding: bool = False) -> Any:
    """The part of process ``rank`` of a list, tuple, string, tensor, dict of them, or data set, in order.

    The first ``N % world`` processes get one element more. apply_padding: repeat the last element so that all parts have
    equal length. Raises ValueError if the values of a dict differ in length.
    """
    if world == 1:
        return inputs
    if isinstance(inputs, Mapping):
        if len({len(value) for value in inputs.values()}) > 1:
            sizes = {key: len(value) for key, value in inputs.items()}
            raise ValueError(f"the values to split must have one length, not {sizes}")
        return {key: share(value, rank, world, apply_padding) for key, value in inputs.items()}
    length = len(inputs)
    size, extra = divmod(length, world)
    start = rank * size + min(rank, extra)
    stop = start + size + (rank < extra)
    if hasattr(inputs, "select") and hasattr(inputs, "column_names"):  # a data set of the `datasets` library
        indices = list(range(start, stop))
        if apply_padding and length and len(indices) < -(-length // world):
            indices.append(length - 1)
        return inputs.select(indices)
    part = inputs[start:stop]
    short = -(-length // world) - (stop - start)
    if apply_padding and short and length:
        part = _repeat_last(inputs, part, short)
    return part


def _repeat_last(inputs: Any, part: Any, times: int) -> Any:
    last = inputs[len(inputs) - 1 :]
    if isinstance(inputs, Tensor):
        return torch.cat([part, *([last] * times)])
    return part + last * times
