"""Runs a script as it is and with altered batches, and records the values of its expressions."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crosstrain_verify.emulation.emulated import NOTES
from crosstrain_verify.engine import devices_for
from crosstrain_verify.judging.rank_by_rank import start
from crosstrain_verify.observing.document import Run, document
from crosstrain_verify.observing.tensors import compared
from crosstrain_verify.records.observations import Observations
from crosstrain_verify.report.report import Verdict
from crosstrain_verify.running.client import Alteration, Data, Server, shared_server
from crosstrain_verify.running.runs import Finished, Progress, Request, Runner, Variant, VerifyInputError

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
    server: Server | None = None,
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
        runner = Runner(server or shared_server(), request, Path(scratch).resolve(), progress)
        return _Observing(runner, path).observed()


class _Observing:
    def __init__(self, runner: Runner, script: Path) -> None:
        self._runner = runner
        self._script = script

    def observed(self) -> Observed:
        variant, done = self._first()
        seen = done.ranks[0].observations
        if done.run.verdict is not Verdict.RAN or seen is None:
            return Observed(None, done.run.error.strip() or "it makes no optimizer step")
        permuted = self._again(variant, "permuted", "rows permuted")
        doubled = self._again(variant, "doubled", "rows doubled")
        halved = self._again(variant, "halved", "half of the rows")
        tensors = compared(seen, permuted, doubled, halved)
        losses = [event.place for event in done.ranks[0].events if event.kind == "loss"]
        other = done.ranks[1].observations if len(done.ranks) > 1 else None
        return Observed(document(self._script, self._about(variant, done), seen, tensors, losses, other))

    def _first(self) -> tuple[Variant, Finished]:
        """The first run that trains, or the last one that was tried, and how it was started; the simplest way is first."""
        if b"init_process_group" in self._script.read_bytes():
            started = start(self._runner, self._script, SEVERAL, observed="seen")
            if started is not None:
                return started.variant, started.done
        variant = Variant("observed", observed="seen", few=True)
        done = self._runner.original(self._script, variant)
        if done.run.verdict is not Verdict.RAN:
            variant = replace(variant, few=False)
            done = self._runner.original(self._script, variant)
        return variant, done

    def _again(self, variant: Variant, altered: Alteration, name: str) -> Observations | None:
        """What a run with altered batches observed, however far it got."""
        done = self._runner.run(self._script, replace(variant, name=f"observed, {name}", observed=altered))
        return done.ranks[0].observations

    def _about(self, variant: Variant, done: Finished) -> Run:
        request = self._runner.request
        devices = variant.devices or request.devices
        notes = [NOTES[name] for name in sorted(done.ranks[0].asked)]
        if devices != "real":
            notes.append(f"torch.cuda.is_available() was {'true' if devices == 'present' else 'false'}")
        if not variant.few:
            notes.append("passes over loaders were not cut short")
        ended = done.ranks[0].ending == "stopped"
        notes += ["the script was ended after these steps"] if ended else []
        return Run(request.args, variant.world, done.run.steps, done.run.seconds, request.data, tuple(notes))
