"""The golden corpus on the device: every script as it was and as it became, in all precisions."""

from __future__ import annotations

import math
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.golden.cases import Case, cases
from tests.gpu_check.commands import LAUNCH, Check, Done, run

PRECISIONS = ("no", "bf16", "fp16")
TOLERANCE = (
    0.05  # relative, of the numbers that one process prints in fp32: devices add up in their own order
)
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+\.\d+(?:e[-+]?\d+)?|\bnan\b|\binf\b", re.IGNORECASE)
_TIMED = re.compile(r"\b(s|sec|seconds|ms|time|elapsed|it/s|samples/s)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Outcome:
    """One run of one case: how far its numbers are from the original's, or why it failed."""

    case: str
    run: str
    furthest: float = math.nan
    failure: str = ""

    @property
    def cell(self) -> str:
        if self.failure:
            return "**failed**"
        return "ran" if math.isnan(self.furthest) else f"{self.furthest:.0e}"


def chosen(check: Check) -> list[Case]:
    """The cases that train."""
    there = [case for case in cases() if case.expect != "refused"]
    return [case for case in there if not check.cases or case.name in check.cases]


def outcomes(case: Case, check: Check) -> list[Outcome]:
    """The original, then the result: one process in each precision, and two that share the device."""
    plain = _run(case, [sys.executable], "before.py")
    found = [_judge(case, "original", plain, None)]
    for precision in PRECISIONS:
        words = [*LAUNCH, *_where(check), "--num-processes", "1", "--mixed-precision", precision]
        done = _run(case, words, "after.py")
        name = "fp32" if precision == "no" else precision
        found.append(_judge(case, name, done, plain, strict=precision == "no"))
    words = [*LAUNCH, *_where(check), "--num-processes", "2", "--split-batches"]
    found.append(_judge(case, "2 processes", _run(case, words, "after.py"), plain))
    return found


def _where(check: Check) -> list[str]:
    return ["--cpu"] if check.cpu else []


def _run(case: Case, command: list[str], script: str) -> Done:
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / case.name
        shutil.copytree(case.folder, copied)
        env = {"CROSSTRAIN_SHARE_DEVICES": "1"}
        if case.distributed and command == [sys.executable]:  # as torchrun would start it
            command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--standalone"]
        return run([*command, script, *case.args], cwd=copied, variables=env)


def _judge(case: Case, name: str, done: Done, plain: Done | None, strict: bool = False) -> Outcome:
    if done.code:
        return Outcome(case.name, name, failure=done.reason)
    mine = numbers(done.out)
    if not all(map(math.isfinite, mine)) and (plain is None or all(map(math.isfinite, numbers(plain.out)))):
        return Outcome(case.name, name, failure="prints a number that is not finite")
    if plain is None or plain.code:
        return Outcome(case.name, name)
    furthest = difference(numbers(plain.out), mine)
    if strict and furthest > TOLERANCE:
        return Outcome(case.name, name, furthest, f"prints other numbers than the original ({furthest:.0e})")
    return Outcome(case.name, name, furthest)


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
