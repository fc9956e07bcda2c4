"""Iterators: what iter() gives of a loader, and one that fails."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence, Sized
from itertools import chain
from typing import Any


class Counted(chain[Any]):
    """The batches of a loader, of which it says how many there are, as torch's own iterators do.

    Derived from `chain`, so that no frame of Python stands between the script and its loader.
    """

    def __new__(
        cls, batches: Generator[Any, None, None], loader: Sized, read: Sequence[Iterator[Any]] = ()
    ) -> Counted:
        made = super().__new__(cls, batches)
        made.batches, made.loader, made.read = batches, loader, read
        return made

    batches: Generator[Any, None, None]
    loader: Sized
    read: Sequence[Iterator[Any]] = ()  # torch's own iterator, once it is there

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not self.read:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.read[-1], name)  # `_send_idx`, of a script that saves its sampler's place

    def __len__(self) -> int:
        return len(self.loader)

    def close(self) -> None:
        self.batches.close()


def failing(error: Exception) -> Iterator[Any]:
    """An iterator that raises the error where its first item is asked for."""
    raise error
    yield
