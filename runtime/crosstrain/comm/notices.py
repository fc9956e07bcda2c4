"""Short texts that ranks leave for each other in the store, without a collective; for threads beside the training.

Connections to that store: a wait blocks the one that it uses.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from crosstrain.comm.protocol import Comm


def default_store() -> Any:
    """The store that the ranks of the default group share; torch's stubs do not know all of it."""
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()


def another_connection(store: Any, patience: timedelta) -> Any:
    """A new connection to the store, made within ``patience``; its other calls have the store's own time-out."""
    usual = store.timeout
    store.set_timeout(patience)
    try:
        made = store.clone()
    finally:
        store.set_timeout(usual)
    made.set_timeout(usual)
    return made


class Notices:
    """The texts of one occasion, whose name all ranks know. One process keeps them itself."""

    def __init__(self, comm: Comm, occasion: str) -> None:
        self._occasion = occasion
        self._own: dict[str, str] = {}
        self._store: Any = None
        if comm.world > 1 and dist.is_initialized():
            self._store = default_store().clone()  # not shared

    def post(self, name: str, text: str) -> None:
        """Leave a text under this name."""
        if self._store is None:
            self._own[name] = text
        else:
            self._store.set(self._key(name), text)

    def read(self, names: list[str]) -> list[str] | None:
        """The texts of these names; None as long as one is missing. RuntimeError if the store is gone."""
        if self._store is None:
            there = all(name in self._own for name in names)
            return [self._own[name] for name in names] if there else None
        keys = [self._key(name) for name in names]
        if not self._store.check(keys):
            return None
        return [bytes(self._store.get(key)).decode() for key in keys]

    def _key(self, name: str) -> str:
        return f"crosstrain/{self._occasion}/{name}"
