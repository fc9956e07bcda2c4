"""Puts batches on the devices: every tensor with a row for each sample is spread over them by rows."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from crosstrain.comm.placement import Placer
from crosstrain.comm.xla.api import model as xla_model
from crosstrain.comm.xla.api import spmd
from crosstrain.comm.xla.watch import CompilationWatch
from crosstrain.utils.nested import rows_of

Dtypes = dict[torch.dtype, torch.dtype]


class Spread:
    """Places tensors on a mesh.

    local: how many devices of the mesh belong to this process. shared: other processes feed devices of the same mesh, so
    what is placed here is a part of the whole and must be divisible by ``local``.
    """

    def __init__(self, device: torch.device, mesh: Any, local: int, *, shared: bool) -> None:
        self._device = device
        self._mesh = mesh
        self._local = local
        self._shared = shared
        self._spec = lru_cache(maxsize=None)(self._make_spec)

    def _make_spec(self, dims: int) -> Any:
        return spmd.ShardingSpec(self._mesh, ("data", *[None] * (dims - 1)), minibatch=self._shared)

    def rows(self, tensor: Tensor) -> Tensor:
        """The tensor on the devices, spread along dim 0; ValueError if the mesh is shared and its rows do not divide."""
        if self._shared and tensor.shape[0] % self._local:
            raise ValueError(
                f"a batch of {tensor.shape[0]} rows cannot be spread over the {self._local} devices of each of "
                f"several hosts. Keep even_batches=True, or drop_last=True in the loader."
            )
        plain = tensor.detach().as_subclass(Tensor)
        parts: list[Tensor] = xla_model.send_cpu_data_to_device(plain, self._device, self._spec(tensor.dim()))
        (placed,) = parts
        return placed

    def parameter(self, param: Tensor) -> None:
        """Leave each device its part of dim 0 (the last may get less). Gradients and optimizer state follow."""
        if param.dim():
            spmd.mark_sharding(param, self._mesh, ("data", *[None] * (param.dim() - 1)))


class SpreadPlacer(Placer):
    """Places the batches of one loader, and reports their shapes to the watch."""

    def __init__(
        self, device: torch.device, spread: Spread, dtypes: Dtypes, watch: CompilationWatch, source: str
    ) -> None:
        super().__init__(device)
        self._spread = spread
        self._dtypes = dtypes
        self._watch = watch
        self._source = watch.source(source)
        self._rows: int | None = None
        self._shapes: list[tuple[int, ...]] = []

    def __call__(self, batch: Any) -> Any:
        self._rows = rows_of(batch)
        self._shapes = []
        placed = super().__call__(batch)
        self._watch.placed(self._source, tuple(self._shapes))
        return placed

    def _move(self, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return super()._move(leaf)
        self._shapes.append(tuple(leaf.shape))
        if leaf.device == self._device:
            return leaf
        leaf = leaf.to(self._dtypes.get(leaf.dtype, leaf.dtype))
        if leaf.dim() and leaf.shape[0] and leaf.shape[0] == self._rows:
            return self._spread.rows(leaf)
        # A plain scalar would become a constant of the graph, so each value would need its own graph.
        if not leaf.dim():
            return leaf.reshape(1).to(self._device).reshape(())
        return leaf.to(self._device)
