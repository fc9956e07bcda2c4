"""The parts of the check. Each runs by itself and returns what the report says of it."""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from crosstrain.comm.visible_devices import names

from tests.benchmarks.__main__ import measure
from tests.benchmarks.__main__ import table as benchmark_table
from tests.gpu_check import golden
from tests.gpu_check.commands import LAUNCH, MIGRATE, ROOT, Check, run
from tests.gpu_check.report import Section, code, table


def environment(check: Check) -> Section:
    """What is here: the device, its driver and the versions."""
    rows = [["torch", torch.__version__], ["python", sys.version.split()[0]]]
    rows += [[name, value] for name, value in names()]
    if check.kind == "cuda" and torch.version.cuda:
        rows.append(["NCCL", ".".join(map(str, torch.cuda.nccl.version()))])
        driver = run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
        rows.append(["driver", driver.out.strip()])
    return Section("Environment", table(["what", "version"], rows))


def tests(check: Check) -> Section:
    """Every test that is marked `gpu`."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "tests/gpu"]
    done = run(command, cwd=ROOT, variables={"CROSSTRAIN_TEST_DEVICE": check.torchs_own})
    lines = done.out.strip().splitlines()
    failures = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    if done.code and not failures:
        failures = [done.reason]
    shown = lines if done.code else lines[-3:]
    return Section("Tests marked `gpu`", code("\n".join(shown)), failures)


def selftest(check: Check) -> Section:
    """What `crosstrain test` says, of one process and of two that share the device."""
    where = ["--cpu"] if check.torchs_own == "cpu" else []
    failures, said = [], []
    for count in ("1", "2"):
        command = [*LAUNCH[:-1], "test", *where, "--num-processes", count]
        done = run(command, variables={"CROSSTRAIN_SHARE_DEVICES": "1"})
        said.append(done.out)
        failures += [f"{count} processes: {done.reason}"] if done.code else []
    return Section("`crosstrain test`", code("\n".join(said)), failures)


def corpus(check: Check) -> Section:
    """The golden corpus."""
    # In a process that has used no device: it forks for its runs.
    done = run(
        [sys.executable, "-m", "tests.gpu_check.golden", check.kind, *check.cases], cwd=ROOT, patience=3600.0
    )
    if done.code:
        raise RuntimeError(done.reason)
    rows: list[list[str]] = json.loads(done.out.strip().splitlines()[-1])
    by_case: dict[str, dict[str, str]] = {}
    for case, name, cell, _ in rows:
        by_case.setdefault(case, {})[name] = cell
    failures = [f"{case}, {name}: {failure}" for case, name, _, failure in rows if failure]
    text = (
        "How far the numbers that a script prints are from the original's, relative (ran: they cannot be compared). "
        "In fp32 one process must print the same; half precision, and two processes without shared random draws, "
        "need not.\n\n"
    )
    cells = [[case, *(found.get(name, "-") for name in golden.RUNS)] for case, found in by_case.items()]
    return Section("Golden corpus", text + table(["case", *golden.RUNS], cells), failures)


def benchmarks(check: Check) -> Section:
    """Steps and loaders, against plain torch and what else is installed."""
    variables = {"CROSSTRAIN_BENCHMARK_DEVICE": check.torchs_own}
    workloads = ["steps"] if check.fast else ["steps", "loaders"]
    if check.fast:
        variables["CROSSTRAIN_BENCHMARK_ROUNDS"] = "2"
    try:
        results = measure(Path(sys.executable), 1, workloads, variables)
    except RuntimeError as error:
        return Section("Benchmarks", "Not measured.", [str(error).splitlines()[0]])
    return Section("Benchmarks", "Ratios to plain torch.\n\n" + code(benchmark_table(1, results)))


def saving(check: Check) -> Section:
    """How long a training waits for its checkpoints."""
    size = ["--width", "256", "--layers", "2", "--rounds", "2"] if check.fast else []
    command = [sys.executable, "-m", "tests.benchmarks.saving", *size]
    done = run(command, cwd=ROOT, variables={"CROSSTRAIN_BENCHMARK_DEVICE": check.torchs_own})
    return Section("Checkpoints", code(done.out), [done.reason] if done.code else [])


def script(check: Check) -> Section:
    """A script before and after its conversion."""
    arguments = ["--epochs", "1"] if check.fast else []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.py"
        shutil.copy(ROOT / "tests" / "demo_assets" / "digits.py", path)
        before = run([sys.executable, "train.py", *arguments], cwd=path.parent)
        migrated = run([*MIGRATE, "train.py", "--write"], cwd=path.parent)
        where = ["--cpu"] if check.torchs_own == "cpu" else []
        after = run([*LAUNCH, *where, "--num-processes", "1", "train.py", *arguments], cwd=path.parent)
    steps = {"the original": before, "its conversion": migrated, "the result": after}
    failures = [f"{name}: {done.reason}" for name, done in steps.items() if done.code]
    text = f"Before:\n\n{code(_end(before.out))}\n\nAfter:\n\n{code(_end(after.out))}"
    return Section("A migrated script, before and after", text, failures)


def _end(output: str, lines: int = 6) -> str:
    return "\n".join(output.strip().splitlines()[-lines:])


SECTIONS: dict[str, Callable[[Check], Section]] = {
    "environment": environment,
    "tests": tests,
    "selftest": selftest,
    "golden": corpus,
    "benchmarks": benchmarks,
    "saving": saving,
    "script": script,
}
