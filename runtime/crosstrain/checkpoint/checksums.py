"""Checksums of large files, made about as fast as the files can be read.

They tell damage, not forgery: who can change a file can change the manifest, too. A CRC takes half the time of a
SHA-256, and that of each piece by itself keeps every core busy although most of a checkpoint is one or two files.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

PIECE = 2**24  # bytes; part of the format
_READ = 2**20  # bytes at once: they stay in the processor's cache
_THREADS = min(8, os.cpu_count() or 1)

Pieces = list["Future[int]"]


def checksums(paths: Iterable[Path]) -> list[str | None]:
    """Of each file's length and content; None where there is no such file."""
    with ThreadPoolExecutor(_THREADS) as pool:
        started = [_started(path, pool) for path in paths]
        return [None if found is None else _joined(*found) for found in started]


def _started(path: Path, pool: ThreadPoolExecutor) -> tuple[int, Pieces] | None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return None
    return size, [pool.submit(_crc, path, start) for start in range(0, size, PIECE)]


def _crc(path: Path, start: int) -> int:
    """CRC-32 of a piece of a file."""
    buffer, crc = memoryview(bytearray(_READ)), 0
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        left = PIECE
        while left and (count := file.readinto(buffer[: min(left, _READ)])):
            crc = zlib.crc32(buffer[:count], crc)
            left -= count
    return crc


def _joined(size: int, pieces: Pieces) -> str:
    values = [size, *(piece.result() for piece in pieces)]
    return hashlib.sha256(b"".join(value.to_bytes(8, "little") for value in values)).hexdigest()[:32]
