"""`make gpu-check`, as far as it can be tried without a GPU."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.golden.cases import cases
from tests.gpu_check import golden, public, sections
from tests.gpu_check.__main__ import NO_GPU, main
from tests.gpu_check.commands import ROOT, Check, Done, run
from tests.gpu_check.golden import Outcome
from tests.gpu_check.report import Section, render
from tests.xla.expected import DEVICE, EXPECTED, as_expected


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator")
def test_a_machine_without_a_gpu_is_told_so_in_one_line() -> None:
    command = [sys.executable, "-m", "tests.gpu_check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == NO_GPU == 3
    assert done.stdout == f"gpu-check: torch {torch.__version__} sees no GPU here; nothing was run\n"


def test_sections_are_tried_on_the_cpu(tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    only = ["--only", "environment", "golden", "public", "nccl", "script"]
    assert main(["--device", "cpu", "--fast", "--cases", "accumulation", "--output", str(report), *only]) == 0
    text = report.read_text()
    assert "Everything passed." in text
    assert "| accumulation | ran | 0e+00 |" in text
    assert text.count("Test accuracy: ") == 2


def test_a_section_that_breaks_is_a_failure_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(check: Check) -> Section:
        raise ValueError("no such thing")

    monkeypatch.setitem(sections.SECTIONS, "tests", breaks)
    report = tmp_path / "report.md"
    assert main(["--device", "cpu", "--only", "tests", "nccl", "--output", str(report)]) == 1
    assert "- tests: ValueError: no such thing" in report.read_text()
    assert "There is no NCCL here" in report.read_text()
    assert capsys.readouterr().out.endswith(f"gpu-check: 1 failed; the report is {report}\n")


def test_options_that_do_not_exist_are_refused() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--only", "everything"])


@pytest.mark.parametrize(
    ("expected", "found", "outcome"),
    [
        ("loss 1.5\n", "loss 1.5\n", 0.0),
        ("loss 2.0\n", "loss 1.0\n", 0.5),
        ("loss 0.001\n", "loss 0.002\n", 0.001),
        ("epoch 1\nloss inf\n", "epoch 2\nloss inf\n", 0.0),
        ("took 7.25 seconds\nloss 1.5\n", "took 1.5 seconds\nloss 1.5\n", 0.0),
    ],
)
def test_printed_numbers_are_compared(expected: str, found: str, outcome: float) -> None:
    assert golden.difference(golden.numbers(expected), golden.numbers(found)) == pytest.approx(outcome)


def test_different_counts_of_numbers_are_not_compared() -> None:
    assert math.isnan(golden.difference([1.0, 2.0], [1.0]))


@pytest.mark.parametrize(
    ("done", "failure"),
    [
        (Done(0, "loss 1.5\n", ""), ""),
        (Done(1, "", "Traceback\nRuntimeError: CUDA error\n"), "exit code 1: RuntimeError: CUDA error"),
        (Done(0, "loss nan\n", ""), "prints a number that is not finite"),
        (Done(0, "loss 2.5\n", ""), "prints other numbers than the original (7e-01)"),
    ],
)
def test_outcomes_of_a_case_are_judged(done: Done, failure: str) -> None:
    outcome = golden._judge("accumulation", "fp32", done, Done(0, "loss 1.5\n", ""), strict=True)
    assert outcome.failure == failure
    assert outcome.cell == ("**failed**" if failure else "0e+00")


def test_half_precision_may_print_other_numbers() -> None:
    outcome = golden._judge("accumulation", "bf16", Done(0, "loss 2.5\n", ""), Done(0, "loss 1.5\n", ""))
    assert (outcome.failure, outcome.cell) == ("", "7e-01")


def test_a_command_that_does_not_end_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.gpu_check.commands.PATIENCE", 0.2)
    done = run([sys.executable, "-c", "import time; time.sleep(20)"])
    assert done.code == -1
    assert "no end after" in done.reason


def test_the_report_names_what_failed() -> None:
    text = render("H100", [Section("Golden corpus", "a table", ["vae, fp16: nan"], 3.0)])
    assert text.startswith("# GPU check: H100\n")
    assert "1 failed:\n\n- Golden corpus: vae, fp16: nan" in text


@pytest.mark.parametrize(
    ("case", "failure", "text", "found"),
    [
        ("vae", "", "", ("", "")),
        ("vae", "exit code 1", "", ("", "exit code 1")),
        ("wgan_gp", "exit code 1", "RuntimeError: Expected XLA tensor. Got: ...", ("mixes devices", "")),
        ("wgan_gp", "exit code 1", "KeyError: 3", ("", "exit code 1")),
    ],
)
def test_a_dry_run_knows_what_xla_lacks(case: str, failure: str, text: str, found: tuple[str, str]) -> None:
    assert as_expected(case, failure, text) == found


def test_a_case_that_runs_against_expectation_is_said() -> None:
    assert "it runs" in as_expected("wgan_gp", "", "")[1]
    assert Outcome("wgan_gp", "fp32", expected="mixes devices").cell == "mixes devices"


def test_every_expected_case_is_golden() -> None:
    assert {case.name for case in cases()} >= EXPECTED.keys() | DEVICE.keys()


def test_what_a_public_script_lacks_is_no_failure_of_the_device() -> None:
    assert public.ABSENT.search("exit code 1: ModuleNotFoundError: No module named 'torchvision'")
    assert not public.ABSENT.search("exit code 1: RuntimeError: no device")
