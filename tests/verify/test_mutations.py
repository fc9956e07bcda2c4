"""The proof proves itself: mistakes that people make when they convert a script by hand, made in the golden corpus."""

from __future__ import annotations

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
class Mutation:
    """One mistake: the rule that names its cause, the run that shows it, and patterns with their replacements."""

    rule: str
    run: str
    edits: Mapping[str, str]
    case: str = "mnist_functions"
    args: tuple[str, ...] | None = None  # None: the case's own, or for mnist_functions TRAIN_SMALL
    cuda: bool = False
    short: bool = False  # in the short set of CI

    def apply(self, text: str) -> str:
        for pattern, replacement in self.edits.items():
            text, count = re.subn(pattern, replacement, text)
            assert count, f"{self.case} has nothing like {pattern!r}"
        return text


MERGE = r"test_loss, correct = accelerator\.merge\(test_loader, test_loss, correct\)"
PREPARE = r"model, optimizer, train_loader = accelerator\.prepare\(model, optimizer, train_loader\)"
REDUCED = r'Accelerator().reduce(self.mse(\1), "mean")'
ONE, TWO, LAUNCH = "1 process", "2 processes", "2 processes, default launch"

MUTATIONS = {
    "the_sum_over_processes_dropped": Mutation("evaluation-not-gathered", TWO, {MERGE: "pass"}, short=True),
    "summed_with_the_completion": Mutation(
        "evaluation-not-gathered",
        LAUNCH,
        {r"accelerator\.prepare_evaluation\(": "accelerator.prepare("},
        short=True,
    ),
    "training_loader_not_prepared": Mutation(
        "loader-not-prepared",
        TWO,
        {PREPARE: "model, optimizer = accelerator.prepare(model, optimizer)"},
        short=True,
    ),
    "stepped_without_the_scaler": Mutation(
        "not-unscaled",
        ONE,
        {
            r"scaler\.unscale_\(optimizer\)": "pass",
            r"[\w.]*clip_grad_norm_\(.*\)": "pass",
            r"scaler\.step\(optimizer\)": "optimizer.step()",
            r"scaler\.update\(\)": "pass",
        },
        case="amp_gradscaler",
        cuda=True,
    ),
    "scheduler_stepped_by_every_process": Mutation(
        "scheduler-per-process",
        TWO,
        {r"scheduler\.step\(\)": "[scheduler.step() for _ in range(accelerator.num_processes)]"},
        short=True,
    ),
    "epoch_scheduler_prepared_as_a_step_scheduler": Mutation(
        "scheduler-per-process",
        LAUNCH,
        {
            PREPARE: "model, optimizer, train_loader, scheduler = "
            "accelerator.prepare(model, optimizer, train_loader, scheduler)"
        },
        args=(*TRAIN_SMALL, "--epochs", "4"),
    ),
    "scheduler_not_stepped": Mutation("scheduler-not-stepped", ONE, {r"scheduler\.step\(\)": "pass"}),
    "step_scheduler_not_prepared": Mutation(
        "scheduler-late", LAUNCH, {r"train_loader, scheduler( =|\n)": r"train_loader\1"}, case="main_argparse"
    ),
    "plateau_on_a_local_loss": Mutation(
        "local-decision",
        TWO,
        {r"plateau\.step\(val_loss\)": "plateau.step(val_loss / 10 ** (epoch * accelerator.process_index))"},
        case="schedulers",
        args=("--epochs", "3", "--bs", "380"),
    ),
    "a_sum_averaged": Mutation(
        "sum-averaged", TWO, {r'loss_reduction="sum"': ""}, case="sum_loss", short=True
    ),
    "a_term_of_the_loss_reduced": Mutation(
        "not-trained",
        LAUNCH,
        {r"self\.mse\((.*)\),\n": rf"({REDUCED} if torch.is_grad_enabled() else self.mse(\1)),\n"},
        case="multi_loss",
        short=True,
    ),
    "loss_divided_by_hand_and_by_backward": Mutation(
        "divided-twice",
        ONE,
        {r"accelerator = Accelerator\(\)": "accelerator = Accelerator(gradient_accumulation_steps=4)"},
        case="accumulation",
        short=True,
    ),
    "another_accumulation": Mutation(
        "accumulation", ONE, {r"\(i \+ 1\) % accum_steps": "(i + 1) % 2"}, case="accumulation"
    ),
    "clipped_before_unscaling": Mutation(
        "clipped-before-unscale",
        ONE,
        {r"scaler\.unscale_\(optimizer\)": "pass"},
        case="amp_gradscaler",
        cuda=True,
        short=True,
    ),
    "clipping_forgotten": Mutation(
        "gradient",
        ONE,
        {r"accelerator\.clip_grad_value_\([^)]*\), args\.clip\)": "pass"},
        case="main_argparse",
        args=("--epochs", "1", "--batch-size", "400", "--clip", "0.001"),
    ),
    "saved_by_every_process": Mutation(
        "unguarded-save", TWO, {r"accelerator\.save\(model": "torch.save(model"}, args=SAVING, short=True
    ),
    "another_seed": Mutation(
        "other-start", ONE, {r"manual_seed\(config\[.seed.\]\)": "manual_seed(9)"}, case="dropout_batchnorm"
    ),
    "a_collective_under_a_guard": Mutation(
        "guarded-collective",
        TWO,
        {r"\n        test\(model": r"\n        if accelerator.is_main_process: test(model"},
        short=True,
    ),
    "a_local_loss_printed": Mutation(
        "printed-local", TWO, {r'accelerator\.reduce\(loss, "mean"\)\.item\(\)': "loss.item()"}
    ),
    "learning_rate_times_processes": Mutation(
        "learning-rate-scaled",
        TWO,
        {r"lr=0\.02": "lr=0.02 * accelerator.num_processes"},
        case="regression_mse",
        short=True,
    ),
    "backward_without_the_accelerator": Mutation(
        "plain-backward", TWO, {r"accelerator\.backward\(loss\)": "loss.backward()"}, case="sum_loss"
    ),
    "batches_not_shared": Mutation(
        "global-batch",
        TWO,
        {
            r"Accelerator\(cpu=args\.no_cuda\)": "Accelerator(cpu=args.no_cuda, split_batches=False, even_batches=True)"
        },
    ),
    "last_batch_dropped": Mutation(
        "other-batches",
        ONE,
        {r"shuffle=True, \*\*loader_args": "shuffle=True, drop_last=True, **loader_args"},
        short=True,
    ),
    "stopped_early_by_the_global_batch": Mutation(
        "other-length",
        TWO,
        {r"range\(MAX_EPOCHS\)": "range(MAX_EPOCHS // accelerator.num_processes)"},
        case="regression_mse",
    ),
    "model_not_prepared": Mutation(
        "model-not-prepared", TWO, {PREPARE: "train_loader = accelerator.prepare(train_loader)"}
    ),
    "loss_scaled_twice": Mutation(
        "scaled-twice",
        TWO,
        {r"accelerator\.backward\(loss\)": "accelerator.backward(loss / accelerator.num_processes)"},
        case="regression_mse",
    ),
}

NAMES = [
    pytest.param(name, marks=() if mutation.short else pytest.mark.slow)
    for name, mutation in MUTATIONS.items()
]


@pytest.mark.parametrize("name", NAMES)
def test_mistake_is_found_and_named(name: str, tmp_path: Path) -> None:
    mutation = MUTATIONS[name]
    case = load(GOLDEN / mutation.case)
    broken = tmp_path / "after.py"
    broken.write_text(mutation.apply(case.after.read_text(encoding="utf-8")), encoding="utf-8")
    report = verify(
        case.before,
        broken,
        args=mutation.args or (TRAIN_SMALL if case.name == "mnist_functions" else case.args),
        processes=(1,) if mutation.run == ONE else (2,),
        default_launch=mutation.run == LAUNCH,
        devices="present" if mutation.cuda else None,
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
