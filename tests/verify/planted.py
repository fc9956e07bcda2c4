"""Eight causes, planted in two conversions by hand of one script: `python -m tests.verify.planted` prints what verify makes of them.

A conversion is named as its file in `by_hand`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crosstrain_verify import Report, verify

BY_HAND = Path(__file__).with_name("by_hand")
PREPARED = "model, optimizer, train_loader, test_loader, scheduler"


@dataclass(frozen=True)
class Planted:
    """A mistake. edits: text and replacement. rule: the name of the cause that verify must give."""

    edits: Mapping[str, str]
    rule: str
    args: tuple[str, ...] = field(default=())

    def apply(self, text: str) -> str:
        for old, new in self.edits.items():
            assert old in text, old
            text = text.replace(old, new)
        return text


def _left_out(*names: str) -> dict[str, str]:
    """`prepare` without these names."""
    return {PREPARED: ", ".join(name for name in PREPARED.split(", ") if name not in names)}


_TWICE = {"accelerator.backward(loss)": "accelerator.backward(loss / accelerator.num_processes)"}
_SCHEDULE = {", step_scheduler_with_optimizer=False": ""}
_STEPPED_BY_ALL = {"scheduler.step()": "[scheduler.step() for _ in range(world)]"}
_CLIPPED = {"accelerator.clip_grad_norm_(": "torch.nn.utils.clip_grad_norm_("}
_NEVER_UNSCALED = {"scaler.unscale_(optimizer)\n": "pass\n"}
_PLAIN_BACKWARD = {"accelerator.backward(loss)": "loss.backward()"}
_NOT_WRAPPED = {"model = DistributedDataParallel(model)\n": ""}
_ALL_SEEDED_ALIKE = {"if rank:\n": "if False:\n"}
_COMMON_DRAWS = {"Accelerator(": "Accelerator(own_draws=False, "}

PLANTED: dict[str, dict[str, Planted]] = {
    "loader not sharded": {
        "ddp": Planted(
            {"batch_size=8, sampler=sampler": "batch_size=8, shuffle=True"}, "loader-not-prepared"
        ),
        "on_runtime": Planted(_left_out("train_loader"), "loader-not-prepared"),
    },
    "loss scaled twice": {
        "ddp": Planted({"scaler.scale(loss)": "scaler.scale(loss / world)"}, "scaled-twice"),
        "on_runtime": Planted(_TWICE, "scaled-twice"),
    },
    "gradients not averaged": {
        "ddp": Planted({"cross_entropy(model(x)": "cross_entropy(model.module(x)"}, "not-averaged"),
        # A prepared model or optimizer averages, even under no_sync before a step: there is no other way.
        "on_runtime": Planted(_left_out("model", "optimizer") | _PLAIN_BACKWARD, "model-not-prepared"),
    },
    "scheduler stepped P times": {
        "ddp": Planted(_STEPPED_BY_ALL, "scheduler-per-process"),
        "on_runtime": Planted(_SCHEDULE, "scheduler-per-process"),
    },
    "evaluation counted twice": {
        "ddp": Planted({"[128 + rank :: world]": "[128:]"}, "evaluation-counted-twice"),
        "on_runtime": Planted(_left_out("test_loader"), "evaluation-counted-twice"),
    },
    "clipping before unscaling": {
        "ddp": Planted(_NEVER_UNSCALED, "clipped-before-unscale", ("amp",)),
        "on_runtime": Planted(_CLIPPED, "clipped-before-unscale", ("amp",)),
    },
    "model not prepared": {
        "ddp": Planted(_NOT_WRAPPED, "model-not-prepared"),
        "on_runtime": Planted(_left_out("model", "optimizer"), "model-not-prepared"),
    },
    "dropout drawn alike": {
        "ddp": Planted(_ALL_SEEDED_ALIKE, "drawn-alike"),
        "on_runtime": Planted(_COMMON_DRAWS, "drawn-alike"),
    },
}


def found(script: str, planted: Planted | None, folder: Path) -> Report:
    """What verify makes of a conversion with a mistake, or without."""
    source = BY_HAND / f"{script}.py"
    text = source.read_text(encoding="utf-8")
    after = folder / source.name
    after.write_text(text if planted is None else planted.apply(text), encoding="utf-8")
    args = planted.args if planted is not None else ()
    devices = "present" if args else None
    before = source.with_name("plain.py")
    return verify(before, after, args=args, default_launch=True, devices=devices, timeout=300)


def rules(report: Report) -> list[str]:
    """The causes that the report names, in the order of its runs."""
    return [run.cause.rule for run in report.runs if run.cause is not None]


def table(folder: Path, chosen: list[str]) -> Iterator[str]:
    """A row for each cause and script that `chosen` names, or for all."""
    yield "| planted | script | verdicts | first difference | cause named | right |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for cause, scripts in PLANTED.items():
        for script, planted in scripts.items():
            if chosen and not any(one in (cause, script) for one in chosen):
                continue
            report = found(script, planted, folder)
            verdicts = ", ".join(run.verdict.value for run in report.runs)
            named = next((str(run.cause) for run in report.runs if run.cause is not None), "none")
            difference = next((str(run.difference) for run in report.runs if run.difference is not None), "")
            right = rules(report)[:1] == [planted.rule] and not report.ok
            yield f"| {cause} | {script} | {verdicts} | {difference} | {named} | {'yes' if right else 'NO'} |"


def main() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        for line in table(Path(place), sys.argv[1:]):
            print(line, flush=True)


if __name__ == "__main__":
    main()
