"""What `reduce` and the gathers return is global already: summing or averaging it again counts every process twice.

The tensors are remembered as long as they live. The script's own collectives are looked at where torch hands them
to the process group, because a function that was imported from `torch.distributed` cannot be replaced. Only the
very tensor counts, unchanged: not a copy, not what is computed from it, and not the inside of
``torch.distributed.nn.functional`` or of a complex tensor, for which torch makes another tensor.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor

from crosstrain.utils import checks

KIND = "reduced"
_SUMMING = {  # methods of a process group, and which of their arguments they sum
    "allreduce": 0,
    "allreduce_coalesced": 0,
    "reduce": 0,
    "reduce_scatter": 1,
    "reduce_scatter_single": 1,
    "_reduce_scatter_base": 1,  # its name up to torch 2.12
}


class _Reference(weakref.ref[Tensor]):
    """One that knows under which key it is kept, so that nothing else has to be made for each tensor."""

    __slots__ = ("key",)
    key: int


class Origin(NamedTuple):
    """Where a tensor comes from that is the same on every process."""

    tensor: _Reference
    version: int
    function: str
    place: checks.Place


_known: dict[int, Origin] = {}


def remember(tensors: Iterable[Tensor], function: str) -> None:
    """These are what ``function`` of the accelerator returns, with several processes."""
    _watch_collectives()
    place = checks.here()
    for tensor in tensors:
        reference = _Reference(tensor, _forget)
        reference.key = key = id(tensor)
        _known[key] = Origin(reference, _version(tensor), function, place)


def _forget(reference: weakref.ref[Tensor]) -> None:
    assert isinstance(reference, _Reference)
    _known.pop(reference.key, None)


def problem(tensors: Iterable[Tensor], operation: str, of: str = "") -> str | None:
    """What the user is told about handing the first of these that is known to ``operation``; None: none is.

    of: how the names of the functions begin whose results matter.
    """
    for tensor in tensors:
        origin = _known.get(id(tensor))
        if origin is None or not origin.function.startswith(of):
            continue
        if origin.tensor() is tensor and origin.version == _version(tensor):
            return (
                f"{checks.here()}: {operation} gets the tensor that accelerator.{origin.function}() returned at "
                f"{origin.place}. It is made of the values of all processes already, and would be counted once for "
                f"each of them. Use it as it is, or give {operation} a value of this process alone."
            )
    return None


def _version(tensor: Tensor) -> int:
    """Grows with every change in place; tensors of inference mode do not count."""
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
    return bool(
        op == dist.ReduceOp.SUM or op == dist.ReduceOp.AVG
    )  # no `in`: only the left side knows the right


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
