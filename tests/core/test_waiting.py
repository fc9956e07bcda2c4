"""How long the processes of a group wait for each other, where the author says it."""

from datetime import timedelta
from pathlib import Path

import pytest

from .converting import conversion
from .projects import convert, train, write

SCRIPT = """import importlib
import os
{imports}
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
{first}
def main():
    hours = int(os.environ.get("HOURS", 3))
    dist.init_process_group("gloo"{given})
    rows = TensorDataset(torch.randn(8, 4), torch.randn(8, 2))
    <model DistributedDataParallel(torch.nn.Linear(4, 2))>
    for x, y in DataLoader(rows, 2, sampler=DistributedSampler(rows)):
        <step>
if __name__ == "__main__":
    main()
    result = importlib.import_module("crosstrain.comm.process_group").group_timeout()
"""
SAID = ", timeout=timedelta(hours=2)"


@pytest.mark.parametrize("first", ["", 'LOCAL = int(os.environ["LOCAL_RANK"])'])
def test_the_authors_group_waits_as_long(first: str, tmp_path: Path) -> None:
    """One process may evaluate alone for longer than a group waits that nobody has told anything."""
    script = SCRIPT.format(imports="from datetime import timedelta", first=first, given=SAID)
    convert(write(tmp_path, train=script), "train")
    assert train(tmp_path, "train", 2) == [timedelta(hours=2)] * 2


@pytest.mark.parametrize(
    ("given", "noted"), [("", 0), (", timeout=None", 0), (", timeout=timedelta(hours=hours)", 1)]
)
def test_what_is_known_only_there_is_said(given: str, noted: int) -> None:
    done = conversion(SCRIPT.format(imports="from datetime import timedelta", first="", given=given))
    assert len([one for one in done.findings if "wait for each other" in one.reason]) == noted
    assert "InitProcessGroupKwargs" not in done.text
