"""Flat buffers in which gradients are averaged; each holds those of parameters of one dtype and device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from crosstrain.comm.protocol import Comm, Pending
from crosstrain.utils.dataclasses import DDPCommunicationHookType, DistributedDataParallelKwargs

# The first bucket is small so that communication starts early in the backward pass.
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20

# torch.nn.parallel's communication hooks: (state, bucket) -> Future of the averaged buffer.
CommHook = Callable[[Any, Any], "torch.futures.Future[Tensor]"]


class GradientSlot:
    """One parameter and the state of its gradient."""

    __slots__ = ("arrived", "bucket", "name", "param", "touched")

    def __init__(self, name: str, param: nn.Parameter) -> None:
        self.name = name
        self.param = param
        self.bucket: Bucket
        self.arrived = False  # in this backward pass
        self.touched = False  # since the last averaging


class Bucket:
    """Gradients that are averaged together. The methods are those of torch's GradBucket, for hooks."""

    def __init__(
        self, index: int, slots: list[GradientSlot], extra: int = 0, *, keeps_gradients: bool = False
    ) -> None:
        """``extra`` elements at the end of the buffer are left to the caller.

        ``keeps_gradients``: whether gradients become views of the buffer, so that there is no second copy of them.
        """
        self.slots = slots
        self.keeps_gradients = keeps_gradients
        self.last = False
        self.again = False  # a gradient arrived a second time, after the bucket was started
        self.waiting = len(slots)
        self.pending: Pending | None = None
        self._index = index
        sizes = [slot.param.numel() for slot in slots]
        first = slots[0].param
        self.flat = torch.zeros(sum(sizes) + extra, dtype=first.dtype, device=first.device)
        self.extra = self.flat[sum(sizes) :]
        parts = torch.split(self.flat[: sum(sizes)], sizes)
        self.views = [_shaped_like(slot.param, part) for part, slot in zip(parts, slots, strict=True)]
        for slot in slots:
            slot.bucket = self

    def fill(self) -> None:
        """Copy the gradients into the buffer; a parameter without one counts as zero."""
        if self.keeps_gradients:
            for slot, view in zip(self.slots, self.views, strict=True):
                _move_in(slot.param, view)
            return
        grads = [slot.param.grad for slot in self.slots]
        if any(grad is None for grad in grads):
            for view, grad in zip(self.views, grads, strict=True):
                view.zero_() if grad is None else view.copy_(grad)
        else:
            torch._foreach_copy_(self.views, cast("list[Tensor]", grads))

    @torch.no_grad()  # gradients may have a graph, `backward(create_graph=True)`
    def hand_out(self, used: set[str]) -> None:
        """Copy the averages back into the gradients; a parameter without one gets it if its name is in ``used``."""
        if self.keeps_gradients:
            for slot, view in zip(self.slots, self.views, strict=True):
                if slot.param.grad is None and slot.name in used:
                    slot.param.grad = view
            return
        grads, views = [], []
        for slot, view in zip(self.slots, self.views, strict=True):
            if slot.param.grad is not None:
                grads.append(slot.param.grad)
                views.append(view)
            elif slot.name in used:
                slot.param.grad = view.clone()
        if grads:
            torch._foreach_copy_(grads, views)

    @torch.no_grad()
    def start(
        self, comm: Comm, hook: tuple[CommHook, Any] | None, *, weight: float = 1.0, empty: bool = False
    ) -> None:
        """Begin averaging, with ``weight`` times this rank's gradients; with ``empty`` this rank contributes zeros."""
        if empty:
            self.flat.zero_()
        else:
            self.fill()
            if weight != 1.0:
                torch._foreach_mul_(self.views, weight)
        if hook is None:
            self.pending = comm.start_average(self.flat)
        else:
            call, state = hook
            self.pending = _HookPending(self, call(state, self))

    def wait(self, comm: Comm, hook: tuple[CommHook, Any] | None) -> None:
        """Wait for the averages."""
        assert self.pending is not None, "a bucket must be started before it is waited for"
        self.pending.wait()

    def reset(self) -> None:
        """Prepare for the next backward pass."""
        self.pending = None
        self.again = False
        self.waiting = len(self.slots)
        for slot in self.slots:
            slot.arrived = slot.touched = False

    def index(self) -> int:
        return self._index

    def buffer(self) -> Tensor:
        return self.flat

    def set_buffer(self, tensor: Tensor) -> None:
        self.flat.copy_(tensor)

    def gradients(self) -> list[Tensor]:
        return self.views

    def parameters(self) -> list[nn.Parameter]:
        return [slot.param for slot in self.slots]

    def is_last(self) -> bool:
        return self.last


def _move_in(param: nn.Parameter, view: Tensor) -> None:
    """Make the parameter's gradient a view of the buffer, with its value; zeros where there is no gradient."""
    if param.grad is None:
        view.zero_()
    elif param.grad.data_ptr() != view.data_ptr():
        view.copy_(param.grad)
        param.grad = view


def _shaped_like(param: Tensor, part: Tensor) -> Tensor:
    """A part of a buffer with the shape and strides of the parameter, which its gradient has too."""
    if torch.ops.aten.is_non_overlapping_and_dense(param):
        return part.as_strided(param.shape, param.stride(), part.storage_offset())
    return part.view(param.shape)


class SparseBucket(Bucket):
    """A bucket of one parameter with a sparse gradient (an embedding with ``sparse=True``).

    Hooks do not apply to it.
    """

    def __init__(self, index: int, slot: GradientSlot) -> None:
        super().__init__(index, [slot])
        self.views = []
        self.flat = self.extra = torch.empty(0, device="cpu")

    def fill(self) -> None:
        param = self.slots[0].param
        if param.grad is not None:
            self.flat = param.grad.coalesce()
            return
        self.flat = torch.sparse_coo_tensor(
            torch.empty(1, 0, dtype=torch.int64, device=param.device),
            torch.empty(0, *param.shape[1:], dtype=param.dtype, device=param.device),
            size=param.shape,
        ).coalesce()

    def start(
        self, comm: Comm, hook: tuple[CommHook, Any] | None, *, weight: float = 1.0, empty: bool = False
    ) -> None:
        self.fill()
        if empty or weight != 1.0:
            self.flat = self.flat * (0.0 if empty else weight)
        self.pending = comm.start_average(self.flat)

    def wait(self, comm: Comm, hook: tuple[CommHook, Any] | None) -> None:
        super().wait(comm, hook)
        self.flat = self.flat / comm.world  # backends only sum sparse tensors

    def hand_out(self, used: set[str]) -> None:
        slot = self.slots[0]
        if slot.param.grad is not None or slot.name in used:
            slot.param.grad = self.flat


class _HookPending:
    """A communication hook's future, whose value is copied into the bucket."""

    def __init__(self, bucket: Bucket, future: torch.futures.Future[Any]) -> None:
        self._bucket = bucket
        self._future = future

    def wait(self) -> None:
        value = self._future.wait()
        result = value[0] if isinstance(value, (list, tuple)) else value
        if result is not self._bucket.flat:
            self._bucket.flat.copy_(result)


def lay_out(
    slots: Iterable[GradientSlot],
    sparse: set[int],
    bucket_bytes: int,
    flags: int,
    *,
    keep_gradients: bool = False,
) -> tuple[list[Bucket], Tensor | None]:
    """Distribute the slots over buckets, in order.

    If the last bucket is dense and real, it has room for ``flags`` further elements and one per bucket.
    ``keep_gradients``: see `Bucket`. Returns the buckets and that part of the last one; None where it has no room or
    ``flags`` is 0.
    """
    groups: list[list[GradientSlot]] = []
    filling: dict[tuple[torch.dtype, torch.device], tuple[list[GradientSlot], int]] = {}
    for slot in slots:
        param = slot.param
        if id(param) in sparse:
            groups.append([slot])
            continue
        key = (param.dtype, param.device)
        if key not in filling:
            filling[key] = ([], 0)
            groups.append(filling[key][0])
        group, size = filling[key]
        group.append(slot)
        size += param.numel() * param.element_size()
        filling[key] = (group, size)
        limit = min(FIRST_BUCKET_BYTES, bucket_bytes) if group is groups[0] else bucket_bytes
        if size >= limit:
            del filling[key]
    buckets: list[Bucket] = []
    extra = flags + len(groups) if flags else 0
    for index, group in enumerate(groups):
        if id(group[0].param) in sparse:
            buckets.append(SparseBucket(index, group[0]))
        else:
            has_room = index == len(groups) - 1 and not group[0].param.is_complex()
            riding_along = extra if has_room else 0
            buckets.append(Bucket(index, group, riding_along, keeps_gradients=keep_gradients))
    if not buckets:
        return buckets, None
    buckets[-1].last = True
    riding = buckets[-1].extra if flags and buckets[-1].extra.numel() else None
    return buckets, riding


def communication_hook(ddp: DistributedDataParallelKwargs) -> tuple[CommHook, Any] | None:
    """The communication hook that compresses gradients, with its state; None for no compression."""
    if ddp.comm_hook == DDPCommunicationHookType.NO:
        return None
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    if callable(ddp.comm_hook):
        return ddp.comm_hook, ddp.comm_state_option or None
    plain: dict[str, CommHook] = {
        "fp16": default_hooks.fp16_compress_hook,
        "bf16": default_hooks.bf16_compress_hook,
        "power_sgd": powerSGD_hook.powerSGD_hook,
        "batched_power_sgd": powerSGD_hook.batched_powerSGD_hook,
    }
    hook = plain[ddp.comm_hook.value]
    state: Any = None
    if "power_sgd" in ddp.comm_hook.value:
        state = powerSGD_hook.PowerSGDState(None, **ddp.comm_state_option)
    if ddp.comm_wrapper == "fp16":
        hook = default_hooks.fp16_compress_wrapper(hook)
    elif ddp.comm_wrapper == "bf16":
        hook = default_hooks.bf16_compress_wrapper(hook)
    return hook, state


def sparse_parameters(model: nn.Module) -> set[int]:
    """ids of the parameters whose gradients will be sparse."""
    return {
        id(module.weight)
        for module in model.modules()
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse
    }
