"""The members of DistributedDataParallel on a prepared model, so that a script's uses of them stay as they are.

They are members of the generated subclass (see `dynamic_subclass`), so that nothing of them is in the model's state,
modules or pickle. A member that the model has itself is kept.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import CodeType
from typing import Any

import torch
from torch import nn

from crosstrain.step.dynamic_subclass import adopt, restore
from crosstrain.step.gradients import GradientSync
from crosstrain.step.model_sync import ModelSync

NAMES = ("module", "no_sync", "require_backward_grad_sync", "join", "register_comm_hook", "static_graph")
_PRIVATE = ("_set_static_graph",)
_READS = {dis.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD") if name in dis.opmap}

Join = Callable[..., AbstractContextManager[None]]


class _Attribute:
    """An attribute that a function gets and another one sets. TorchScript would compile a property."""

    def __init__(self, get: Callable[[], Any], set_to: Callable[[Any], None]) -> None:
        self._get = get
        self._set = set_to

    def __get__(self, obj: Any, kind: Any = None) -> Any:
        return self if obj is None else self._get()

    def __set__(self, obj: Any, value: Any) -> None:
        self._set(value)


class _Itself:
    """``model.module``, which is the model itself.

    Some libraries unwrap a model for as long as it has such an attribute (``unwrap_model`` of timm and transformers),
    and would never end. Code that asks with `hasattr`, reads the attribute and asks again is told that there is none.
    """

    def __init__(self) -> None:
        self._asked: CodeType | None = None  # the code that has asked last
        self._unwrapped: CodeType | None = None  # the code that has asked and then read it

    def __get__(self, obj: Any, kind: Any = None) -> Any:
        if obj is None:
            return self
        if (own := vars(obj).get("_modules", {}).get("module")) is not None:
            return own
        frame = sys._getframe(1)
        code = frame.f_code
        if code.co_code[frame.f_lasti] in _READS:
            self._unwrapped, self._asked = (code if self._asked is code else None), None
        elif self._unwrapped is code:
            self._unwrapped = None
            raise AttributeError(f"'{type(obj).__name__}' object has no attribute 'module'")
        else:
            self._asked = code
        return obj


def offer(model: nn.Module, sync: ModelSync | None, join: Join | None, static_graph: bool = False) -> None:
    """Give the model those members that it does not have.

    ``sync``: its `ModelSync`; None with one process. ``join``: a context for uneven inputs, with the arguments of
    DistributedDataParallel's; None where there is nothing to join.
    """
    switch = ModelSync() if sync is None else sync
    told = {"static_graph": static_graph}

    def register_comm_hook(_: Any, state: Any, hook: Callable[..., Any]) -> None:
        if isinstance(sync, GradientSync):
            sync.register_hook(hook, state)

    members: dict[str, Any] = {
        "module": _Itself(),
        "no_sync": lambda _: nullcontext() if sync is None else sync.no_sync(),
        "require_backward_grad_sync": _Attribute(
            lambda: switch.averaging, lambda value: switch.require(bool(value))
        ),
        "join": lambda _, *args, **kwargs: nullcontext() if join is None else join(*args, **kwargs),
        "register_comm_hook": register_comm_hook,
        "static_graph": _Attribute(
            lambda: told["static_graph"], lambda value: told.update(static_graph=bool(value))
        ),
        "_set_static_graph": lambda _: told.update(static_graph=True),
    }
    if isinstance(model, torch.jit.ScriptModule):  # its attributes are looked up in another way
        members = {"no_sync": members["no_sync"]}
    adopt(model, {name: member for name, member in members.items() if not hasattr(model, name)})


def withdraw(model: nn.Module) -> None:
    """Undo `offer`."""
    restore(model, *NAMES, *_PRIVATE)
