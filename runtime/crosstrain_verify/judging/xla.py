"""Runs the migrated script on XLA's CPU client: whether it trains the same, and what would be slow on a TPU.

Its values are compared with the original's on the CPU. XLA computes in another order and with its own approximations, so
the tolerance is wider than between processes. It also draws other random numbers; where training uses them, the spread of
the original's own runs decides.
"""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from crosstrain.requirements import install

from crosstrain_verify.judging.causes import Evidence, likely_cause
from crosstrain_verify.judging.migrated_runs import MigratedRuns, judge_by_noise, losses_of, with_verdict
from crosstrain_verify.judging.original_runs import SINGLE, OriginalRuns
from crosstrain_verify.records.traces import RankTrace
from crosstrain_verify.report.report import Run, Verdict
from crosstrain_verify.running.client import VerifyInputError
from crosstrain_verify.running.runs import Runner, Variant

EPSILON = 16 * SINGLE
SETTLED = 3  # steps that may compile: the first ones make gradients and optimizer state
AGAIN = re.compile(r"step \d+ of .* was compiled again, .*")


def check_installed() -> None:
    """Raise VerifyInputError if torch_xla is not installed."""
    if find_spec("torch_xla") is None:
        raise VerifyInputError(
            "the backend xla needs torch_xla in this environment, and the torch that it was built for: "
            + install("tpu")
        )


def judge(runner: Runner, originals: OriginalRuns, migrated_runs: MigratedRuns, after: Path) -> Run:
    """Run the migrated script on four virtual chips; the run with its verdict and the graphs compiled in each step."""
    done = runner.run(after, Variant("XLA, 4 chips", True, xla=True))
    launch = f"PJRT_DEVICE=CPU CPU_NUM_DEVICES=4 crosstrain launch --tpu --split-batches --common-draws {after.name}"
    run, rank = replace(done.run, launch=launch), done.ranks[0]
    if run.verdict.ok:
        run = with_verdict(run, migrated_runs.compare(originals.trace, done.ranks, EPSILON), Verdict.EQUAL)
    if run.verdict is Verdict.DIFFERENT and originals.trace.draws:
        others = [originals.drawing_as(number, ()) for number in (2, 3)]
        members = [originals.trace, *(other for other in others if other is not None)]
        run = judge_by_noise(run, members, done, "other random numbers")
    cause = likely_cause(Evidence(originals.trace, done.ranks, run, run.difference))
    compiled = rank.xla.compiled if rank.xla else ()
    notes = (*run.notes, *_advice(rank))
    return replace(run, cause=cause, losses=losses_of(done.ranks), compiled=compiled, notes=notes)


def _advice(rank: RankTrace) -> tuple[str, ...]:
    """Notes on what would make a TPU wait."""
    if rank.xla is None:
        return ("nothing was trained on an XLA device",) if rank.steps else ()
    late = [step for step, count in enumerate(rank.xla.compiled, start=1) if count and step > SETTLED]
    notes = []
    if late:
        shown = ", ".join(map(str, late[:8])) + (" and more" if len(late) > 8 else "")
        notes.append(f"still compiling after step {SETTLED}: in steps {shown}")
        notes += dict.fromkeys(AGAIN.findall(rank.stderr))
    else:
        notes.append(f"no step was compiled after step {SETTLED}")
    if rank.xla.between:
        notes.append(
            f"{rank.xla.between} graphs were compiled between steps: evaluations, accumulated batches"
        )
    if rank.xla.reads:
        notes.append(
            f"{rank.xla.reads} values were read one by one in {rank.steps} steps; each read waits for the device"
        )
    for name, count in sorted(rank.xla.fallbacks.items()):
        notes.append(f"XLA leaves {name} to the CPU ({count} times)")
    return tuple(notes)
