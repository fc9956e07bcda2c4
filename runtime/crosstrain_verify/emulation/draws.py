"""The original, as several processes would run it: random draws and batch statistics taken per share of a batch.

Processes that share a batch start with the same random state, and each draws a dropout mask, or noise, for
its own rows. One process draws for all rows at once: other numbers, and no mistake. So the original is run a
second time in which every draw with a row per sample is made share by share, each from the state that its
process would have, and batch normalisation normalises share by share. What several processes compute must be
equal to that, to rounding. Nothing here knows anything of how the runtime does it.

Uneven shares make the processes' states drift apart, so one state is kept for each.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Where an order is drawn, and where iter() draws the seed of a loader's workers.
SAMPLERS, LOADERS = "torch/utils/data/sampler.py", "torch/utils/data/dataloader.py"
NEAR = 12  # frames between a draw and what asked for it


class SharedDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, draws that have a row per sample of the batch in hand are made for `world` shares.

    backward: whether a backward pass goes on. What draws there (`torch.utils.checkpoint`) has put back the first
    process's state only; `redrew` tells that it happened.

    rows: of the batch in hand; None: all processes draw the same things. opening: whether a loader that the processes share is about to draw its order.
    """

    def __init__(
        self,
        world: int,
        rows: Callable[[], int | None],
        opening: Callable[[], bool],
        backward: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._backward = backward
        self.redrew = False
        self.world = world
        self._rows = rows
        self._opening = opening
        self._process: int | None = None  # the one that everything is drawn for, while it reads its samples
        # By generator (which is kept alive, because its address is its name), of all processes but the first.
        self._states: dict[int, tuple[torch.Generator, list[Tensor]]] = {}
        self.drew = False  # whether `as_process` has seen a draw

    def shares(self) -> list[int] | None:
        """Rows of each process of the batch in hand, as even as possible; None where it is not shared."""
        rows = self._rows()
        return split(rows, self.world) if rows and self._process is None else None

    @contextmanager
    def as_process(self, rank: int) -> Iterator[None]:
        """Whatever is drawn inside, this process draws alone, from its own states."""
        generator = torch.default_generator
        others, ours = self._others(generator), generator.get_state()
        if rank:
            generator.set_state(others[rank - 1])
        self._process, self.drew = rank, False
        try:
            yield
        finally:
            self._process = None
            if rank:
                others[rank - 1] = generator.get_state()
                generator.set_state(ours)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        self.redrew = self.redrew or self._backward()
        generator = kwargs.get("generator") or torch.default_generator
        if self._process is not None:
            return self._alone(self._process, generator, lambda: func(*args, **kwargs))
        shares = self.shares()
        if shares is None:
            return self._common(func, args, kwargs, generator)
        if not func._schema.is_mutable:
            before, result = generator.get_state(), func(*args, **kwargs)
            if torch.equal(before, generator.get_state()):
                return result  # it could have drawn, as attention could with dropout
            generator.set_state(before)
        calls = [share_of(func, args, kwargs, shares, rank) for rank in range(self.world)]
        known = [call for call in calls if call is not None]
        if len(known) < len(calls):
            return self._common(func, args, kwargs, generator)
        return self._apart(func, args, known, generator)

    def watch_seeds(self) -> None:
        """A seed is the same for all processes: have `torch.manual_seed` make their states equal again, for good."""
        module: Any = torch
        real = module.manual_seed

        @functools.wraps(real)
        def manual_seed(seed: Any) -> Any:
            self._states.pop(address(torch.default_generator), None)
            return real(seed)

        module.manual_seed = module.random.manual_seed = manual_seed

    def _others(self, generator: torch.Generator) -> list[Tensor]:
        """The states of the other processes; equal to ours until a draw of another size."""
        key = address(generator)
        if key not in self._states:
            self._states[key] = generator, [generator.get_state() for _ in range(self.world - 1)]
        return self._states[key][1]

    def _alone(self, rank: int, generator: torch.Generator, draw: Callable[[], Any]) -> Any:
        """A draw of one process. The default generator is in that process's state already."""
        self.drew = True
        others = self._others(generator)
        if rank == 0 or address(generator) == address(torch.default_generator):
            return draw()
        ours = generator.get_state()
        generator.set_state(others[rank - 1])
        result = draw()
        others[rank - 1] = generator.get_state()
        generator.set_state(ours)
        return result

    def _common(self, func: Any, args: Any, kwargs: Any, generator: torch.Generator) -> Any:
        """A draw without rows: every process makes it for itself, and we see the first one's."""
        others = self._others(generator)
        before = generator.get_state()
        result = func(*args, **kwargs)
        after = generator.get_state()
        order = self._opening() and _for_an_order()
        for index, state in enumerate(others):
            if torch.equal(state, before):
                others[index] = after
            elif not order:  # an order is drawn from the first process's state only
                generator.set_state(state)
                func(*_fresh(args), **kwargs)
                others[index] = generator.get_state()
        generator.set_state(after)
        return result

    def _apart(self, func: Any, args: Any, calls: list[Call], generator: torch.Generator) -> Any:
        """A draw with rows: every process makes its own part of it."""
        others = self._others(generator)
        parts = [func(*calls[0].args, **calls[0].kwargs)]
        first = generator.get_state()
        for index, call in enumerate(calls[1:]):
            generator.set_state(others[index])
            parts.append(func(*call.args, **call.kwargs))
            others[index] = generator.get_state()
        generator.set_state(first)
        kept = [part.narrow(call.dim, 0, call.kept) for part, call in zip(parts, calls, strict=True)]
        whole = torch.cat(kept, calls[0].dim)
        return args[0].copy_(whole) if calls[0].in_place else whole


@dataclass(frozen=True)
class Call:
    """One process's part of a draw. `kept`: what counts of dimension `dim` of the result."""

    args: tuple[Any, ...]
    kwargs: Any
    dim: int
    kept: int
    in_place: bool


def address(generator: Any) -> int:
    """The generator's identity: each call is handed another Python object for the same one."""
    return int(generator._cdata)


def split(rows: int, world: int) -> list[int]:
    """Rows of each process, as even as possible, the first ones having more."""
    small, more = divmod(rows, world)
    return [small + (rank < more) for rank in range(world)]


def share_of(func: Any, args: Any, kwargs: Any, shares: list[int], rank: int) -> Call | None:
    """The part of process `rank` in a draw; None where the draw has no row per sample."""
    if any(isinstance(arg, torch.nn.Parameter) for arg in args):
        return None  # the start of a layer that happens to be as wide as the batch
    rows = sum(shares)
    in_place = func._schema.name.endswith("_") and bool(args) and isinstance(args[0], Tensor)
    shapes = [tuple(arg.shape) for arg in args if isinstance(arg, Tensor)]
    sizes = [tuple(arg) for arg in args if isinstance(arg, (list, tuple)) and arg]
    shape = max(shapes or sizes, key=len, default=())
    dim = row_dimension(shape, rows)
    if dim is None:
        return None
    per_row = shape[dim] // rows
    # A process that has no row is given one that does not count.
    start = sum(shares[:rank]) * per_row if shares[rank] else 0
    size = max(1, shares[rank]) * per_row

    def cut(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dim() > dim and value.shape[dim] == shape[dim]:
            piece = value.narrow(dim, start, size)
            return torch.empty_like(piece).copy_(piece) if in_place else piece
        if isinstance(value, (list, tuple)) and tuple(value) == shape:
            return [*shape[:dim], size, *shape[dim + 1 :]]
        return value

    kwargs = {name: cut(value) for name, value in kwargs.items()}
    return Call(tuple(map(cut, args)), kwargs, dim, shares[rank] * per_row, in_place)


def row_dimension(shape: Sequence[int], rows: int) -> int | None:
    """The dimension that has a row per sample: the first of that length, else the first if it is a multiple."""
    for dim, length in enumerate(shape):
        if length == rows:
            return dim
    if len(shape) > 1 and shape[0] and shape[0] % rows == 0:
        return 0
    return None


def _fresh(args: Any) -> Any:
    """Arguments for a draw whose result is thrown away."""
    return tuple(arg.clone() if isinstance(arg, Tensor) else arg for arg in args)


def _for_an_order() -> bool:
    frame: FrameType | None = sys._getframe(2)
    for _ in range(NEAR):
        if frame is None:
            return False
        file = frame.f_code.co_filename
        if file.endswith(SAMPLERS):
            return True
        if file.endswith(LOADERS) and frame.f_code.co_name == "__init__":
            # Only workers need the first process's seed; without them each process draws one, and has no use for it.
            return bool(frame.f_locals["loader"].num_workers)
        frame = frame.f_back
    return False


def share_statistics(shares: Callable[[], list[int] | None]) -> None:
    """From now on batch normalisation in training normalises each share by itself.

    Running statistics follow the first share: several processes keep those of process 0.
    """
    functional: Any = torch
    real: Callable[..., Tensor] = functional.batch_norm

    @functools.wraps(real)
    def batch_norm(
        values: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *rest: Any
    ) -> Tensor:
        sizes = shares()
        dim = row_dimension(values.shape, sum(sizes)) if training and sizes else None
        if sizes is None or dim != 0:
            return real(values, weight, bias, mean, var, training, *rest)
        per_row = values.shape[0] // sum(sizes)
        out = []
        for rank, part in enumerate(torch.split(values, [size * per_row for size in sizes if size])):
            running = (mean, var) if rank == 0 else (_copy(mean), _copy(var))
            out.append(real(part, weight, bias, *running, training, *rest))
        return torch.cat(out)

    functional.batch_norm = batch_norm


def _copy(buffer: Tensor | None) -> Tensor | None:
    return None if buffer is None else buffer.clone()
