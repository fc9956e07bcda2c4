"""Eight causes, planted in conversions by hand of three scripts: `python -m tests.verify.planted` prints what verify makes of them.

A script is named as its file in `by_hand`: `ddp` is a conversion of `plain.py`, `text/ddp` one of `text/plain.py`.
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


def _left_out(*names: str, of: str = PREPARED) -> dict[str, str]:
    """`prepare` without these names."""
    kept = ", ".join(name for name in of.split(", ") if name not in names)
    return {of: kept}


IMAGES = "model, optimizer, train_loader"  # what images/on_runtime.py prepares
_TWICE = {"accelerator.backward(loss)": "accelerator.backward(loss / accelerator.num_processes)"}
_DIVIDED_BY_HAND = {"cross_entropy(model(x), y)\n": "cross_entropy(model(x), y) / 2\n"}
_SCHEDULE = {", step_scheduler_with_optimizer=False": ""}
# The prepared loader is shorter, and the prepared scheduler is stepped once for each process.
_PREPARED_LENGTH = {"total = 2 * len": "train_loader = accelerator.prepare(train_loader)\ntotal = 2 * len"}
_STEPPED_BY_ALL = {"scheduler.step()": "[scheduler.step() for _ in range(world)]"}
_CLIPPED = {"accelerator.clip_grad_norm_(": "torch.nn.utils.clip_grad_norm_("}
_NEVER_UNSCALED = {"scaler.unscale_(optimizer)\n": "pass\n"}
_UNWRAPPED = {"cross_entropy(model(x)": "cross_entropy(accelerator.unwrap_model(model)(x)"}
_PLAIN_BACKWARD = {"accelerator.backward(loss)": "loss.backward()"}
_NOT_WRAPPED = {"model = DistributedDataParallel(model)\n": ""}
_ALL_SEEDED_ALIKE = {"if rank:\n": "if False:\n"}
_COMMON_DRAWS = {"Accelerator(": "Accelerator(own_draws=False, "}

PLANTED: dict[str, dict[str, Planted]] = {
    "loader not sharded": {
        "ddp": Planted(
            {"batch_size=8, sampler=sampler": "batch_size=8, shuffle=True"}, "loader-not-prepared"
        ),
        "accelerated": Planted(_left_out("train_loader"), "loader-not-prepared"),
        "on_runtime": Planted(_left_out("train_loader"), "loader-not-prepared"),
        "text/ddp": Planted(
            {"DistributedSampler(train_set)": "DistributedSampler(train_set, num_replicas=1, rank=0)"},
            "loader-not-prepared",
        ),
        "text/accelerated": Planted(_left_out("train_loader"), "loader-not-prepared"),
        "text/on_runtime": Planted(_left_out("train_loader"), "loader-not-prepared"),
        "images/ddp": Planted(
            {"batch_size=6, sampler=sampler": "batch_size=6, shuffle=True"}, "loader-not-prepared"
        ),
        "images/accelerated": Planted(_left_out("train_loader"), "loader-not-prepared"),
        "images/on_runtime": Planted(_left_out("train_loader", of=IMAGES), "loader-not-prepared"),
    },
    "loss scaled twice": {
        "ddp": Planted({"scaler.scale(loss)": "scaler.scale(loss / world)"}, "scaled-twice"),
        "accelerated": Planted(_TWICE, "scaled-twice"),
        "on_runtime": Planted(_TWICE, "scaled-twice"),
        "text/ddp": Planted(
            {"cross_entropy(model(x), y) / 2": "cross_entropy(model(x), y) / 2 / world"}, "scaled-twice"
        ),
        "text/accelerated": Planted(_DIVIDED_BY_HAND, "divided-twice"),
        "text/on_runtime": Planted(_DIVIDED_BY_HAND, "divided-twice"),
        "images/ddp": Planted({"scaler.scale(loss)": "scaler.scale(loss / world)"}, "scaled-twice"),
        "images/accelerated": Planted(_TWICE, "scaled-twice"),
        "images/on_runtime": Planted(_TWICE, "scaled-twice"),
    },
    "gradients not averaged": {
        "ddp": Planted({"cross_entropy(model(x)": "cross_entropy(model.module(x)"}, "not-averaged"),
        "accelerated": Planted(_UNWRAPPED, "not-averaged"),
        # A prepared model or optimizer averages, even under no_sync before a step: there is no other way.
        "on_runtime": Planted(_left_out("model", "optimizer") | _PLAIN_BACKWARD, "model-not-prepared"),
        "text/ddp": Planted({"grad_sync = number % 2 == 0": "grad_sync = number % 2 == 1"}, "not-averaged"),
        "text/accelerated": Planted(_UNWRAPPED, "not-averaged"),
        # Seen first: an optimizer that is not prepared steps after every backward.
        "text/on_runtime": Planted(
            _left_out("model", "optimizer") | {"accelerator.backward(loss)": "(loss / 2).backward()"},
            "accumulation",
        ),
        "images/ddp": Planted({"cross_entropy(model(x)": "cross_entropy(model.module(x)"}, "not-averaged"),
        "images/accelerated": Planted(_UNWRAPPED, "not-averaged"),
        "images/on_runtime": Planted(
            _left_out("model", "optimizer", of=IMAGES) | _PLAIN_BACKWARD, "model-not-prepared"
        ),
    },
    "scheduler stepped P times": {
        "ddp": Planted(_STEPPED_BY_ALL, "scheduler-per-process"),
        "accelerated": Planted(_SCHEDULE, "scheduler-per-process"),
        "on_runtime": Planted(_SCHEDULE, "scheduler-per-process"),
        "text/ddp": Planted(_STEPPED_BY_ALL, "scheduler-per-process"),
        "text/accelerated": Planted(_PREPARED_LENGTH, "scheduler-per-process"),
        "text/on_runtime": Planted(_PREPARED_LENGTH, "scheduler-per-process"),
        "images/ddp": Planted(_STEPPED_BY_ALL, "scheduler-per-process"),
        "images/accelerated": Planted(_SCHEDULE, "scheduler-per-process"),
        "images/on_runtime": Planted(
            {
                "    for epoch in range(3):\n": "    scheduler = accelerator.prepare(scheduler)\n    for epoch in range(3):\n"
            },
            "scheduler-per-process",
        ),
    },
    "evaluation counted twice": {
        "ddp": Planted({"[128 + rank :: world]": "[128:]"}, "evaluation-counted-twice"),
        "accelerated": Planted(_left_out("test_loader"), "evaluation-counted-twice"),
        "on_runtime": Planted(_left_out("test_loader"), "evaluation-counted-twice"),
        "text/ddp": Planted({", sampler=range(rank, len(test_set), world)": ""}, "evaluation-counted-twice"),
        "text/accelerated": Planted(_left_out("test_loader"), "evaluation-counted-twice"),
        "text/on_runtime": Planted(_left_out("test_loader"), "evaluation-counted-twice"),
        "images/ddp": Planted(
            {"Subset(test_set, range(rank, len(test_set), world))": "test_set"}, "evaluation-counted-twice"
        ),
        "images/accelerated": Planted(_left_out("test_loader"), "evaluation-counted-twice"),
        "images/on_runtime": Planted(
            {
                "    test_loader = accelerator.prepare_evaluation(test_loader)\n": "",
                "accelerator.merge(test_loader, losses, right, seen)": "accelerator.reduce((losses, right, seen), 'sum')",
            },
            "evaluation-counted-twice",
        ),
    },
    "clipping before unscaling": {
        "ddp": Planted(_NEVER_UNSCALED, "clipped-before-unscale", ("amp",)),
        "accelerated": Planted(_CLIPPED, "clipped-before-unscale", ("amp",)),
        "on_runtime": Planted(_CLIPPED, "clipped-before-unscale", ("amp",)),
        "text/ddp": Planted(_NEVER_UNSCALED, "clipped-before-unscale", ("amp",)),
        "text/accelerated": Planted(_CLIPPED, "clipped-before-unscale", ("amp",)),
        "text/on_runtime": Planted(_CLIPPED, "clipped-before-unscale", ("amp",)),
        "images/ddp": Planted(_NEVER_UNSCALED, "clipped-before-unscale", ("amp",)),
        "images/accelerated": Planted(_CLIPPED, "clipped-before-unscale", ("amp",)),
        "images/on_runtime": Planted(_CLIPPED, "clipped-before-unscale", ("amp",)),
    },
    "model not prepared": {
        "ddp": Planted(_NOT_WRAPPED, "model-not-prepared"),
        "accelerated": Planted(_left_out("model"), "model-not-prepared"),
        "on_runtime": Planted(_left_out("model", "optimizer"), "model-not-prepared"),
        "text/ddp": Planted(_NOT_WRAPPED, "model-not-prepared"),
        "text/accelerated": Planted(_left_out("model"), "model-not-prepared"),
        "text/on_runtime": Planted(_left_out("model", "optimizer"), "accumulation"),  # as above
        "images/ddp": Planted({f"    {text}": "" for text in _NOT_WRAPPED}, "model-not-prepared"),
        "images/accelerated": Planted(_left_out("model"), "model-not-prepared"),
        "images/on_runtime": Planted(_left_out("model", "optimizer", of=IMAGES), "model-not-prepared"),
    },
    "dropout drawn alike": {
        "ddp": Planted(_ALL_SEEDED_ALIKE, "drawn-alike"),
        "accelerated": Planted({"if accelerator.process_index:": "if False:"}, "drawn-alike"),
        "on_runtime": Planted(_COMMON_DRAWS, "drawn-alike"),
        "text/ddp": Planted(_ALL_SEEDED_ALIKE, "drawn-alike"),
        "text/accelerated": Planted({"if accelerator.process_index:": "if False:"}, "drawn-alike"),
        "text/on_runtime": Planted(_COMMON_DRAWS, "drawn-alike"),
        "images/ddp": Planted(_ALL_SEEDED_ALIKE, "drawn-alike"),
        "images/accelerated": Planted({"if accelerator.process_index:": "if False:"}, "drawn-alike"),
        "images/on_runtime": Planted(_COMMON_DRAWS, "drawn-alike"),
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
    return verify(before, after, args=args, default_launch=True, devices=devices, timeout=120)


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
