"""Messages from one rank to another that the sender does not wait for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import Tensor

from crosstrain.comm.host_links import HostLink

TAG = 0x5CA7  # marks ours among the messages that a script may send itself


class Outbox:
    """What this rank has sent and nobody has taken yet: at most one message for each rank.

    Sender and receiver work side by side: the next message is read and packed while the others still take the
    last one. On a busy machine that is several times as fast as a scatter, in which all wait for all.

    links: connections to ranks of this host, by rank; the others are reached through the process group.
    """

    def __init__(self, links: Mapping[int, HostLink]) -> None:
        self._links = links
        self._pending: list[tuple[Any, Tensor]] = []  # with the tensors, whose memory is still read

    def send(self, parts: dict[int, Tensor]) -> None:
        """Start sending each rank its tensor, once the last ones have been taken. They must not be changed."""
        self.flush()
        self._pending = [(self._started(part, rank), part) for rank, part in parts.items()]

    def receive(self, out: Tensor, source: int) -> None:
        """Wait for the next message of a rank; it must be as long as ``out``."""
        if source in self._links:
            self._links[source].receive(out)
        else:
            dist.recv(out, source, tag=TAG)

    def flush(self) -> None:
        """Wait until everything that was sent has been taken. RuntimeError when a rank is gone."""
        pending, self._pending = self._pending, []
        for work, _ in pending:
            work.wait()

    def leave(self, patience: timedelta | None = None) -> None:
        """`flush` for one who does not come back: those who are gone need no message.

        A rank may be a whole batch behind, however long that takes, so only the group's own time-out ends the
        wait. ``patience`` ends it earlier, and the connection with it: gloo closes all that it has then.
        """
        pending, self._pending = self._pending, []
        for work, _ in pending:
            with suppress(RuntimeError):
                work.wait() if patience is None else work.wait(patience)

    def close(self) -> None:
        """The links are not used again."""
        for link in self._links.values():
            link.close()

    def _started(self, part: Tensor, rank: int) -> Any:
        link = self._links.get(rank)
        if link is None:
            return dist.isend(part, rank, tag=TAG)
        link.send(part)
        return link
