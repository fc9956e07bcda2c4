"""The address by which other machines reach this one."""

from __future__ import annotations

import socket
import struct
import sys

SIOCGIFADDR = 0x8915  # linux/sockios.h
ANY_PORT = 9  # any port will do, because nothing is sent


def address_towards(host: str) -> str | None:
    """This machine's address on the route to ``host``; None if there is no route or no such name.

    Looking up the machine's own name often gives 127.0.1.1, to which no other machine can connect.
    """
    try:
        family, _, _, _, target = socket.getaddrinfo(host, ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)  # chooses a route; a datagram socket sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return None


def interface_of(address: str) -> str | None:
    """The name of the network interface with this IPv4 address; None if it is unknown."""
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
