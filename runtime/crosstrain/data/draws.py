"""The two kinds of random streams of a process: the common ones, alike on all ranks, and its own.

What is drawn while a prepared loader is being iterated is each process's own, so that noise, dropout masks, crops and
negative samples of several processes are independent. Everything else is drawn alike: splits, initialisation, orders,
what is decided between passes. So are the numbers that all ranks must share in a pass: see `Draws.common`.

The streams are the global ones of python, numpy, torch and the device. One kind is in place; the other is kept here.
Switching between them needs no communication, because a rank's own streams are seeded from a copy of the common ones, from
a count and from the rank.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, TypeAlias, TypeVar

import numpy
import torch
from torch import Tensor

from crosstrain.comm.protocol import Comm
from crosstrain.comm.random_streams import COMMON, State, capture, given, plain, restore, same
from crosstrain.data.worker_seeds import mix

T = TypeVar("T")
_NUMPY: Any = numpy.random  # whose stubs lack some functions
Kind: TypeAlias = Literal["common", "own"]
States: TypeAlias = dict[str, Any]
"""States by stream ("torch", "python", "numpy", "device"), as each stream gives them."""


class Draws:
    """Which kind of stream is in place, and the states of the other one.

    A process draws from its own streams while a pass of a prepared loader is alive. A pass within a pass changes nothing.

    enabled: whether there are two kinds. With one process, and with ``own_draws=False``, there is only one.
    kept: the streams that are never switched, such as those of `rng_types`.
    passes: how often own streams were seeded.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything, for a run that begins anew. The streams that are in place stay there."""
        self.enabled = False
        self.kept: set[str] = set()
        self.passes = 0
        self._comm: Comm | None = None
        self._depth = 0  # passes that are alive
        self._for_good = False  # whether this process draws its own outside of passes too
        self._asked: list[list[Kind]] = []  # the contexts that are open, innermost last
        self._in_place: Kind = "common"
        self._common: States = {}  # while the own streams are in place
        self._own: States | None = None  # while the common ones are in place and the own ones go on later
        self._loaded: States | None = None  # own streams of a checkpoint, for the pass that continues
        self._own_numpy: Any = None  # the generator in numpy's place while the own streams are in place

    def start(self, comm: Comm, *, kept: set[str], two_kinds: bool = True) -> None:
        """Let passes draw from this process's own streams, except from those in ``kept``.

        two_kinds: False where everything is drawn alike. With one process this does nothing.
        """
        if comm.world > 1:
            self.enabled, self._comm = two_kinds, comm
            self.kept |= kept if comm.averages else {*kept, "device"}

    def stop(self) -> None:
        """Let all processes draw the same numbers from now on, within passes too."""
        if self._in_place == "own":
            self._install("common")
        self.enabled = False

    # -- when which kind is in place ---------------------------------------------------------------

    def enter(self, *, resumed: bool = False) -> None:
        """A pass comes to life. ``resumed``: whether it continues one that a checkpoint was saved in."""
        if not self.enabled:
            return
        self._depth += 1
        if resumed and self._loaded is not None and self._in_place == "common":
            self._own, self._loaded = self._loaded, None
        self._settle()

    def leave(self) -> None:
        """A pass is over: used up, closed, or thrown away."""
        if self._depth and not sys.is_finalizing():  # when torch is gone, and so are its streams
            self._depth -= 1
            self._settle()

    def draw_own_for_good(self) -> None:
        """Draw from this process's own streams from now on, outside of passes too."""
        self._for_good = self.enabled
        self._settle()

    @property
    def for_good(self) -> bool:
        """Whether this process draws its own outside of passes too."""
        return self._for_good

    @property
    def in_pass(self) -> bool:
        """Whether a pass is alive."""
        return self._depth > 0

    def alike_from(self) -> State:
        """The common streams as they are now; nothing in a pass, and before an Accelerator has made them alike."""
        if self._comm is None or self._in_place == "own":
            return {}
        return capture(tuple(name for name in COMMON if name not in self.kept))

    def take_over(self, before: State, theirs: tuple[State, State]) -> None:
        """Go on with another process's common streams, where it began where this process did.

        before: this process's streams then. theirs: the other one's then, and those that it drew on to.
        """
        begun, drawn = theirs
        restore(
            {name: drawn[name] for name in before.keys() & drawn.keys() if same(before[name], begun[name])}
        )

    def common(self) -> AbstractContextManager[None]:
        """A context in which numbers are drawn from the common streams, also within a pass."""
        return self._drawn_from("common")

    def own(self) -> AbstractContextManager[None]:
        """A context in which numbers are drawn from this process's own streams, also outside of passes."""
        return self._drawn_from("own")

    @contextmanager
    def _drawn_from(self, kind: Kind) -> Iterator[None]:
        asked = self.open(kind)
        try:
            yield
        finally:
            self.close(asked)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """A context whose draws leave no trace: afterwards the streams are where they were before."""
        if not self.enabled:
            yield
            return
        before = self._capture()
        try:
            yield
        finally:
            self._restore(before)

    def draw_for_iter(self, generator: torch.Generator | None) -> None:
        """Draw what torch draws where a DataLoader's iter() is called.

        Where one process reads for all, or each its own shards, their streams would part otherwise.
        """
        if self.enabled and generator is None:
            with self.common():
                torch.empty((), dtype=torch.int64).random_()

    def open(self, kind: Kind) -> list[Kind] | None:
        """The beginning of `common` or `own` where there is no `with` block; `close` ends it."""
        if not self.enabled:
            return None
        asked: list[Kind] = [kind]
        self._asked.append(asked)
        self._settle()
        return asked

    def close(self, asked: list[Kind] | None) -> None:
        """End what `open` began."""
        if asked is not None:
            self._asked = [other for other in self._asked if other is not asked]
            self._settle()

    def read_common(self, source: Iterator[T]) -> Iterator[T]:
        """The items of ``source``, each read under the common streams."""
        if not self.enabled:
            return source
        return self._read_common(source)

    def _read_common(self, source: Iterator[T]) -> Iterator[T]:
        end: Any = object()
        while True:
            with self.common():
                item = next(source, end)
            if item is end:
                return
            yield item

    def _settle(self) -> None:
        """Put the kind of stream in place that is to be drawn from now."""
        lasts = self._depth > 0 or self._for_good
        wanted: Kind = self._asked[-1][0] if self._asked else "own" if lasts else "common"
        over = wanted == "common" and not lasts and ["own"] not in self._asked
        if wanted != self._in_place:
            self._install(wanted, over)
        if over:
            self._own = None  # the next own streams are new ones

    def _install(self, kind: Kind, over: bool = False) -> None:
        """Put a kind of stream in place. ``over``: the own ones, which were there, do not go on later."""
        before = {} if over else self._capture(aside=True)
        if kind == "own":
            self._common = before
            if "numpy" not in self.kept:  # reading and writing the state of numpy's global generator is slow
                self._own_numpy = self._own_numpy or _NUMPY.MT19937(0)
                _NUMPY.set_bit_generator(self._own_numpy)
            if self._own is None:
                self._seed(before["torch"])
            else:
                self._restore(self._own)
                self._own = None
        else:
            self._own = before
            self._restore(self._common)
            self._common = {}
        self._in_place = kind

    def _seed(self, common: Tensor) -> None:
        """Seed this process's own streams from the common torch stream, which does not move."""
        assert self._comm is not None
        copy = torch.Generator(device="cpu")
        copy.set_state(common)
        base = int(torch.empty((), dtype=torch.int64, device="cpu").random_(generator=copy))
        seed = mix(mix(base, self.passes), 1 + self._comm.rank)
        self.passes += 1
        if "torch" not in self.kept:
            torch.default_generator.manual_seed(seed)
        if "python" not in self.kept:
            random.seed(seed)
        if "numpy" not in self.kept:
            _NUMPY.seed(seed & 0xFFFFFFFF)
        if "device" not in self.kept:
            self._comm.seed_own(seed)

    # -- checkpoints -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Both kinds of streams as values that a file can hold, and what decides about the next own streams.

        "common" and "own" hold the states of this process by stream; "own" is None between passes.
        """
        here = self._capture()
        own = here if self._in_place == "own" else self._own or self._loaded
        return {
            "common": plain(self._common if self._in_place == "own" else here),
            "own": None if own is None else plain(own),
            "passes": self.passes,
            "for_good": self._for_good,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the own streams of `state_dict`, in the pass that they were saved in.

        The common ones are restored by whoever loads the rest of a checkpoint, under `common`.
        """
        own = None if state["own"] is None else given(state["own"])
        self.passes, self._loaded = state["passes"], own
        if own is not None and self._in_place == "own":
            self._restore(own)
        elif state["for_good"]:
            self._own, self._loaded = own, None
        self._for_good = state["for_good"]
        self._settle()

    def digests(self) -> dict[str, str]:
        """A digest of each stream that is in place, for a comparison with other processes."""
        states = plain(self._capture())
        return {
            name: hashlib.blake2b(
                repr(state.tolist() if isinstance(state, Tensor) else state).encode()
            ).hexdigest()
            for name, state in states.items()
        }

    # -- the states --------------------------------------------------------------------------------

    def _capture(self, *, aside: bool = False) -> States:
        """The states of the streams in place. ``aside``: these streams are about to be exchanged for others."""
        # Unlike `random_streams.capture`, this makes nothing that a file can hold: it runs twice in every pass.
        states: States = {"torch": torch.default_generator.get_state()}
        if "python" not in self.kept:
            states["python"] = random.getstate()
        if "numpy" not in self.kept:
            # Of a generator that is exchanged, the second number of a pair that `randn` has drawn is lost, on all processes.
            states["numpy"] = _NUMPY.get_bit_generator() if aside else _NUMPY.get_state()
        if "device" not in self.kept and self._comm is not None:
            states["device"] = self._comm.random_state()
        return states

    def _restore(self, states: States) -> None:
        if "torch" not in self.kept:
            torch.default_generator.set_state(states["torch"])
        if "python" in states and "python" not in self.kept:
            random.setstate(states["python"])
        if "numpy" in states and "numpy" not in self.kept:
            known = isinstance(states["numpy"], tuple)
            put = _NUMPY.set_state if known else _NUMPY.set_bit_generator
            put(states["numpy"])
        if states.get("device") is not None and "device" not in self.kept and self._comm is not None:
            self._comm.set_random_state(states["device"])
