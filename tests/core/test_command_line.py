"""What a command line can say stays true: every option of an original, its default, and the device that its flags choose."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.corpora.command_line import device, differences
from tests.golden.cases import Case, cases

from .converting import converted
from .filling import filled

WITH_OPTIONS = [one for one in cases() if one.expect == "converted" and "add_argument" in one.source.text]

SCRIPT = """import argparse
<torch>

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=32)
{options}
args = parser.parse_args()
{device}
model = torch.nn.Linear(4, 2)
{move}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader([(torch.ones(4), torch.ones(2))] * args.rows, 8):
    <step torch.nn.functional.mse_loss(model({x}), {y})>
"""
TO_DEVICE = {"move": "model.to(device)", "x": "x.to(device)", "y": "y.to(device)"}
NO_MPS = """use_cuda = not args.no_cuda and torch.cuda.is_available()
use_mps = not args.no_mps and torch.backends.mps.is_available()
if use_cuda:
    device = torch.device("cuda")
elif use_mps:
    device = torch.device("mps")
else:
    device = torch.device("cpu")"""


def switch(*names: str) -> str:
    return "\n".join(f'parser.add_argument("--{name}", action="store_true")' for name in names)


@pytest.mark.parametrize("case", WITH_OPTIONS, ids=lambda case: case.name)
def test_the_golden_scripts_are_told_the_same(case: Case, tmp_path: Path) -> None:
    after = tmp_path / "script.py"
    done = case.migrate().after
    assert done is not None
    after.write_text(done, encoding="utf-8")
    assert differences(case.before, after) == []


def test_two_flags_that_each_turn_off_one_kind(tmp_path: Path) -> None:
    """What one flag means is asked in test_choice_run."""
    text = SCRIPT.format(options=switch("no-cuda", "no-mps"), device=NO_MPS, **TO_DEVICE)
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(filled(text), encoding="utf-8")
    after.write_text(converted(text), encoding="utf-8")
    assert differences(before, after) == []
    assert device(after, []) == "cuda"
    assert device(after, ["--no-cuda"]) in ("cpu", None), "None: nothing is moved"
