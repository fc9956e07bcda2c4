"""What a training loop reads, however it comes to its batches: two processes train on one process's batches, each once."""

from textwrap import dedent

import pytest

from .rows import check_lines, check_shares
from .support import case_by_case, cases, converted

BATCHES = cases("""
== an array that is computed and shuffled in its place, and a tensor
order = 31 - np.arange(32).astype(int)
for epoch in range(2):
    np.random.shuffle(order)
    for row in order:
        learn(model, optimizer, rows[row : row + 1], targets[row : row + 1])
for row in torch.randperm(32):
    learn(model, optimizer, rows[row : row + 1], targets[row : row + 1])
-> for row in accelerator.prepare(list(order)):
-> for row in accelerator.prepare(list(torch.randperm(32))):
== an iterator that begins anew after the number of its loader's batches
loaders = {"a": DataLoader(TensorDataset(rows, targets), batch_size=4)}
number, others = len(loaders["a"]), len(loaders["a"].dataset)
number = len(loaders["a"])
for step in range(2 * number):
    if step % number == 0:
        batches = iter(loaders["a"])
    learn(model, optimizer, *next(batches))
-> number, others = len(accelerator.prepare(loaders["a"])), len(loaders["a"].dataset)
-> number = len(accelerator.prepare(loaders["a"]))
-> batches = iter(accelerator.prepare(loaders["a"]))
== what may be an array, or batches
batches = np.arange(32)
if len(batches) > 4:
    batches = [(rows[i : i + 4], targets[i : i + 4]) for i in range(0, 32, 4)]
for x, y in batches:
    learn(model, optimizer, x, y)
-> model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
== loaders that a library makes for each of several books
made = __import__("types").SimpleNamespace(
    loaders_of=lambda book: (DataLoader(TensorDataset(rows[book], targets[book]), batch_size=4), None)
)
books = [slice(0, 8), slice(8, 32)]
for book in books:
    train_loader, test_loader = made.loaders_of(book)
    for x, y in train_loader:
        learn(model, optimizer, x, y)
-> for book in books:
-> train_loader = accelerator.prepare(train_loader)
== an object that is its own iterator, and begins anew
class Batches:
    __iter__ = lambda self: self
    def __init__(self, loader):
        self.loader = loader
        self.batches = iter(loader)
        iter(self)
    def __next__(self):
        try:
            return next(self.batches)
        except StopIteration:
            self.batches = iter(self.loader)
            return next(self.batches)
    def get(self):
        return next(self)
def train(loader, step=0):
    batches = Batches(loader)
    while step < 8:
        step += 1
        x, y = batches.get()
        learn(model, optimizer, x, y)
train(DataLoader(TensorDataset(rows, targets), batch_size=4))
-> loader = accelerator.prepare(loader)
-> self.batches = iter(self.loader)
-> return next(self)
!! prepare(self)
== a variable of a loader that is bound to a wrapper around it
import itertools
endless = getattr(itertools, "cycle")
source = DataLoader(TensorDataset(rows, targets), batch_size=4)
source = endless(source)
step = 0
while step < 8:
    step += 1
    x, y = next(source)
    learn(model, optimizer, x, y)
-> source = endless(source)
!! prepare(endless
== callbacks that train on each batch
class Step:
    def on_batch(self, x, y):
        learn(model, optimizer, x, y)
class Training:
    def __init__(self, loader, callbacks):
        self.loader = loader
        self.callbacks = callbacks
    def run(self):
        for x, y in self.loader:
            for callback in self.callbacks:
                callback.on_batch(x, y)
Training(DataLoader(TensorDataset(rows, targets), batch_size=4), [Step()]).run()
-> for callback in self.callbacks:
!! prepare(self.callbacks)
== a class that keeps iterators of its loaders in a list
class Mixed:
    def __init__(self):
        self.loaders = []
        self.iters = []
        for part in (slice(0, 16), slice(16, 32)):
            loader = DataLoader(TensorDataset(rows[part], targets[part]), batch_size=2, shuffle=True)
            self.loaders.append(loader)
            self.iters.append(iter(loader))
    def draw(self):
        parts = []
        for i, it in enumerate(self.iters):
            try:
                parts.append(next(it))
            except StopIteration:
                self.iters[i] = iter(self.loaders[i])
                parts.append(next(self.iters[i]))
        xs, ys = zip(*parts)
        return torch.cat(xs), torch.cat(ys)
source = Mixed()
step = 0
while step < 8:
    x, y = source.draw()
    learn(model, optimizer, x, y)
    step += 1
-> loader = accelerator.prepare(loader)
-> self.loaders.append(loader)
-> self.iters.append(iter(loader))
!! prepare(self.loaders[i])
== a module whose forward trains
class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.001)
    def forward(self, x, y):
        seen.append(sorted(x.flatten().tolist()))
        loss = F.mse_loss(self.net(x), y)
        <self.step loss>
        return loss.item()
learner = Learner().to("cpu")
loader = DataLoader(TensorDataset(rows, targets), batch_size=4)
for number, (x, y) in enumerate(loader):
    loss = learner(x, y)
-> loader = accelerator.prepare(loader)
-> for number, (x, y) in enumerate(loader):
== a loader that is one of two, by the author's flag
class Runner:
    def __init__(self, first, second):
        self.first, self.second = first, second
        self.model = nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001)
    def one_pass(self, checks=False):
        loader = self.first if not checks else self.second
        total = 0.0
        for x, y in loader:
            loss = F.mse_loss(self.model(x), y)
            if not checks:
                seen.append(sorted(x.flatten().tolist()))
                <self.step loss>
            total += loss.item()
        return total
runner = Runner(DataLoader(TensorDataset(rows, targets), batch_size=4), DataLoader(TensorDataset(rows, targets)))
runner.one_pass()
runner.one_pass(checks=True)
-> loader = self.first if not checks else self.second
-> loader = accelerator.prepare(loader) if not checks else accelerator.prepare_evaluation(loader)
!! prepare(self.second
!! self.second)
== loaders of a dictionary, by a phase that the step asks for
def step(phase, x, y):
    training = phase == "fit"
    loss = F.mse_loss(model(x), y)
    if training:
        seen.append(sorted(x.flatten().tolist()))
        <step loss>
    return loss.item()
loaders = {
    "fit": DataLoader(TensorDataset(rows, targets), batch_size=4),
    "check": DataLoader(TensorDataset(rows, targets), batch_size=4),
}
epoch = 0
while epoch < 2:
    for phase, loader in loaders.items():
        shown = 0.0
        for i, (x, y) in enumerate(loader):
            shown += step(phase, x, y)
        print(phase, shown / len(loader))
    epoch += 1
-> for i, (x, y) in enumerate(loader):
!! prepare(loaders
== slices by the number of the batch, of which the last may be empty
size = 4
count = len(rows) // size + 1
for epoch in range(2):
    order = torch.randperm(len(rows))
    for number in range(count):
        start = number * size
        end = min(start + size, len(rows))
        chosen = order[start:end]
        if not len(chosen):
            continue
        learn(model, optimizer, rows[chosen], targets[chosen])
-> for number in accelerator.prepare(range(count)):
-> if accelerator.reduce(int(bool(not len(chosen))), "sum") > 0:
!! prepare(range(2
!! for epoch in accelerator
== a function that cuts the batch of a number
def batch_of(table, number, size=4):
    at = number * size
    return table[at : at + size]
steps = len(rows) // 4
for epoch in range(2):
    for number in range(steps):
        learn(model, optimizer, batch_of(rows, number), batch_of(targets, number))
-> for number in accelerator.prepare(range(steps)):
!! for epoch in accelerator
== a part of the numbers of batches, whose caller goes over the parts
batches = [(rows[i : i + 4], targets[i : i + 4]) for i in range(0, 32, 4)]
def train(data, start, count):
    for number in range(start, start + count):
        x, y = data[number]
        learn(model, optimizer, x.to("cpu"), y)
for epoch in range(2):
    for start in range(0, 8, 4):
        train(batches, start, 4)
-> for number in accelerator.prepare(range(start, start + count)):
!! for start in accelerator
== a length and an iterator of the same loader
loader = DataLoader(TensorDataset(rows, targets), batch_size=4)
for epoch in range(2):
    batches = iter(loader)
    i = 0
    while i < len(loader):
        for _ in range(2):
            if i < len(loader):
                x, y = next(batches)
                i += 1
                learn(model, optimizer, x, y)
-> model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
== a helper that takes the next batch of what it is given, to train and to test
def endless(loader):
    while True:
        yield from loader
def take(batches):
    return next(batches)
sets = {"fit": endless(DataLoader(TensorDataset(rows, targets), batch_size=4)), "test": endless([(rows, targets)])}
step = 0
while step < 8:
    step += 1
    learn(model, optimizer, *take(sets["fit"]))
    with torch.no_grad():
        x, y = take(sets["test"])
-> return next(batches)
-> "fit": endless(accelerator.prepare(DataLoader(TensorDataset(rows, targets), batch_size=4))),
-> "test": endless([(rows, targets)])
== and such a helper, of what is made elsewhere
def take(batches):
    return next(batches)
made = __import__("types").SimpleNamespace(sets=lambda: {
    "fit": iter(DataLoader(TensorDataset(rows, targets), batch_size=2)), "test": iter([(rows, targets)] * 8)
})
sets = made.sets()
step = 0
while step < 8:
    step += 1
    learn(model, optimizer, *take(sets["fit"]))
    with torch.no_grad():
        x, y = take(sets["test"])
-> return next(batches)
-> learn(model, optimizer, *take(accelerator.prepare(sets["fit"])))
-> x, y = take(sets["test"])
== a sheet of samples from other iterators
loader = DataLoader(TensorDataset(rows, targets), batch_size=4)
shown = DataLoader(TensorDataset(rows, targets), batch_size=2)
batches, samples, step = iter(loader), iter(shown), 0
while step < len(loader):
    x, y = next(batches)
    learn(model, optimizer, x, y)
    for _ in range(2):
        sample = next(samples)
    step += 1
-> model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
!! prepare(shown)
!! , shown
== a loader whose batches `next` takes within a loop over another one; no numbers, and none to look at
loader, more = DataLoader(TensorDataset(rows[:16]), 4), DataLoader(TensorDataset(targets[:16]), 4)
others, shown, rates = iter(more), iter(DataLoader(TensorDataset(rows), batch_size=4)), iter([1.0] * 8)
for epoch in range(2):
    for n, (x,) in enumerate(loader):
        try:
            (y,) = others.__next__()
        except StopIteration:
            others = iter(more)
            (y,) = next(others)
        learn(model, optimizer, x, y * next(rates))
        if n == 0:
            sample = next(shown)
-> model, optimizer, more, loader = accelerator.prepare(model, optimizer, more, loader)
!! prepare(DataLoader
!! prepare([
== an iterator that is chosen among several, each of which begins anew where it is used up; another one to look at
loader, second = DataLoader(TensorDataset(rows[:16], targets[:16]), 4), DataLoader(TensorDataset(rows[16:], targets[16:]), 4)
one, two, step = iter(loader), iter(second), 0
shown = iter([rows])
while step < 8:
    chosen = one if step % 2 == 0 else two
    try:
        x, y = next(chosen)
    except StopIteration:
        one = iter(loader)
        x, y = next(one)
    learn(model, optimizer, x, y)
    step += 1
print(next(shown).shape)
-> model, optimizer, loader, second = accelerator.prepare(model, optimizer, loader, second)
!! prepare([rows])
""")
test_lines = case_by_case(BATCHES, check_lines)
test_two_processes_train_on_the_batches_of_one = case_by_case(BATCHES, check_shares)

MPI = """
import torch
from mpi4py import MPI
from torch.utils.data import DataLoader
def read(path):
    world = MPI.COMM_WORLD
    text = open(path).read() if world.rank == 0 else None
    return world.bcast(text)
def batches(rows):
    mine = rows[MPI.COMM_WORLD.Get_rank() :: MPI.COMM_WORLD.Get_size()]
    while True:
        yield from DataLoader(mine, batch_size=4)
<model>
source = batches(read("rows.txt"))
for step in range(100):
    loss = model(next(source)).mean()
    <step loss>
"""


def test_rows_that_are_divided_by_the_rank_of_mpi() -> None:
    after = converted(MPI).text
    assert "mine = rows[PartialState().process_index :: PartialState().num_processes]" in after
    assert "source = accelerator.prepare(batches(" in after  # whose items differ: they pass through
    assert "if world.rank == 0 else None" in after  # each process reads, in an MPI world of its own


ONE_LOSS = """
import torch
from torch import nn
def batches(rows):
    for at in range(0, len(rows), 4):
        yield rows[at:at + 4]
def loss_of(batch, only_loss=False):
    loss = nn.functional.mse_loss(model(batch), batch)
    if only_loss:
        return loss.item()
    <step loss>
    return loss.item()
def evaluate(rows):
    total = 0.0
    {block}:
        for batch in batches(rows):
            total += loss_of(batch, only_loss=True)
    return total
<model nn.Linear(1, 1)>
for batch in batches(torch.ones(32, 1)):
    loss_of(batch)
print(evaluate(torch.ones(16, 1)))
"""


@pytest.mark.parametrize(
    ("block", "evaluates"),
    [("with torch.no_grad()", True), ("if len(rows) > 1", False)],
    ids=["no_grad", "if"],
)
def test_a_loss_that_is_computed_without_gradients_is_not_trained(block: str, evaluates: bool) -> None:
    """The step function is called by the evaluation, too, for the loss alone."""
    after = converted(dedent(ONE_LOSS).format(block=block)).text
    assert "for batch in accelerator.prepare(batches(torch.ones(32, 1))):" in after
    assert ("prepare(batches(rows))" in after) != evaluates


BESIDE = """
import library
<torch>
<model>
source, more = library.rows(), DataLoader(list(range(8)), batch_size=2)
others = iter(more)
for x in source:
    y = next({it})
    loss = model(x + y).mean()
    <step loss>
"""


@pytest.mark.parametrize(("it", "held"), [("others", "more, source"), ("iter([1.0])", "source")])
def test_what_next_takes_beside_batches_that_nobody_knows(it: str, held: str) -> None:
    after = converted(BESIDE.format(it=it)).text
    assert f"model, optimizer, {held} = accelerator.prepare(model, optimizer, {held})" in after, after


TWO = """
<torch>
<model>
loader, more = DataLoader(list(range(8)), batch_size=2), DataLoader(list(range(8)), batch_size=2)
others, sizes = iter(more), []
for {each}:
    {takes}
    <step loss = model(x + y).mean()>
    sizes.append(len(x))
print(sum(sizes))
"""


@pytest.mark.parametrize(
    ("each", "takes"), [("x, y in zip(loader, more)", "pass"), ("x in loader", "y = next(others)")]
)
def test_what_is_kept_of_two_loaders_is_merged_once(each: str, takes: str) -> None:
    after = converted(TWO.format(each=each, takes=takes)).text
    assert after.count(".merge(") == after.count("sizes = accelerator.merge(loader, sizes)") == 1


def test_a_length_that_divides_in_each_turn_is_that_of_the_prepared_loader() -> None:
    text = """
<torch>
loaders = [DataLoader(torch.rand(16, 4), 2), DataLoader(torch.rand(8, 4), 2)]
<model>
for k in range(2):
    total = 0.0
    for i, x in enumerate(loaders[k]):
        <step loss = model(x).square().mean()>
        total += loss.item() / len(loaders[k])
    print(total, len(loaders[k].dataset))
"""
    after = converted(text).text
    assert "total += loss.item() / len(accelerator.prepare(loaders[k]))" in after
    assert "accelerator.print(total, len(loaders[k].dataset))" in after
