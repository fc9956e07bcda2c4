"""Eight causes, each planted in three conversions by hand: `python -m tests.verify.planted` prints what verify makes of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crosstrain_verify import Report, verify

BY_HAND = Path(__file__).with_name("by_hand")
PREPARED = "model, optimizer, train_loader, test_loader, scheduler"
OWN_SEED = "if accelerator.process_index:\n    torch.manual_seed(accelerator.process_index)\n"


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
    kept = ", ".join(name for name in PREPARED.split(", ") if name not in names)
    return {PREPARED: kept}


_TWICE = {"accelerator.backward(loss)": "accelerator.backward(loss / accelerator.num_processes)"}
_SCHEDULE = {", step_scheduler_with_optimizer=False": ""}
_CLIPPED = {"accelerator.clip_grad_norm_(": "torch.nn.utils.clip_grad_norm_("}

PLANTED: dict[str, dict[str, Planted]] = {
    "loader not sharded": {
        "ddp": Planted(
            {"batch_size=8, sampler=sampler": "batch_size=8, shuffle=True"}, "loader-not-prepared"
        ),
        "accelerated": Planted(_left_out("train_loader"), "loader-not-prepared"),
        "on_runtime": Planted(_left_out("train_loader"), "loader-not-prepared"),
    },
    "loss scaled twice": {
        "ddp": Planted({"scaler.scale(loss)": "scaler.scale(loss / world)"}, "scaled-twice"),
        "accelerated": Planted(_TWICE, "scaled-twice"),
        "on_runtime": Planted(_TWICE, "scaled-twice"),
    },
    "gradients not averaged": {
        "ddp": Planted({"cross_entropy(model(x)": "cross_entropy(model.module(x)"}, "not-averaged"),
        "accelerated": Planted(
            {"cross_entropy(model(x)": "cross_entropy(accelerator.unwrap_model(model)(x)"}, "not-averaged"
        ),
        "on_runtime": Planted(
            # A prepared model or optimizer averages, even under no_sync before a step: there is no other way.
            {**_left_out("model", "optimizer"), "accelerator.backward(loss)": "loss.backward()"},
            "model-not-prepared",
        ),
    },
    "scheduler stepped P times": {
        "ddp": Planted(
            {"    scheduler.step()": "    [scheduler.step() for _ in range(world)]"}, "scheduler-per-process"
        ),
        "accelerated": Planted(_SCHEDULE, "scheduler-per-process"),
        "on_runtime": Planted(_SCHEDULE, "scheduler-per-process"),
    },
    "evaluation counted twice": {
        "ddp": Planted({"[128 + rank :: world]": "[128:]"}, "evaluation-counted-twice"),
        "accelerated": Planted(_left_out("test_loader"), "evaluation-counted-twice"),
        "on_runtime": Planted(_left_out("test_loader"), "evaluation-counted-twice"),
    },
    "clipping before unscaling": {
        "ddp": Planted({"        scaler.unscale_(optimizer)\n": ""}, "clipped-before-unscale", ("amp",)),
        "accelerated": Planted(_CLIPPED, "clipped-before-unscale", ("amp",)),
        "on_runtime": Planted(_CLIPPED, "clipped-before-unscale", ("amp",)),
    },
    "model not prepared": {
        "ddp": Planted({"model = DistributedDataParallel(model)\n": ""}, "model-not-prepared"),
        "accelerated": Planted(_left_out("model"), "model-not-prepared"),
        "on_runtime": Planted(_left_out("model", "optimizer"), "model-not-prepared"),
    },
    "dropout drawn alike": {
        "ddp": Planted({"if rank:\n    torch.manual_seed(rank)\n": ""}, "drawn-alike"),
        "accelerated": Planted({OWN_SEED: ""}, "drawn-alike"),
        "on_runtime": Planted({"Accelerator(": "Accelerator(own_draws=False, "}, "drawn-alike"),
    },
}


def found(script: str, planted: Planted | None, folder: Path) -> Report:
    """What verify makes of a conversion with a mistake, or without."""
    text = (BY_HAND / f"{script}.py").read_text(encoding="utf-8")
    after = folder / f"{script}.py"
    after.write_text(text if planted is None else planted.apply(text), encoding="utf-8")
    args = planted.args if planted is not None else ()
    devices = "present" if args else None
    return verify(BY_HAND / "plain.py", after, args=args, default_launch=True, devices=devices, timeout=120)


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
