"""Schedulers whose rate is a function of the step's number alone, so that several steps can be made at once.

With 256 replicas an optimizer step is 256 scheduler steps, and all but the last rate are overwritten before use. Other
schedulers compute the next rate from the last one, or keep counters; they are stepped one by one.
"""

from __future__ import annotations

import dis
import inspect
import math
import types
from functools import lru_cache, partial
from typing import Any

from torch.optim.lr_scheduler import CyclicLR, LambdaLR, LRScheduler, OneCycleLR

from crosstrain.step.dynamic_subclass import original_class

# Methods of LRScheduler and of these classes that must not be overridden.
_METHODS = ("step", "get_lr", "_update_lr", "scale_fn", "_anneal_func", "__setattr__")
_STORES = {"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "STORE_ATTR", "STORE_SUBSCR", "YIELD_VALUE"}
_KNOWN = {"abs", "float", "int", "len", "max", "min", "pow", "round", "sum", "math", *dir(math)}
_DEPTH = 3  # functions that call each other


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


def _is_pure(value: Any, depth: int = _DEPTH) -> bool:
    return depth > 0 and isinstance(value, (types.FunctionType, partial)) and _only_computes(value, depth)


@lru_cache(maxsize=128)
def _only_computes(function: Any, depth: int) -> bool:
    """Whether the function's code shows that it computes from numbers alone, so that a call has no side effects.

    It stores nothing, and what it names are numbers, functions of `math` and other functions of this kind.
    """
    while isinstance(function, partial):
        function = function.func
    if not isinstance(function, types.FunctionType):
        return False
    code = function.__code__
    inner = any(isinstance(constant, types.CodeType) for constant in code.co_consts)
    if inner or any(one.opname in _STORES for one in dis.get_instructions(code)):
        return False
    try:
        used = inspect.getclosurevars(function)
    except ValueError:  # a variable that has no value yet
        return False
    named = {**used.nonlocals, **used.globals}
    if not set(code.co_names) - named.keys() <= _KNOWN or not set(code.co_freevars) <= named.keys():
        return False
    return all(value is math or _is_number(value) or _is_pure(value, depth - 1) for value in named.values())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, str)) or (type(value) is tuple and all(map(_is_number, value)))
