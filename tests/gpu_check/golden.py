"""The golden corpus on the device, every script as it was and as it became: ``python -m tests.gpu_check.golden DEVICE``.

In a process of its own, which forks for each run and so must not touch the device. On XLA's client, which stands in for a
device where there is none, one process runs each script; the original, fp16 and two processes need torch's own devices.
"""

import argparse
import importlib
import json
import math
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.golden.cases import Case, cases
from tests.gpu_check.commands import Check
from tests.support.forked import Job, Ran, run_all
from tests.support.ranks import free_port
from tests.xla.expected import DEVICE, EXPECTED, ONE_CHIP, as_expected
from tests.xla.strict import be_strict

# The cases that are also run in half precision.
HALF = "autoencoder dict_transformer main_argparse mnist_functions multi_loss nano_lm trainer_class vae"
RUNS = ("original", "fp32", "bf16", "fp16", "2 processes")
# Relative, of the numbers that one process prints in fp32: devices add up in their own order.
TOLERANCE = 0.05
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+\.\d+(?:e[-+]?\d+)?|\bnan\b|\binf\b", re.IGNORECASE)
_PLACE = re.compile(r'File "(?!<)([^"]+)", line (\d+)')
_TIMED = re.compile(r"\b(s|sec|seconds|ms|time|elapsed|it/s|samples/s)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Outcome:
    """One run of one case: how far its numbers are from the original's, or why it failed."""

    case: str
    run: str
    furthest: float = math.nan
    failure: str = ""
    expected: str = ""  # how it ended, as it was known to

    @property
    def cell(self) -> str:
        if self.failure:
            return "**failed**"
        if self.expected:
            return self.expected
        return "ran" if math.isnan(self.furthest) else f"{self.furthest:.0e}"


def chosen(check: Check) -> list[Case]:
    """The cases that train."""
    there = [case for case in cases() if case.expect != "refused"]
    return [case for case in there if not check.cases or case.name in check.cases]


def jobs(case: Case, check: Check) -> Iterator[tuple[str, Job]]:
    """The runs of a case by their names: the original, the result in each precision, and two processes on one device."""
    if check.kind != "xla":
        variables, prelude = alone() if case.distributed else {}, start_anew if spawns(case) else None
        arguments = _arguments(case, check)
        yield "original", Job(case.name, case.folder, "before.py", arguments, variables, prelude=prelude)
    precisions = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}
    for name, precision in precisions.items():
        if name == "fp32" or (case.name in HALF.split() and not (name == "fp16" and check.kind == "xla")):
            yield name, _converted(case, check, 1, mixed_precision=precision)
    if check.kind != "xla":
        yield "2 processes", _converted(case, check, 2, split_batches=True, even_batches="weighted")


def alone() -> dict[str, str]:
    """The variables of the only process that torchrun starts."""
    only = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    return only | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}


def spawns(case: Case) -> bool:
    """Whether the original starts its own processes. They draw numbers of their own: its seed is the parent's."""
    return ".spawn(" in case.source.text


def start_anew() -> None:
    """In the process of a script that spawns others: be an interpreter of its own, in which they find their function."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.argv])


def _converted(case: Case, check: Check, world: int, **options: object) -> Job:
    config = json.dumps({"cpu": True, **options} if check.cpu else options)
    variables = {"CROSSTRAIN_CONFIG": config, "CROSSTRAIN_SHARE_DEVICES": "1", "CROSSTRAIN_QUIET": "1"}
    if case.distributed and "RANK" in case.source.text and world == 1 and check.kind != "xla":
        variables |= alone()  # as its original is started
    prelude = be_strict if check.kind == "xla" and case.name not in EXPECTED else None
    return Job(case.name, case.folder, "after.py", _arguments(case, check), variables, prelude, world)


def _arguments(case: Case, check: Check) -> tuple[str, ...]:
    """A case's own, and what lets it train on the device."""
    return case.args if check.cpu else (*case.args, *DEVICE.get(case.name, ()))


def outcomes(check: Check) -> dict[str, list[Outcome]]:
    """Every run of every case that is chosen, by the case's name."""
    wanted = {(case.name, name): (case, job) for case in chosen(check) for name, job in jobs(case, check)}
    seedless = {case.name for case in chosen(check) if spawns(case)}
    found: dict[tuple[str, str], Ran] = {}
    names = {id(job): key for key, (_, job) in wanted.items()}
    for job, ran in run_all([job for _, job in wanted.values()], at_once()):
        found[names[id(job)]] = ran
    answers: dict[str, list[Outcome]] = {}
    for case, name in wanted:
        plain = found.get((case, "original"))
        strict = name == "fp32" and case not in seedless
        judged = _judge(case, name, found[case, name], plain if name != "original" else None, strict)
        if check.kind == "xla":
            ended, failure = as_expected(case, judged.failure, found[case, name].text)
            judged = replace(judged, expected=ended, failure=failure)
        answers.setdefault(case, []).append(judged)
    return answers


def at_once() -> int:
    """Runs at once: a device is large enough for several of these."""
    return max(1, min(12, len(os.sched_getaffinity(0))))


def _judge(case: str, name: str, done: Ran, plain: Ran | None, strict: bool = False) -> Outcome:
    if done.code:
        return Outcome(case, name, failure=reason(done))
    mine = numbers(done.out)
    if not all(map(math.isfinite, mine)) and (plain is None or all(map(math.isfinite, numbers(plain.out)))):
        return Outcome(case, name, failure="prints a number that is not finite")
    if plain is None or plain.code:
        return Outcome(case, name)
    furthest = difference(numbers(plain.out), mine)
    if strict and furthest > TOLERANCE:
        return Outcome(case, name, furthest, f"prints other numbers than the original ({furthest:.0e})")
    return Outcome(case, name, furthest)


def reason(done: Ran) -> str:
    """The last words of a run that failed."""
    if done.was_stopped:
        return "no end in its time"
    lines = [line for line in done.err.splitlines() if line.strip()]
    places = _PLACE.findall(done.err)
    at = f" ({Path(places[-1][0]).name}:{places[-1][1]})" if places else ""
    return f"exit code {done.code}: {lines[-1] if lines else ''}{at}"


def numbers(output: str) -> list[float]:
    """The decimal numbers that a script prints, without lines about time."""
    lines = [line for line in output.splitlines() if not _TIMED.search(line)]
    return [float(found) for line in lines for found in _NUMBER.findall(line)]


def difference(expected: list[float], found: list[float]) -> float:
    """The largest, relative to the larger of the number and 1; NaN where they cannot be compared."""
    if len(expected) != len(found):
        return math.nan
    pairs = [(a, b) for a, b in zip(expected, found, strict=True) if math.isfinite(a) and math.isfinite(b)]
    return max((abs(a - b) / max(abs(a), 1.0) for a, b in pairs), default=0.0)


def load_for(kind: str) -> None:
    """Load, once for all runs, what they import. Before torch_xla is loaded it must know its device."""
    if kind == "xla":
        os.environ.update(ONE_CHIP)
        importlib.import_module("crosstrain.comm.xla.backend")
    else:
        importlib.import_module("crosstrain.comm.torch_backend")


def main() -> int:
    """Print every outcome as JSON, for the section that asks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    load_for(options.device)
    check = Check(options.device, tuple(options.cases), fast=False)
    rows = [[one.case, one.run, one.cell, one.failure] for some in outcomes(check).values() for one in some]
    print(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
