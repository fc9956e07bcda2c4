"""Confines a run: it writes only below its scratch folder and opens no connection to another machine.

Python's file functions are redirected: what a script writes to `/data/ckpt.pt` is stored below the scratch folder, and is
read from there again. In addition the kernel forbids other writes, if it can (`landlock`): libraries that do not use
Python's functions get "permission denied".
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crosstrain_verify.emulation.landlock import write_only_below

DEVICES = Path("/dev")
OUTSIDE = "outside"
# (function of os, positions of the paths that it writes, positions of the paths that it reads)
CHANGES = (
    ("mkdir", (0,), ()),
    ("rename", (0, 1), ()),
    ("replace", (0, 1), ()),
    ("remove", (0,), ()),
    ("unlink", (0,), ()),
    ("rmdir", (0,), ()),
    ("symlink", (1,), ()),
    ("link", (1,), (0,)),
    ("truncate", (0,), ()),
    ("utime", (0,), ()),
    ("chmod", (0,), ()),
)
LOOKS = ("stat", "lstat", "listdir", "scandir", "access")
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "WANDB_MODE": "disabled",
    "COMET_MODE": "disabled",
    "MPLBACKEND": "Agg",
}
LOCAL = ("127.", "::1", "localhost", "0.0.0.0")


class Confined:
    """Confines the file functions of this process to ``room``.

    written: the files that were opened for writing, and whether as something other than text.
    """

    def __init__(self, room: Path) -> None:
        self._room = room.resolve()
        self._outside = self._room / OUTSIDE
        self.written: dict[str, bool] = {}

    def install(self) -> None:
        """Replace the functions for the rest of the process. Call it before the script imports anything."""
        temporary = self._room / "tmp"
        temporary.mkdir(exist_ok=True)
        os.environ.update(OFFLINE, TMPDIR=str(temporary))
        self._real_stat: Callable[..., Any] = os.stat
        self._real_makedirs = functools.partial(_make_folders, os.mkdir, os.stat)
        self._wrap_open()
        self._wrap_os()
        self._wrap_torch()
        sys.addaudithook(_no_connections)
        write_only_below([self._room, DEVICES])

    def inside(self, path: str) -> bool:
        """Whether a real path may be written."""
        return any(Path(path).is_relative_to(root) for root in (self._room, DEVICES, Path("/proc")))

    def to_write(self, path: Any, binary: bool = False) -> Any:
        """The path to which a script's write to ``path`` goes; it is noted as written."""
        target = self.moved(path)
        place = _text(target)
        if place is not None:
            real = os.path.realpath(place)
            if not real.startswith((str(self._room / "tmp"), "/dev", "/proc")):
                name = os.path.relpath(real, self._room)
                self.written[name] = binary or self.written.get(name, False)
        return target

    def moved(self, path: Any) -> Any:
        """The path itself if it may be written, else its place below the scratch folder."""
        place = _text(path)
        if place is None:
            return path
        real = os.path.realpath(place)
        if self.inside(real):
            return path
        target = self._outside / real.lstrip("/")
        self._real_makedirs(target.parent)
        return str(target)

    def to_read(self, path: Any) -> Any:
        """The file that the script wrote in place of ``path``, if there is one, else ``path``."""
        place = _text(path)
        if place is None or not place.startswith("/"):
            return path
        target = f"{self._outside}{os.path.normpath(place)}"
        try:
            self._real_stat(target)
        except OSError:
            return path
        return target

    def to_change(self, path: Any, binary: bool = False) -> Any:
        """The path at which a script changes ``path``; a file that it did not make is copied there first."""
        target = self.to_write(path, binary)
        source = _text(path)
        if target is not path and source is not None and Path(source).is_file() and not Path(target).exists():
            shutil.copyfile(source, target)
        return target

    def _wrap_open(self) -> None:
        real_open, real_os_open = builtins.open, os.open

        @functools.wraps(real_open)
        def confined(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if "w" in mode or "x" in mode:
                file = self.to_write(file, "b" in mode)
            elif "a" in mode or "+" in mode:
                file = self.to_change(file, "b" in mode)
            else:
                file = self.to_read(file)
            return real_open(file, mode, *args, **kwargs)

        @functools.wraps(real_os_open)
        def confined_os(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if kwargs.get("dir_fd") is None:
                writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
                path = self.to_change(path) if writes else self.to_read(path)
            return real_os_open(path, flags, *args, **kwargs)

        builtins.open = io.open = confined
        os.open = confined_os

    def _wrap_os(self) -> None:
        for name, written, read in CHANGES:
            if hasattr(os, name):
                setattr(os, name, self._confined(getattr(os, name), written, read))
        for name in LOOKS:
            setattr(os, name, self._confined(getattr(os, name), (), (0,)))

    def _confined(
        self, real: Callable[..., Any], written: tuple[int, ...], read: tuple[int, ...]
    ) -> Callable[..., Any]:
        @functools.wraps(real)
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("dir_fd") is not None:
                return real(*args, **kwargs)
            found = list(args)
            for position in written:
                if position < len(found):
                    found[position] = self.moved(found[position])
            for position in read:
                if position < len(found):
                    found[position] = self.to_read(found[position])
            return real(*found, **kwargs)

        return call

    def _wrap_torch(self) -> None:
        """Replace `torch.save` and `torch.load`, which open their files in C++."""
        import torch

        module: Any = torch
        real_save, real_load = module.save, module.load

        @functools.wraps(real_save)
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            return real_save(obj, self.to_write(f, binary=True), *args, **kwargs)

        @functools.wraps(real_load)
        def load(f: Any, *args: Any, **kwargs: Any) -> Any:
            return real_load(self.to_read(f), *args, **kwargs)

        module.save, module.load = save, load


def _text(path: Any) -> str | None:
    """A path as text; None for a file descriptor or a file object."""
    try:
        return os.fsdecode(path)
    except TypeError:
        return None


def _make_folders(mkdir: Callable[..., None], stat: Callable[..., Any], folder: Path) -> None:
    """`os.makedirs` by means of the given functions, which are the original ones."""
    for one in (*reversed(folder.parents), folder):
        try:
            stat(one)
        except FileNotFoundError:
            mkdir(one)


def _no_connections(event: str, args: tuple[Any, ...]) -> None:
    """An audit hook that forbids connections to other machines, and looking up their names."""
    if event == "socket.connect":
        address = args[1]
        if isinstance(address, tuple) and not str(address[0]).startswith(LOCAL):
            raise ConnectionRefusedError(f"verify opens no connection to {address[0]}")
    elif event == "socket.getaddrinfo" and args[0] and not _local(args[0]):
        raise ConnectionRefusedError(f"verify opens no connection to {args[0]}")


def _local(host: Any) -> bool:
    import socket

    name = host.decode() if isinstance(host, bytes) else str(host)
    return name.startswith(LOCAL) or name == socket.gethostname()
