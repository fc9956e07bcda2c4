"""Small messages between the processes: every rank contributes one frame, every rank sees them all.

A frame has a fixed size, so one `all_gather` of equal buffers carries any small message, and its header says
what each rank believes it is doing. Ranks that do different things, or the same thing with different shapes,
all learn it from the same headers and raise the same error, where the collective itself would hang, abort the
process or return garbage.
"""

from __future__ import annotations

import contextlib
import struct
import sys
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FRAME = 4096
HEADER = 32  # `_HEAD`, and padding that keeps the payload aligned
CAPACITY = FRAME - HEADER
_HEAD = struct.Struct("3q")  # operation, signature, length
_NOT_USER = (str(Path(__file__).parent), str(Path(torch.__file__).parent), contextlib.__file__, "<")

Gather = Callable[[Tensor, Tensor], None]  # (out of world * n bytes, n bytes)


class DistributedOperationException(RuntimeError):
    """The ranks are about to do different things, or the same thing with different shapes."""


class Frames:
    """One frame per rank and call; ``gather`` is the backend's all_gather of equal byte buffers."""

    def __init__(self, rank: int, world: int, gather: Gather) -> None:
        self.operation = ""  # what this rank is in the middle of
        self._rank = rank
        self._world = world
        self._gather = gather

    def exchange(self, operation: str, payload: Tensor, describe: str = "") -> list[Tensor]:
        """Send bytes (uint8, 1-d, any length on any rank); receive those of all ranks, in order.

        ``describe`` (a shape and a dtype, say) must be the same on all ranks. Raises on every rank
        DistributedOperationException when operation or description differ, naming ranks and source lines.
        """
        table, lengths = self._trade(operation, payload, describe)
        longest = max(lengths)
        if longest <= CAPACITY:
            return [table[rank, HEADER : HEADER + size] for rank, size in enumerate(lengths)]
        mine = torch.zeros(longest, dtype=torch.uint8)
        mine[: payload.numel()] = payload
        big = torch.empty(self._world, longest, dtype=torch.uint8)
        self._gather(big.view(-1), mine)
        return [big[rank, :size] for rank, size in enumerate(lengths)]

    def agree(self, operation: str, describe: str = "") -> None:
        """Only check that every rank is here, doing the same: a barrier."""
        self._trade(operation, torch.empty(0, dtype=torch.uint8), describe)

    def small(self, operation: str, payload: Tensor, describe: str) -> Tensor | None:
        """`exchange` of payloads of equal length: (world, length); None if they are too long for a frame."""
        fits = payload.numel() <= CAPACITY
        table, _ = self._trade(operation, payload if fits else payload[:0], describe)
        return table[:, HEADER : HEADER + payload.numel()].contiguous() if fits else None

    def _trade(self, operation: str, payload: Tensor, describe: str) -> tuple[Tensor, list[int]]:
        head = _HEAD.pack(_code(operation), _code(describe), payload.numel())
        frame = torch.frombuffer(bytearray(head).ljust(FRAME, b"\0"), dtype=torch.uint8)
        sent = payload[:CAPACITY]
        frame[HEADER : HEADER + sent.numel()] = sent
        received = bytearray(self._world * FRAME)  # read as Python's own bytes: a tensor's items are slow
        table = torch.frombuffer(received, dtype=torch.uint8)
        self.operation = f"{operation} {describe}".rstrip()
        self._gather(table, frame)
        self.operation = ""
        lengths = []
        for rank in range(self._world):
            lengths.append(_HEAD.unpack_from(received, rank * FRAME)[2])
            if not received.startswith(head[:16], rank * FRAME):
                self._complain(operation, describe)
        return table.view(self._world, FRAME), lengths

    def _complain(self, operation: str, describe: str) -> None:
        """Every rank comes here together: collect what each is doing, and raise."""
        text = f"{operation} {describe}".strip() + f" at {caller()}"
        data = text.encode()[:FRAME]
        frame = torch.zeros(FRAME, dtype=torch.uint8)
        frame[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        table = torch.empty(self._world, FRAME, dtype=torch.uint8)
        self._gather(table.view(-1), frame)
        texts = [bytes(row.tolist()).rstrip(b"\0").decode(errors="replace") for row in table]
        lines = "\n".join(f"  rank {rank}: {line}" for rank, line in enumerate(texts))
        raise DistributedOperationException(
            f"the ranks disagree about the next collective:\n{lines}\nEvery rank must reach the same "
            f"collective calls in the same order, with equal shapes: look for one under `if is_main_process`, "
            f"or pad with accelerator.pad_across_processes first."
        )


@lru_cache(maxsize=1024)
def _code(text: str) -> int:
    return zlib.crc32(text.encode())


def caller(frame: Any = None) -> str:
    """The innermost source line (of a thread's ``frame``, or here) outside this package and torch: the user's."""
    frame = frame or sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_USER):
        frame = frame.f_back
    return "an unknown line" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def to_bytes(tensor: Tensor) -> Tensor:
    """A contiguous tensor's memory as a 1-d uint8 tensor that shares it."""
    return tensor.contiguous().view(-1).view(torch.uint8)


def from_bytes(rows: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Contiguous bytes as the tensor that they are; it shares their memory."""
    return rows.view(-1).view(dtype).view(shape)
