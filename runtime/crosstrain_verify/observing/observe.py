"""Runs a script as it is and with doubled batches, and tells which of its expressions are means and which are sums."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crosstrain_verify.emulation.emulated import NOTES
from crosstrain_verify.engine import devices_for
from crosstrain_verify.judging.rank_by_rank import start
from crosstrain_verify.observing.document import Run, document, kinds
from crosstrain_verify.report.report import Verdict
from crosstrain_verify.running.client import Data, VerifyInputError, shared_server
from crosstrain_verify.running.runs import Finished, Progress, Request, Runner, Variant

SEVERAL = 2  # processes of a script that distributes itself


@dataclass(frozen=True)
class Observed:
    """The facts of a script that trained, or why it did not."""

    facts: dict[str, Any] | None
    error: str = ""


def observe(
    script: str | Path,
    *,
    args: Sequence[str] = (),
    steps: int = 60,
    timeout: float = 120.0,
    folder: str | Path | None = None,
    data: Data = "real",
    progress: Progress | None = None,
) -> Observed:
    """Let a script train for a few optimizer steps and return what was observed.

    Every pass over a loader ends after a few batches; a script that fails because of that runs with whole passes. A script
    that distributes itself runs on two processes over gloo, and its first rank is observed.

    Args:
        steps: optimizer steps after which a run ends.
        timeout: seconds for each run; what was observed until shortly before the end counts.

    The other arguments, and the errors that are raised, are those of `verify`.
    """
    path = Path(script).resolve()
    if not path.is_file():
        raise VerifyInputError(f"no script {path}")
    request = Request(
        args=tuple(args),
        steps=steps,
        timeout=timeout,
        folder=Path(folder).resolve() if folder is not None else None,
        data=data,
    )
    request = replace(request, devices=devices_for(request, (path,)))
    with tempfile.TemporaryDirectory(prefix="crosstrain-observe-") as scratch:
        runner = Runner(shared_server(), request, Path(scratch).resolve(), progress)
        variant, done = _first(runner, path)
        seen = done.ranks[0].observations
        if done.run.verdict is not Verdict.RAN or seen is None:
            return Observed(None, done.run.error.strip() or "it makes no optimizer step")
        again = replace(variant, name="observed, rows doubled", observed="doubled")
        doubled = runner.run(path, again).ranks[0].observations  # however far it got
        run = _about(runner.request, variant, done)
        return Observed(document(path, run, seen.files, kinds(seen, doubled)))


def _first(runner: Runner, script: Path) -> tuple[Variant, Finished]:
    """The first run that trains, or the last one that was tried, and how it was started; the simplest way is first."""
    if b"init_process_group" in script.read_bytes():
        started = start(runner, script, SEVERAL, observed="seen")
        if started is not None:
            return started.variant, started.done
    variant = Variant("observed", observed="seen", few=True)
    done = runner.original(script, variant)
    if done.run.verdict is not Verdict.RAN:
        variant = replace(variant, few=False)
        done = runner.original(script, variant)
    return variant, done


def _about(request: Request, variant: Variant, done: Finished) -> Run:
    devices = variant.devices or request.devices
    notes = [NOTES[name] for name in sorted(done.ranks[0].asked)]
    if devices != "real":
        notes.append(f"torch.cuda.is_available() was {'true' if devices == 'present' else 'false'}")
    if not variant.few:
        notes.append("passes over loaders were not cut short")
    if done.ranks[0].ending == "stopped":
        notes.append("the script was ended after these steps")
    return Run(request.args, variant.world, done.run.steps, done.run.seconds, request.data, tuple(notes))
