"""How much two processes are worth: the variance of their averaged gradient, as a share of one process's.

``python -m tests.benchmarks.variance [CASE ...]`` trains converted scripts on one and on two processes with the weights
frozen, so that the gradients of all steps have one distribution. Processes that draw their batches, noise and masks
independently have half of one process's variance; those that all draw the same have all of it.
"""

import argparse
import contextlib
import io
import os
import runpy
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from tests.support.ranks import run_ranks

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "golden"
STEPS = 400
PATIENCE = 3600  # seconds
LIMIT = 0.6


class Case(NamedTuple):
    """A converted script.

    args: with which it trains for as long as is measured. sums: whether its gradient is a sum over the processes. skip:
    the first steps, before its data are what they stay.
    """

    args: tuple[str, ...] = ("--epochs", "100000")
    sums: bool = False
    skip: int = 1


CASES = {
    "ddpm": Case(),
    "endless_generator": Case(("--steps", "100000", "--log-every", "100000")),
    "gan": Case(("--niter", "100000", "--batch-size", "50")),
    "masked_lm": Case(),
    "negative_sampling": Case(),
    "permutation_slices": Case(),
    "replay_buffer": Case(("--episodes", "100000"), skip=1000),
    "shuffled_in_place": Case(),
    "token_crops": Case(("100000",)),
    "vae": Case(("--epochs", "100000"), sums=True),
}


class Done(BaseException):
    """As many steps as asked for have been seen."""


class Gradients:
    """The mean gradient of an optimizer's steps, and the sum of squares of the distances from it (Welford)."""

    def __init__(self) -> None:
        self.steps = 0
        self._mean: Tensor | float = 0.0
        self._squares = 0.0

    def add(self, optimizer: Optimizer) -> None:
        """Count the gradient that the optimizer would step with."""
        params = [param for group in optimizer.param_groups for param in group["params"]]
        flat = torch.cat([p.grad.detach().double().flatten() for p in params if p.grad is not None])
        self.steps += 1
        before = flat - self._mean
        self._mean = self._mean + before / self.steps
        self._squares += float(torch.dot(before, flat - self._mean))

    @property
    def variance(self) -> float:
        return self._squares / (self.steps - 1)


def observe(name: str, steps: int, folder: str) -> list[float]:
    """Run a case on this rank without updates; the variances of its optimizers' gradients, in the order of their first
    steps."""
    case, script = CASES[name], GOLDEN / name / "after.py"
    found: dict[int, Gradients] = {}
    calls: dict[int, int] = {}

    def step(self: Optimizer, closure: Callable[[], float] | None = None) -> None:
        calls[id(self)] = calls.get(id(self), 0) + 1
        if calls[id(self)] <= case.skip:
            return
        found.setdefault(id(self), Gradients()).add(self)
        if len(found) == len(calls) and all(gradients.steps >= steps for gradients in found.values()):
            raise Done

    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        kind.step = step  # type: ignore[method-assign, assignment]
    os.chdir(folder)
    sys.argv = [str(script), *case.args]
    with contextlib.suppress(Done), contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(script), run_name="__main__")
    return [gradients.variance for gradients in found.values()]


def measure(name: str, processes: int, steps: int) -> list[float]:
    """The variances of one case on a number of processes."""
    with tempfile.TemporaryDirectory() as folder:
        variances: list[float] = run_ranks(observe, processes, name, steps, folder, timeout=PATIENCE)[0]
    return [value / processes**2 for value in variances] if CASES[name].sums else variances


def row(name: str, one: list[float], two: list[float]) -> str:
    """A line of the table, with one ratio for each optimizer."""
    ratios = [after / before for before, after in zip(one, two, strict=True)]
    verdict = "met" if max(ratios) <= LIMIT else "not met"
    return f"| {name} | {', '.join(f'{ratio:.2f}' for ratio in ratios)} | {verdict} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=sorted(CASES), help="names of cases [all]")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of each optimizer [%(default)s]")
    options = parser.parse_args()
    print(f"| script | two processes' variance by one's, at most {LIMIT} | |\n|---|---:|---|")
    for name in options.cases:
        one, two = (measure(name, processes, options.steps) for processes in (1, 2))
        print(row(name, one, two), flush=True)


if __name__ == "__main__":
    main()
