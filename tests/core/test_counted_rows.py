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


@pytest.mark.parametrize(
    ("then", "after"),
    [
        ("print(i, count)", "print(i, -(-count // accelerator.num_processes))"),
        ("print(i / (len(rows) // 8))", "print(i / -(-(len(rows) // 8) // accelerator.num_processes))"),
        ("print(count)", "print(count)"),  # says nothing of this process's
        ("if i == 2: break", "if i == 2: break"),
        ("print(i, len(loader))", "print(i, len(loader))"),  # one process's already
        ("print(i, len(rows))", "print(i, len(rows))"),  # no batches
    ],
)
@pytest.mark.parametrize("batches", ["loader", "range(0, len(rows), 8)"])
def test_the_number_of_all_batches(batches: str, then: str, after: str) -> None:
    text = TRAINING.format(count="len(rows) // 8", size="1", then=then).replace("args.batch_size", "8")
    text = text.replace(
        "for x, y in loader:", f"for i, b in enumerate({batches}):\n        x = y = rows[b][0]"
    )
    made = converted(text)
    assert after in made.replace("accelerator.print", "print")
