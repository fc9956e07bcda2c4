"""What is known to be wrong is refused, with its line; another framework's script is left alone; the rest is converted."""

from __future__ import annotations

import pytest
from crosstrain_migrate.results import Severity

from .converting import conversion, converted

TRAINING = """import torch
from torch.utils.data import DataLoader
{imports}

{definitions}
def train(rows):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.{optimizer}(model.parameters(), lr=0.1)
    {before}
    for x, y in DataLoader(rows, 8):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

train([])
"""


def script(imports: str = "", definitions: str = "", before: str = "pass", optimizer: str = "SGD") -> str:
    return TRAINING.format(imports=imports, definitions=definitions, before=before, optimizer=optimizer)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            script(
                "from torch.distributed.fsdp import FullyShardedDataParallel",
                before="model = FullyShardedDataParallel(model)",
            ),
            "FSDP",
        ),
        (script("import torch.distributed.rpc as rpc", before="rpc.init_rpc('worker')"), "RPC"),
        (
            script("from torch.distributed.tensor import DTensor", before="w = DTensor(model.weight)"),
            "tensor parallelism",
        ),
        (script(optimizer="LBFGS"), "LBFGS"),
        (
            script(
                "import torch.multiprocessing as mp",
                before="model.share_memory()\n    mp.Process(target=print).start()",
            ),
            "Hogwild",
        ),
        (
            script(
                "import torch.distributed as dist",
                "class Row(torch.nn.Linear):\n    def forward(self, x):\n        dist.all_reduce(x)\n        return x\n\n",
                "model = Row(4, 2)",
            ),
            "tensor parallelism",
        ),
    ],
)
def test_refused(text: str, says: str) -> None:
    done = conversion(text)
    refused = [one for one in done.findings if one.severity is Severity.REFUSED]
    assert done.text == text
    assert refused and any(says in one.reason for one in refused)
    assert all(one.line > 1 and one.remedy for one in refused)


@pytest.mark.parametrize(
    "text",
    [
        script("from torch.distributed.fsdp import FullyShardedDataParallel"),
        script("import torch.distributed.rpc as rpc", "def elsewhere():\n    rpc.init_rpc('worker')\n\n"),
        script("from torch.optim import LBFGS"),
        script(before="model.share_memory()"),
    ],
)
def test_what_is_only_named_is_converted(text: str) -> None:
    assert "accelerator.prepare(" in converted(text)
