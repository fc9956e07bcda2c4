"""Loops that take a number of batches by `next`: they end with those of their process."""

from pathlib import Path

import pytest

from .converting import converted, notes
from .projects import convert, train, write
from .support import each_row

TAKEN = """
<torch>
rows = torch.arange(18.0).view(18, 1)
loader = DataLoader(TensorDataset(rows), batch_size=2{how})
<model torch.nn.Linear(1, 1)>
number, result = {number}, 0
for epoch in range(2):
    batches = iter(loader)
    for step in range(number):
        {take}
        <step torch.nn.functional.mse_loss(model(x), x)>
        result += 1
"""


@each_row("""
number => how => take => bounded
len(rows) // 2 => , shuffle=True => x, = next(batches) => True
len(loader) => , shuffle=True => x, = next(batches) => False
len(rows) // 2 => '' => x, = next(batches) => False  # it may have no length
len(rows) // 2 => , shuffle=True => x, = next(batches, [rows]) => False
""")
def test_a_number_of_batches_is_that_of_one_process(number: str, how: str, take: str, bounded: bool) -> None:
    text = TAKEN.format(number=number, how=how, take=take)
    after = converted(text)
    assert "loader = accelerator.prepare(" in after
    assert ("range(min(number, len(loader)))" in after) is bounded
    assert "min(" not in converted(text.replace("in range(number)", "in range(args.start, number)"))


def test_a_loop_that_takes_batches_by_number_ends_with_them(tmp_path: Path) -> None:
    text = TAKEN.format(number="len(rows) // 2", how=", shuffle=True", take="x, = next(batches)")
    convert(write(tmp_path, script=text), "script")
    assert train(tmp_path, "script") == [18]
    assert train(tmp_path, "script", 2) == [10, 10]


def test_steps_that_each_begin_the_loader_anew_are_those_of_one_process(tmp_path: Path) -> None:
    text = TAKEN.format(number="len(rows) // 2", how=", shuffle=True", take="x, = next(iter(loader))")
    text = text.replace("    batches = iter(loader)\n", "")
    assert "num_processes" not in converted(text.replace("len(rows) // 2", "9"))
    folder = write(tmp_path, script=text)
    convert(folder, "script")
    assert train(folder, "script") == [18]
    assert train(folder, "script", 2) == [10, 10]


def test_a_number_of_steps_of_its_own_goes_over_a_share_again(tmp_path: Path) -> None:
    text = TAKEN.format(number="9", how=", shuffle=True, batch_sampler=None", take="x, = next(batches)")
    folder = write(tmp_path, script=text)
    convert(folder, "script")
    assert train(folder, "script") == [18]
    assert train(folder, "script", 2) == [18, 18]
    for other in (
        text.replace("number, result = 9", "number, result = len(rows)"),
        text.replace("for epoch in range(2):", "if True:"),  # one pass of all steps: it may not end
        text.replace(
            "x, = next(batches)", "try:\n            x, = next(batches)\n        except StopIteration: pass"
        ),
    ):
        assert "chain(" not in converted(other)


TWO_TAKEN = """
<torch>
labelled = DataLoader(TensorDataset(torch.arange(8.0).view(8, 1)), batch_size=2)
others = DataLoader(TensorDataset(torch.arange(24.0).view(24, 1)), batch_size=2)
<model torch.nn.Linear(1, 1)>
def train(first, second):
    steps, every = 0, 4
    number = {number}
    first = iter(first)
    second = iter(second)
    for step in range(number):
        x, = next(first) if step % every == 0 else next(second)
        <step torch.nn.functional.mse_loss(model(x), x)>
        steps += 1
    return steps
result = train(labelled, others)
"""
PREPARED = "first, second = accelerator.prepare(first, second)"


def test_steps_that_take_from_two_loaders_are_those_of_one_process(tmp_path: Path) -> None:
    convert(write(tmp_path, script=TWO_TAKEN.format(number="len(first) + len(second)")), "script")
    assert train(tmp_path, "script") == [16]
    assert train(tmp_path, "script", 2) == [8, 8]


def test_a_number_of_steps_without_a_length_moves_no_loader() -> None:
    after = converted(TWO_TAKEN.format(number="4"))
    assert after.index("number = 4") < after.index(PREPARED)
    assert "min(" not in after


AT_TOP = """
<torch>
first = DataLoader(TensorDataset(torch.arange(24.0).view(24, 1)), batch_size=2)
second = DataLoader(TensorDataset(torch.arange(12.0).view(12, 1)), batch_size=2)
steps = len(first)
turns = len(second)
<model torch.nn.Linear(1, 1)>
def train():
    end, done = steps, 0
    batches, others = iter(first), iter(second)
    for i in range(1, {end}):
        (x,), (other,) = next(batches), next(others)
        if i % turns == 0:
            others = iter(second)
        <step torch.nn.functional.mse_loss(model(x), x + 0 * other)>
        done += 1
    return done
if __name__ == "__main__":
    for epoch in range(2):
        result = train()
"""


def test_lengths_above_the_guard_are_those_of_one_process_within_it(tmp_path: Path) -> None:
    convert(write(tmp_path, script=AT_TOP.format(end="end")), "script")
    assert train(tmp_path, "script") == [11]
    assert train(tmp_path, "script", 2) == [5, 5]
    assert "    steps = len(first)" not in converted(AT_TOP.format(end="9"))


@pytest.mark.parametrize(("turns", "is_of_all"), [("len(loader)", True), ("40", False)])
def test_what_is_added_up_over_all_batches_that_are_taken_is_that_of_all_processes(
    turns: str, is_of_all: bool
) -> None:
    text = f"""
<torch>
loader = DataLoader(rows, 8, shuffle=True)
<model nn.Linear(2, 1)>
batches, total = iter(loader), 0
for i in range({turns}):
    loss = model(next(batches)).square().mean()
    <step loss>
    total += loss.item()
print(total / {turns})
"""
    assert ('total = accelerator.reduce(total, "mean")\n' in converted(text)) is is_of_all
    assert bool(notes(text, "CT602")) is not is_of_all


def test_what_is_added_up_over_two_loaders_is_reduced_once() -> None:
    text = """
<torch>
first, second = DataLoader(rows, 8, shuffle=True), DataLoader(rows, 4, shuffle=True)
<model nn.Linear(2, 1)>
xs, ys, total = iter(first), iter(second), 0
for i in range(min(len(first), len(second))):
    x, y = next(xs), next(ys)
    loss = (model(x) - model(y)).square().mean()
    <step loss>
    total += loss.item() * len(x)
print(total / len(rows))
"""
    assert converted(text).count("accelerator.reduce(total,") == 1 and not notes(text, "CT602")


HELD = """
import math
<torch>
class Trainer:
    def __init__(self, sets, size, model, optimizer):
        self.loaders = {key: DataLoader(sets[key], size, shuffle=True) for key in sets}
        rows = max([self.loaders[key].dataset.__len__() for key in self.loaders])
        self.steps = STEPS
        self.model, self.optimizer = model, optimizer
    def train(self):
        for epoch in range(2):
            self.batches = {}
            for key in self.loaders:
                self.batches[key] = iter(self.loaders[key])
            for self.step in range(1, self.steps + 1):
                self.turn()
    def turn(self):
        data = {key: next(self.batches[key]) for key in self.batches}
        model, optimizer = self.model, self.optimizer
        <step loss = model(data["a"]).square().mean()>
<model>
Trainer({"a": data}, 4, model, optimizer).train()
"""


@each_row("""
steps => becomes
math.ceil(rows / size) => self.steps=accelerator.share(math.ceil(rows / size))
rows // size => self.steps=accelerator.share(rows // size)
size * 9 => self.steps=size * 9
""")
def test_steps_of_all_rows_whose_batches_iterators_in_a_dictionary_give(steps: str, becomes: str) -> None:
    assert "".join(becomes.split()) in "".join(converted(HELD.replace("STEPS", steps)).split())
