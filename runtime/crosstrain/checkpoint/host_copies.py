"""Copies of states in host memory, so that the training can go on while they are written."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from crosstrain.comm.devices import host_buffer, wait_for_copies
from crosstrain.comm.types import HOST

SMALL = 2**16  # bytes; smaller tensors get no buffer that is kept
PIECE = 2**25  # bytes that one thread copies at a time
THREADS = min(4, os.cpu_count() or 1)


class Frozen:
    """A copy of a state: its tensors in host memory, everything else pickled."""

    def __init__(self, pickled: bytes, tensors: list[Tensor]) -> None:
        self._pickled = pickled
        self._tensors = tensors

    def thaw(self) -> Any:
        """The state, with the copied tensors."""
        reader = pickle.Unpickler(io.BytesIO(self._pickled))
        reader.persistent_load = self._tensors.__getitem__  # type: ignore[method-assign]
        return reader.load()


class _Pickler(pickle.Pickler):
    """Pickles everything but tensors, which `HostCopies` copies."""

    def __init__(self, file: io.BytesIO, copies: HostCopies) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._copies = copies
        self.tensors: list[Tensor] = []
        self._places: dict[Any, int] = {}
        self._seen: list[
            Tensor
        ] = []  # keeps them alive: another tensor could reuse the identity of a freed one

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, Tensor):
            return None
        key = _identity(obj)
        if key not in self._places:
            self._places[key] = len(self.tensors)
            self._seen.append(obj)
            self.tensors.append(self._copies.copy(obj))
        return self._places[key]


class HostCopies:
    """Copies tensors to host memory, into the buffers of the last save: new memory takes several times as long.

    Several threads copy what is in host memory already, so that they also share the page faults of new memory. A copy
    is valid until `reuse` is called; the buffers stay until `release`.
    """

    def __init__(self, threads: int = THREADS) -> None:
        self._free: dict[tuple[int, str], list[Tensor]] = {}
        self._taken: list[tuple[tuple[int, str], Tensor]] = []
        self._threads = threads
        self._copying: list[Future[Any]] = []
        self._submit: Callable[..., Future[Any]] | None = None

    def freeze(self, state: Any) -> Frozen:
        """Copy ``state`` as it is now. Raises the error of `pickle` for an object that cannot be pickled."""
        file = io.BytesIO()
        pickler = _Pickler(file, self)
        with ThreadPoolExecutor(self._threads, "crosstrain-copy") as pool:
            self._submit = pool.submit
            try:
                pickler.dump(state)
            finally:
                self._submit = None
                copying, self._copying = self._copying, []
            for copy in copying:
                copy.result()
        wait_for_copies()
        return Frozen(file.getvalue(), pickler.tensors)

    def reuse(self) -> None:
        """Let the next copies overwrite the last ones."""
        self._free = {}  # frees what the last save did not use
        for key, buffer in self._taken:
            self._free.setdefault(key, []).append(buffer)
        self._taken = []

    def release(self) -> None:
        """Free the memory."""
        self._free, self._taken = {}, []

    def copy(self, tensor: Tensor) -> Tensor:
        """A copy of the tensor in host memory; of a sharded one, a DTensor whose local part is there."""
        source = tensor.detach()
        if type(source) is Tensor:
            copied = self._plain(source)
        elif hasattr(source, "_local_tensor"):
            from crosstrain.step.fsdp import with_local_part

            copied = with_local_part(source, self._plain)
        else:
            copied = source.to(HOST, copy=True)
        return nn.Parameter(copied, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else copied

    def _plain(self, source: Tensor) -> Tensor:
        if source.layout is not torch.strided or source.nbytes < SMALL or not _is_dense(source):
            return source.to(HOST, copy=True)
        key = (source.nbytes, source.device.type)
        waiting = self._free.get(key)
        buffer = waiting.pop() if waiting else host_buffer(*key)
        self._taken.append((key, buffer))
        copied = buffer.view(source.dtype).as_strided(source.shape, source.stride())
        if source.device != HOST or self._threads == 1 or self._submit is None:
            return copied.copy_(source, non_blocking=True)
        # Both are dense: each is one run of memory, with the elements in the same order.
        size, whole = source.numel(), source.as_strided((source.numel(),), (1,))
        step = PIECE // source.element_size()
        for start in range(0, size, step):
            piece = slice(start, start + step)
            target = buffer.view(source.dtype)[piece]
            self._copying.append(self._submit(target.copy_, whole[piece]))
        return copied


def _identity(tensor: Tensor) -> Any:
    """A key that is equal for tensors of the same memory, shape and dtype."""
    if type(tensor) not in (Tensor, nn.Parameter) or tensor.layout is not torch.strided:
        return id(tensor)
    address = tensor.untyped_storage().data_ptr()
    if not address or not tensor.numel():
        return id(tensor)
    where = (tensor.device, address, tensor.storage_offset())
    return (
        *where,
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        type(tensor),
        tensor.is_conj(),
        tensor.is_neg(),
    )


def _is_dense(tensor: Tensor) -> bool:
    """Whether its elements fill one run of memory, in any order, and are stored as they are."""
    plain = not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    return plain and torch.ops.aten.is_non_overlapping_and_dense(tensor)
