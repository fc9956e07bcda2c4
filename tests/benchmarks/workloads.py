"""What is measured: ``python -m tests.benchmarks.workloads`` in one process, or as one of two ranks."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tests.benchmarks.measure import Result, compared, dump, interleaved, memory_now, memory_peak
from tests.benchmarks.subjects import Crosstrain, installed, task

ROWS, BATCH, WIDTH = 4096, 32, 16
MARK = "RESULTS "


class Stream(IterableDataset[Any]):
    """A stream of rows whose length is not known."""

    def __init__(self, rows: int) -> None:
        self._x = torch.randn(rows, WIDTH)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._x.unbind())


def steps() -> list[Result]:
    """Training steps, tiny and medium, and windows of four with a clipping."""
    subjects = installed()
    sizes = {"tiny step": (16, 2, 8), "medium step": (512, 4, 64)}
    results = []
    for name, size in sizes.items():
        results += interleaved(
            name, {subject.name: subject.step(task(*size)) for subject in subjects}, rounds=41
        )
    calls = {subject.name: subject.accumulated(task(64, 3, 32), 4) for subject in subjects}
    return results + interleaved("accumulate 4 + clip", calls)


def loaders() -> list[Result]:
    """One pass over a data set with a known length, and over a stream of which every rank keeps its rows."""
    data, stream = TensorDataset(torch.randn(ROWS, WIDTH)), Stream(ROWS)
    results = []
    for name, source in (("map loader", data), ("iterable loader", stream)):
        sharded = {"dispatch_batches": False} if source is stream else {}
        passes = {
            subject.name: _pass(
                subject.loader(
                    DataLoader(source, batch_size=BATCH),
                    **(sharded if isinstance(subject, Crosstrain) else {}),
                )
            )
            for subject in installed()
        }
        results += interleaved(name, passes, inner=1, units=ROWS // BATCH, rounds=15)
    return results


def dispatched() -> list[Result]:
    """A stream that process 0 reads for all, against each process reading its own rows of it."""
    calls: dict[str, Callable[[], object]] = {}
    for subject in installed():
        loader = DataLoader(Stream(ROWS), batch_size=BATCH)
        options = {"dispatch_batches": True} if isinstance(subject, Crosstrain) else {}
        if subject.name != "fabric":  # it has no such mode
            calls[subject.name] = _pass(subject.loader(loader, **options))
    return interleaved(
        "dispatched loader", calls, inner=1, units=ROWS // BATCH // dist.get_world_size(), rounds=15
    )


def _pass(loader: Iterable[Any]) -> Callable[[], object]:
    def run() -> None:
        for _ in loader:
            pass

    return run


def gathers() -> list[Result]:
    """A pair of small tensors gathered, against one flat all_gather."""
    first, second = torch.randn(32, 4), torch.randint(0, 9, (32,))
    pairs = {s.name: s.gather(first, second.float() if s.name == "torch" else second) for s in installed()}
    return interleaved("gather of a pair", pairs, inner=200, rounds=25)


def imports() -> list[Result]:
    """Seconds that the import adds to torch's own, each in a process of its own."""
    codes = {
        "crosstrain": "import crosstrain; crosstrain.Accelerator",
        "accelerate": "import accelerate; accelerate.Accelerator",
        "fabric": "import lightning_fabric; lightning_fabric.Fabric",
    }
    names = [subject.name for subject in installed() if subject.name != "torch"]
    samples: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(5):
        for name in names:
            code = (
                f"import torch, time; t = time.perf_counter(); {codes[name]}; print(time.perf_counter() - t)"
            )
            out = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            ).stdout
            samples[name].append(float(out.strip().splitlines()[-1]))
    low = {name: statistics.quantiles(values, n=4) for name, values in samples.items()}
    return [
        Result("import over torch", name, statistics.median(values), float("nan"), low[name][0], low[name][2])
        for name, values in samples.items()
    ]


def checkpoints() -> list[Result]:
    """Saving and loading 26 million parameters with momentum, and the memory that it takes at most."""
    results: dict[str, list[tuple[float, float, float]]] = {}
    names = [subject.name for subject in installed()]
    for _ in range(5):
        for name in names:
            command = [sys.executable, "-m", "tests.benchmarks.workloads", "checkpoint", name]
            out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            results.setdefault(name, []).append(tuple(json.loads(out.strip().splitlines()[-1])))  # type: ignore[arg-type]
    rows = []
    for index, what in enumerate(("save", "load", "peak memory of both, MB")):
        for name in names:
            mine = [run[index] for run in results[name]]
            rows.append(compared(what, name, mine, [run[index] for run in results["torch"]]))
    return rows


def _checkpoint(name: str) -> None:
    """In a process of its own: seconds to save, to load, and megabytes above what the training itself took."""
    subject = next(subject for subject in installed() if subject.name == name)
    work = task(2048, 6, 8)
    work.optimizer.param_groups[0]["momentum"] = 0.9
    with tempfile.TemporaryDirectory() as folder:
        save, load = subject.checkpoint(work, Path(folder))
        work.model(work.x).sum().backward()
        work.optimizer.step()
        work.optimizer.zero_grad()
        before = memory_now()
        times = []
        for call in (save, load):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    print(json.dumps([*times, memory_peak() - before]))


def main(arguments: list[str]) -> None:
    """Measure what the arguments name, and print the results as one line of JSON."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ["CROSSTRAIN_QUIET"] = "1"
    if arguments[0] == "checkpoint":
        _checkpoint(arguments[1])
        return
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    results = [result for name in arguments for result in WORKLOADS[name]()]
    if os.environ.get("RANK", "0") == "0":
        print(MARK + dump(results))
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


WORKLOADS: dict[str, Callable[[], list[Result]]] = {
    "steps": steps,
    "loaders": loaders,
    "dispatched": dispatched,
    "gathers": gathers,
    "imports": imports,
    "checkpoints": checkpoints,
}

if __name__ == "__main__":
    main(sys.argv[1:])
