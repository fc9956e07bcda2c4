"""Measure and print: ``python -m tests.benchmarks [--only steps loaders ...] [--keep FOLDER]``."""

import argparse
import json
import math
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import crosstrain

from tests.benchmarks.measure import Result
from tests.benchmarks.peers import environment, say_versions
from tests.benchmarks.workloads import MARK
from tests.support.ranks import free_port, rank_variables

ALONE = ("imports", "steps", "loaders", "schedulers", "checkpoints")
TWO = ("steps", "loaders", "evaluations", "passes", "gathers")

# What DESIGN.md promises: (processes, workload) -> (quantity, limit).
TARGETS = {
    (1, "import over torch"): ("seconds", 0.05),
    (1, "tiny step"): ("ratio", 1.03),
    (1, "map loader"): ("ratio", 1.05),
    (1, "iterable loader"): ("ratio", 1.10),
    (1, "LambdaLR of 256 replicas"): ("ratio", 0.1),
    (1, "load"): ("ratio", 1.0),
    (2, "map loader"): ("ratio", 1.05),
    (2, "iterable loader"): ("seconds", 300e-6),  # process 0 reads and sends: the time of a batch counts
    (2, "iterable, every rank reads"): ("ratio", 1.10),
    (2, "evaluation, tiny model"): ("ratio", 1.02),
    (2, "evaluation, medium model"): ("ratio", 1.02),
    (2, "gather of a pair"): ("ratio", 1.2),
}
SOURCES = (str(Path(__file__).parents[2]), str(Path(crosstrain.__file__).parents[1]))
ORDER = ("torch", "crosstrain", "accelerate", "fabric")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=sorted({*ALONE, *TWO}), help="workloads [all]")
    default = Path(tempfile.gettempdir()) / "crosstrain-benchmark"
    parser.add_argument("--keep", type=Path, default=default, help="where the peers are [%(default)s]")
    options = parser.parse_args()
    python, missing = environment(options.keep)
    print(say_versions(python))
    for name, reason in missing.items():
        print(f"not measured: {name}: {reason}")
    print(
        "ratios to plain torch, measured in turns in one process: median (quartiles); cpu: of the processor time "
        "of all ranks\n"
    )
    for world, workloads in ((1, ALONE), (2, TWO)):
        chosen = [name for name in workloads if name in options.only]
        if chosen:
            print(table(world, measure(python, world, chosen)), flush=True)


def measure(
    python: Path, world: int, workloads: list[str], variables: Mapping[str, str] | None = None
) -> list[Result]:
    """Run the workloads on ranks of their own; ``variables`` are added to their environment."""
    command = [str(python), "-m", "tests.benchmarks.workloads", *workloads]
    port = free_port()
    ranks = []
    for rank in range(world):
        env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(SOURCES)}
        env |= variables or {}
        if world > 1:
            env |= rank_variables(rank, world, port)
        stderr = None if rank == 0 else subprocess.DEVNULL
        ranks.append(subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=stderr))
    outputs = [process.communicate()[0] for process in ranks]
    for process in ranks:
        if process.returncode:
            raise RuntimeError(f"the benchmark failed: {' '.join(command)}\n{outputs[0]}")
    line = next(line for line in outputs[0].splitlines() if line.startswith(MARK))
    return [Result(**entry) for entry in json.loads(line.removeprefix(MARK))]


def table(world: int, results: list[Result]) -> str:
    """Rows of workloads, columns of subjects."""
    subjects = [name for name in ORDER if any(result.subject == name for result in results)]
    head = f"{f'{world} process' + 'es' * (world > 1):26}"
    head += "".join(f"{name:>36}" for name in subjects) + "  target"
    lines = [head, "-" * len(head)]
    for workload in dict.fromkeys(result.workload for result in results):
        row = {result.subject: result for result in results if result.workload == workload}
        cells = "".join(f"{_cell(row.get(name)):>36}" for name in subjects)
        lines.append(f"{workload:26}{cells}  {_verdict(world, workload, row)}")
    return "\n".join(lines) + "\n"


def _cell(result: Result | None) -> str:
    if result is None:
        return "-"
    if result.workload == "import over torch":
        return f"{result.seconds:.3f} s ({result.low:.3f}-{result.high:.3f})"
    if "MB" in result.workload:
        return f"{result.seconds:.0f}"
    size = f"{result.seconds * 1e6:.0f} us" if result.seconds < 1e-2 else f"{result.seconds:.2f} s"
    if result.subject == "torch":
        return size
    cell = f"{size} {result.ratio:.2f} ({result.low:.2f}-{result.high:.2f})"
    return cell if math.isnan(result.processor) else f"{cell} cpu {result.processor:.2f}"


def _verdict(world: int, workload: str, row: dict[str, Result]) -> str:
    target = TARGETS.get((world, workload))
    if target is None or "crosstrain" not in row:
        return ""
    quantity, limit = target
    value = getattr(row["crosstrain"], quantity)
    shown = f"{limit * 1e6:.0f} us" if limit < 1e-2 else f"{limit:g}{' s' if quantity == 'seconds' else ''}"
    return f"<= {shown}: {'met' if value <= limit else 'NOT MET'}"


if __name__ == "__main__":
    main()
