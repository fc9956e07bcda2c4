"""Writes files so that there is always either the old file or the complete new one."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

NO_ROOM = 2**16  # bytes; if a disk has less free space, an error of torch.save means that it is full


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` write a file beside ``path``, sync it to disk, and rename it to ``path``.

    The file's mode is the one that the user's umask gives, even if the writer is stricter (safetensors). If ``path`` is a
    link, the file that it points to is replaced. OSError if the disk is full.
    """
    path = behind_link(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.touch()
        mode = beside.stat().st_mode & 0o777
        try:
            write(beside)
        except RuntimeError as error:
            if shutil.disk_usage(path.parent).free < NO_ROOM:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
            raise
        beside.chmod(mode)
        sync_to_disk(beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    sync_to_disk(path.parent)


def behind_link(path: Path) -> Path:
    """The target of a link, which need not exist; any other path as it is."""
    return path.resolve() if path.is_symlink() else path


def sync_to_disk(path: Path) -> None:
    """fsync a file or directory. Does nothing on systems that cannot open directories."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:  # Windows opens no directories
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def untie(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors in a form that safetensors can store: contiguous, and without shared memory.

    Returns the tensors, and for every name that is left out because it is the same tensor as another, that other name.
    Tensors that only overlap are copied.
    """
    kept: dict[str, Tensor] = {}
    same: dict[str, str] = {}
    seen: dict[tuple[object, ...], str] = {}
    storages: set[tuple[torch.device, int]] = set()
    for name, tensor in state.items():
        where = (tensor.device, tensor.untyped_storage().data_ptr())
        view = (*where, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if tensor.numel() and view in seen:
            same[name] = seen[view]
            continue
        seen[view] = name
        kept[name] = tensor.clone() if tensor.numel() and where in storages else tensor.contiguous()
        storages.add(where)
    return kept, same
