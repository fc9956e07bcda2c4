"""Frees memory, and finds the batch size that fits."""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from crosstrain.comm.devices import empty_device_cache

R = TypeVar("R")
_OUT_OF_MEMORY = ("out of memory", "cudnn_status_not_supported", "can't allocate memory", "cannot allocate")


def clear_device_cache(garbage_collection: bool = False) -> None:
    """Return cached memory to the device; ``garbage_collection`` frees Python's unreachable objects first."""
    if garbage_collection:
        gc.collect()
    empty_device_cache()


def release_memory(*objects: Any) -> list[None]:
    """Free memory, and return None for each object, to drop the references to them: ``a, b = release_memory(a, b)``."""
    clear_device_cache(garbage_collection=True)
    return [None] * len(objects)


def should_reduce_batch_size(exception: BaseException) -> bool:
    """Whether the error says that memory ran out, on a device or on the host."""
    if isinstance(exception, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(exception, RuntimeError) and any(
        word in str(exception).lower() for word in _OUT_OF_MEMORY
    )


def find_executable_batch_size(
    function: Callable[..., R] | None = None,
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[[int], int] | None = None,
) -> Callable[..., Any]:
    """Decorator: call ``function(batch_size, ...)`` with smaller and smaller batch sizes until the memory suffices.

    The batch size is the function's first parameter, and the caller does not pass it. It shrinks by a tenth each time, or to
    ``reduce_batch_size_fn(size)``, which may also be a function without parameters.

    Raises RuntimeError when the size reaches 0, and TypeError if the caller passes too many arguments. Errors that are not
    about memory pass through.
    """
    if function is None:
        return functools.partial(
            find_executable_batch_size,
            starting_batch_size=starting_batch_size,
            reduce_batch_size_fn=reduce_batch_size_fn,
        )

    @functools.wraps(function)
    def with_smaller_batches(*args: Any, **kwargs: Any) -> R:
        _check_call(function, args)
        size = starting_batch_size
        clear_device_cache(garbage_collection=True)
        while size > 0:
            try:
                return function(size, *args, **kwargs)
            except Exception as error:
                if not should_reduce_batch_size(error):
                    raise
            clear_device_cache(garbage_collection=True)
            size = _smaller(size, reduce_batch_size_fn)
        raise RuntimeError(f"{function.__name__} found no batch size that fits: it went down to 0")

    return with_smaller_batches


def _smaller(size: int, shrink: Callable[..., int] | None) -> int:
    if shrink is None:
        return int(size * 0.9)
    return shrink(size) if inspect.signature(shrink).parameters else shrink()


def _check_call(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    parameters = list(inspect.signature(function).parameters)
    takes_any = any(
        p.kind is inspect.Parameter.VAR_POSITIONAL for p in inspect.signature(function).parameters.values()
    )
    if not takes_any and len(parameters) < len(args) + 1:
        given = ", ".join(parameters[1:])
        raise TypeError(
            f"{function.__name__} gets its first parameter (the batch size) from find_executable_batch_size; "
            f"call it as {function.__name__}({given})"
        )
