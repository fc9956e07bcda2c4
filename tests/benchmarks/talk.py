"""Run a training script as one of several ranks, and count what it says to the others.

A script trains from the first backward on, and evaluates between `eval()` of a model and `train()`; what it does before
is not counted.
"""

import contextlib
import os
import runpy
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

CALLS = (
    "allreduce allreduce_coalesced allgather all_gather_single _allgather_base allgather_coalesced "
    "broadcast reduce gather scatter alltoall alltoall_base reduce_scatter _reduce_scatter_base "
    "reduce_scatter_single send recv barrier"
)


@dataclass
class Talk:
    """What one run said and took. Seconds are those of this rank.

    calls, sent: collectives and bytes that this rank contributed, by phase. steps: of optimizers. step: the median
    seconds between two of them. evaluation: the median seconds of an evaluation, 0 without one.
    """

    calls: dict[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    evaluations: int = 0
    step: float = 0.0
    evaluation: float = 0.0


class Listener:
    """Counts collectives where they leave Python, and watches the clock."""

    def __init__(self) -> None:
        self.talk = Talk()
        self._phase = "before"
        self._since = self._last_step = 0.0
        self._steps: list[float] = []
        self._evaluations: list[float] = []

    def listen(self) -> None:
        group: Any = dist.ProcessGroup
        for name in CALLS.split():
            if hasattr(group, name):
                setattr(group, name, self._counted(getattr(group, name)))
        module: Any = nn.Module
        module.train = self._switching(module.train)
        tensor: Any = Tensor
        tensor.backward = self._started(tensor.backward)
        register_optimizer_step_post_hook(self._stepped)

    def result(self) -> Talk:
        self._enter("after")
        self.talk.step = statistics.median(self._steps or [0.0])
        self.talk.evaluation = statistics.median(self._evaluations or [0.0])
        self.talk.evaluations = len(self._evaluations)
        return self.talk

    def _enter(self, phase: str) -> None:
        now = time.perf_counter()
        if self._phase == "evaluation" and phase != "evaluation":
            self._evaluations.append(now - self._since)
        if phase != self._phase:
            self._phase, self._since = phase, now
            self._last_step = now

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def wrapper(group: Any, *args: Any, **kwargs: Any) -> Any:
            size = min((_bytes(one) for one in args if _bytes(one)), default=0)
            for table, more in ((self.talk.calls, 1), (self.talk.sent, size)):
                table[self._phase] = table.get(self._phase, 0) + more
            return call(group, *args, **kwargs)

        return wrapper

    def _switching(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def train(module: nn.Module, mode: bool = True) -> nn.Module:
            if self._phase != "before":
                self._enter("training" if mode else "evaluation")
            return call(module, mode)  # type: ignore[no-any-return]

        return train

    def _started(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if self._phase == "before":
                self._enter("training")
            return call(*args, **kwargs)

        return backward

    def _stepped(self, *_: Any) -> None:
        now = time.perf_counter()
        self.talk.steps += 1
        self._steps.append(now - self._last_step)
        self._last_step = now


def _bytes(argument: Any) -> int:
    """Of tensors; an all_gather has its input beside an output that is longer."""
    if isinstance(argument, Tensor):
        return argument.nbytes
    return sum(map(_bytes, argument)) if isinstance(argument, (list, tuple)) else 0


def listen_to(script: str, options: list[str]) -> Talk:
    """What this rank says and takes while it runs a script, in the script's folder and without a word."""
    warnings.simplefilter("ignore")
    listener = Listener()
    listener.listen()
    os.chdir(Path(script).parent)
    sys.argv = [script, *options]
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        runpy.run_path(script, run_name="__main__")
    return listener.result()
