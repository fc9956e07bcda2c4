"""Counts of rows beside the number of all rows count those of all processes."""

import pytest

from .converting import converted

TRAINING = """import argparse
<torch>

args = argparse.ArgumentParser().parse_args()
rows = TensorDataset(torch.ones(32, 4), torch.zeros(32).long())
loader = DataLoader(rows, args.batch_size)
count = {count}
<model>
seen = 0
for epoch in range(2):
    for x, y in loader:
        <step>
        seen += {size}
        {then}
"""
TELLS = "print(seen / count)"


@pytest.mark.parametrize(
    ("count", "size", "then", "is_all"),
    [
        ("len(rows)", "args.batch_size", TELLS, True),
        ("len(rows)", "args.batch_size", "if seen - epoch * count > 8: print(epoch)", True),
        ("100", "args.batch_size", TELLS, False),  # an option: every so many rows
        ("len(rows)", "args.batch_size", "print(count / seen)", False),  # a mean
        ("len(rows)", "1", TELLS, False),
        (
            "len(rows)",
            "batch_size",
            "batch_size = len(x); print(seen / count)",
            False,
        ),  # the last one has fewer
    ],
)
def test_a_count_of_rows(count: str, size: str, then: str, is_all: bool) -> None:
    after = converted(TRAINING.format(count=count, size=size, then=then))
    assert f"seen += {size}{' * accelerator.num_processes' if is_all else ''}\n" in after
