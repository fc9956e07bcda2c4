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
    """One mistake. `edits`: pattern and replacement, each of which must be found.

    expect: which run shows it ("1 process", "2 processes", "2 processes, default launch") and by what rule
    its cause is named.
    """

    case: str
    edits: Mapping[str, str]
    run: str
    rule: str
    args: tuple[str, ...] | None = None  # None: the case's own
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
    "the_sum_over_processes_dropped": Mutation(
        "mnist_functions", {MERGE: "pass"}, TWO, "evaluation-not-gathered", TRAIN_SMALL, short=True
    ),
    "summed_with_the_completion": Mutation(
        "mnist_functions",
        {r"accelerator\.prepare_evaluation\(": "accelerator.prepare("},
        LAUNCH,
        "evaluation-not-gathered",
        TRAIN_SMALL,
        short=True,
    ),
    "training_loader_not_prepared": Mutation(
        "mnist_functions",
        {PREPARE: "model, optimizer = accelerator.prepare(model, optimizer)"},
        TWO,
        "loader-not-prepared",
        TRAIN_SMALL,
        short=True,
    ),
    "stepped_without_the_scaler": Mutation(
        "amp_gradscaler",
        {
            r"scaler\.unscale_\(optimizer\)": "pass",
            r"[\w.]*clip_grad_norm_\(.*\)": "pass",
            r"scaler\.step\(optimizer\)": "optimizer.step()",
            r"scaler\.update\(\)": "pass",
        },
        ONE,
        "not-unscaled",
        cuda=True,
    ),
    "scheduler_stepped_by_every_process": Mutation(
        "mnist_functions",
        {r"scheduler\.step\(\)": "[scheduler.step() for _ in range(accelerator.num_processes)]"},
        TWO,
        "scheduler-per-process",
        TRAIN_SMALL,
        short=True,
    ),
    "epoch_scheduler_prepared_as_a_step_scheduler": Mutation(
        "mnist_functions",
        {
            PREPARE: "model, optimizer, train_loader, scheduler = "
            "accelerator.prepare(model, optimizer, train_loader, scheduler)"
        },
        LAUNCH,
        "scheduler-per-process",
        (*TRAIN_SMALL, "--epochs", "4"),
    ),
    "scheduler_not_stepped": Mutation(
        "mnist_functions", {r"scheduler\.step\(\)": "pass"}, ONE, "scheduler-not-stepped", TRAIN_SMALL
    ),
    "step_scheduler_not_prepared": Mutation(
        "main_argparse", {r"train_loader, scheduler( =|\n)": r"train_loader\1"}, LAUNCH, "scheduler-late"
    ),
    "plateau_on_a_local_loss": Mutation(
        "schedulers",
        {r"plateau\.step\(val_loss\)": "plateau.step(val_loss / 10 ** (epoch * accelerator.process_index))"},
        TWO,
        "local-decision",
        ("--epochs", "3", "--bs", "380"),
    ),
    "a_sum_averaged": Mutation("sum_loss", {r'loss_reduction="sum"': ""}, TWO, "sum-averaged", short=True),
    "a_term_of_the_loss_reduced": Mutation(
        "multi_loss",
        {r"self\.mse\((.*)\),\n": rf"({REDUCED} if torch.is_grad_enabled() else self.mse(\1)),\n"},
        LAUNCH,
        "not-trained",
        short=True,
    ),
    "loss_divided_by_hand_and_by_backward": Mutation(
        "accumulation",
        {r"accelerator = Accelerator\(\)": "accelerator = Accelerator(gradient_accumulation_steps=4)"},
        ONE,
        "divided-twice",
        short=True,
    ),
    "another_accumulation": Mutation(
        "accumulation", {r"\(i \+ 1\) % accum_steps": "(i + 1) % 2"}, ONE, "accumulation"
    ),
    "clipped_before_unscaling": Mutation(
        "amp_gradscaler",
        {r"scaler\.unscale_\(optimizer\)": "pass"},
        ONE,
        "clipped-before-unscale",
        cuda=True,
        short=True,
    ),
    "clipping_forgotten": Mutation(
        "main_argparse",
        {r"accelerator\.clip_grad_value_\([^)]*\), args\.clip\)": "pass"},
        ONE,
        "gradient",
        ("--epochs", "1", "--batch-size", "400", "--clip", "0.001"),
    ),
    "saved_by_every_process": Mutation(
        "mnist_functions",
        {r"accelerator\.save\(model": "torch.save(model"},
        TWO,
        "unguarded-save",
        SAVING,
        short=True,
    ),
    "seeded_by_rank": Mutation(
        "dropout_batchnorm",
        {
            r"    accelerator = Accelerator\(\)\n": "    accelerator = Accelerator()\n"
            "    torch.manual_seed(5 + accelerator.process_index)\n"
        },
        TWO,
        "other-start",
    ),
    "a_collective_under_a_guard": Mutation(
        "mnist_functions",
        {r"\n        test\(model": r"\n        if accelerator.is_main_process: test(model"},
        TWO,
        "guarded-collective",
        TRAIN_SMALL,
        short=True,
    ),
    "a_local_loss_printed": Mutation(
        "mnist_functions",
        {r'accelerator\.reduce\(loss, "mean"\)\.item\(\)': "loss.item()"},
        TWO,
        "printed-local",
        TRAIN_SMALL,
    ),
    "learning_rate_times_processes": Mutation(
        "regression_mse",
        {r"lr=0\.02": "lr=0.02 * accelerator.num_processes"},
        TWO,
        "learning-rate-scaled",
        short=True,
    ),
    "backward_without_the_accelerator": Mutation(
        "regression_mse", {r"accelerator\.backward\(loss\)": "loss.backward()"}, TWO, "plain-backward"
    ),
    "batches_not_shared": Mutation(
        "mnist_functions",
        {
            r"Accelerator\(cpu=args\.no_cuda\)": "Accelerator(cpu=args.no_cuda, split_batches=False, even_batches=True)"
        },
        TWO,
        "global-batch",
        TRAIN_SMALL,
    ),
    "last_batch_dropped": Mutation(
        "mnist_functions",
        {r"shuffle=True, \*\*loader_args": "shuffle=True, drop_last=True, **loader_args"},
        ONE,
        "other-batches",
        TRAIN_SMALL,
        short=True,
    ),
    "stopped_early_by_the_global_batch": Mutation(
        "regression_mse",
        {r"range\(MAX_EPOCHS\)": "range(MAX_EPOCHS // accelerator.num_processes)"},
        TWO,
        "other-length",
    ),
    "model_not_prepared": Mutation(
        "mnist_functions",
        {PREPARE: "train_loader = accelerator.prepare(train_loader)"},
        TWO,
        "model-not-prepared",
        TRAIN_SMALL,
    ),
    "loss_scaled_twice": Mutation(
        "regression_mse",
        {r"accelerator\.backward\(loss\)": "accelerator.backward(loss / accelerator.num_processes)"},
        TWO,
        "scaled-twice",
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
        args=case.args if mutation.args is None else mutation.args,
        processes=(1,) if mutation.run == ONE else (2,),
        default_launch=mutation.run == LAUNCH,
        devices="present" if mutation.cuda else None,
        timeout=300,
    )
    run = next(run for run in report.runs if run.name == mutation.run)
    assert not report.ok
    assert run.cause is not None, run
    assert run.cause.rule == mutation.rule, run
