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
    """The messages that this rank has sent and that have not been taken yet: at most one for each rank.

    Sender and receivers work at the same time: the sender prepares the next message while the others still take the last
    one. On a busy machine that is several times as fast as a scatter, in which all ranks wait for each other.

    links: connections to ranks of this host, by rank; other ranks are reached through the process group.
    """

    def __init__(self, links: Mapping[int, HostLink]) -> None:
        self._links = links
        self._pending: list[tuple[Any, Tensor]] = []  # with their tensors, whose memory is still being read

    def send(self, parts: dict[int, Tensor]) -> None:
        """Start sending each rank its tensor, as soon as the last ones have been taken. Do not change the tensors."""
        self.flush()
        self._pending = [(self._started(part, rank), part) for rank, part in parts.items()]

    def receive(self, out: Tensor, source: int) -> None:
        """Wait for the next message of a rank and put it into ``out``, which must have its size."""
        if source in self._links:
            self._links[source].receive(out)
        else:
            dist.recv(out, source, tag=TAG)

    def flush(self) -> None:
        """Wait until everything that was sent has been taken. RuntimeError if a rank is gone."""
        pending, self._pending = self._pending, []
        for work, _ in pending:
            work.wait()

    def leave(self, patience: timedelta | None = None) -> None:
        """`flush` before this rank leaves; ranks that are gone are no error.

        A rank may be a whole batch behind, so only the group's own time-out ends the wait. ``patience`` ends it earlier, but
        gloo then closes all its connections.
        """
        pending, self._pending = self._pending, []
        for work, _ in pending:
            with suppress(RuntimeError):
                work.wait() if patience is None else work.wait(patience)

    def close(self) -> None:
        """Close the links."""
        for link in self._links.values():
            link.close()

    def _started(self, part: Tensor, rank: int) -> Any:
        link = self._links.get(rank)
        if link is None:
            return dist.isend(part, rank, tag=TAG)
        link.send(part)
        return link
