"""Which of this machine's addresses the other machines reach it by."""

from __future__ import annotations

import socket
import struct
import sys

SIOCGIFADDR = 0x8915  # linux/sockios.h
ANY_PORT = 9  # nothing is sent there


def address_towards(host: str) -> str | None:
    """The address that packets to `host` leave from; None where there is no route or no such name.

    Asking by the machine's own name often gives 127.0.1.1, where nobody else can connect.
    """
    try:
        family, _, _, _, target = socket.getaddrinfo(host, ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)  # chooses a route; a datagram socket sends nothing for it
            return str(probe.getsockname()[0])
    except OSError:
        return None


def interface_of(address: str) -> str | None:
    """The name of the network interface with this IPv4 address; None where that is not known."""
    if sys.platform != "linux":
        return None
    import fcntl

    with socket.socket() as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has no IPv4 address
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None
