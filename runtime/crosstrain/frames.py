"""Small messages between the processes: every rank contributes one frame, every rank sees them all.

A frame has a fixed size, so one `all_gather` of equal buffers carries any small message, and its header says
what each rank believes it is doing. Ranks that do different things, or the same thing with different shapes,
all learn it from the same headers and raise the same error, where the collective itself would hang, abort the
process or return garbage.
"""

from __future__ import annotations

import contextlib
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FRAME = 4096
HEADER = 32  # three int64 (operation, signature, length) and padding that keeps the payload aligned
CAPACITY = FRAME - HEADER
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
        return table[:, HEADER : HEADER + payload.numel()] if fits else None

    def _trade(self, operation: str, payload: Tensor, describe: str) -> tuple[Tensor, list[int]]:
        code, signature = zlib.crc32(operation.encode()), zlib.crc32(describe.encode())
        frame = torch.zeros(FRAME, dtype=torch.uint8)
        size = payload.numel()
        frame[:24].view(torch.int64).copy_(torch.tensor([code, signature, size]))
        frame[HEADER : HEADER + min(size, CAPACITY)] = payload[:CAPACITY]
        table = torch.empty(self._world, FRAME, dtype=torch.uint8)
        self.operation = f"{operation} {describe}".rstrip()
        self._gather(table.view(-1), frame)
        self.operation = ""
        headers = table[:, :24].contiguous().view(torch.int64).view(self._world, 3).tolist()
        if any(head[0] != code or head[1] != signature for head in headers):
            self._complain(operation, describe)
        return table, [head[2] for head in headers]

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


def caller(frame: Any = None) -> str:
    """The innermost source line (of a thread's ``frame``, or here) outside this package and torch: the user's."""
    frame = frame or sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_USER):
        frame = frame.f_back
    return "an unknown line" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def to_bytes(tensor: Tensor) -> Tensor:
    """A contiguous tensor's memory as a 1-d uint8 tensor that shares it."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)
