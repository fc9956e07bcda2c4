"""Lines behind a training, and what a conversion makes of them, line by line.

A case is `== name`, the lines of the function that trains, and `--` below what stands above that function, where something does;
`?? part of a note` and `!! what comes out nowhere` as in `support.cases`. A mark says what becomes of a line: `+` is new, `-` goes,
`*` is guarded by the main process, `.` is indented with the lines before it, `~` prints or saves by the accelerator. No mark:
the line stays as it is, but for a `<step ...>` of `filling`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from .filling import by_the_accelerator
from .support import PRELUDE, Trap, case_by_case, check, converted

GUARD = "if accelerator.is_main_process:"
HEAD = """import csv
import io
import json
import logging
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from subprocess import check_output
from urllib.request import urlretrieve
import cv2
import matplotlib.pyplot as plt
import numpy as np
from tensorboardX import SummaryWriter
from torchvision.datasets import MNIST
from torchvision.utils import save_image
from tqdm import tqdm
"""
TRAINING = """
def main():
    <model>
    loader = DataLoader(data)
    for x, y in loader:
        <step loss = F.cross_entropy(model(x), y)>
"""
_MARK = re.compile(r"([+\-*.~]) ")
_GIVEN = {line for line in (PRELUDE + HEAD).splitlines() if line}


@dataclass(frozen=True)
class Output(Trap):
    """above, behind: the lines that come out above the function that trains, and behind its loop."""

    above: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()


def each_output(text: str) -> Callable[[Trap], None]:
    """The test that has the cases of a text."""
    parts = re.split("^== ", text, flags=re.MULTILINE)[1:]
    return case_by_case([_output(*part.partition("\n")[::2]) for part in parts], check_output)


def _output(name: str, text: str) -> Output:
    lines = text.splitlines()
    says = [line[3:] for line in lines if line.startswith("?? ")]
    absent = tuple(line[3:] for line in lines if line.startswith("!! "))
    lines = [line for line in lines if line[:3] not in ("?? ", "!! ")]
    cut = lines.index("--") if "--" in lines else 0
    above, behind = lines[:cut], [_indented(line) for line in lines[cut + bool(cut) :]]
    script = "\n".join([HEAD, *_before(above)]) + TRAINING + "\n".join(_before(behind)) + "\n\nmain()\n"
    return Output(name, script, (), absent, "".join(says), tuple(_after(above)), tuple(_after(behind)))


def _indented(line: str) -> str:
    return f"{line[:2]}    {line[2:]}" if _MARK.match(line) else f"    {line}"


def _before(lines: list[str]) -> list[str]:
    return [_MARK.sub("", line, count=1) if _MARK.match(line) else line for line in lines if line[:2] != "+ "]


def _after(lines: list[str]) -> list[str]:
    after = []
    for line in lines:
        mark, text = (line[0], line[2:]) if _MARK.match(line) else ("", line)
        if mark == "*":
            after.append(text[: len(text) - len(text.lstrip())] + GUARD)
        if mark == "~":
            text = re.sub(r"\b(?:torch\.)?(print|save)\(", r"accelerator.\1(", text, count=1)
        if text.lstrip().startswith("<step"):
            after += by_the_accelerator(text).splitlines()
        elif mark != "-":
            after.append(f"    {text}" if mark in ("*", ".") else text)
    return after


def check_output(case: Output) -> None:
    check(case)
    lines = [line for line in converted(case.text).text.splitlines() if line and not _is_given(line)]
    main = lines.index("def main():")
    trained = next(i for i, line in enumerate(lines) if i > main and line.strip() == "optimizer.step()")
    assert lines[:main] == list(case.above), "\n".join(lines[:main])
    assert lines[trained + 1 : -1] == list(case.behind), "\n".join(lines[trained + 1 :])


def _is_given(line: str) -> bool:
    """What the cases do not show: imports of their common head and of the runtime, and where the accelerator is made."""
    return (
        line in _GIVEN or line.startswith("from crosstrain") or line.strip() == "accelerator = Accelerator()"
    )
