"""Small messages between the processes: every rank contributes one frame, and every rank receives all of them.

A frame has a fixed size, so one `all_gather` of equal buffers carries any small message. Its header says which operation the
rank is in. If ranks do different things, or the same thing with different shapes, all of them see it in the headers and
raise the same error; the collective itself would hang, abort the process or return garbage.
"""

from __future__ import annotations

import ctypes
import struct
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import NoReturn

import torch
from torch import Tensor

from crosstrain.utils.script_frames import caller

FRAME = 6144  # bytes; enough for the state of a random generator, which every shuffled pass sends
HEADER = 32  # `_HEAD`, and padding that keeps the payload aligned
CAPACITY = FRAME - HEADER
AVERAGES = "averages the gradients"  # the beginning of the operation of a rank that is about to
TOGETHER = (
    "Every rank must make the same backward passes and steps, with the same batches of the loop. If a random number decides "
    "about them (a coin within the step), draw it in `with accelerator.common_draws():`, so that it is the same on all ranks."
)
_REFUSAL = "refused:"  # the operation of a rank that found an error and takes part in no collective
_HEAD = struct.Struct("3q")  # operation, signature, length

Gather = Callable[[Tensor, Tensor], None]  # (out of world * n bytes, n bytes)


class DistributedOperationException(RuntimeError):
    """The ranks are about to do different operations, or the same operation with different shapes."""


class Refused(RuntimeError):
    """An error that one rank found before a collective; every rank raises it."""


class Frames:
    """Exchanges one frame of each rank in a call. ``gather``: the backend's all_gather of equal byte buffers."""

    def __init__(self, rank: int, world: int, gather: Gather) -> None:
        self.operation = ""  # the operation in which this rank is; "" outside
        self.turn = 0  # number of the operation, which distinguishes one long operation from many of one kind
        self._rank = rank
        self._world = world
        self._gather = gather
        # Made once and overwritten: new buffers for each message would take as long as everything else.
        self._frame, self._received = bytearray(FRAME), bytearray(world * FRAME)
        self._view = memoryview(self._received)
        with torch.inference_mode(False):  # tensors made in that mode can only be written in it
            self._mine, self._all = _bytes(self._frame), _bytes(self._received)

    def exchange(self, operation: str, payload: bytes, describe: str = "") -> list[bytes]:
        """Send bytes, whose length may differ between ranks, and receive those of all ranks, in rank order.

        ``describe``: what must be the same on all ranks besides the operation, such as a shape and a dtype. If it differs,
        every rank raises DistributedOperationException, which names ranks and source lines.
        """
        lengths = self._trade(operation, payload, describe)
        longest = max(lengths)
        if longest <= CAPACITY:
            starts = range(HEADER, self._world * FRAME, FRAME)
            return [bytes(self._view[at : at + size]) for at, size in zip(starts, lengths, strict=True)]
        everything = bytearray(self._world * longest)
        self.enter(operation)
        self._gather(_bytes(everything), _bytes(bytearray(payload).ljust(longest, b"\0")))
        self.operation = ""
        starts = range(0, self._world * longest, longest)
        return [bytes(everything[at : at + size]) for at, size in zip(starts, lengths, strict=True)]

    def enter(self, operation: str) -> None:
        """Note that this rank begins to wait for the others in ``operation``."""
        self.turn += 1
        self.operation = operation

    def agree(self, operation: str, describe: str = "", told: str = "") -> None:
        """A barrier that checks that every rank is in the same operation. ``told``: what an error says besides, of each rank."""
        self._trade(operation, b"", describe, told)

    def refuse(self, problem: str) -> NoReturn:
        """Raise `Refused` here, and on every other rank in its next exchange."""
        self._trade(_REFUSAL, b"", problem)  # raises, unless every rank refuses the same
        self._complain(_REFUSAL, problem)

    def _trade(self, operation: str, payload: bytes, describe: str, told: str = "") -> list[int]:
        """Exchange frames into `_received` and return the lengths of the payloads. A payload that is too long is not sent."""
        head = _HEAD.pack(_code(operation), _code(describe), len(payload))
        sent = head.ljust(HEADER, b"\0") + (payload if len(payload) <= CAPACITY else b"")
        self._frame[: len(sent)] = sent  # the rest keeps bytes of an earlier message, which nobody reads
        self.enter(f"{operation} {describe}".rstrip())
        self._gather(self._all, self._mine)
        self.operation = ""
        lengths = []
        for start in range(0, self._world * FRAME, FRAME):
            lengths.append(_HEAD.unpack_from(self._received, start)[2])
            if not self._received.startswith(head[:16], start):
                self._complain(operation, f"{describe} {told}".strip())
        return lengths

    def _complain(self, operation: str, describe: str) -> NoReturn:
        """Collect what each rank is doing, and raise. All ranks come here together."""
        text = f"{operation} {describe}".strip()
        if operation != _REFUSAL:
            text += f" at {caller()}"
        frame = bytearray(text.encode()[:FRAME]).ljust(FRAME, b"\0")
        table = bytearray(self._world * FRAME)
        self._gather(_bytes(table), _bytes(frame))
        rows = [table[start : start + FRAME] for start in range(0, self._world * FRAME, FRAME)]
        texts = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in rows]
        for said in texts:
            if said.startswith(_REFUSAL):
                raise Refused(said.removeprefix(_REFUSAL).strip())
        lines = "\n".join(f"  rank {rank}: {line}" for rank, line in enumerate(texts))
        if any(said.startswith(AVERAGES) for said in texts):
            raise DistributedOperationException(f"the ranks have parted:\n{lines}\n{TOGETHER}")
        raise DistributedOperationException(
            f"the ranks disagree about the next collective:\n{lines}\nEvery rank must reach the same "
            f"collective calls in the same order, with equal shapes: look for one under `if is_main_process`, "
            f"or pad with accelerator.pad_across_processes first."
        )


def _bytes(memory: bytearray) -> Tensor:
    """A uint8 tensor over this memory."""
    return torch.frombuffer(memory, dtype=torch.uint8)


@lru_cache(maxsize=1024)
def _code(text: str) -> int:
    return zlib.crc32(text.encode())


def raw(tensor: Tensor) -> bytes:
    """A copy of the memory of a contiguous tensor on the CPU. TypeError for one without memory, such as a DTensor."""
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    address = tensor.data_ptr()
    if not address and tensor.numel():
        raise TypeError(
            f"a {type(tensor).__name__} has no memory of its own that could be sent: use its full_tensor() or "
            f"to_local()"
        )
    return ctypes.string_at(address, tensor.nbytes)


def from_raw(parts: list[bytes], like: Tensor) -> Tensor:
    """A tensor of (len(parts), *like.shape) and the dtype of ``like``. parts: the memory of tensors like that, by `raw`."""
    shape = (len(parts), *like.shape)
    if like.numel() == 0:
        return torch.empty(shape, dtype=like.dtype, device="cpu")
    return torch.frombuffer(bytearray().join(parts), dtype=like.dtype).view(shape)


def describe(tensors: list[Tensor]) -> str:
    """The tensors' shapes and dtypes, for messages and comparisons."""
    return "of " + ", ".join(_describe(tensor.shape, tensor.dtype) for tensor in tensors)


@lru_cache(maxsize=1024)
def _describe(shape: torch.Size, dtype: torch.dtype) -> str:
    return f"{tuple(shape)} {str(dtype).removeprefix('torch.')}"
