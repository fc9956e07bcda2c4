"""Averaging the gradients of a model, or of parameters that belong to none, whatever code produced the loss.

Hooks on the parameters notice each gradient. Gradients are copied into flat buckets, and a full bucket is averaged
while the backward pass goes on. Nothing wraps the model, so that its attributes, keys, copies and methods are the
user's own, and forward passes never communicate.

Every rank starts the same buckets in the same order, also where some parameters got no gradient. The last bucket starts
when the backward pass is over, and has room for flags, which need no collective of their own. They tell a rank whether
another one used a parameter that it did not, and which buckets must be averaged again because a reentrant checkpoint on
some rank added to them after they were started.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import Variable

from crosstrain.comm.collectives import broadcast_tensors
from crosstrain.comm.protocol import Comm
from crosstrain.comm.types import HOST
from crosstrain.step.bounded_rows import bounded_embeddings, shorten_rows
from crosstrain.step.buckets import BUCKET_BYTES, CommHook, GradientSlot, communication_hook, lay_out
from crosstrain.step.custom_backward import inside_custom_backward
from crosstrain.step.model_sync import ModelSync
from crosstrain.step.step_position import BITS, StepPosition
from crosstrain.step.watched_parameters import WatchedParameters
from crosstrain.utils.dataclasses import DistributedDataParallelKwargs

logger = logging.getLogger(__name__)

# Called in each backward pass outside of Accelerator.backward, with whether it has reached only loose parameters so far, and
# whether its gradients are averaged at its end. Returns the weight of this rank's gradients in that averaging.
PlainBackward = Callable[[bool, bool], float]


_ARRIVED_LATE = (
    "the gradient of {} grew while it was being averaged, in the buffer where gradient_as_bucket_view=True keeps it. "
    "Pass use_reentrant=False to torch.utils.checkpoint.checkpoint, or leave gradient_as_bucket_view out."
)


class GradientSync(ModelSync):
    """Keeps the gradients of one model, and of loose parameters, equal on all ranks.

    While ``averaging`` is False, backward passes only mark the parameters that they touched; the next averaging
    includes them all. ``watched``: what it averages.
    """

    # Compared over the ranks in every averaging, where the flags are on the host.
    position: StepPosition | None = None

    def __init__(
        self,
        model: nn.Module | None,
        comm: Comm,
        options: DistributedDataParallelKwargs,
        plain_backward: PlainBackward | None,
    ) -> None:
        """Watch the model, if there is one (collective)."""
        self.watched = WatchedParameters(model, comm)
        self.joining: Callable[[], None] | None = None  # called before each averaging
        self.among_active = False  # averages are over the ranks that still have batches
        self.buffers_due = False  # gradients were averaged since the buffers were last sent
        self.stale = False  # some gradient is not averaged yet
        self._comm = comm
        self.sends_buffers = options.broadcast_buffers
        self._plain_backward = plain_backward
        self._only_loose = False  # a plain backward pass has reached loose parameters only
        self._weight = 1.0  # of this rank in the averaging after a plain backward pass
        self._managed = False  # inside Accelerator.backward, which calls finish() itself
        self._bucket_bytes = BUCKET_BYTES if options.bucket_cap_mb is None else options.bucket_cap_mb << 20
        self._hook = communication_hook(options)
        self._keep_in_buckets = options.gradient_as_bucket_view  # gradients are views of the buckets
        self._lock = threading.Lock()
        self._open = False  # a backward pass has reached the model and is not finished
        self._eager = False  # buckets of this pass may start as soon as they are full
        self._fault: str | None = None  # the error that all ranks raise at the next averaging
        self._looking = False  # a rank may have a fault, so the flags must be read
        self._nested = False  # a backward pass had another one inside
        self._graph_task = -1
        self._held: Any = None
        self._reported = False
        self._handles: list[Any] = []
        self._slots: list[GradientSlot] = []
        self._settled = True  # no parameter was added since the last averaging
        self._stale_outside = False  # what `stale` was before gradients were to stay local
        self._next = 0
        self._watch()

    @property
    def replica(self) -> nn.Module | None:
        """The model; None where there are loose parameters only."""
        return self.watched.model

    @property
    def may_differ(self) -> bool:
        return not self.averaging or self.joining is not None

    def _watch(self) -> None:
        """Hook the parameters that are trainable now (collective)."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        seen = {slot.name: slot for slot in self._slots}
        self._slots = self.watched.slots()
        self._bounded = bounded_embeddings(self.watched.model) if self._comm.world > 1 else []
        for slot in self._slots:
            before = seen.get(slot.name)
            slot.touched = before.touched if before else slot.param.grad is not None
        count = len(self._slots) + 2 + BITS
        self._buckets, riding = lay_out(
            self._slots,
            self.watched.sparse(),
            self._bucket_bytes,
            0 if self._hook else count,
            keep_gradients=self._keep_in_buckets,
        )
        self._next = 0
        # Whether all ranks read the flags every time; decided by the first flags.
        self._reading: bool | None = None
        self._by_host = False  # whether the hosts exchange the flags, without waiting for their devices
        self._raised: list[bool] = []
        self._flags_ride = riding is not None
        device = self._slots[0].param.device if self._slots else self._comm.device
        count += len(self._buckets)
        self._flags: Tensor = torch.zeros(count, device=device) if riding is None else riding
        for slot in self._slots:
            param: Any = slot.param  # torch leaves this method untyped
            arrive = partial(self._arrive, slot, slot.name in self.watched.loose)
            self._handles.append(param.register_post_accumulate_grad_hook(arrive))

    def add(self, loose: Mapping[str, nn.Parameter]) -> None:
        """Average the gradients of these parameters, too (collective)."""
        self.watched.loose.update(loose)
        self._settled = False
        self._watch()
        self.stale = self.stale or any(slot.touched for slot in self._slots if slot.name in loose)

    def hand_over(self, params: Iterable[nn.Parameter]) -> bool:
        """Stop watching the loose parameters among these (collective); returns whether any is not averaged yet."""
        given = self.watched.give_away(params)
        stale = self.stale and any(slot.touched for slot in self._slots if slot.name in given)
        if given:
            self._watch()
        return stale

    def register_hook(self, hook: CommHook, state: Any) -> None:
        """Average with this communication hook from now on (collective); RuntimeError where there is one already."""
        if self._hook is not None:
            raise RuntimeError("the model has a communication hook already; only one can be registered")
        self._hook = hook, state
        self._watch()

    def _settle(self) -> None:
        """Lay the buckets out anew if added parameters do not fit into those that were made for them (collective)."""
        self._settled = True
        if self.watched.misplaced(self._slots):
            self._watch()

    def close(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def parameters(self) -> list[nn.Parameter]:
        """The parameters that it watches, and the frozen ones; without those that the model got later."""
        return [*self.watched.frozen, *(slot.param for slot in self._slots)]

    # -- while a backward pass runs ---------------------------------------------------------------

    def _arrive(self, slot: GradientSlot, loose: bool, _param: Tensor) -> None:
        with self._lock:
            slot.touched = True
            if not self._open:
                self._begin(loose)
            elif self._graph_task != torch._C._current_graph_task_id():
                self._enter_other_graph()
            if self._only_loose and not loose:
                self._note_plain_backward(loose)
            if not self._eager:
                return
            bucket = slot.bucket
            if slot.arrived:  # a parameter of several reentrant checkpoints
                if self._keep_in_buckets and bucket.pending is not None:
                    raise RuntimeError(_ARRIVED_LATE.format(slot.name))
                bucket.again = bucket.again or bucket.pending is not None
                return
            slot.arrived = True
            bucket.waiting -= 1
            while self._next < len(self._buckets) - 1 and self._buckets[self._next].waiting == 0:
                self._start_next()

    def _note_plain_backward(self, loose: bool) -> None:
        if self._plain_backward is not None:
            at_once = self.averaging and self._held is None and (self._only_loose or not self.stale)
            self._weight = self._plain_backward(loose, at_once)
        self._only_loose = loose

    def _begin(self, loose: bool) -> None:
        self._weight = 1.0
        if not self._managed:
            self._note_plain_backward(loose)
        self._open = True
        self.stale = True
        ready = self.averaging and self._held is None and self.joining is None and self._settled
        self._eager = ready and not self.watched.thawed()
        self._graph_task = torch._C._current_graph_task_id()
        if not self._managed:
            self._finish_after_this_graph()

    def _enter_other_graph(self) -> None:
        """Note that a reentrant checkpoint runs a backward pass of its own inside this one."""
        self._graph_task = torch._C._current_graph_task_id()
        self._nested = True
        if not self._managed:
            self._finish_after_this_graph()

    def _finish_after_this_graph(self) -> None:
        """Let the autograd engine call `finish` at the end of a ``loss.backward()`` that the script calls itself."""
        Variable._execution_engine.queue_callback(self._graph_done)

    def _graph_done(self) -> None:
        if not inside_custom_backward():  # otherwise this is the inner pass of a reentrant checkpoint
            self.finish()

    def _start_next(self) -> None:
        if self._next == 0 and (position := self._compared):
            position.agree(self)
        if self._next == len(self._buckets) - 1 and self._flags_ride:
            self._raise_flags()
        self._buckets[self._next].start(self._comm, self._hook, weight=self._weight)
        self._next += 1

    def touched_names(self) -> list[str]:
        return [slot.name for slot in reversed(self._slots) if slot.touched]

    @property
    def _compared(self) -> StepPosition | None:
        return self.position if self._flags.device == HOST and self.joining is None else None

    # -- after a backward pass --------------------------------------------------------------------

    def share_fault(self, fault: str | None) -> None:
        """Let all ranks find out in their next averaging whether one of them has a fault, and raise it there."""
        self._fault = self._fault or fault
        self._looking = True

    def expect(self) -> None:
        self._managed = True

    def finish(self) -> None:
        """Called at the end of a backward pass: average its gradients, if averaging is on and it reached a parameter."""
        self._managed = self._only_loose = False
        if not self._open and not self.watched.thawed():
            return
        self._open = False
        if self.averaging and self._held is None:
            self.average()

    def abandon(self) -> None:
        """Called where a backward pass raised: forget its state. The other ranks notice the error by themselves."""
        self._managed = self._open = self._only_loose = False

    def average_local(self) -> None:
        if self.averaging and (self.stale or self.watched.thawed()):
            self.average()

    def mark_local(self) -> None:
        """Mark the present gradients as this rank's own; they were loaded inside an accumulation window."""
        for slot in self._slots:
            slot.touched = slot.param.grad is not None
        self.stale = True

    def holds_gradients(self) -> bool:
        """Whether this rank has gradients that were never averaged."""
        return any(slot.touched for slot in self._slots)

    def discard(self) -> None:
        """Mark all gradients as averaged: they were dropped, or the parameters themselves were averaged."""
        for slot in self._slots:
            slot.touched = False
        self.stale = False
        self.release()

    def shadow(self) -> None:
        """Take part in one averaging of the other ranks with zeros, because this rank has no more batches."""
        if not self._settled:
            self._settle()
        if not self._buckets:
            return
        for bucket in self._buckets:
            bucket.start(self._comm, self._hook, empty=True)
        self._flags.zero_()
        self._raised = [False] * len(self._flags)
        if not self._flags_ride and not self._by_host:
            self._comm.start_average(self._flags).wait()
        for bucket in self._buckets:
            bucket.wait(self._comm, self._hook)
        shares = self._read_flags(False)
        self._average_again(shares, empty=True)
        self._divide_among_active(False)
        for bucket in self._buckets:
            bucket.reset()
        self._raise_fault(shares)

    def send_buffers(self) -> None:
        """After a step with averaged gradients, copy rank 0's buffers (batch statistics) to all ranks."""
        if self.buffers_due and self.sends_buffers and self.joining is None:
            # `data`: a change that autograd counts would stop a backward pass whose forward pass is over.
            broadcast_tensors([buffer.data for buffer in self.watched.buffers()], self._comm)
        self.buffers_due = False

    def average(self) -> None:
        """Average everything that was touched since the last averaging (collective)."""
        if self.watched.thawed():
            self._watch()
        if not self._buckets:
            return
        if not self._settled:
            self._settle()
        if self.joining is not None:
            self.joining()
        while self._next < len(self._buckets):
            self._start_next()
        alone = None
        if not self._flags_ride:
            self._raise_flags()
            alone = None if self._by_host else self._comm.start_average(self._flags)
        for bucket in self._buckets:
            bucket.wait(self._comm, self._hook)
        if alone is not None:
            alone.wait()
        missing = [slot for slot in self._slots if not slot.touched]
        shares = self._read_flags(bool(missing))
        if shares and (position := self._compared):
            position.check(self, shares[len(self._slots) + 2 :][:BITS])
        self._average_again(shares)
        self._divide_among_active(True)
        used = {slot.name for slot, share in zip(self._slots, shares, strict=False) if share > 0}
        for bucket in self._buckets:
            bucket.hand_out(used)
            bucket.reset()
        shorten_rows(self._bounded)
        self._next, self._weight = 0, 1.0
        self.stale = self._open = False
        self.averagings += 1
        self.buffers_due = True
        self.release()
        self._raise_fault(shares)
        if missing:
            self._handle_missing(missing, used, frozen_share=shares[len(self._slots)])

    def _raise_flags(self) -> None:
        """Set the flags: one for each parameter that this rank used, one if it has frozen any since the start, one if
        it has a fault, and one for each bucket that got more after it was started."""
        touched = [slot.touched for slot in self._slots]
        again = [bucket.again for bucket in self._buckets]
        # The last bucket is always complete when it starts; its flag says that others may not be.
        again[-1] = self._nested or any(again)
        if self._by_host or not all(touched) or again[-1] or self._fault is not None:
            frozen = any(not slot.param.requires_grad for slot in self._slots)
            bits = position.bits(self) if (position := self._compared) else [False] * BITS
            self._raised = [*touched, frozen, self._fault is not None, *bits, *again]
        if self._by_host:
            return
        if all(touched) and not again[-1] and self._fault is None:
            self._flags.zero_()
            self._flags[: len(touched)].fill_(1)
            if position := self._compared:
                position.write(self, self._flags[len(touched) + 2 :][:BITS])
            return
        self._flags.copy_(self._flags.new_tensor(self._raised, device="cpu"), non_blocking=True)

    def _waits_for_flags(self) -> bool:
        """Whether reading the flags makes the host wait for the device."""
        return self._flags.device != HOST

    def _read_flags(self, needed: bool) -> list[float]:
        """The share of the ranks that raised each flag; empty where no rank needs to know.

        Reading waits for the device. On the CPU all ranks read every time. On a device all ranks read the first time,
        and afterwards if some rank then had a backward pass inside another one; besides, a rank reads where it lacks a
        gradient (``needed``). Where a rank lacked one the first time it will do so in every step, so that from then on
        the hosts exchange the flags.
        """
        if self._by_host:
            self._looking = self._nested = False
            return self._shares_by_host()
        together = self._reading is not False or not self._waits_for_flags()
        if not (together or needed or self._nested or self._looking):
            return []
        shares = self._shares_by_device()
        self._nested = self._looking = False
        if self._reading is None:
            self._reading = shares[-1] > 0
            least = min(shares[: len(self._slots)], default=1.0)
            self._by_host = self._waits_for_flags() and least < 1 - 0.5 / self._comm.world
        if not together and any(share > 0 for share in shares[len(self._slots) + 2 + BITS : -1]):
            raise RuntimeError(
                "a reentrant checkpoint used parameters whose gradients were already being averaged, and the first "
                "step used none, so that the other ranks do not know. Pass use_reentrant=False to "
                "torch.utils.checkpoint.checkpoint."
            )
        return shares

    def _shares_by_device(self) -> list[float]:
        return cast("list[float]", self._flags.tolist())

    def _shares_by_host(self) -> list[float]:
        mine = torch.tensor(self._raised, dtype=torch.uint8, device=HOST)
        shares: list[float] = self._comm.all_gather(mine).double().mean(0).tolist()
        return shares

    def _average_again(self, shares: list[float], empty: bool = False) -> None:
        """Average the buckets again that were incomplete on some rank when they were started there."""
        flags = shares[len(self._slots) + 2 + BITS : -1]  # empty where the flags were not read
        again = [bucket for bucket, share in zip(self._buckets, flags, strict=False) if share > 0]
        for bucket in again:
            bucket.start(self._comm, self._hook, weight=self._weight, empty=empty)
        for bucket in again:
            bucket.wait(self._comm, self._hook)

    def _divide_among_active(self, active: bool) -> None:
        if self.among_active:
            active_ranks = sum(self._comm.all_gather_object(active))
            for bucket in self._buckets:
                bucket.flat *= self._comm.world / active_ranks

    def _raise_fault(self, shares: list[float]) -> None:
        """Raise RuntimeError on all ranks if one of them has a fault."""
        if not shares or shares[len(self._slots) + 1] == 0:
            return
        fault, self._fault = self._fault, None
        raise RuntimeError(fault or "another process cannot train on its loss: see the error that it raises.")

    def _handle_missing(self, missing: list[GradientSlot], used: set[str], frozen_share: float) -> None:
        """Log once which parameters got no gradient, and stop watching those that all ranks have frozen."""
        if frozen_share > 1 - 0.5 / self._comm.world:
            self._watch()
            return
        unused = [slot.name for slot in missing if slot.name not in used and slot.param.requires_grad]
        if unused and not self._reported:
            self._reported = True
            names = ", ".join(unused[:5]) + (" ..." if len(unused) > 5 else "")
            title = self.watched.title
            logger.info("%s: no rank's loss depends on %s; they keep their values", title, names)

    # -- accumulation -----------------------------------------------------------------------------

    def require(self, averaging: bool) -> None:
        if averaging == self.averaging:
            return
        self.averaging = averaging
        if not averaging:
            self._stale_outside, self.stale = self.stale, False
            return
        model = self.replica
        # TorchScript takes no hooks, and so averages at once, which is right too. So do loose parameters.
        hooked = model is not None and not isinstance(model, torch.jit.ScriptModule)
        if model is not None and hooked and not self.stale and self._held is None:
            # There was no backward pass yet. A forward pass outside or a step ends the wait for one.
            self._held = model.register_forward_pre_hook(lambda *_: self.release())
        self.stale = self.stale or self._stale_outside

    def release(self) -> None:
        """Let backward passes average again although their loss may come from an earlier `no_sync`."""
        if self._held is not None:
            self._held.remove()
            self._held = None
