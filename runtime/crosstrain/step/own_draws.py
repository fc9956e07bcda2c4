"""Whose random numbers a script draws: each process its own, or all the same ones. See `crosstrain.data.draws`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import FrameType
from typing import Any

from torch import distributed

from crosstrain.comm.protocol import Comm
from crosstrain.comm.random_streams import COMMON, State, capture, restore
from crosstrain.comm.startup_seeds import start_streams_alike
from crosstrain.data.draws import Draws
from crosstrain.run import Run
from crosstrain.step.window import Gradients
from crosstrain.utils.messages import say
from crosstrain.utils.script_frames import is_users


def share_streams(run: Run, keeps_streams: bool) -> None:
    """Copy rank 0's random states to every rank, once for a process (collective).

    In passes of prepared loaders each process draws its own numbers then, unless it was launched with common draws.
    keeps_streams: the script has seeded the streams by itself. They are each process's own already, and stay so.
    """
    if not run.streams_alike:
        own = capture(COMMON)
        kept = set(COMMON) if keeps_streams else start_streams_alike(run.comm)
        run.gradients.active.draws.start(run.comm, kept=kept, two_kinds=not run.launch.common_draws)
        run.streams_alike = True
        if run.comm.world > 1 and not keeps_streams:
            run.give_streams_back = partial(_give_back, run, own, capture(COMMON))


def _give_back(run: Run, own: State, shared: State) -> None:
    """Give each process its own streams again, but for those that were drawn from or seeded since all have the same ones."""
    now = capture(COMMON)
    restore({name: own[name] for name in COMMON if str(now[name]) == str(shared[name])})
    run.gradients.active.draws.kept |= set(COMMON)


def choose_draws(run: Run, own_draws: bool | None, rng_types: Iterable[str]) -> None:
    """Take an Accelerator's choice: ``own_draws=False`` stops them; streams in ``rng_types`` are common in every pass."""
    if run.comm.world == 1:
        return
    draws = run.gradients.active.draws
    if own_draws is False:
        draws.stop()
    device = run.comm.device.type
    draws.kept |= {"device" if str(name) == device else str(name) for name in rng_types} - {"generator"}


class TrainingOutside:
    """Notices a training that no prepared loader feeds: from its first step on, each process draws its own numbers.

    Random crops, replay buffers, rays and environments are then different data on each process. The backward pass and
    the step that follows it must both lie outside of all passes. A step behind a loop, for what an accumulation left
    over, changes nothing. A script that distributes itself keeps the streams that it has set.
    """

    def __init__(self, comm: Comm, gradients: Gradients) -> None:
        self.comm = comm
        self._gradients = gradients
        self._backward = False  # the last backward pass lay outside
        self._exempt = False  # the script distributes itself
        self._told = False

    @property
    def draws(self) -> Draws:
        """The two kinds of streams of this process."""
        return self._gradients.active.draws

    def backward(self) -> None:
        """Called before each backward pass."""
        active = self._gradients.active
        self._backward = active.draws.enabled and not active.draws.in_pass and not active.foreign

    def stepped(self) -> None:
        """Called after each step; collective where the processes begin to draw their own numbers."""
        draws = self.draws
        if not self._backward or self._exempt or draws.for_good or draws.in_pass:
            return
        self._backward = False
        if distributes_itself():
            self._exempt = True
            return
        states = self.comm.all_gather_object(draws.digests())
        # Streams that differ already are each process's own: the script has seeded them by rank.
        draws.kept |= {name for name in states[0] if len({one.get(name) for one in states}) > 1}
        draws.draw_own_for_good()
        if self.comm.rank == 0 and not self._told and "torch" not in draws.kept:
            self._told = True
            say(
                "the training steps stand in no loop over a prepared loader: from the first on, each process draws its "
                "own random numbers. What all of them must share goes into `with accelerator.common_draws():`."
            )


def distributes_itself() -> bool:
    """Whether the script that is running uses torch.distributed, and so decides itself what each process draws."""
    main = sys.modules.get("__main__")
    return any(
        value is distributed or value is getattr(distributed, "init_process_group", None)
        for names in [vars(main) if main is not None else {}, *_globals_of_users_frames()]
        for value in list(names.values())
        if value is not None
    )


def _globals_of_users_frames() -> Iterator[dict[str, Any]]:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if is_users(frame.f_code.co_filename) or frame.f_globals.get("__name__") == "__main__":
            yield frame.f_globals
        frame = frame.f_back


class DrawMembers:
    """The Accelerator's members that choose between the two kinds of random streams."""

    _outside: TrainingOutside

    def common_draws(self) -> AbstractContextManager[None]:
        """Return a context in which all processes draw the same random numbers, also within a loop over a prepared loader.

        For what all of them must share: a coin that decides which network trains, a size. Every process must enter it.
        """
        comm = self._outside.comm
        if comm.world == 1:
            return nullcontext()
        if comm.debug:
            comm.agree("common_draws()")
        return self._outside.draws.common()

    def own_draws(self) -> AbstractContextManager[None]:
        """Return a context in which each process draws its own random numbers, also outside of loops."""
        return self._outside.draws.own() if self._outside.comm.world > 1 else nullcontext()
