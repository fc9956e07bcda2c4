"""Finds tensors that are reduced twice: the results of `reduce` and of gathering already contain all processes' values.

These tensors are remembered as long as they live. The script's own collectives are checked where torch passes them to the
process group, because a function that the script imported from `torch.distributed` cannot be replaced. Only the same,
unchanged tensor is found: not a copy, not a value computed from it, and neither a complex tensor nor one in a collective of
``torch.distributed.nn.functional``, for which torch makes another tensor.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from crosstrain.utils import checks

KIND = "reduced"
_SUMMING = {  # methods of a process group, and the position of the argument that they sum
    "allreduce": 0,
    "allreduce_coalesced": 0,
    "reduce": 0,
    "reduce_scatter": 1,
    "reduce_scatter_single": 1,
    "_reduce_scatter_base": 1,  # its name up to torch 2.12
}


class Origin(NamedTuple):
    """Where a tensor comes from that already contains the values of all processes."""

    version: int
    function: str
    place: checks.Place


_known: Any = WeakIdKeyDictionary()  # the origins of tensors


def remember(tensors: Iterable[Tensor], function: str) -> None:
    """Remember tensors that the accelerator's method ``function`` returns, with several processes."""
    _watch_collectives()
    place = checks.here()
    for tensor in tensors:
        _known[tensor] = Origin(_version(tensor), function, place)


def problem(tensors: Iterable[Tensor], operation: str, of: str = "") -> str | None:
    """The error message for passing one of these tensors to ``operation``; None if none of them is remembered.

    of: only results of functions whose names begin with this count.
    """
    for tensor in tensors:
        origin = _known.get(tensor)
        if origin is not None and origin.function.startswith(of) and origin.version == _version(tensor):
            return (
                f"{checks.here()}: {operation} gets the tensor that accelerator.{origin.function}() returned at "
                f"{origin.place}. It already contains the values of all processes, and would be counted once for each "
                f"of them. Use it as it is, or give {operation} a value of this process alone."
            )
    return None


def _version(tensor: Tensor) -> int:
    """A number that grows with every change in place; -1 for tensors of inference mode, which have none."""
    return -1 if tensor.is_inference() else tensor._version


@cache
def _watch_collectives() -> None:
    for name, at in _SUMMING.items():
        plain = getattr(dist.ProcessGroup, name, None)
        if plain is not None:
            setattr(dist.ProcessGroup, name, _watched(plain, name, at))


def _watched(plain: Callable[..., Any], name: str, at: int) -> Callable[..., Any]:
    @wraps(plain)
    def collective(group: Any, *args: Any, **kwargs: Any) -> Any:
        if (_known or checks.JOURNAL in os.environ) and len(args) > at and _is_sum(args[-1]):
            _look(group, args[at], name)
        return plain(group, *args, **kwargs)

    return collective


def _is_sum(options: Any) -> bool:
    op = getattr(options, "reduceOp", None)
    # Not `in`: a ReduceOp compares with its kinds only from the left side.
    return bool(op == dist.ReduceOp.SUM or op == dist.ReduceOp.AVG)


def _look(group: Any, given: Any, name: str) -> None:
    tensors = list(_flat(given))
    said = problem(tensors, f"{name.strip('_')} of torch.distributed")
    if said is None and checks.JOURNAL not in os.environ:
        return
    if group.size() == 1 or not _by_the_script():
        return
    if said is not None:
        checks.failed(KIND, said)
        raise RuntimeError(said)
    checks.held(KIND)


def _flat(given: Any) -> Iterable[Tensor]:
    if isinstance(given, Tensor):
        yield given
    else:
        for part in given:
            yield from _flat(part)


def _by_the_script() -> bool:
    """Whether the script calls the collective, and not this package."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("torch.", __name__)):
        frame = frame.f_back
    return frame is None or not frame.f_globals.get("__name__", "").startswith(f"{__package__}.")
