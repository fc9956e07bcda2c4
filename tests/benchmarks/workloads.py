"""What is measured: ``python -m tests.benchmarks.workloads`` in one process, or as one of two ranks."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from crosstrain.step.scheduler import prepare_scheduler
from crosstrain.step.window import Gradients
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tests.benchmarks.measure import Result, compared, interleaved, memory_now, memory_peak
from tests.benchmarks.subjects import Crosstrain, installed, task

ROWS, BATCH, WIDTH = 16384, 32, 16
REPLICAS = 256
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
        results += interleaved(name, {s.name: s.step(task(*size)) for s in subjects}, rounds=101)
    calls = {subject.name: subject.accumulated(task(64, 3, 32), 4) for subject in subjects}
    return results + interleaved("accumulate 4 + clip", calls)


def loaders() -> list[Result]:
    """A pass over a data set with a known length, and over a stream, prepared with the defaults.

    Several processes: plain torch shards by hand, each process reading the whole stream for its own rows. The
    default of a prepared stream is that process 0 reads it for all, so the row "every rank reads" is the one that
    does the same work as plain torch.
    """
    data, stream = TensorDataset(torch.randn(ROWS, WIDTH)), Stream(ROWS)
    rows = [("map loader", data, {}), ("iterable loader", stream, {})]
    if dist.is_initialized():
        rows.append(("iterable, every rank reads", stream, {"dispatch_batches": False}))
    results = []
    for name, source, options in rows:
        passes = {
            subject.name: _pass(
                subject.loader(
                    DataLoader(source, batch_size=BATCH),
                    **(options if isinstance(subject, Crosstrain) else {}),
                )
            )
            for subject in installed()
        }
        units = ROWS // BATCH // (dist.get_world_size() if dist.is_initialized() else 1)
        results += interleaved(name, passes, inner=1, units=units, rounds=60)
    return results


def evaluations() -> list[Result]:
    """An evaluation of 100 batches: the plain loop over a process's share, and one that is divided and merged."""
    results = []
    for name, size in {"tiny": (16, 2, 32), "medium": (256, 3, 64)}.items():
        work = task(*size)
        data = TensorDataset(torch.randn(100 * work.rows, size[0]), torch.randn(100 * work.rows, 1))
        loops = {
            subject.name: subject.evaluation(task(*size), DataLoader(data, batch_size=work.rows))
            for subject in installed()
            if hasattr(subject, "evaluation") and subject.name in ("torch", "crosstrain")
        }
        results += interleaved(f"evaluation, {name} model", loops, inner=1, rounds=101)
    return results


def passes() -> list[Result]:
    """A pass of one batch: what it costs that a pass has random numbers of its own, among others."""
    data = TensorDataset(torch.randn(BATCH * dist.get_world_size(), WIDTH))
    loaders = {s.name: _pass(s.loader(DataLoader(data, batch_size=BATCH))) for s in installed()}
    return interleaved("a pass of one batch", loaders, inner=20, rounds=101)


def schedulers() -> list[Result]:
    """What follows from one optimizer step of 256 replicas: plain torch steps the scheduler as often."""

    def made(prepared: bool) -> LambdaLR:
        scheduler = LambdaLR(torch.optim.SGD([torch.zeros(1, requires_grad=True)]), lambda step: 0.999**step)
        scheduler.optimizer.step()
        if prepared:
            prepare_scheduler(scheduler, Gradients(), times=REPLICAS, with_optimizer=True)
        return scheduler

    plain, prepared = made(False), made(True)

    def each() -> None:
        for _ in range(REPLICAS):
            plain.step()

    return interleaved("LambdaLR of 256 replicas", {"torch": each, "crosstrain": prepared.step})


def _pass(loader: Iterable[Any]) -> Callable[[], object]:
    def run() -> None:
        for _ in loader:
            pass

    return run


def gathers() -> list[Result]:
    """A pair of small tensors gathered, against one flat all_gather."""
    first, second = torch.randn(32, 4), torch.randint(0, 9, (32,))
    pairs = {s.name: s.gather(first, second.float() if s.name == "torch" else second) for s in installed()}
    return interleaved("gather of a pair", pairs, inner=20)


def imports() -> list[Result]:
    """Seconds of processor time that the import adds to torch's own, each in a process of its own."""
    codes = {
        "crosstrain": "import crosstrain; crosstrain.Accelerator",
        "accelerate": "import accelerate; accelerate.Accelerator",
        "fabric": "import lightning_fabric; lightning_fabric.Fabric",
    }
    names = [subject.name for subject in installed() if subject.name != "torch"]
    samples: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as compiled:
        for turn in range(6):
            for name in names:
                seconds = _import(codes[name], compiled)
                if turn:  # the first one compiles what an installed package brings compiled
                    samples[name].append(seconds)
    low = {name: statistics.quantiles(values, n=4) for name, values in samples.items()}
    return [
        Result("import over torch", name, statistics.median(values), float("nan"), low[name][0], low[name][2])
        for name, values in samples.items()
    ]


def _import(code: str, compiled: str) -> float:
    """Seconds of processor time that the code takes once torch is there; ``compiled``: a folder for bytecode."""
    timed = f"import torch, time; t = time.process_time(); {code}; print(time.process_time() - t)"
    env = os.environ | {"PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True, check=True, env=env)
    return float(done.stdout.strip().splitlines()[-1])


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
        print(MARK + json.dumps([asdict(result) for result in results]))
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


WORKLOADS: dict[str, Callable[[], list[Result]]] = {
    "steps": steps,
    "loaders": loaders,
    "evaluations": evaluations,
    "passes": passes,
    "gathers": gathers,
    "schedulers": schedulers,
    "imports": imports,
    "checkpoints": checkpoints,
}

if __name__ == "__main__":
    main(sys.argv[1:])
