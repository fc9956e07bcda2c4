"""What keeps one prepared model equal on all ranks: the interface of its three kinds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

from torch import nn


class ModelSync:
    """Keeps one prepared model equal on all ranks. A kind of model overrides what it needs; the rest does nothing.

    ``averagings``: how often its gradients were averaged. ``averaging``: whether backward passes average them.
    """

    averagings = 0
    averaging = True

    @property
    def replica(self) -> nn.Module | None:
        """The model, if every rank holds all of it; else None."""
        return None

    @property
    def may_differ(self) -> bool:
        """Whether the ranks' weights may differ at the moment: inside `no_sync`, and where ranks run out of batches."""
        return not self.averaging

    def parameters(self) -> Iterable[nn.Parameter]:
        """The parameters that it averages, and the frozen ones; without those that the model got later."""
        return ()

    def expect(self) -> None:
        """Called where a backward pass of `model.backward` begins; `finish` or `abandon` is called at its end."""

    def finish(self) -> None:
        """Called where it has ended."""

    def abandon(self) -> None:
        """Called where it raised."""

    def require(self, averaging: bool) -> None:
        """Average in backward passes from now on, or keep their gradients local."""
        self.averaging = averaging

    def no_sync(self) -> AbstractContextManager[None]:
        """A context in which backward passes stay local; so do those outside of it, for a loss that was made inside."""
        return self._local()

    @contextmanager
    def _local(self) -> Iterator[None]:
        before = self.averaging
        self.require(False)
        try:
            yield
        finally:
            self.require(before)

    def average_local(self) -> None:
        """Average gradients that are still local, before a step or clipping uses them."""

    def mark_local(self) -> None:
        """Mark the present gradients as not averaged."""

    def discard(self) -> None:
        """Mark local gradients as not to be averaged any more."""

    def send_buffers(self) -> None:
        """Called after an optimizer step: copy rank 0's buffers to the other ranks."""

    def close(self) -> None:
        """Remove all hooks."""
