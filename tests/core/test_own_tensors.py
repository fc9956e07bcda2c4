"""A script that names no device stays on the CPU where no loader moves what its model is called with."""

from __future__ import annotations

import pytest

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
