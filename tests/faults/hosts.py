"""Two machines on this one: network namespaces, joined by a virtual cable. They share the disk."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

ADDRESSES = ("10.86.77.1", "10.86.77.2")
CABLE = "cable"


@dataclass(frozen=True)
class Hosts:
    """Two machines and the cable between them."""

    names: tuple[str, str]

    def on(self, rank: int) -> list[str]:
        """The words that a command on a host begins with."""
        return ["ip", "netns", "exec", self.names[rank]]

    def cut(self) -> None:
        """Nothing gets through any more, and no end is told: connections are neither closed nor reset."""
        _ip("-n", self.names[1], "link", "set", CABLE, "down")

    def heal(self) -> None:
        """The cable is whole again."""
        _ip("-n", self.names[1], "link", "set", CABLE, "up")


@contextmanager
def two_hosts() -> Iterator[Hosts]:
    """Raises PermissionError where this is not allowed."""
    first, second = (f"crosstrain{os.getpid()}{letter}" for letter in "ab")
    try:
        for name in (first, second):
            _ip("netns", "add", name)
        ends = ("netns", first, "type", "veth", "peer", "name", CABLE, "netns", second)
        _ip("link", "add", CABLE, *ends)
        for name, address in zip((first, second), ADDRESSES, strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", CABLE)
            for device in ("lo", CABLE):
                _ip("-n", name, "link", "set", device, "up")
        yield Hosts((first, second))
    finally:
        for name in (first, second):
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def _ip(*words: str) -> None:
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise PermissionError("ip(8) is not installed") from None
    if done.returncode:
        raise PermissionError(f"ip {' '.join(words)}: {done.stderr.strip()}")
