"""How long the training waits for a checkpoint: ``python -m tests.benchmarks.saving [--width 4096] [--layers 9]``.

A model of 600 MB is saved by `torch.save`, by a blocking `save_state` and by one in the background, in turns. While the
background save runs the training goes on: its steps are timed too, because a thread that writes may hold them up.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from tests.benchmarks.subjects import ON_CPU, Task, task

BACKGROUND = "save_state, in the background"
BESIDE = "  longest step of a training beside it"


def measure(width: int, layers: int, rounds: int) -> dict[str, float]:
    """Seconds that a training waits, medians over the rounds, by the rows of the table."""
    from crosstrain import Accelerator

    torch.set_num_threads(1)
    work = task(width, layers, 8)
    accelerator = Accelerator(cpu=ON_CPU)
    model, optimizer = accelerator.prepare(work.model, work.optimizer)
    small = task(256, 2, 8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        calls: dict[str, Callable[[], object]] = {
            "torch.save": lambda: torch.save([model.state_dict(), optimizer.state_dict()], path / "plain.pt"),
            "save_state": lambda: accelerator.save_state(path / "blocking"),
            BACKGROUND: lambda: accelerator.save_state(path / "background", blocking=False),
        }
        first = _seconds(calls[BACKGROUND])  # which allocates the copy
        _wait()
        samples: dict[str, list[float]] = {name: [] for name in (*calls, BESIDE)}
        for _ in range(rounds):
            for name, call in calls.items():
                samples[name].append(_seconds(call))
                if name == BACKGROUND:
                    samples[BESIDE].append(_longest_step(small))
                    _wait()
        accelerator.end_training()
    return {name: statistics.median(values) for name, values in samples.items()} | {"  the first one": first}


def _wait() -> None:
    from crosstrain.checkpoint import background
    from crosstrain.run import RUN

    background.finish(RUN.comm)
    os.sync()  # what one has left to the disk is not to slow the next one down


def _longest_step(work: Task, seconds: float = 0.5) -> float:
    """Of a small training beside what runs in the background."""
    longest, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        longest = max(longest, _seconds(lambda: _step(work)))
    return longest


def _step(work: Task) -> None:
    work.optimizer.zero_grad()
    (work.model(work.x) - work.y).square().mean().backward()
    work.optimizer.step()


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    rows = measure(options.width, options.layers, options.rounds)
    megabytes = (options.width**2 * options.layers * 4) / 1e6
    print(f"{megabytes:.0f} MB; seconds that the training waits, and their ratio to torch.save")
    for name, seconds in rows.items():
        print(f"{name:42} {seconds:7.3f} {seconds / rows['torch.save']:6.2f}")
    print(f"target <= 0.3: {'met' if rows[BACKGROUND] <= 0.3 * rows['torch.save'] else 'NOT MET'}")


if __name__ == "__main__":
    main()
