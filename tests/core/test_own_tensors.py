"""A script that names no device stays on the CPU where no loader moves what its model is called with."""

from __future__ import annotations

import pytest
from crosstrain_migrate.syntax.program import link

from .converting import converted
from .test_choice import TRAINING

LOOKED_AT = "\nfor rows in DataLoader([], 8):\n    {looked}\n"


@pytest.mark.parametrize(
    ("before", "inside", "looked", "made"),
    [
        ("seen = rows_of()[:8] / 255", "print(model(seen).numpy())", "pass", "Accelerator(cpu=True)"),
        ("seen = rows_of().view(-1, 4)", "pass", "print(model(seen))", "Accelerator(cpu=True)"),
        ("seen = torch.rand(8, 4)", "pass", "print(model(seen))", "Accelerator()"),  # made on the device
        ("seen = rows_of().cuda()", "print(model(seen))", "pass", "Accelerator()"),
        ("seen = rows_of()", "rows = x.view(-1, 4); print(model(rows))", "pass", "Accelerator()"),
        ("seen = rows_of()", "pass", "own = rows[0]; print(model(own))", "Accelerator()"),
    ],
)
def test_what_no_loader_has_moved_is_on_the_cpu(before: str, inside: str, looked: str, made: str) -> None:
    """A prepared model on a GPU would not take it, and the script names no device."""
    text = TRAINING.format(choice=before, inside=inside) + LOOKED_AT.format(looked=looked)
    assert f"accelerator = {made}\n" in converted(text)


SEVERAL = """import torch
from net import Net
<model Net()>
points = torch.rand(8, 4)
{moved}
for epoch in range(9):
    loss = model(points[torch.randperm(8)]).pow(2).mean()
    <step loss>
print("trained")
"""
NET = "import torch\nNet = lambda: torch.nn.Linear(4, 1)\n"


@pytest.mark.parametrize(
    ("moved", "made"),
    [
        ("if torch.cuda.is_available():\n    model.cuda()\n    points = points.cuda()", "Accelerator()"),
        ("pass", "Accelerator(cpu=True)"),
    ],
)
def test_every_statement_of_every_file_may_name_a_device(moved: str, made: str) -> None:
    text = link([("net.py", NET), ("train.py", SEVERAL.replace("{moved}", moved))], ())
    assert f"accelerator = {made}\n" in converted(text)
