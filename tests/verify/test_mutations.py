"""The proof proves itself: mistakes that people make when they convert a script by hand, made in the golden corpus."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from crosstrain_verify import verify

from tests.golden.cases import GOLDEN, load

TRAIN_SMALL = ("--epochs", "2", "--batch-size", "400", "--test-batch-size", "32", "--log-interval", "2")
SAVING = (*TRAIN_SMALL, "--save-model")


@dataclass(frozen=True)
class Slip:
    """One mistake: the rule that names its cause, the run that shows it, and patterns with their replacements."""

    rule: str
    run: str
    edits: Mapping[str, str]
    case: str = "mnist_functions"
    args: tuple[str, ...] | None = None  # None: the case's own, or for mnist_functions TRAIN_SMALL

    def apply(self, text: str) -> str:
        for pattern, replacement in self.edits.items():
            text, count = re.subn(pattern, replacement, text)
            assert count, f"{self.case} has nothing like {pattern!r}"
        return text


MERGE = r"test_loss, correct = accelerator\.merge\(test_loader, test_loss, correct\)"
PREPARE = r"model, optimizer, train_loader = accelerator\.prepare\(model, optimizer, train_loader\)"
BACKWARD = r"accelerator\.backward\(loss\)"
HALF = "accelerator.backward(loss / accelerator.num_processes)"
UNSCALE = r"scaler\.unscale_\(optimizer\)"
UNSCALED = {UNSCALE: "pass", r"[\w.]*clip_grad_norm_\(.*\)": "pass", r"scaler\.update\(\)": "pass"}
MSE, SCHEDULE = r"self\.mse\((.*)\),\n", r"scheduler\.step\(\)"
REDUCED = r'(Accelerator().reduce(self.mse(\1), "mean") if torch.is_grad_enabled() else self.mse(\1)),\n'
OWN = "plateau.step(val_loss / 10 ** (epoch * accelerator.process_index))"
THREE = ("--epochs", "3", "--bs", "380")
CLIPPED = ("--epochs", "1", "--batch-size", "400", "--clip", "0.001")
ONE, TWO, LAUNCH = "1 process", "2 processes", "2 processes, default launch"

FAST = [
    Slip("evaluation-not-gathered", TWO, {MERGE: "pass"}),
    # The rows that complete the last batch are counted.
    Slip("evaluation-not-gathered", LAUNCH, {r"accelerator\.prepare_evaluation\(": "accelerator.prepare("}),
    Slip("loader-not-prepared", TWO, {PREPARE: "model, optimizer = accelerator.prepare(model, optimizer)"}),
    Slip("scheduler-per-process", TWO, {SCHEDULE: "scheduler.step(), scheduler.step()"}),
    Slip("sum-averaged", TWO, {r'loss_reduction="sum"': ""}, "sum_loss"),
    Slip("not-trained", LAUNCH, {MSE: REDUCED}, "multi_loss"),
    Slip(
        "divided-twice",
        ONE,
        {r"Accelerator\(\)": "Accelerator(gradient_accumulation_steps=4)"},
        "accumulation",
    ),
    Slip("clipped-before-unscale", ONE, {UNSCALE: "pass"}, "amp_gradscaler"),
    Slip("unguarded-save", TWO, {r"accelerator\.save\(model": "torch.save(model"}, args=SAVING),
    Slip("guarded-collective", TWO, {r"  test\(model": "  if accelerator.is_main_process: test(model"}),
    Slip("learning-rate-scaled", TWO, {r"lr=0\.02": "lr=0.02 * accelerator.num_processes"}, "regression_mse"),
    Slip("other-batches", ONE, {r"shuffle=True, \*": "shuffle=True, drop_last=True, *"}),
]
SLOW = [
    Slip(
        "not-unscaled", ONE, UNSCALED | {r"scaler\.step\(optimizer\)": "optimizer.step()"}, "amp_gradscaler"
    ),
    Slip("scheduler-not-stepped", ONE, {SCHEDULE: "pass"}),
    Slip("scheduler-late", LAUNCH, {r"train_loader, scheduler( =|\n)": r"train_loader\1"}, "main_argparse"),
    Slip("local-decision", TWO, {r"plateau\.step\(val_loss\)": OWN}, "schedulers", THREE),
    Slip("accumulation", ONE, {r"\(i \+ 1\) % accum_steps": "(i + 1) % 2"}, "accumulation"),
    Slip(
        "gradient",
        ONE,
        {r"accelerator\.clip_grad_value_\(.*, args\.clip\)": "pass"},
        "main_argparse",
        CLIPPED,
    ),
    Slip("other-start", ONE, {r"manual_seed\(config\[.seed.\]\)": "manual_seed(9)"}, "dropout_batchnorm"),
    Slip("printed-local", TWO, {r'accelerator\.reduce\(loss, "mean"\)\.item\(\)': "loss.item()"}),
    Slip("plain-backward", TWO, {BACKWARD: "loss.backward()"}, "sum_loss"),
    Slip("global-batch", TWO, {r"cpu=args": "split_batches=False, even_batches=True, cpu=args"}),
    Slip(
        "other-length",
        TWO,
        {r"\(MAX_EPOCHS\)": "(MAX_EPOCHS // accelerator.num_processes)"},
        "regression_mse",
    ),
    Slip("model-not-prepared", TWO, {PREPARE: "train_loader = accelerator.prepare(train_loader)"}),
    Slip("scaled-twice", TWO, {BACKWARD: HALF}, "regression_mse"),
]
MUTATIONS = [pytest.param(one, id=f"{one.rule}-{one.run}") for one in FAST]
MUTATIONS += [pytest.param(one, id=f"{one.rule}-{one.run}", marks=pytest.mark.slow) for one in SLOW]


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mistake_is_found_and_named(mutation: Slip, tmp_path: Path) -> None:
    case = load(GOLDEN / mutation.case)
    broken = tmp_path / "after.py"
    broken.write_text(mutation.apply(case.after.read_text(encoding="utf-8")), encoding="utf-8")
    report = verify(
        case.before,
        broken,
        args=mutation.args or (TRAIN_SMALL if case.name == "mnist_functions" else case.args),
        processes=(1,) if mutation.run == ONE else (2,),
        default_launch=mutation.run == LAUNCH,
        devices="present" if mutation.case == "amp_gradscaler" else None,
        timeout=300,
    )
    run = next(run for run in report.runs if run.name == mutation.run)
    assert not report.ok
    assert run.cause is not None, run
    assert run.cause.rule == mutation.rule, run


def test_a_plain_backward_under_weighted_batches_is_no_mistake(tmp_path: Path) -> None:
    case = load(GOLDEN / "regression_mse")
    text = case.after.read_text(encoding="utf-8").replace("accelerator.backward(loss)", "loss.backward()")
    (tmp_path / "after.py").write_text(text, encoding="utf-8")
    assert verify(case.before, tmp_path / "after.py", args=case.args, processes=(2,), timeout=300).ok
