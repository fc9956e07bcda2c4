"""A link between two programs that can be cut and healed: what is sent meanwhile arrives afterwards, nobody is told."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Takes connections on a loopback port and passes everything on to another one."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._whole = threading.Event()
        self._whole.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Nothing gets through any more."""
        self._whole.clear()

    def heal(self) -> None:
        """What was held back goes on its way."""
        self._whole.set()

    def close(self) -> None:
        """End every connection."""
        self.heal()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._open += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(2**16):
                self._whole.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
