"""Connections between processes of one host that do not use the process group.

A message over gloo passes two threads and a TCP connection, which takes 30 times as long as writing a small message to a
Unix socket. Large messages use shared memory that belongs to the connection. This memory has no name, so nothing is left
behind however the processes end, and the size of /dev/shm does not limit it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from crosstrain.comm.device_limits import as_bytes

SUPPORTED = hasattr(os, "memfd_create") and hasattr(socket, "send_fds")  # Linux
SMALL = 2**16  # bytes up to which a message goes through the socket itself
_RANK = struct.Struct("i")
_IN_MEMORY, _TAKEN = b"m", b"t"

Exchange = Callable[[Any], list[Any]]  # every rank's object, in rank order


class HostLink:
    """One end of a connection that carries contiguous CPU tensors in one direction, one at a time.

    Both ends know the size of each message beforehand. Errors are RuntimeErrors, like those of a process group.
    """

    def __init__(self, connection: socket.socket, timeout: timedelta) -> None:
        connection.settimeout(timeout.total_seconds())
        self._socket = connection
        self._memory = torch.empty(0, dtype=torch.uint8, device="cpu")

    def send(self, message: Tensor) -> None:
        """Start sending a message; call `wait` before the next one."""
        with _explained():
            size = message.nbytes
            if size <= SMALL:
                self._socket.sendall(_memory_of(message))
                return
            news = [self._new_memory(size)] if size > self._memory.numel() else []
            self._memory[:size].copy_(as_bytes(message))
            try:
                socket.send_fds(self._socket, [_IN_MEMORY], news)
            finally:
                for handle in news:
                    os.close(handle)

    def wait(self, patience: timedelta | None = None) -> None:
        """Return when the other end has taken the message. patience: replaces the connection's time-out."""
        if patience is not None:
            self._socket.settimeout(patience.total_seconds())
        with _explained():
            _read(self._socket, bytearray(len(_TAKEN)))

    def receive(self, out: Tensor) -> None:
        """Receive the next message into ``out``, which must have its size."""
        with _explained():
            if out.nbytes <= SMALL:
                _read(self._socket, _memory_of(out))
            else:
                mark, news, _, _ = socket.recv_fds(self._socket, len(_IN_MEMORY), 1)
                _check_open(len(mark))
                for handle in news:
                    self._memory = _mapped(handle)
                    os.close(handle)
                as_bytes(out).copy_(self._memory[: out.nbytes])
            self._socket.sendall(_TAKEN)

    def close(self) -> None:
        self._socket.close()

    def _new_memory(self, size: int) -> int:
        """Replace the shared memory by a larger piece and return its file descriptor, for the other end."""
        handle = os.memfd_create("crosstrain")
        # A lack of memory must raise an error here, not when it is written.
        os.posix_fallocate(handle, 0, size)
        self._memory = _mapped(handle)
        return handle


class HostGather:
    """All-gathers of small equal messages between processes that are all on one host.

    Rank 0 reads the others' messages and sends each of them all. links: rank 0's connections to ranks 1, 2, ..., or the
    other ranks' one connection, to rank 0. Errors are RuntimeErrors, like those of a process group.
    """

    def __init__(self, rank: int, links: Sequence[socket.socket], timeout: timedelta) -> None:
        self._rank, self._links = rank, links
        self.wait_up_to(timeout)

    def wait_up_to(self, timeout: timedelta) -> None:
        for link in self._links:
            link.settimeout(timeout.total_seconds())

    def gather(self, out: Tensor, mine: Tensor) -> None:
        """Fill ``out``, of world * n bytes, with every rank's n bytes, which are ``mine`` here. Both are on the CPU.

        A gather that was broken off leaves messages behind that the next one must not take for its own: it ends all of them.
        """
        try:
            with _explained():
                self._exchange(memoryview(_memory_of(out)).cast("B"), out, mine)
        except BaseException:  # a KeyboardInterrupt, too
            self.close()
            raise

    def _exchange(self, everything: memoryview, out: Tensor, mine: Tensor) -> None:
        if self._rank:
            self._links[0].sendall(_memory_of(mine))
            _read(self._links[0], everything)
            return
        size = mine.nbytes
        out[:size] = mine
        for other, link in enumerate(self._links, 1):
            _read(link, everything[other * size : (other + 1) * size])
        for link in self._links:
            link.sendall(everything)

    def close(self) -> None:
        for link in self._links:
            link.close()


def connect(rank: int, exchange: Exchange, timeout: timedelta) -> dict[int, HostLink]:
    """Connect rank 0 with every other rank of its host. Every rank calls this.

    Returns this rank's links by the rank at the other end. A rank of another host has no link.
    """
    return {other: HostLink(link, timeout) for other, link in _connected(rank, exchange).items()}


def connect_all(rank: int, world: int, exchange: Exchange, timeout: timedelta) -> HostGather | None:
    """The connections for gathering among all ranks; None if one is on another host. Every rank calls this."""
    links = _connected(rank, exchange)
    missing = rank == 0 and len(links) < world - 1
    if any(exchange(missing)):
        for link in links.values():
            link.close()
        return None
    return HostGather(rank, [links[other] for other in sorted(links)], timeout)


def _connected(rank: int, exchange: Exchange) -> dict[int, socket.socket]:
    """Rank 0's sockets by rank, or the other ranks' one socket, to rank 0.

    A rank of another host finds no socket under rank 0's path.
    """
    listener = _Listener.open() if rank == 0 and SUPPORTED else None
    try:
        path = exchange(None if listener is None else listener.path)[0]
        link = None if rank == 0 or path is None else _connect_to(path, rank)
        arrived = sum(exchange(link is not None))
        if listener is not None:
            return dict(listener.accept_all(arrived))
    finally:
        if listener is not None:
            listener.close()
    return {} if link is None else {0: link}


class _Listener:
    """A listening Unix socket in a directory that only this user can enter."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="crosstrain-"))
        self._socket = socket.socket(socket.AF_UNIX)
        self.path = str(self._directory / "rank0")

    @classmethod
    def open(cls) -> _Listener | None:
        """A new listener; None if none can be made, because the path of the temporary directory is too long, for example."""
        listener = None
        try:
            listener = cls()
            listener._socket.bind(listener.path)
            listener._socket.listen(socket.SOMAXCONN)
        except OSError:
            if listener is not None:
                listener.close()
            return None
        return listener

    def accept_all(self, count: int) -> list[tuple[int, socket.socket]]:
        """Accept ``count`` connections, and return each with the rank at its other end."""
        connections = [self._socket.accept()[0] for _ in range(count)]
        return [(_RANK.unpack(one.recv(_RANK.size))[0], one) for one in connections]

    def close(self) -> None:
        self._socket.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def _connect_to(path: str, rank: int) -> socket.socket | None:
    if not SUPPORTED:
        return None
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        connection.sendall(_RANK.pack(rank))
    except OSError:
        with suppress(OSError):
            connection.close()
        return None
    return connection


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise RuntimeError("Timed out waiting for the other process of this host") from None
    except OSError as error:
        raise RuntimeError(f"Connection to another process of this host: {error}") from error


def _read(link: socket.socket, into: Any) -> None:
    """Fill the buffer with what arrives."""
    view = memoryview(into).cast("B")
    got, size = 0, len(view)
    while got < size:
        count = link.recv_into(view[got:])
        _check_open(count)
        got += count


def _check_open(count: int) -> None:
    if count == 0:
        raise ConnectionResetError("closed by the other process")


def _memory_of(tensor: Tensor) -> Any:
    return (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())


def _mapped(handle: int) -> Tensor:
    memory = mmap.mmap(handle, 0)
    with torch.inference_mode(False):
        return torch.frombuffer(memory, dtype=torch.uint8)
