"""Loops over the numbers of rows, in an order of their own, that take a step every so many of them."""

from pathlib import Path

import pytest

from .converting import conversion, converted
from .projects import convert, train, write
from .support import each_row

SCRIPT = """import torch
rows, targets = torch.randn(24, 4), torch.randn(24, 2)
<model>
seen = []
for epoch in range(2):
    order = torch.randperm(len(rows))
    for n in range({numbers}):
        at = order[n] if epoch else n
        x, y = rows[{place}], targets[{place}]
        torch.nn.functional.mse_loss(model(x), y).backward()
        seen.append(int({place}))
        if {test}:
            optimizer.step()
            optimizer.zero_grad()
result = seen, model.weight.detach().clone()
"""
PERIOD = "n % 4 == 0 and n > 0"
ALL = "len(rows)"


@pytest.mark.parametrize("place", ["n", "order[n]", "order[n].item()", "at"])
def test_rows_are_shared_and_turns_are_counted(place: str, tmp_path: Path) -> None:
    """Processes that stepped by the numbers of their rows would step at different times, and wait for ever."""
    convert(write(tmp_path, train=SCRIPT.format(place=place, test=PERIOD, numbers=ALL)), "train")
    (first, weight), (second, other) = train(tmp_path, "train", 2)
    assert sorted(first[:12] + second[:12]) == list(range(24))
    assert sorted(first[12:] + second[12:]) == list(range(24))
    assert weight.equal(other)


def test_one_process_trains_as_before(tmp_path: Path) -> None:
    text = "import torch\ntorch.manual_seed(1)\n" + SCRIPT.format(place="order[n]", test=PERIOD, numbers=ALL)
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    convert(write(after, train=text), "train")
    ((seen, weight),) = train(write(before, train=text), "train", launched=False)
    ((again, same),) = train(after, "train", launched=False)
    assert seen == again
    assert weight.equal(same)


@pytest.mark.parametrize(
    ("test", "numbers"),
    [
        ("(n + 1) % 4 == 0 or n + 1 == len(rows)", ALL),  # the last turn of all has no such number
        ("n > 2", ALL),
        (PERIOD, "0, len(rows)"),
    ],
)
def test_what_is_asked_besides_a_period_leaves_the_rows_whole(test: str, numbers: str) -> None:
    done = conversion(SCRIPT.format(place="n", test=test, numbers=numbers))
    assert f"for n in range({numbers}):" in done.text
    assert f"if {test}:" in done.text
    assert [one for one in done.findings if one.rule == "CT902"]


@each_row("""
inside => behind => becomes
if (n + 1) % 4 == 0: print(n) => pass => if (turn + 1) % 4 == 0:  # the main process may have even numbers alone
if n % 4 == 0: torch.save(x, 'x') => pass => if turn % 4 == 0:
if n % 4 == 0: torch.save(rows[n], f'x{n}') => pass => (rows[n], f'x{turn}')  # all write one file
if n == 4: torch.save(x, 'x') => pass => if n == 4:
total = 9 / (n + 1) => pass => total = 9 / (turn + 1)
total = 9 => total /= n + 1 => total /= turn + 1
total = 9 => for n in range(3): total /= n + 1 => total /= n + 1
""")
def test_what_is_saved_and_what_divides_counts_turns(inside: str, behind: str, becomes: str) -> None:
    text = SCRIPT.format(place="n", test="True", numbers=ALL).replace("seen.append(int(n))", inside)
    after = converted(text.replace("result =", f"    {behind}\nresult ="))
    assert becomes in after and ("for turn, n in enumerate(" in after) is ("turn" in becomes)


def test_a_sum_that_is_divided_by_own_turns_is_averaged() -> None:
    head = "<torch>\n<model>\nrows, total = torch.randn(40, 4), 0.0\nfor n in range(10):\n    x = rows[n * 4 : n * 4 + 4]\n"
    after = converted(
        head + "    <step loss = model(x).mean()>\n    total += loss.item()\nprint(total / (n + 1))\n"
    )
    assert 'total = accelerator.reduce(total, "mean")\naccelerator.print(total / (turn + 1))' in after
