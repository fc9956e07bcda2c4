"""The look, in a training that no prepared loader feeds, whether all processes train on the same data."""

from __future__ import annotations

import random
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from crosstrain.comm.protocol import Comm
from crosstrain.data.first_items import Fingerprint
from crosstrain.step.prepared import PreparedObjects
from crosstrain.step.window import Gradients
from crosstrain.utils import checks
from crosstrain.utils.messages import warn
from crosstrain.utils.nested import leaves


class SameData:
    """Compares what the first optimizer's second step reads on all processes.

    From the first step on, each process draws its own random numbers, so that batches that are drawn at random differ then.
    Losses tell nothing: they differ by dropout alone. So the tensors are compared that reach a prepared model first, or the
    losses where no model is prepared. A network that reads the same in every step, such as a whole graph or the one picture
    of a GAN, is given the rows that the script draws afterwards, or reads more in the step that differs: where the losses
    differ then, one more step is looked at. Nothing is left in place after that.
    """

    def __init__(self, comm: Comm, prepared: PreparedObjects, gradients: Gradients) -> None:
        self._comm = comm
        self._prepared = prepared
        self._gradients = gradients
        self._hook: RemovableHandle | None = None
        self.forget()

    def forget(self) -> None:
        """Begin anew, with nothing compared."""
        self._remove_hook()
        self.looks = self._comm.world > 1  # whether the comparison is still to come
        self._first: int | None = None  # the id of the optimizer that stepped first
        self._fed = False
        self._read: str | None = None
        self._reader: Any = None  # the model that read it
        self._more = ""  # what it has read since, in the same step
        self._earlier: str | None = None  # what was read in the second step, where the third decides
        self._loss = ""
        self._drawn = ""
        self._place = checks.UNKNOWN

    def loss(self, loss: Tensor) -> None:
        """Called for each loss until the comparison."""
        self._fed = self._fed or self._gradients.active.current is not None
        self._loss = repr(loss.detach().double().sum().item())
        if not self._prepared.models:
            self._place, self._read = checks.here(), self._loss

    def before(self, optimizer: Optimizer) -> None:
        """Called before each step; collective before the second one of the optimizer that stepped first."""
        if not self.looks:
            return
        self._fed = self._fed or self._gradients.active.current is not None
        if self._fed or any(sync.may_differ for sync in self._prepared.syncs):
            self._end()  # within `join` a process may have made its last step
        elif self._first is None:
            self._first, self._read, self._more = id(optimizer), None, ""
            self._hook = register_module_forward_pre_hook(self._look)
        elif id(optimizer) == self._first:
            if self._compare():
                self._end()
        else:
            self._read, self._more = None, ""  # the next forward is that of another optimizer's step

    def after(self) -> None:
        """Called after each step, when each process draws its own numbers."""
        if self.looks and not self._drawn:
            self._drawn = _draws()

    def _look(self, module: Any, inputs: tuple[Any, ...]) -> None:
        """Note the tensors that reach a prepared model first since the last step."""
        if torch.compiler.is_compiling():
            return  # the compiled module is seen from outside; within it the look is no part of the graph
        if self._gradients.active.current is not None:
            self._fed = True
        if not torch.is_grad_enabled() or not leaves(list(inputs)):
            return
        if self._read is not None:
            self._more = Fingerprint(leaves(list(inputs))).content if module is self._reader else self._more
        elif any(module is model for model in self._prepared.models):
            self._read, self._place = Fingerprint(leaves(list(inputs))).content, checks.here()
            self._reader = module

    def _compare(self) -> bool:
        """Whether it is decided; all processes come to the same answer."""
        everybody = self._comm.all_gather_object(
            (self._read, self._more, self._drawn != _draws(), self._loss)
        )
        reads, more, drawn, losses = (set(one) for one in zip(*everybody, strict=True))
        alike = self._read is not None and len(reads) == 1
        if alike and (True in drawn or len(more) > 1) and len(losses) > 1:
            if self._earlier is None:
                self._earlier, self._read, self._more = self._read, None, ""
                return False
            alike = self._read != self._earlier
        if not alike:
            if self._place != checks.UNKNOWN:
                checks.held("loader", self._place)
            return True
        checks.doubt("loader", self._place)
        if self._comm.rank == 0:
            what = "batch that reaches the model" if self._prepared.models else "loss"
            warn(
                f"every process trains on the same data: {self._place}: the {what} is the same on all "
                f"{self._comm.world}, so that together they do the work of one, and it comes from nothing that "
                f"`prepare` returned. Use what it returns for the DataLoader, or for the iterable that gives the batches."
            )
        return True

    def _end(self) -> None:
        self.looks, self._reader = False, None
        self._remove_hook()

    def _remove_hook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None


def _draws() -> str:
    """Where the streams of random numbers stand from which a script draws its rows; torch's moves by dropout, too."""
    return repr((random.getstate(), numpy.random.get_state()))
