"""Makes one process draw random numbers and take batch statistics as several processes would, share by share.

Processes that share a batch start with the same random state, and each draws a dropout mask, or noise, for its own rows.
One process draws for all rows at once, and gets other numbers without any mistake. So the original runs a second time in
which every draw with a row for each sample is made share by share, from the state that the share's process would have, and
batch normalisation normalises each share. What several processes compute must equal that, up to rounding. Nothing here
depends on how the runtime does it.

Uneven shares make the processes' states differ, so each process has its own.
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

from crosstrain_verify.emulation.eager_compile import replace_batch_norm

# The files in which an order is drawn, and in which iter() draws the seed of a loader's workers.
SAMPLERS, LOADERS = "torch/utils/data/sampler.py", "torch/utils/data/dataloader.py"
NEAR = 12  # frames that are searched above a draw


class SharedDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While this mode is active, a draw with a row for each sample of the current batch is made for ``world`` shares.

    Args:
        world: how many processes there would be.
        rows: returns the rows of the current batch; None if all processes draw the same.
        opening: returns whether a loader that the processes share is about to draw its order.
        backward: returns whether a backward pass is running. What draws in it (`torch.utils.checkpoint`) has restored only
            the first process's state.

    Attributes:
        redrew: a draw was made in a backward pass.
        drew: a draw was made inside `as_process`.
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
        self._process: int | None = None  # the process that is drawing, while it reads its samples
        # By address of a generator, the generator (to keep it alive) and the states of all processes but the first.
        self._states: dict[int, tuple[torch.Generator, list[Tensor]]] = {}
        self.drew = False

    def shares(self) -> list[int] | None:
        """How many rows of the current batch each process has, as evenly as possible; None if it is not shared."""
        rows = self._rows()
        return split(rows, self.world) if rows and self._process is None else None

    @contextmanager
    def as_process(self, rank: int) -> Iterator[None]:
        """Inside, every draw is made by this process alone, from its own state."""
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
                return result  # it drew nothing, as attention without dropout
            generator.set_state(before)
        calls = [share_of(func, args, kwargs, shares, rank) for rank in range(self.world)]
        known = [call for call in calls if call is not None]
        if len(known) < len(calls):
            return self._common(func, args, kwargs, generator)
        return self._apart(func, args, known, generator)

    def watch_seeds(self) -> None:
        """Make `torch.manual_seed` give all processes the same state again, for the rest of this process."""
        module: Any = torch
        real = module.manual_seed

        @functools.wraps(real)
        def manual_seed(seed: Any) -> Any:
            self._states.pop(address(torch.default_generator), None)
            return real(seed)

        module.manual_seed = module.random.manual_seed = manual_seed

    def _others(self, generator: torch.Generator) -> list[Tensor]:
        """The states of the other processes. They equal the first one's until a draw has another size."""
        key = address(generator)
        if key not in self._states:
            self._states[key] = generator, [generator.get_state() for _ in range(self.world - 1)]
        return self._states[key][1]

    def _alone(self, rank: int, generator: torch.Generator, draw: Callable[[], Any]) -> Any:
        """Make a draw of one process. The default generator already has that process's state."""
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
        """Make a draw without rows: every process makes it for itself, and the first one's result counts."""
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
        """Make a draw with rows: every process makes its own part of it."""
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
    """One process's part of a draw. kept: how many entries of the result's dimension `dim` count."""

    args: tuple[Any, ...]
    kwargs: Any
    dim: int
    kept: int
    in_place: bool


def address(generator: Any) -> int:
    """The generator's identity: every call gets another Python object for the same generator."""
    return int(generator._cdata)


def split(rows: int, world: int) -> list[int]:
    """The rows of each process, as evenly as possible; the first ones have more."""
    small, more = divmod(rows, world)
    return [small + (rank < more) for rank in range(world)]


def share_of(func: Any, args: Any, kwargs: Any, shares: list[int], rank: int) -> Call | None:
    """The part of process ``rank`` in a draw; None if the draw has no row for each sample."""
    if any(isinstance(arg, torch.nn.Parameter) for arg in args):
        return None  # the initialisation of a layer, which may be as wide as the batch
    rows = sum(shares)
    in_place = func._schema.name.endswith("_") and bool(args) and isinstance(args[0], Tensor)
    shapes = [tuple(arg.shape) for arg in args if isinstance(arg, Tensor)]
    sizes = [tuple(arg) for arg in args if isinstance(arg, (list, tuple)) and arg]
    shape = max(shapes or sizes, key=len, default=())
    dim = row_dimension(shape, rows)
    if dim is None:
        return None
    per_row = shape[dim] // rows
    # A process without rows gets one that does not count.
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
    """The dimension with a row for each sample: the first one of that size, else dimension 0 if its size is a multiple."""
    for dim, length in enumerate(shape):
        if length == rows:
            return dim
    if len(shape) > 1 and shape[0] and shape[0] % rows == 0:
        return 0
    return None


def _fresh(args: Any) -> Any:
    """Copies of the arguments, for a draw whose result does not count."""
    return tuple(arg.clone() if isinstance(arg, Tensor) else arg for arg in args)


def _for_an_order() -> bool:
    """Whether the current draw is for the order of a loader, or for the seed of its workers."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(NEAR):
        if frame is None:
            return False
        file = frame.f_code.co_filename
        if file.endswith(SAMPLERS):
            return True
        if file.endswith(LOADERS) and frame.f_code.co_name == "__init__":
            # Workers take the first process's seed. Without workers each process draws a seed that nothing uses.
            return bool(frame.f_locals["loader"].num_workers)
        frame = frame.f_back
    return False


def share_statistics(shares: Callable[[], list[int] | None]) -> None:
    """Make batch normalisation in training normalise each share by itself, for the rest of this process.

    Running statistics follow the first share, because several processes keep those of process 0.
    """

    def normalise(
        real: Any, values: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *rest: Any
    ) -> Any:
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

    replace_batch_norm(normalise)


def _copy(buffer: Tensor | None) -> Tensor | None:
    return None if buffer is None else buffer.clone()
