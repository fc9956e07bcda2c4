"""Checksums of large files, computed about as fast as the files can be read.

They detect damage, not forgery: whoever can change a file can change the manifest too. A CRC-32 takes half the time of
a SHA-256. Each piece of a file has its own, which keeps every core busy although most of a checkpoint is one or two
files.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

PIECE = 2**24  # bytes; part of the format
_READ = 2**20  # bytes read at once, few enough to stay in the processor's cache
THREADS = min(8, os.cpu_count() or 1)

Pieces = list[Callable[[], int]]  # each computes or awaits the checksum of one piece
Starter = Callable[[Path, int], Callable[[], int]]


def checksums(paths: Iterable[Path], threads: int = THREADS) -> list[str | None]:
    """A checksum of each file's length and content, 32 hexadecimal digits; None where there is no such file.

    ``threads`` of them compute it; with 0 this thread does, since an interpreter that is ending can start no others.
    """
    if not threads:
        return _sums([_started(path, lambda file, start: partial(_crc, file, start)) for path in paths])
    with ThreadPoolExecutor(threads) as pool:
        return _sums(
            [_started(path, lambda file, start: pool.submit(_crc, file, start).result) for path in paths]
        )


def _sums(started: list[tuple[int, Pieces] | None]) -> list[str | None]:
    return [None if found is None else _joined(*found) for found in started]


def _started(path: Path, start: Starter) -> tuple[int, Pieces] | None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return None
    return size, [start(path, place) for place in range(0, size, PIECE)]


def _crc(path: Path, start: int) -> int:
    """The CRC-32 of the piece of a file that begins at byte ``start``."""
    buffer, crc = memoryview(bytearray(_READ)), 0
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        left = PIECE
        while left and (count := file.readinto(buffer[: min(left, _READ)])):
            crc = zlib.crc32(buffer[:count], crc)
            left -= count
    return crc


def _joined(size: int, pieces: Pieces) -> str:
    values = [size, *(piece() for piece in pieces)]
    return hashlib.sha256(b"".join(value.to_bytes(8, "little") for value in values)).hexdigest()[:32]
