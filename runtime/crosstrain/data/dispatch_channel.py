"""The way of dispatched batches from process 0 to the others: flat buffers behind headers of fixed size."""

from __future__ import annotations

import ctypes
import pickle
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from crosstrain.comm.placement import host
from crosstrain.comm.protocol import Comm
from crosstrain.data.serialization import aligned, pack, pack_objects, unpack, unpack_object
from crosstrain.data.sharding import Counts

_FIXED = 5  # numbers at a header's start: pass, step, kind, size, whether the skeleton is new
_SHAPES = 96  # numbers at its end, for shapes
_STOP, _FLAT, _OBJECTS, _FAILED = range(4)


class Step(NamedTuple):
    """One step: each rank's part (None: it has none), and which ranks have no batch after it."""

    parts: list[Any]
    counts: Counts
    last: tuple[bool, ...]


class Packed(NamedTuple):
    """A step ready to be sent: a buffer for every rank but 0, and the pickled skeleton if it is a new one."""

    kind: int
    buffers: list[Tensor]
    shapes: tuple[int, ...] = ()
    news: bytes = b""
    skeleton: Any = None


@dataclass
class Agreed:
    """What all processes know from earlier messages: the bytes after the header, and the last skeleton."""

    room: int = 0
    skeleton: Any = None


class Channel:
    """Sends the steps of one pass from process 0 to the others, in order.

    Every message is one scatter of a header and as many bytes as the largest step so far has needed; only a larger
    step takes a second scatter.
    """

    def __init__(self, comm: Comm, serial: int, agreed: Agreed, device: torch.device) -> None:
        self._comm = comm
        self._serial = serial
        self._number = 0
        self._agreed = agreed
        self._device = device
        self._head = aligned(8 * (_FIXED + 3 * comm.world + _SHAPES))

    def pack(self, step: Step) -> Packed:
        """Pack a step into bytes. This may fail, so it comes before the other ranks are sent anything."""
        flat = pack(step.parts, step.counts.rows, self._head)
        if flat is None or len(flat.shapes) > _SHAPES:
            return Packed(_OBJECTS, pack_objects(step.parts, self._head))
        new = flat.skeleton != self._agreed.skeleton
        return Packed(
            _FLAT, flat.buffers, flat.shapes, pickle.dumps(flat.skeleton) if new else b"", flat.skeleton
        )

    def send(self, step: Step, packed: Packed) -> None:
        """On process 0: send a packed step."""
        counts = step.counts
        size = max(map(len, packed.buffers)) - self._head
        last = map(int, step.last)
        values = [int(packed.news != b""), *counts.rows, *counts.real, *last, *packed.shapes]
        self._scatter(packed.kind, size, values, packed.buffers)
        if packed.news:
            self._comm.broadcast_object(packed.news)
            self._agreed.skeleton = packed.skeleton

    def stop(self) -> None:
        """On process 0: end a pass whose last step was not marked as such."""
        self._scatter(_STOP)
        self.flush()

    def flush(self, *, leaving: bool = False) -> None:
        """On process 0: wait until the others have received everything; see `Comm.flush`."""
        self._comm.flush(leaving=leaving)

    def fail(self, error: Exception) -> None:
        """On process 0: tell the others that the next step could not be read."""
        self._scatter(_FAILED)
        self._comm.broadcast_object(f"{type(error).__name__}: {error}")

    def receive(self) -> tuple[Any, Step] | None:
        """On the others: receive this process's part, and the step without parts; None at the end of the pass.

        Raises RuntimeError where process 0 failed, or is at another step than this process.
        """
        comm, world = self._comm, self._comm.world
        buffer = comm.scatter(None, self._empty(self._head + self._agreed.room))
        serial, number, kind, size, renew, *rest = buffer[: self._head].view(torch.int64).tolist()
        if (serial, number) != (self._serial, self._number):
            raise RuntimeError(
                f"process {comm.rank} asks for batch {self._number} of pass {self._serial} of a dispatched "
                f"loader, and process 0 sent batch {number} of pass {serial}: the processes have left a loop "
                "over it at different batches. Make every process take the same number of batches."
            )
        self._number += 1
        if kind == _STOP:
            return None
        if kind == _FAILED:
            raise RuntimeError(f"process 0 could not read the next batch: {comm.broadcast_object('')}")
        if size > self._agreed.room:
            self._agreed.room = size
            buffer = comm.scatter(None, self._empty(self._head + size))
        if renew:
            self._agreed.skeleton = pickle.loads(comm.broadcast_object(b""))
        counts = Counts(tuple(rest[:world]), tuple(rest[world : 2 * world]))
        step = Step([], counts, tuple(map(bool, rest[2 * world : 3 * world])))
        rows, content = counts.rows[comm.rank], buffer[self._head :]
        if rows == 0:
            return None, step
        if kind == _OBJECTS:
            return unpack_object(content), step
        return unpack(content.to(self._device), self._agreed.skeleton, rest[3 * world :], rows), step

    def _scatter(
        self, kind: int, size: int = 0, values: Sequence[int] = (), buffers: Sequence[Tensor] = ()
    ) -> None:
        numbers = array("q", [self._serial, self._number, kind, size, *values])
        head = numbers.tobytes().ljust(self._head, b"\0")
        self._number += 1
        if size > self._agreed.room:
            self._send(head, [])
            self._agreed.room = size
        self._send(head, buffers)

    def _send(self, head: bytes, buffers: Sequence[Tensor]) -> None:
        """Scatter the header and each rank's bytes after it, in buffers of the same size, which scatter requires."""
        comm, size = self._comm, self._head + self._agreed.room
        if buffers:
            alike = [_lengthen(buffer.to(host()), size) for buffer in buffers]
        else:
            alike = [torch.empty(size, dtype=torch.uint8, device="cpu")] * (comm.world - 1)
        for buffer in alike:
            ctypes.memmove(buffer.data_ptr(), head, self._head)
        comm.scatter([alike[0], *alike], alike[0])  # process 0 has its own part already

    def _empty(self, size: int) -> Tensor:
        # On the host, because reading the header from a device would wait for all earlier work there.
        return torch.empty(size, dtype=torch.uint8, device=host())


def _lengthen(buffer: Tensor, size: int) -> Tensor:
    return buffer if len(buffer) == size else torch.cat([buffer, buffer.new_empty(size - len(buffer))])
