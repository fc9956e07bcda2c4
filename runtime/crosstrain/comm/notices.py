"""Short texts that ranks leave for each other in the store, without a collective; for threads beside the training."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from crosstrain.comm.protocol import Comm


class Notices:
    """The texts of one occasion, whose name all ranks know. One process keeps them itself."""

    def __init__(self, comm: Comm, occasion: str) -> None:
        self._occasion = occasion
        self._own: dict[str, str] = {}
        self._store: Any = None
        if comm.world > 1 and dist.is_available() and dist.is_initialized():
            from torch.distributed.distributed_c10d import _get_default_store

            store: Any = _get_default_store()  # torch's stubs do not know all of it
            self._store = store.clone()  # a wait blocks its connection, so this one is not shared

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
