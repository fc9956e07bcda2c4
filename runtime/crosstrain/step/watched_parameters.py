"""The parameters whose gradients one `GradientSync` averages: those of a model, and loose ones."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from crosstrain.comm.collectives import broadcast_tensors
from crosstrain.comm.protocol import Comm
from crosstrain.step.buckets import GradientSlot, SparseBucket, sparse_parameters
from crosstrain.step.starting_values import check_alike
from crosstrain.utils.messages import say


class WatchedParameters:
    """A model's parameters, and loose ones, which belong to no prepared model.

    loose: the loose ones, by name. frozen: those that take no gradients, or had no values yet (of a lazy layer), when
    `slots` was called last.
    """

    def __init__(self, model: nn.Module | None, comm: Comm) -> None:
        # weak: the registry that maps models to their averaging must not keep them alive
        self._model = None if model is None else weakref.ref(model)
        self._comm = comm
        self.loose: dict[str, nn.Parameter] = {}
        self.frozen: list[nn.Parameter] = []
        self._lazy: set[int] = set()  # ids of those in `frozen` that had no values
        self._sparse: set[str] = set()  # names of loose parameters whose gradients are sparse

    @property
    def model(self) -> nn.Module | None:
        """The model; None where there are loose parameters only."""
        if self._model is None:
            return None
        model = self._model()
        assert model is not None, "gradients arrived for a model that no longer exists"
        return model

    @property
    def title(self) -> str:
        """What the parameters are called in messages."""
        model = self.model
        return "the optimizer" if model is None else type(model).__name__

    def named(self) -> dict[str, nn.Parameter]:
        """The model's parameters and the loose ones, by name."""
        model = self.model
        return (dict(model.named_parameters()) if model is not None else {}) | self.loose

    def buffers(self) -> list[Tensor]:
        """The model's buffers that have values."""
        model = self.model
        return [] if model is None else [buffer for buffer in model.buffers() if not is_lazy(buffer)]

    def slots(self) -> list[GradientSlot]:
        """A slot for each parameter that is trainable now (collective).

        Raises RuntimeError where the ranks' parameters differ in name, shape, dtype or requires_grad.
        """
        named = self.named()
        self.frozen = [param for param in named.values() if not _is_trainable(param)]
        slots = [GradientSlot(*pair) for pair in reversed(named.items()) if _is_trainable(pair[1])]
        kind = "optimizer" if self.model is None else "model"
        check_alike(self.title, {slot.name: slot.param for slot in slots}, self._comm, kind)
        self._start_born(slots)
        return slots

    def _start_born(self, slots: Sequence[GradientSlot]) -> None:
        """Copy rank 0's values of the parameters of lazy layers that have got some (collective)."""
        born = [slot for slot in slots if id(slot.param) in self._lazy]
        broadcast_tensors([slot.param.detach() for slot in born], self._comm)
        self._lazy = {id(param) for param in self.frozen if is_lazy(param)}
        if born and self._comm.rank == 0:
            names = ", ".join(slot.name for slot in reversed(born[-5:])) + (" ..." if len(born) > 5 else "")
            say(
                f"{self.title}: {names} got their first values in a forward pass; all processes take rank 0's"
            )

    def thawed(self) -> bool:
        """Whether a parameter that was frozen or had no values is trainable now."""
        return any(_is_trainable(param) for param in self.frozen)

    def give_away(self, params: Iterable[nn.Parameter]) -> set[str]:
        """Forget those loose parameters that are among these, and return their names."""
        gone = {id(param) for param in params}
        given = {name for name, param in self.loose.items() if id(param) in gone}
        self.loose = {name: param for name, param in self.loose.items() if name not in given}
        self._sparse -= given
        return given

    def sparse(self) -> set[int]:
        """ids of the parameters whose gradients are, or will be, sparse."""
        known = {id(self.loose[name]) for name in self._sparse}
        return known if self.model is None else known | sparse_parameters(self.model)

    def misplaced(self, slots: Iterable[GradientSlot]) -> bool:
        """Whether some rank has a gradient that does not fit its bucket, because it is sparse or has moved (collective).

        No module tells whether the gradient of a loose parameter is going to be sparse, or where it will be.
        """
        sparse, moved = set[str](), False
        for slot in slots:
            if isinstance(slot.bucket, SparseBucket):
                continue
            if slot.name in self.loose and slot.param.grad is not None and slot.param.grad.is_sparse:
                sparse.add(slot.name)
            flat = slot.bucket.flat
            moved = moved or (flat.device, flat.dtype) != (slot.param.device, slot.param.dtype)
        said = self._comm.all_gather_object((sparse, moved))
        found = set[str]().union(*(names for names, _ in said))
        self._sparse |= found
        return bool(found) or any(has_moved for _, has_moved in said)


def _is_trainable(param: nn.Parameter) -> bool:
    return param.requires_grad and not is_lazy(param)
