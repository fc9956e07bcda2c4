"""Records what the expressions of a script report: objects of the training, functions and classes, and tensors."""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.loss import _Loss
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset, Sampler

from crosstrain_verify.records.observations import Defined, Observations, Place, SeenObject, Values
from crosstrain_verify.tracing.observation.batches import ObservedBatches
from crosstrain_verify.tracing.observation.naming import own_class, own_function, public_name

ROLES: tuple[tuple[type, str], ...] = (
    (_Loss, "loss"),
    (Module, "module"),
    (Optimizer, "optimizer"),
    (LRScheduler, "scheduler"),
    (ReduceLROnPlateau, "scheduler"),
    (DataLoader, "loader"),
    (Sampler, "sampler"),
    (Dataset, "dataset"),
)
# Limits of what is recorded.
OFTEN = 60  # objects and functions that are looked at in one place; tensors are limited by batch
KINDS = 8  # different objects or functions in one place
OBJECTS = 5000
MADE = 5  # places that gave an object
TURNS = 2  # tensors in one place during one batch
LARGEST = 1 << 22  # entries of a tensor
Handler = Callable[[int, Any], None]


class ValueRecorder:
    """Gets each value of each place by `note`. Tensors are recorded only in the process that made this object."""

    def __init__(self, places: list[Place], batches: ObservedBatches, covers: Callable[[str], bool]) -> None:
        self._places = places
        self._batches = batches
        self._covers = covers
        self._process = os.getpid()
        self._objects: list[Any] = []  # kept alive, so that no other object gets the same address
        self._number: dict[int, int] = {}
        self._seen: list[SeenObject] = []
        self._times: dict[int, int] = {}
        self._objects_at: dict[int, dict[int, None]] = {}
        self._code: dict[int, dict[Defined, None]] = {}
        self._methods: dict[int, dict[tuple[Defined, int], None]] = {}
        self._ran: dict[int, None] = {}
        self._turns: dict[int, int] = {}
        self._values: list[Values] = []
        self._handlers: dict[type, Handler | None] = {}
        self._looking = False
        batches.given = self._turns.clear

    def note(self, place: int, value: Any) -> Any:
        """Record a value if it matters, and return it."""
        kind = type(value)
        try:
            handler = self._handlers[kind]
        except KeyError:
            handler = self._handlers[kind] = self._handler(kind)
        self._ran[place] = None
        if handler is not None and not self._looking:
            self._looking = True
            try:
                handler(place, value)
            finally:
                self._looking = False
        return value

    def _handler(self, kind: type) -> Handler | None:
        if issubclass(kind, Tensor):
            return self._tensor
        if kind in (types.FunctionType, types.BuiltinFunctionType):
            return self._function
        if kind is types.MethodType:
            return self._method
        if issubclass(kind, type):
            return self._class
        return self._object if any(issubclass(kind, one) for one, _ in ROLES) else None

    def _settled(self, place: int) -> bool:
        times = self._times[place] = self._times.get(place, 0) + 1
        return times > OFTEN

    # -- code ------------------------------------------------------------------------------------------------

    def _function(self, place: int, function: Any) -> None:
        if not self._settled(place):
            self._keep(place, own_function(function, self._covers) or public_name(function))

    def _class(self, place: int, cls: Any) -> None:
        if not self._settled(place):
            self._keep(place, own_class(cls, self._covers) or public_name(cls))

    def _keep(self, place: int, defined: Defined | None) -> None:
        found = self._code.setdefault(place, {})
        if defined is not None and len(found) < KINDS:
            found[defined] = None

    def _method(self, place: int, method: Any) -> None:
        if self._settled(place):
            return
        function = own_function(method.__func__, self._covers)
        owner = method.__self__
        if function is None or not any(isinstance(owner, one) for one, _ in ROLES):
            return
        found = self._methods.setdefault(place, {})
        if len(found) < KINDS:
            found[function, self._numbered(owner)] = None

    # -- objects ---------------------------------------------------------------------------------------------

    def _object(self, place: int, value: Any) -> None:
        if self._settled(place) or len(self._objects) > OBJECTS:
            return
        number = self._numbered(value)
        made = self._seen[number].made
        if len(made) < MADE and place not in made and not self._places[place].parameter:
            made.append(place)
        stood = self._objects_at.setdefault(place, {})
        if len(stood) < KINDS:
            stood[number] = None

    def _numbered(self, value: Any) -> int:
        number = self._number.get(id(value))
        if number is None:
            number = self._number[id(value)] = len(self._objects)
            self._objects.append(value)
            role = next((role for one, role in ROLES if isinstance(value, one)), "")
            kind = own_class(type(value), self._covers) or public_name(type(value))
            self._seen.append(
                SeenObject(role, kind or Defined(f"{type(value).__module__}.{type(value).__qualname__}"))
            )
        return number

    # -- tensors ---------------------------------------------------------------------------------------------

    def _tensor(self, place: int, value: Tensor) -> None:
        batches = self._batches
        if not batches.rows or batches.reading or os.getpid() != self._process:
            return
        turn = self._turns.get(place, 0)
        if turn >= TURNS or not _readable(value):
            return
        self._turns[place] = turn + 1
        numbers = entries(value, batches.rows)
        loader = self._numbered(batches.loader)
        self._values.append(
            Values(place, (batches.turn, turn), loader, batches.rows, tuple(value.shape), numbers)
        )

    # -- the end ---------------------------------------------------------------------------------------------

    def observations(self) -> Observations:
        """Everything that was recorded so far."""
        self._tell_owners()
        return Observations(
            places=self._places,
            objects=self._seen,
            objects_at={place: list(found) for place, found in self._objects_at.items()},
            code={place: list(found) for place, found in self._code.items()},
            methods={place: list(found) for place, found in self._methods.items()},
            ran=list(self._ran),
            values=self._values,
        )

    def _tell_owners(self) -> None:
        """Fill in which modules have each optimizer's parameters, and the facts about losses and loaders."""
        modules = [(n, one) for n, one in enumerate(self._objects) if isinstance(one, Module)]
        inner = {id(part) for _, one in modules for part in one.modules() if part is not one}
        for number, one in modules:
            if id(one) in inner:
                self._seen[number].about = {"part": True}
        owned = [(n, {id(p) for p in one.parameters()}) for n, one in modules if id(one) not in inner]
        for number, one in enumerate(self._objects):
            if isinstance(one, Optimizer):
                mine = {id(p) for group in one.param_groups for p in group["params"]}
                self._seen[number].of = [n for n, theirs in owned if mine & theirs]
                loose = len(mine.difference(*(theirs for _, theirs in owned)))
                self._seen[number].about = {"loose": loose} if loose else {}
            elif isinstance(one, _Loss):
                self._seen[number].about |= _about_loss(one)
            elif isinstance(one, DataLoader):
                self._seen[number].about = _about_loader(one)


def _about_loader(loader: DataLoader[Any]) -> dict[str, Any]:
    return {
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "dataset": type(loader.dataset).__name__,
        "sampler": type(getattr(loader, "sampler", None)).__name__,
    }


def _about_loss(loss: Any) -> dict[str, Any]:
    """The reduction of a loss module, and "weighs" if some rows, classes or pixels count more than others."""
    weights = any(getattr(loss, name, None) is not None for name in ("weight", "pos_weight"))
    weighs = weights or getattr(loss, "ignore_index", -100) != -100
    return {"reduction": loss.reduction, **({"weighs": True} if weighs else {})}


def _readable(value: Tensor) -> bool:
    """Whether a tensor has plain numbers: it is dense, not too large, and no functorch wrapper."""
    return (
        value.layout is torch.strided
        and value.device.type != "meta"
        and value.numel() <= LARGEST
        and not value.is_complex()
        and not value.is_quantized
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)
    )


def entries(value: Tensor, rows: int) -> NDArray[np.float64]:
    """A sum for each entry of the first dimension, weighted by position: float64 of (entries,).

    Empty if ``rows`` does not divide the size of the dimension; a tensor without dimensions gives one number.
    """
    if value.dim() and (value.shape[0] == 0 or value.shape[0] % rows):
        return np.zeros(0)
    with torch.no_grad(), torch.autocast(value.device.type, enabled=False):
        flat = value.detach().reshape(value.shape[0] if value.dim() else 1, -1)
        numbers: NDArray[np.float64] = flat.double().cpu().numpy()
    weights = np.cos(np.arange(numbers.shape[1]) * 0.7) + 1.5
    return np.asarray(numbers @ weights)
