"""Linux's Landlock: a process gives up writing anywhere but below a few folders, and cannot undo that."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
VERSION = 1  # flag: only return the version that the kernel has
PATH_BENEATH = 1
PR_SET_NO_NEW_PRIVS = 38

WRITE_FILE = 1 << 1
FILE_RIGHTS = WRITE_FILE | 1 << 14  # truncating, since version 3
# The rights to remove folders and files, to make devices, folders, files, sockets, pipes, block devices and links, and to
# move files.
CHANGES = sum(1 << bit for bit in range(4, 14))
REFER, TRUNCATE = 1 << 13, 1 << 14


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def write_only_below(folders: Iterable[Path]) -> bool:
    """Forbid this process and its children to change files elsewhere; False if the kernel cannot."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION))
    if version < 1:
        return False
    rights = WRITE_FILE | CHANGES | TRUNCATE
    if version < 2:
        rights &= ~REFER
    if version < 3:
        rights &= ~TRUNCATE
    attributes = _Ruleset(rights)
    ruleset = libc.syscall(
        CREATE_RULESET,
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
        ctypes.c_uint32(0),
    )
    if ruleset < 0:
        return False
    try:
        for folder in folders:
            _allow(libc, ruleset, folder, rights)
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return bool(libc.syscall(RESTRICT_SELF, ruleset, ctypes.c_uint32(0)) == 0)
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, folder: Path, rights: int) -> None:
    if not folder.exists():
        return
    place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    rule = _Beneath(rights if folder.is_dir() else rights & FILE_RIGHTS, place)
    try:
        libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint32(0))
    finally:
        os.close(place)
