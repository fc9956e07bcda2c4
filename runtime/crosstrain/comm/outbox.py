"""Messages from one rank to another that the sender does not wait for."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import Tensor

TAG = 0x5CA7  # marks ours among the messages that a script may send itself


class Outbox:
    """What this rank has sent and nobody has taken yet: at most one message for each rank.

    Sender and receiver work side by side: the next message is read and packed while the others still take the
    last one. On a busy machine that is several times as fast as a scatter, in which all wait for all.
    """

    def __init__(self) -> None:
        self._pending: list[tuple[Any, Tensor]] = []  # with the tensors, whose memory is still read

    def send(self, parts: dict[int, Tensor]) -> None:
        """Start sending each rank its tensor, once the last ones have been taken. They must not be changed."""
        self.flush()
        self._pending = [(dist.isend(part, rank, tag=TAG), part) for rank, part in parts.items()]

    def flush(self) -> None:
        """Wait until everything that was sent has been taken. RuntimeError when a rank is gone."""
        pending, self._pending = self._pending, []
        for work, _ in pending:
            work.wait()

    def leave(self, patience: timedelta | None = None) -> None:
        """`flush` for one who does not come back: those who are gone need no message.

        A rank may be a whole batch behind, however long that takes, so only the group's own time-out ends the
        wait. ``patience`` ends it earlier, and the group with it: gloo closes all connections then.
        """
        pending, self._pending = self._pending, []
        for work, _ in pending:
            with suppress(RuntimeError):
                work.wait() if patience is None else work.wait(patience)


def receive(out: Tensor, source: int) -> None:
    """Wait for the next message of a rank; it must be as long as ``out``."""
    dist.recv(out, source, tag=TAG)
