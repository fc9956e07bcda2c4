"""Values on an XLA device, which are read after the run: reading them in the training loop would cause more compilations.

They are computed with the step they belong to, as further results of its graph, so a traced run compiles as often as an
untraced one. The compilations are counted before anything is read.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from crosstrain_verify.records.traces import Event, XlaCounts


class DeferredValues:
    """The losses and norms of events whose values have not been read yet. Events are given by their numbers."""

    def __init__(self) -> None:
        self._losses: dict[int, list[Tensor]] = {}
        self._steps: dict[int, tuple[Sequence[Tensor], Tensor, Tensor]] = {}
        # The graphs compiled until a batch was handed out (False) or until an optimizer was about to step (True).
        self._marks: list[tuple[bool, int]] = []

    def loss(self, event: int, sums: list[Tensor]) -> None:
        """The loss of an event is the sum of these tensors."""
        self._losses[event] = sums

    def batch(self) -> None:
        """Called when a batch was handed out."""
        if "torch_xla" in sys.modules:
            self._marks.append((False, _compiled()))

    def step(self, event: int, parameters: Sequence[Tensor]) -> None:
        """Compute the norms of gradients and weights before an optimizer's step."""
        self._marks.append((True, _compiled()))
        grads = torch.stack([square_norm(parameter.grad, like=parameter) for parameter in parameters])
        sizes = torch.stack([square_norm(parameter) for parameter in parameters])
        self._steps[event] = parameters, grads, sizes

    def counts(self) -> XlaCounts | None:
        """What XLA has compiled and read so far; None if no step was made on an XLA device."""
        if not self._steps:
            return None
        from crosstrain.comm.xla.watch import CompilationWatch

        report = CompilationWatch().report()
        steps, between = attributed([*self._marks, (False, report.compiled)])
        return XlaCounts(steps, between, report.reads, report.fallbacks)

    def fill(self, events: list[Event]) -> Iterator[tuple[Sequence[Tensor], list[float]]]:
        """Put the values into the events. Yields each step's parameters and the squared norms of their gradients."""
        for event, sums in self._losses.items():
            total = math.fsum(float(value.cpu()) for value in sums)
            events[event] = replace(events[event], values=(total,))
        for event, (parameters, grads, sizes) in self._steps.items():
            squares, rates = grads.cpu().tolist(), events[event].values[2:]
            norms = math.sqrt(math.fsum(squares)), math.sqrt(math.fsum(sizes.cpu().tolist()))
            events[event] = replace(events[event], values=(*norms, *rates))
            yield parameters, squares
        self._losses.clear()
        self._steps.clear()


def attributed(marks: Sequence[tuple[bool, int]]) -> tuple[tuple[int, ...], int]:
    """How many graphs were compiled in each step, and how many outside of steps.

    A step includes what is compiled between its batch and the next one. Batches without a step belong to an evaluation,
    or are accumulated.

    Args:
        marks: in order, (whether a step follows, graphs compiled until then).
    """
    steps: list[int] = []
    between = 0
    for (stepping, start), (stepped, end) in pairwise(marks):
        if stepped and not stepping:
            steps.append(end - start)
        elif stepping:
            steps += [] if steps else [0]
            steps[-1] += end - start
            steps += [0] if stepped else []
        else:
            between += end - start
    return tuple(steps), between


def on_xla(tensors: Sequence[Tensor]) -> bool:
    """Whether any of them is on an XLA device."""
    return any(tensor.device.type == "xla" for tensor in tensors)


def square_norm(tensor: Tensor | None, like: Tensor | None = None) -> Tensor:
    """The sum of squares as a 0-d float64 tensor; None (no gradient) gives zero, on the device of ``like``."""
    if tensor is None:
        return torch.zeros((), dtype=torch.float64, device=None if like is None else like.device)
    values = tensor.detach()
    if values.is_sparse:
        values = values.coalesce().values()
    return values.abs().double().square().sum()


def _compiled() -> int:
    from crosstrain.comm.xla.watch import count

    return count("UncachedCompile")
