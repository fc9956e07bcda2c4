"""Hooks inside a run that record losses, gradient norms, learning rates and weights.

They draw no random numbers, write to no tensor of the script, and keep nothing alive but the optimizers and the first
values of their parameters. So a traced run computes, bit for bit, what an untraced one does.
"""

from __future__ import annotations

import contextlib
import functools
import math
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from crosstrain.run import RUN
from crosstrain.utils import checks
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from crosstrain_verify.emulation.eager_compile import replace_batch_norm
from crosstrain_verify.records.traces import Batch, Ending, Event, RankTrace
from crosstrain_verify.tracing.batches import LoaderWatch
from crosstrain_verify.tracing.deferred_values import DeferredValues, on_xla, square_norm
from crosstrain_verify.tracing.script_lines import place
from crosstrain_verify.tracing.tracked_optimizers import TrackedOptimizers, epsilon, parameters_of

EARLY = 200  # steps in which the gradient norm of each parameter is recorded


@dataclass
class Noticed:
    """What a process has noticed of how it trains, in fields of `RankTrace`."""

    draws: bool = False
    noise: tuple[int, ...] = ()
    on_runtime: bool = False
    own_draws: bool = False
    statistics: bool = False
    scale: float = 0.0
    loss_epsilon: float = 0.0


@dataclass
class Recorded:
    """What one process has recorded, in a form with which another process can continue."""

    events: list[Event]
    batches: list[Batch]
    steps: int
    noticed: Noticed
    trained: TrackedOptimizers


class Tracer:
    """Records a run from `install()` on.

    limit: number of optimizer steps; None for no limit. stop: called before the step after the limit is executed.
    """

    def __init__(self, limit: int | None, stop: Callable[[], None]) -> None:
        self.watch = LoaderWatch(lambda: len(self._events), self._reading)
        # Called before each step, with its number.
        self.steps_done: Callable[[int], object] = lambda steps: None
        self._noticed = Noticed()
        self._random = (0, 0, 0)  # `random_states` when the current batch was handed out
        self.several = False
        self._limit = limit
        self.stop = stop
        self._events: list[Event] = []
        self._steps = 0
        self.inside_backward = False
        self._trained = TrackedOptimizers.nothing()
        self._deferred = DeferredValues()
        self.watch.handed_out = self._deferred.batch

    def install(self, *, several: bool = False) -> None:
        """Hook every backward pass and every optimizer of this process, which may be one of several."""
        self.several = several
        # A step that is suppressed (gradient accumulation, a scaler that found infinities) does not reach this hook.
        register_optimizer_step_pre_hook(self._before_step)
        original = torch.autograd.backward

        # Tensor.backward looks this function up at every call, so replacing it covers both.
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            # Re-entrant checkpointing calls backward within backward; these calls are no losses.
            if self.inside_backward:
                return original(tensors, *args, **kwargs)
            self._record_loss(tensors)
            self.inside_backward = True
            try:
                return original(tensors, *args, **kwargs)
            finally:
                self.inside_backward = False

        torch.autograd.backward = backward
        self._watch_autocast()
        self._watch_scale()
        self._watch_statistics()
        self.watch.install()

    def _watch_autocast(self) -> None:
        """Note the dtype of autocast: a loss computed under it is as coarse as that dtype, whatever its own."""
        original: Callable[[torch.autocast], Any] = torch.autocast.__enter__

        @functools.wraps(original)
        def enter(context: torch.autocast) -> Any:
            entered = original(context)
            if torch.is_autocast_enabled(context.device):
                dtype = torch.get_autocast_dtype(context.device)
                self._noticed.loss_epsilon = max(self._noticed.loss_epsilon, torch.finfo(dtype).eps)
            return entered

        torch.autocast.__enter__ = enter  # type: ignore[method-assign]

    def go_on_to_evaluation(self, loaders: Iterable[int]) -> None:
        """Do not stop after the last step: end the passes over these loaders and continue with what follows.

        The run stops when another pass over one of these loaders begins.
        """
        limit, cut = self._limit, frozenset(loaders)
        if limit is None:
            return

        def ends(loader: Any, given: int) -> bool:
            enough = self.watch.number(loader) in cut and self._steps >= limit
            if enough and not given:
                self.stop()
            return enough

        self._limit = None
        self.watch.ends.append(ends)

    def now(self) -> tuple[int, int]:
        """How many events and batches were recorded so far."""
        return len(self._events), len(self.watch.batches)

    def _watch_scale(self) -> None:
        """Note the largest loss scale: gradients that are clipped while they carry it are clipped wrongly."""
        original: Callable[..., Any] = torch.amp.GradScaler.scale

        @functools.wraps(original)
        def scale(scaler: torch.amp.GradScaler, outputs: Any) -> Any:
            scaled = original(scaler, outputs)
            if scaler.is_enabled():
                self._noticed.scale = max(self._noticed.scale, float(scaler.get_scale()))
            return scaled

        module: Any = torch.amp.GradScaler
        module.scale = scale

    def _watch_statistics(self) -> None:
        """Note whether batch normalisation uses the statistics of batches."""

        def normalise(
            real: Any, values: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *rest: Any
        ) -> Any:
            self._noticed.statistics = self._noticed.statistics or bool(training)
            return real(values, weight, bias, mean, var, training, *rest)

        replace_batch_norm(normalise)

    @contextlib.contextmanager
    def _reading(self, loader: Any, first: bool) -> Iterator[None]:
        """Note whether reading a batch draws random numbers, as augmentation does. The first read also draws the order."""
        before = (0, 0, 0) if first or self._noticed.draws else random_states()
        yield
        if not self._noticed.draws:
            self._random = random_states()
            if not first:
                self._compare(before, self._random)

    def _compare(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Note whether training has drawn in between, and from what states."""
        self._noticed.noise = tuple(
            state for state, other in zip(before, after, strict=True) if state != other
        )
        self._noticed.draws = before != after

    def _see_runtime(self) -> None:
        """Note the bundled runtime while it runs: the script may end it, and a notebook's ranks take it with them."""
        if RUN.started:
            self._noticed.on_runtime = True
            self._noticed.own_draws = RUN.gradients.active.draws.enabled

    def _record_loss(self, tensors: Any) -> None:
        if self.watch.batches and not self._noticed.draws:
            self._compare(self._random, random_states())
        if self.several and RUN.started and RUN.gradients.active.current is None:
            checks.doubt("loader")  # this loss was not computed from a prepared loader's batch
        roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        self._noticed.loss_epsilon = max([self._noticed.loss_epsilon, *(epsilon(root) for root in roots)])
        weight = self._weight()
        sums = [root.detach().double().sum() * weight for root in roots]
        if on_xla(sums):
            self._deferred.loss(len(self._events), sums)
        total = 0.0 if on_xla(sums) else math.fsum(map(float, sums))
        self._events.append(Event("loss", 0, (total,), place()))

    def _weight(self) -> float:
        """What a plain ``loss.backward()`` counts in the gradients of all processes, as `Accelerator.backward` scales its loss."""
        if not self.several or not RUN.started or RUN.gradients.scaled:
            return 1.0
        with contextlib.suppress(RuntimeError):  # the pass itself raises it
            return RUN.gradients.active.weight(torch.distributed.get_rank())
        return 1.0

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._steps == self._limit:
            self.stop()
        self._steps += 1
        self._see_runtime()
        index = self._trained.before_step(optimizer)
        parameters = parameters_of(optimizer)
        rates = [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]
        norm = size = 0.0
        parts: tuple[float, ...] = ()
        if on_xla(parameters):
            self._deferred.step(len(self._events), parameters)
        else:
            squares = [float(square_norm(parameter.grad)) for parameter in parameters]
            norm = math.sqrt(math.fsum(squares))
            parts = tuple(map(math.sqrt, squares)) if self._steps <= EARLY else ()
            size = math.sqrt(math.fsum(float(square_norm(parameter)) for parameter in parameters))
            self._trained.saw(parameters, squares)
        self._events.append(Event("step", index, (norm, size, *rates), place(), parts))
        self.steps_done(self._steps)

    def recorded(self) -> Recorded:
        """Everything recorded so far, without references to objects of this process."""
        self._see_runtime()
        return Recorded(
            events=list(self._events),
            batches=list(self.watch.batches),
            steps=self._steps,
            noticed=replace(self._noticed),
            trained=self._trained.packed(),
        )

    def go_on_with(self, recorded: Recorded) -> None:
        """Continue from where another process ended that was forked from this one."""
        self._events[:] = recorded.events
        self.watch.batches[:] = recorded.batches
        self._steps = recorded.steps
        self._noticed = replace(recorded.noticed)
        self._trained = recorded.trained.unpacked()

    def since(self, events: int, batches: int) -> tuple[list[Event], list[Batch]]:
        """The events and batches that were recorded after the given numbers of them."""
        return self._events[events:], self.watch.batches[batches:]

    def add(self, events: Iterable[Event], batches: Iterable[Batch]) -> None:
        """Append what another process recorded."""
        self._events += events
        self.watch.batches += batches

    def trace(self, ending: Ending, error: str = "", time_ns: int = 0) -> RankTrace:
        """Everything recorded so far, with the weights as they are now."""
        self._see_runtime()
        xla = self._deferred.counts()
        for held, squares in self._deferred.fill(self._events):
            self._trained.saw(held, squares)
        steps = Counter(event.index for event in self._events if event.kind == "step")
        parameters, weights = self._trained.parameters(steps)
        return RankTrace(
            ending=ending,
            events=tuple(self._events),
            batches=tuple(self.watch.batches),
            **asdict(self._noticed),
            xla=xla,
            parameters=parameters,
            error=error,
            time_ns=time_ns,
            weights=weights,
        )


def random_states() -> tuple[int, int, int]:
    """Checksums of the global random streams of torch, python and numpy."""
    legacy: Any = np.random.get_state(legacy=False)
    words = legacy["state"]
    return (
        zlib.crc32(torch.get_rng_state().numpy().tobytes()),
        zlib.crc32(repr(random.getstate()).encode()),
        zlib.crc32(words["key"].tobytes() + words["pos"].to_bytes(4, "little")),
    )
