"""Counts of rows beside the number of all rows count those of all processes; numbers of batches, those of one."""

import math
from pathlib import Path

import pytest

from .converting import converted, notes
from .projects import convert, train, write
from .support import each_row

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


@each_row("""
count => size => then => is_all
len(rows) => args.batch_size => print(seen / count) => True
len(rows) => args.batch_size => if seen - epoch * count > 8: print(epoch) => True
len(rows) => args.batch_size => show(epoch, seen, count) => True
len(rows) => args.batch_size => show(f'{seen} of {count}') => True
100 => args.batch_size => show(epoch, seen, count) => False
100 => args.batch_size => print(seen / count) => False  # an option: every so many rows
args.images => args.batch_size => if seen >= count: break => True
args.images => args.batch_size => if seen % count == 0: print(epoch) => False
args.images => args.batch_size => if seen >= count: print(epoch) => False
len(rows) => args.batch_size => print(count / seen) => False  # a mean
len(rows) => 1 => print(seen / count) => False
len(rows) => batch_size => batch_size = len(x); print(seen / count) => False  # the last one has fewer
""")
def test_a_count_of_rows(count: str, size: str, then: str, is_all: bool) -> None:
    after = converted(TRAINING.format(count=count, size=size, then=then))
    assert f"seen += {size}{' * accelerator.num_processes' if is_all else ''}\n" in after


@each_row("""
total => by => is_all
len(loader.dataset) => x.size(0) => True
count => args.batch_size => True
count - count % 8 => len(x) => True
held = 8; bar = tqdm(total=count - held) => len(x) => True
some = int(count * 0.9) - 8; bar = tqdm(total=some) => len(x) => True
some = len(loader) * 4; bar = tqdm(total=some) => len(x) => False
some = args.rows - 8; bar = tqdm(total=some) => len(x) => False
len(loader) => 1 => False
args.rows => len(x) => False
""")
def test_a_bar_that_ends_with_all_rows(total: str, by: str, is_all: bool) -> None:
    bar = f"len(rows)\n{total}" if "bar" in total else f"len(rows)\nbar = tqdm(total={total})"
    after = converted(TRAINING.format(count=bar, size="1", then=f"bar.update({by})"))
    assert f"bar.update({by}{' * accelerator.num_processes' if is_all else ''})\n" in after


def test_a_bar_that_an_attribute_holds_for_another_method() -> None:
    text = """
from tqdm import tqdm
<torch>
class Trainer:
    def train(self, loader, rows):
        with tqdm(total=len(rows) * 3) as bar:
            self.bar = bar
            for epoch in range(3):
                self.turn(loader)
    def turn(self, loader):
        for x, y in loader:
            <step loss = F.mse_loss(model(x), y)>
            self.bar.update(len(x))
<model>
Trainer().train(DataLoader(data, 4), data)
"""
    assert "self.bar.update(len(x) * accelerator.num_processes)" in converted(text)
    assert "self.bar.update(len(x))" in converted(text.replace("len(rows) * 3", "300"))


@pytest.mark.parametrize(("tells", "is_all"), [("print(seen / count)", True), ("print(seen)", False)])
def test_a_count_of_rows_beside_one_that_meets_all_rows(tells: str, is_all: bool) -> None:
    then = f"if steps % 100 == 0: print(1)\n        {tells}\n        mean += args.batch_size\n        print(9 / mean)"
    size = "args.batch_size\n        steps += args.batch_size"
    after = converted(TRAINING.format(count="len(rows)", size=size, then=then))
    assert ("steps += args.batch_size * accelerator.num_processes\n" in after) is is_all
    assert "mean += args.batch_size\n" in after


@each_row(r"""
then => after
print(i, count) => count = accelerator.share(len(rows) // args.batch_size)
print(i, int(len(rows) / 4)) => print(i, int(len(rows) / 4))  # nothing is cut by 4
print(i, int(data.size()[0] / args.batch_size)) => print(i, accelerator.share(int(data.size()[0] / args.batch_size)))
if i > 0.8 * data.shape[0] // args.bs: print(epoch) => if i > accelerator.share(0.8 * data.shape[0] // args.bs):
if i > 0.8 * (data.shape[0] // args.bs): print(epoch) => if i > 0.8 * accelerator.share(data.shape[0] // args.bs):
print(i, x.size(0) // args.batch_size) => print(i, x.size(0) // args.batch_size)
print(i, data.shape[0] // 4) => print(i, data.shape[0] // 4)  # the size of anything
print(i, loader.dataset.n // args.batch_size) => accelerator.share(loader.dataset.n // args.batch_size)
print(i, loader.dataset.width // 2) => print(i, loader.dataset.width // 2)
print(100 * i / count) => count = accelerator.share(len(rows) // args.batch_size)
if i == count - 1: print(epoch) => count = accelerator.share(len(rows) // args.batch_size)
print(i * args.batch_size, len(rows)) => i * args.batch_size * accelerator.num_processes, len
if i * len(x) > 9: break => if i * len(x) * accelerator.num_processes > 9:
print(seen % count) => count = accelerator.share(len(rows) // args.batch_size)
args.step += 1; rate = 1 - args.step / steps => steps = accelerator.share(9 * len(rows) // args.batch_size)
args.step += 1; rate = args.step / some; rate = args.epoch / steps => args.step / some; rate = args.epoch / steps
if i: epoch += 1\n        print(epoch % count) => print(epoch % count)
print(epoch * count + i) => print(epoch * count + i)
print(count) => print(count)
if i == len(loader) // 2: print(epoch) => if i == len(loader) // 2:
print(i * args.batch_size, 3) => print(i * args.batch_size, 3)
print(i, len(cut), len(other)) => print(i, accelerator.share(len(cut)), len(other))
if i >= count: break => if i >= count:
""")
def test_a_number_of_batches(then: str, after: str) -> None:
    script = TRAINING.replace("for x, y in loader", "for i, (x, y) in enumerate(loader)")
    script = script.replace("args.batch_size)\n", "args.batch_size, batch_sampler=cut)\n", 1)
    script = script.replace(
        "seen = 0",
        "seen = 0\nsteps = 9 * len(rows) // args.batch_size; some = 0.5 * len(rows) // args.batch_size",
    )
    assert after in converted(script.format(count="len(rows) // args.batch_size", size="1", then=then))


@each_row("""
head => total => is_own
tqdm(loader, total=TOTAL) => count => True
tqdm(enumerate(loader), total=TOTAL) => int(len(rows) / args.batch_size) => True
tqdm(loader, total=TOTAL) => args.steps => False
tqdm(loader, total=TOTAL) => len(loader) => False
show(loader, total=TOTAL) => count => False
bar = tqdm(enumerate(loader), total=TOTAL) => len(rows) // known_batch_size => True
bar = show(enumerate(loader), total=TOTAL) => count => False
""")
def test_a_bar_over_the_data_of_a_loop_ends_with_the_batches_of_its_process(
    head: str, total: str, is_own: bool
) -> None:
    pair = "x, y" if "enumerate" not in head else "i, (x, y)"
    head = head.replace("TOTAL", total)
    loop = f"{head}\n    for {pair} in bar" if head.startswith("bar") else f"for {pair} in {head}"
    script = TRAINING.replace("for x, y in loader", loop)
    script = script.replace("count = {count}", "count = {count}\nknown_batch_size = take(args)")
    after = converted(script.format(count="len(rows) // args.batch_size", size="1", then="pass"))
    assert (f"min({total}, len(loader))" in after) is is_own and total in after


@each_row("""
turn => is_own
i // count => True
epoch // count => False
""")
def test_epochs_of_which_one_pass_has_all(turn: str, is_own: bool) -> None:
    script = TRAINING.replace("for x, y in loader", "for i, (x, y) in enumerate(loader)")
    whole = "len(loader.dataset) // 5 // args.batch_size"
    after = converted(script.format(count=whole, size="1", then=f"epoch = {turn}"))
    assert ("accelerator.share(" in after) is is_own


@pytest.mark.parametrize("step", [8, 1])
def test_batches_of_a_range_are_dealt_whole(step: int) -> None:
    script = TRAINING.replace("for x, y in loader:", f"for i, n in enumerate(range(0, len(rows), {step})):")
    script = script.replace("<step>", "x, y = rows[n : n + 8]\n        <step>")
    made = converted(script.format(count="len(rows) // 8", size="1", then="print(i, count)"))
    assert "print(i, accelerator.share(count))\n" in made


MAKER = """<torch>
class Rows:
    def __call__(self, epoch):
        return DataLoader([], 8)
    def __len__(self):
        return {length}
rows = Rows()
<model>
for epoch in range(2):
    for i, (x, y) in enumerate(rows(epoch)):
        <step>
        print("%d of %d" % (i, len(rows)))
"""


@pytest.mark.parametrize(("length", "is_share"), [("64 // 8", True), ("64", False)])
def test_the_batches_of_what_makes_a_loader(length: str, is_share: bool) -> None:
    after = converted(MAKER.format(length=length))
    assert ("(i, accelerator.share(len(rows)))" in after) is is_share, after


GIVER = """<torch>
class Rows:
    def __init__(self):
        self.batches = list(DataLoader([], 8))
        self.size = len(self.batches)
    def __iter__(self):
        for one in self.batches:
            yield {given}
def train(rows):
    <model>
    for i, (x, y) in enumerate(rows):
        <step>
        print(i, rows.size)
    print(len(x) / rows.size)
rows = Rows()
steps = {told}
train(rows)
"""


@each_row("""
given => told => is_count => is_share
one => 3 * rows.size => True => True
one => torch.optim.lr_scheduler.CosineAnnealingLR(rate, rows.size) => True => False
self.batches[0:1] => 3 * rows.size => False => False  # rows, perhaps
""")
def test_what_an_object_says_of_its_batches(given: str, told: str, is_count: bool, is_share: bool) -> None:
    after = converted(GIVER.format(given=given, told=told))
    assert ("print(i, accelerator.share(rows.size))" in after) is is_count, after
    assert ("steps = 3 * accelerator.share(rows.size)" in after) is is_share and "/ rows.size)" in after, (
        after
    )


RENEWED = """import math
import torch
from torch.utils.data import DataLoader
rows = torch.arange(26.0).view(13, 2)
<model torch.nn.Linear(2, 2)>
steps, seen = {steps}, []
for step in range(2 * steps):
    if step % {cycle} == 0:
        batches = iter(DataLoader(rows, 2, shuffle=True))
    x = next(batches)
    <step model(x).mean()>
    seen += x[:, 0].tolist()
    turns = step + 1
result = turns / 2, sorted(set(seen))
"""


@pytest.mark.parametrize("steps", ["math.ceil(len(rows) / 2)", "len(rows) // 2"])
def test_steps_of_all_rows_by_which_an_iterator_is_made_anew(steps: str, tmp_path: Path) -> None:
    assert "num_processes" not in converted(RENEWED.format(steps="6", cycle="steps"))
    ended = converted(RENEWED.format(steps=steps, cycle="3"))  # its turns are those of all epochs
    assert "accelerator.share(" in ended
    convert(write(tmp_path, train=RENEWED.format(steps=steps, cycle="steps")), "train")
    (count, first), (_, second) = train(tmp_path, "train", 2)
    assert count == -(-eval(steps, {"math": math, "rows": range(13)}) // 2)
    assert first != second


def test_no_bar_is_told_of_where_what_it_counts_is_counted_once_more() -> None:
    script = TRAINING.replace("for x, y in loader", "bar = enumerate(tqdm(loader))\n    for i, (x, y) in bar")
    script = script.format(count="len(rows)\nbar = tqdm(range(3))", size="1", then="pass").replace(
        "<torch>", "<torch>\nfrom tqdm import tqdm"
    )
    assert not [one for one in notes(script, "CT401") if "bar" in one.reason]


PROGRESS = """
<torch>
class Progress:
    def __init__(self, name, total):
        self.name, self.seen = name, 0
        self.total = total
    @property
    def share(self):
        return {share}
    def update(self, number):
        self.seen += number
<model>
def train(progress):
    for x, y in DataLoader(data, 4):
        <step loss = F.mse_loss(model(x), y)>
        progress.update(len(x))
        if progress.share > 0.5:
            print("half")
train(Progress("first", {total}))
"""


@each_row("""
total => share => is_all
total=len(data) => self.seen / self.total => True
100 => self.seen / self.total => False
len(data) => 8 / self.seen => False  # a mean
""")
def test_rows_that_an_object_counts_beside_all(total: str, share: str, is_all: bool) -> None:
    after = converted(PROGRESS.format(total=total, share=share))
    assert ("progress.update(len(x) * " in after) == is_all


@each_row("""
total => is_all
1000 => False  # of a bar's own
progress.total => True
""")
def test_a_bar_beside_such_an_object(total: str, is_all: bool) -> None:
    text = PROGRESS.format(total="len(data)", share="self.seen / self.total")
    text = text.replace("def train(progress):", f"def train(progress):\n    bar = tqdm(total={total})")
    text = "from tqdm import tqdm" + text.replace(
        "        if progress.", "        bar.update(len(x))\n        if progress."
    )
    after = converted(text)
    assert ("bar.update(len(x) * " in after) == is_all and "progress.update(len(x) * " in after


BATCHES = """
<torch>
class Batches:
    def __init__(self, rows, most):
        self.most, self.batch_size = most, 4
        self.loader = DataLoader(rows, batch_size=4)
    def load(self):
        return self
    def __iter__(self):
        for i, batch in enumerate(self.loader):
            if {test}:
                break
            yield batch
def made(rows):
    batches = Batches(rows, 8)
    return batches
<model>
rows = TensorDataset(torch.ones(32, 4), torch.zeros(32, 2))
batches, others = made(rows).load(), made(rows).load()
seen, size = 0, 0
for x, y in batches:
    <step loss = F.mse_loss(model(x), y)>
    size += 1
with torch.no_grad():
    for x, y in others:
        seen += len(model(x))
        torch.save(x, "%d.pt" % seen)
print(seen)
result = size, seen
"""
AGAIN = """
with torch.no_grad():
    again = 0
    for x, y in batches:
        again += len(model(x))
result = size, seen, again
"""


def test_the_end_of_what_a_class_gives_by_its_loader(tmp_path: Path) -> None:
    """`prepare` deals the loader inside; an evaluation of such an object stays whole, and one process writes its files."""
    text = BATCHES.format(test="i * self.batch_size >= self.most")
    after = converted(text)
    assert 'if i * getattr(self.loader, "total_batch_size", self.batch_size) >= self.most:' in after
    assert "prepare_evaluation" not in after and "accelerator.save(x," in after
    assert 'total_batch_size"' not in converted(BATCHES.format(test="i == self.most"))
    convert(write(tmp_path, script=text), "script")
    assert train(tmp_path, "script", 2) == [(1, 8), (1, 8)]
    assert train(tmp_path, "script", launched=False) == [(2, 8)]
    (again := tmp_path / "again").mkdir()  # what is trained on as well is dealt, and merged
    convert(write(again, script=text + AGAIN), "script")
    assert train(again, "script", 2) == [(1, 8, 8), (1, 8, 8)]


STEPS = """
<torch>
class Trainer:
    def __init__(self, rows, batch_size, epochs):
        count = len(rows)
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.loader = DataLoader(rows, batch_size)
        self.total = count // batch_size * epochs
        self.step = 0
    def run(self):
        for x, y in self.loader:
            loss = F.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1
            self.tell(8.0)
    def tell(self, seconds):
        print({told})
Trainer(TensorDataset(torch.ones(32, 4), torch.ones(32, 2)), 4, 3).run()
"""


@pytest.mark.parametrize(
    ("told", "is_share"),
    [("(self.total / self.step - 1.0) * seconds", True), ("self.total / 3", False), ("self.total", False)],
)
def test_steps_of_all_epochs_that_an_attribute_keeps(told: str, is_share: bool) -> None:
    after = converted(STEPS.format(told=told))
    assert ("self.total = count // batch_size * epochs\n" not in after) is is_share
