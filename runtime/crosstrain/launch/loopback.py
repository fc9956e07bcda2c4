"""A store for the rendezvous that only this machine can reach."""

from __future__ import annotations

import socket

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, but not in its __all__

ADDRESS = "127.0.0.1"


def listen(port: int = 0) -> tuple[socket.socket, int]:
    """A listening socket on the loopback interface, and its port. Port 0 picks a free one. OSError if it is in use."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((ADDRESS, port))
    except OSError:
        listener.close()
        raise
    listener.listen(socket.SOMAXCONN)
    return listener, listener.getsockname()[1]


def serve(listener: socket.socket) -> TCPStore:
    """A store that listens on ``listener``, and takes it over.

    By default a TCPStore listens on every interface, where anybody in the network can write to it.
    """
    port = listener.getsockname()[1]
    return TCPStore(ADDRESS, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
