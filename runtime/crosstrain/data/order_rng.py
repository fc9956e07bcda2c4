"""The random state in which a loader's order is drawn: the same on every rank, and the same again after a resume.

A sampler draws from its own generator, or from the process's global streams. While an order is drawn, every rank has
process 0's state there or, after a resume, the state in which the interrupted pass began. Afterwards each rank gets its
own global streams back, because only the order is common; noise, dropout and augmentation are not. An order that is drawn
within a pass, where each rank draws its own numbers (`draws`), comes from the common streams too.

The order is drawn when plain PyTorch would draw it: iter() draws a seed for workers and starts them; torch's samplers
draw with the first batch, and others may draw in iter() too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, TypeAlias, TypeVar

import torch
from torch import Tensor

from crosstrain.comm.protocol import Comm
from crosstrain.comm.random_streams import State, capture, check_streams, restore, same
from crosstrain.data.draws import Draws

T = TypeVar("T")
Reach: TypeAlias = Literal["nothing", "torch", "anything"]
"""The streams that an order may be drawn from: none (it is fixed), torch's, or any stream of the process."""


class OrderRng:
    """The random state in which one loader's order is drawn, pass after pass.

    The common state is installed between `open` and `close`; another `open` in between changes nothing (with workers,
    torch asks twice).

    everywhere: False where only one process draws an order. draws: the process's two kinds of streams. start: the state that `open` installed; None after `close`.
    """

    def __init__(
        self,
        comm: Comm,
        generators: list[torch.Generator],
        reach: Reach,
        rng_types: tuple[str, ...] = (),
        *,
        everywhere: bool = True,
        draws: Draws | None = None,
    ) -> None:
        check_streams(rng_types)
        self._comm = comm
        self._generators = generators
        self._streams = ("torch", "python", "numpy") if reach == "anything" else ("torch",)
        self._shared = everywhere and reach != "nothing"  # a fixed order draws from no stream
        self._kept = tuple(name for name in rng_types if name != "generator")
        self._common = everywhere and comm.world > 1 and (reach != "nothing" or bool(self._kept))
        self._own: State = {}
        self.draws = draws or Draws()
        self._everywhere = everywhere
        self._asked: Any = None
        self.start: State | None = None

    def generator_states(self) -> list[Tensor]:
        return [generator.get_state() for generator in self._generators]

    def set_generator_states(self, states: list[Tensor]) -> None:
        for generator, state in zip(self._generators, states, strict=False):
            generator.set_state(state)

    def now(self) -> State:
        return capture(self._streams) | {"generators": self.generator_states()}

    def open(self, resume: State | None = None) -> State:
        """Install the state in which the order is drawn, and return it for a later resume of this pass."""
        if self.start is not None:
            return self.start
        if self._shared:
            self._asked = self.draws.open("common")
        here = self.now()
        start = resume or here
        if self._common:
            start = self._comm.broadcast_object(start)
            self._keep_common_streams()
        if start is not here:
            shared = (name for name in self._streams if name in here and name in start)
            self._own = {name: here[name] for name in shared if not same(here[name], start[name])}
            self._install(start)
        self.start = start
        return start

    def order(self, start: State) -> State:
        """Return ``start``, in which a pass began, with the streams that have changed until its order is drawn.

        In a resumed pass, install the streams that had changed in the interrupted one.
        """
        if "order" in start:
            self._install(start | start["order"])
            return start
        with self._drawn_from():
            now = self.now()
        return start | {"order": {name: now[name] for name in now if not same(now[name], start.get(name))}}

    def rewind(self) -> None:
        """Install the state of `open` again, because numbers drawn since then were not for the order."""
        if self.start is not None:
            self._install(self.start)

    def close(self) -> None:
        """Give this process its own global streams back; the generators continue from the common state."""
        restore({name: value for name, value in self._own.items() if name not in self._kept})
        self._own, self.start = {}, None
        asked, self._asked = self._asked, None
        self.draws.close(asked)

    def reading(self, walk: Iterator[T]) -> Iterator[T]:
        """The items of ``walk``, read under the common streams where a sampler may draw from any stream as it goes."""
        return self.draws.read_common(walk) if self._everywhere and len(self._streams) > 1 else walk

    def _drawn_from(self) -> AbstractContextManager[None]:
        return self.draws.common() if self._shared else nullcontext()

    def _install(self, state: State) -> None:
        self.set_generator_states(state["generators"])
        restore({name: state[name] for name in self._streams if name in state})

    def _keep_common_streams(self) -> None:
        """Give the streams of `rng_types` process 0's state, for good."""
        if self._kept:
            restore(self._comm.broadcast_object(capture(self._kept)))
