"""Moves a module to the device so that its parameters stay the same objects.

A CPU tensor's data cannot be replaced by a torch_xla tensor, so a plain ``module.to(device)`` makes new parameters: weight
ties are lost, and an optimizer that was built before silently keeps the old parameters. Swapping keeps the objects. torch
refuses it if something holds a parameter, such as the graph of an earlier output; then the ties are restored, and `Moved` tells
optimizers which parameter replaced which.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Place = tuple[dict[str, Any], str]
Some = TypeVar("Some")


class Moved:
    """Which tensors replaced which, if swapping was refused."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}

    def note(self, old: Tensor, new: Tensor) -> None:
        if old is not new:
            self._by_id[id(old)] = (weakref.ref(old), new)

    def successor(self, tensor: Tensor) -> Tensor:
        known = self._by_id.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else tensor

    def remap(self, optimizer: torch.optim.Optimizer) -> None:
        """Replace an optimizer's parameters by their successors, and move their state."""
        for group in optimizer.param_groups:
            group["params"] = [self.successor(param) for param in group["params"]]
        for param in list(optimizer.state):
            if (new := self.successor(param)) is not param:
                optimizer.state[new] = optimizer.state.pop(param)


MOVED = Moved()  # of the process


def move(
    model: nn.Module, device: torch.device, dtypes: dict[torch.dtype, torch.dtype], moved: Moved
) -> None:
    """Move parameters and buffers to the device; weight ties and gradients stay.

    dtypes: the dtypes to convert, and what to convert them to. moved: records the tensors that were replaced. Raises
    RuntimeError if the number of distinct parameters changes.
    """
    before = len(set(map(id, model.parameters())))
    keeping_ties(model, lambda: _convert(model, device, dtypes), moved)
    after = len(set(map(id, model.parameters())))
    if after != before:
        raise RuntimeError(
            f"{type(model).__name__} had {before} distinct parameters and has {after} on {device}: its weight "
            f"ties did not survive the move. Tie them again after `prepare`."
        )


def keeping_ties(model: nn.Module, change: Callable[[], Some], moved: Moved) -> Some:
    """What ``change`` returns, which moves the model: its parameters stay the same objects; where torch refuses that, they stay
    tied to each other, and ``moved`` records which replaced which."""
    places = _places(model)
    ties, old = _ties(places), [table[name] for table, name in places]
    try:
        with _swapping(True):
            changed = change()
    except RuntimeError as error:
        if "swap" not in str(error):
            raise
        with _swapping(False):
            changed = change()
    for (first, name), *rest in ties:
        for table, other in rest:
            table[other] = first[name]
    for tensor, (table, name) in zip(old, places, strict=True):
        new = table[name]
        if tensor is not None and new is not None:
            moved.note(tensor, new)
    return changed


def _convert(model: nn.Module, device: torch.device, dtypes: dict[torch.dtype, torch.dtype]) -> None:
    model.to(device)
    if dtypes:
        change: Any = model._apply  # untyped in torch
        change(lambda tensor: tensor.to(dtypes.get(tensor.dtype, tensor.dtype)))


@contextmanager
def _swapping(wanted: bool) -> Iterator[None]:
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(wanted)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def _places(model: nn.Module) -> list[Place]:
    return [
        (table, name)
        for module in model.modules()
        for table in (module._parameters, module._buffers)
        for name, tensor in table.items()
        if tensor is not None
    ]


def _ties(places: list[Place]) -> list[list[Place]]:
    """Groups of places that hold the same tensor. This must be asked before the move, which separates them."""
    groups: dict[int, list[Place]] = {}
    for table, name in places:
        groups.setdefault(id(table[name]), []).append((table, name))
    return [group for group in groups.values() if len(group) > 1]
