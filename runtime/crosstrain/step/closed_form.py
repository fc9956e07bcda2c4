"""Schedulers whose rate is a function of the step's number alone, so that several steps can be made at once.

With 256 replicas an optimizer step is 256 scheduler steps, and all but the last rate are overwritten before use. Other
schedulers compute the next rate from the last one, or keep counters; they are stepped one by one.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from torch.optim.lr_scheduler import CyclicLR, LambdaLR, LRScheduler, OneCycleLR

from crosstrain.step.dynamic_subclass import original_class

# Methods of LRScheduler and of these classes that must not be overridden.
_METHODS = ("step", "get_lr", "_update_lr", "scale_fn", "_anneal_func", "__setattr__")
_STORES = ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "STORE_ATTR", "STORE_SUBSCR", "YIELD_VALUE")
_CHANGING = frozenset(
    [
        "next",
        "send",
        "pop",
        "popleft",
        "popitem",
        "append",
        "appendleft",
        "extend",
        "insert",
        "add",
        "remove",
        "discard",
        "update",
        "setdefault",
        "setattr",
        "write",
        "print",
        "random",
        "rand",
        "randn",
        "randint",
        "uniform",
        "normal",
        "gauss",
        "choice",
        "sample",
        "time",
        "perf_counter",
        "monotonic",
        "step",
    ]
)


def advance(scheduler: LRScheduler, steps: int) -> int:
    """Count all but the last of ``steps`` steps without making them; returns how many were counted.

    That is 0 where each step has to be made. The caller adds the number to `_step_count` after the last step.
    """
    if steps < 2 or not _is_closed_form(scheduler):
        return 0
    scheduler.last_epoch += steps - 1
    return steps - 1


def _is_closed_form(scheduler: LRScheduler) -> bool:
    cls = original_class(scheduler)
    base = next((base for base in (LambdaLR, OneCycleLR, CyclicLR) if issubclass(cls, base)), None)
    if base is None:
        return False
    if any(getattr(cls, name, None) is not getattr(base, name, None) for name in _METHODS):
        return False
    if any(name in vars(scheduler) for name in ("step", "get_lr", "_update_lr", "scale_fn")):
        return False
    return all(map(_is_pure, _functions(scheduler)))


def _functions(scheduler: Any) -> list[Any]:
    """The script's own functions from which the scheduler computes a rate."""
    if isinstance(scheduler, LambdaLR):
        return list(scheduler.lr_lambdas)
    custom = getattr(scheduler, "_scale_fn_custom", None)
    return [] if custom is None else [custom]


@lru_cache(maxsize=128)
def _is_pure(function: Callable[..., Any]) -> bool:
    """Whether the function's code shows that a call has no side effects.

    That cannot be seen of a callable object, which may hold state.
    """
    return _leaves_nothing(function, set())


def _leaves_nothing(function: Any, seen: set[int]) -> bool:
    while isinstance(function, partial):
        function = function.func
    if not isinstance(function, types.FunctionType):
        return isinstance(function, types.BuiltinFunctionType) and isinstance(
            function.__self__, types.ModuleType
        )
    if id(function) in seen:
        return True
    seen.add(id(function))
    code = function.__code__
    if not _CHANGING.isdisjoint(code.co_names):
        return False
    if any(one.opname in _STORES for one in dis.get_instructions(code)):
        return False
    if any(isinstance(constant, types.CodeType) and _stores(constant) for constant in code.co_consts):
        return False
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    used = [function.__globals__[name] for name in code.co_names if name in function.__globals__]
    return all(
        _leaves_nothing(one, seen)
        for one in (*cells, *used)
        if isinstance(one, (types.FunctionType, partial))
    )


def _stores(code: types.CodeType) -> bool:
    """Whether a lambda or comprehension inside the function has side effects."""
    return not _CHANGING.isdisjoint(code.co_names) or any(
        one.opname in _STORES[:-1] for one in dis.get_instructions(code)
    )


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - a variable that has no value yet
    except ValueError:
        return False
    return True
