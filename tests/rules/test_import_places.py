"""CT101: where the import of the Accelerator stands."""

from __future__ import annotations

from .support import check_invariants, migrate

IMPORTS_LATE = """\
from torchvision.datasets import MNIST

data = MNIST(".", download=True)

import torch
from torch import nn
from torch.utils.data import DataLoader

model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_an_import_stands_above_its_first_use_where_torch_is_imported_late() -> None:
    """As in a notebook, whose cells import what they need."""
    result = migrate(IMPORTS_LATE)
    check_invariants(IMPORTS_LATE, result)
    assert not result.refused, result.findings
    assert result.after.startswith(
        "from crosstrain import Accelerator\nfrom torchvision.datasets import MNIST\n"
    )
