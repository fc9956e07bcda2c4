"""`make gpu-check`, as far as it can be tried without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.gpu_check.__main__ import NO_GPU, main
from tests.gpu_check.commands import ROOT


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator")
def test_a_machine_without_a_gpu_is_told_so_in_one_line() -> None:
    command = [sys.executable, "-m", "tests.gpu_check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == NO_GPU == 3
    assert done.stdout == f"gpu-check: torch {torch.__version__} sees no GPU here; nothing was run\n"


def test_sections_are_tried_on_the_cpu(tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    only = ["--only", "environment", "golden", "script"]
    assert main(["--device", "cpu", "--fast", "--cases", "accumulation", "--output", str(report), *only]) == 0
    text = report.read_text()
    assert "Everything passed." in text
    assert "| accumulation | ran | 0e+00 |" in text
    assert text.count("Test accuracy: ") == 2
