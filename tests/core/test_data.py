"""What a training loop reads, however it comes to its batches: two processes train on one process's batches, each once."""

from __future__ import annotations

from textwrap import dedent

import pytest

from .rows import check_shares, numbered, script_of
from .support import Trap, check, converted

RUN = [
    Trap(
        "loaders that a library makes for each of several books",
        """
        made = __import__("types").SimpleNamespace(
            loaders_of=lambda book: (DataLoader(TensorDataset(rows[book], targets[book]), batch_size=4), None)
        )
        books = [slice(0, 8), slice(8, 32)]
        for book in books:
            train_loader, test_loader = made.loaders_of(book)
            for x, y in train_loader:
                learn(model, optimizer, x, y)
        """,
        ("for book in books:", "train_loader = accelerator.prepare(train_loader)"),
    ),
    Trap(
        "sets that a function of the script makes for each of several books",
        """
        def halves(book):
            return DataLoader(TensorDataset(rows[book], targets[book]), batch_size=4), None

        books = [slice(0, 8), slice(8, 32)]
        for book in books:
            half, rest = halves(book)
            for x, y in half:
                learn(model, optimizer, x, y)
        """,
        ("for book in books:", "half = accelerator.prepare(half)"),
    ),
    Trap(
        "an object that is its own iterator, and begins anew",
        """
        class Batches:
            def __init__(self, loader):
                self.loader = loader
                self.batches = iter(loader)

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
        """,
        ("loader = accelerator.prepare(loader)", "self.batches = iter(self.loader)", "return next(self)"),
        absent=("prepare(self)",),
    ),
    Trap(
        "a variable of a loader that is bound to a wrapper around it",
        """
        import itertools

        endless = getattr(itertools, "cycle")
        source = DataLoader(TensorDataset(rows, targets), batch_size=4)
        source = endless(source)
        step = 0
        while step < 8:
            step += 1
            x, y = next(source)
            learn(model, optimizer, x, y)
        """,
        ("source = endless(source)",),
        absent=("prepare(endless",),
    ),
    Trap(
        "a loop over scales inside the loop over batches",
        """
        scales = [0.5, 1.0]

        def train(batches, scales):
            for x, y in batches:
                seen.append(sorted(x.flatten().tolist()))
                optimizer.zero_grad()
                for scale in scales:
                    F.mse_loss(model(x * scale), y).backward()
                optimizer.step()

        train(DataLoader(TensorDataset(rows, targets), batch_size=4), scales)
        """,
        ("for scale in scales:",),
        absent=("prepare(scales)", "model, optimizer, scales"),
    ),
    Trap(
        "callbacks that train on each batch",
        """
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
        """,
        ("for callback in self.callbacks:",),
        absent=("prepare(self.callbacks)",),
    ),
    Trap(
        "a class that keeps iterators of its loaders in a list",
        """
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
        """,
        (
            "loader = accelerator.prepare(loader)",
            "self.loaders.append(loader)",
            "self.iters.append(iter(loader))",
        ),
        ("prepare(self.loaders[i])",),
    ),
    Trap(
        "a module whose forward trains",
        """
        class Learner(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(1, 1)
                self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.001)

            def forward(self, x, y):
                seen.append(sorted(x.flatten().tolist()))
                loss = F.mse_loss(self.net(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                return loss.item()

        learner = Learner().to("cpu")
        loader = DataLoader(TensorDataset(rows, targets), batch_size=4)
        for number, (x, y) in enumerate(loader):
            loss = learner(x, y)
        """,
        ("loader = accelerator.prepare(loader)", "for number, (x, y) in enumerate(loader):"),
    ),
    Trap(
        "a loader that is one of two, by the author's flag",
        """
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
                        self.optimizer.zero_grad()
                        loss.backward()
                        self.optimizer.step()
                    total += loss.item()
                return total

        runner = Runner(DataLoader(TensorDataset(rows, targets), batch_size=4), DataLoader(TensorDataset(rows, targets)))
        runner.one_pass()
        runner.one_pass(checks=True)
        """,
        (
            "loader = self.first if not checks else self.second",
            "loader = accelerator.prepare(loader) if not checks else accelerator.prepare_evaluation(loader)",
        ),
        ("prepare(self.second", "self.second)"),
    ),
    Trap(
        "loaders of a dictionary, by a phase that the step asks for",
        """
        def step(phase, x, y):
            training = phase == "fit"
            loss = F.mse_loss(model(x), y)
            if training:
                seen.append(sorted(x.flatten().tolist()))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
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
        """,
        ("for i, (x, y) in enumerate(loader):",),
        ("prepare(loaders",),
    ),
    Trap(
        "slices by the number of the batch, of which the last may be empty",
        """
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
        """,
        ("for number in accelerator.prepare(range(-(-len(rows) // size))):",),
        ("prepare(range(2", "for epoch in accelerator"),
    ),
    Trap(
        "slices of which the short ones are left out",
        """
        size, length = 4, 4
        for epoch in range(2):
            for number, at in enumerate(range(0, len(rows) - 1, 4)):
                if at < length:
                    continue
                if not (at + size < len(rows) or size == 1):
                    continue
                learn(model, optimizer, rows[at : at + size], targets[at : at + size])
        """,
        (
            "for number, at in enumerate(",
            "[",
            "if at >= length and (at + size < len(rows) or size == 1)",
        ),
        ("continue",),
    ),
    Trap(
        "a function that cuts the batch of a number",
        """
        def batch_of(table, number, size=4):
            at = number * size
            return table[at : at + size]

        steps = len(rows) // 4
        for epoch in range(2):
            for number in range(steps):
                learn(model, optimizer, batch_of(rows, number), batch_of(targets, number))
        """,
        ("for number in accelerator.prepare(range(steps)):",),
        ("for epoch in accelerator",),
    ),
    Trap(
        "examples one by one",
        """
        examples = [(rows[i : i + 1], targets[i : i + 1]) for i in range(32)]
        for i in range(len(examples)):
            x, y = examples[i]
            learn(model, optimizer, x, y)
        """,
        ("for i in accelerator.prepare(range(len(examples))):",),
    ),
    Trap(
        "a length and an iterator of the same loader",
        """
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
        """,
        ("model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",),
    ),
]


LEFT = [
    Trap(
        "batches that workers put into a queue, beside an evaluation that draws",
        """
        from multiprocessing import Process, Queue

        def fill(queue, seed):
            np.random.seed(seed)
            while True:
                queue.put(np.random.randint(0, 32, 4))

        class Sampler:
            def __init__(self):
                self.queue = Queue(10)
                Process(target=fill, args=(self.queue, np.random.randint(1000)), daemon=True).start()

            def next_batch(self):
                return self.queue.get()

        def evaluate(model):
            return model(rows[np.random.randint(0, 32, 8)]).mean().item()

        sampler = Sampler()
        for epoch in range(3):
            for step in range(8):
                chosen = torch.as_tensor(sampler.next_batch())
                loss = F.mse_loss(model(rows[chosen]), targets[chosen])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            model.eval()
            score = evaluate(model)
            print(score)
        """,
        ("for step in range(8):",),
        says="every process trains on the same data",
    ),
    Trap(
        "a batch that is drawn once for several steps",
        """
        for turn in range(100):
            chosen = torch.randint(0, 32, (4,))
            for inner in range(3):
                loss = F.mse_loss(model(rows[chosen]), targets[chosen])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        ("chosen = torch.randint(0, 32, (4,))", "for inner in range(3):"),
    ),
    Trap(
        "a loop over the heads of a model inside the loop over batches",
        """
        class Heads(nn.Module):
            def __init__(self):
                super().__init__()
                self.heads = nn.ModuleList([nn.Linear(1, 1) for _ in range(2)])

        many = Heads()
        optimizer = torch.optim.SGD(many.parameters(), lr=0.001)
        loader = DataLoader(TensorDataset(rows, targets), batch_size=4)
        for x, y in loader:
            optimizer.zero_grad()
            for head in many.heads:
                F.mse_loss(head(x), y).backward()
            optimizer.step()
        """,
        (
            "model, many, optimizer, loader = accelerator.prepare(model, many, optimizer, loader)",
            "for head in many.heads:",
        ),
    ),
    Trap(
        "losses that go backward one after another",
        """
        def backward_all(losses):
            for loss in losses:
                loss.backward()

        for x, y in DataLoader(TensorDataset(rows, targets), batch_size=4):
            optimizer.zero_grad()
            backward_all([F.mse_loss(model(x), y), F.l1_loss(model(x), y)])
            optimizer.step()
        """,
        ("for loss in losses:",),
    ),
    Trap(
        "rates that are tried one after another on all rows",
        """
        rates = [0.1, 0.01]
        for rate in rates:
            tried = nn.Linear(1, 1)
            optimizer = torch.optim.SGD(tried.parameters(), lr=rate)
            for epoch in range(3):
                learn(tried, optimizer, rows, targets)
        """,
        ("for rate in rates:",),
        says="every process trains on the same data",
    ),
    Trap(
        "a list of epochs",
        """
        epochs = list(range(10))
        for epoch in epochs:
            learn(model, optimizer, rows, targets)
        """,
        ("for epoch in epochs:",),
        says="every process trains on the same data",
    ),
    Trap(
        "slices that are left out by what the loop changes",
        """
        used = 0
        for at in range(0, len(rows), 4):
            if at < used:
                continue
            learn(model, optimizer, rows[at : at + 4], targets[at : at + 4])
            used += 1
        """,
        ("for at in accelerator.prepare(range(0, len(rows), 4)):", "if at < used:", "continue"),
    ),
    Trap(
        "slices that are left out by a step of their own",
        """
        for at in range(0, len(rows), 4):
            if rows[at] > 1000 or torch.rand(1) > 2:
                continue
            learn(model, optimizer, rows[at : at + 4], targets[at : at + 4])
        """,
        ("for at in accelerator.prepare(range(0, len(rows), 4)):", "continue"),
    ),
    Trap(
        "a learning rate by the rows that were counted",
        """
        loader = DataLoader(TensorDataset(rows, targets), batch_size=4)
        counted = shown = 0
        for x, y in loader:
            learn(model, optimizer, x, y)
            counted += len(x)
            shown += len(x)
            share = counted / 32
            for group in optimizer.param_groups:
                group["lr"] = 0.1 * (1 - share)
        print(counted, shown)
        """,
        (
            'counted += accelerator.reduce(len(x), "sum")',
            "shown += len(x)",
            'shown = accelerator.reduce(shown, "sum")',
        ),
    ),
    Trap(
        "rows that an object of the script's own reads by their place",
        """
        for at in range(0, reader.count, 4):
            x, y = reader.read(at, 4)
            learn(model, optimizer, x, y)
        """,
        ("for at in accelerator.prepare(range(0, reader.count, 4)):",),
    ),
    Trap(
        "a window of one long series, at a place that each step draws",
        """
        for step in range(100):
            at = np.random.randint(0, rows.shape[0] - 8)
            learn(model, optimizer, rows[at : at + 8], targets[at : at + 8])
        """,
        ("for step in range(100):",),
        ("prepare(range",),
    ),
    Trap(
        "a schedule of epochs, beside the function of one",
        """
        def one_epoch(loader):
            for x, y in loader:
                loss = F.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        loader = DataLoader(TensorDataset(rows, targets), batch_size=4)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        for epoch in range(3):
            one_epoch(loader)
            scheduler.step()
        """,
        ("model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",),
    ),
    Trap(
        "an epoch to go on from, by the steps of a pass",
        """
        loader = DataLoader(TensorDataset(rows, targets), batch_size=4)
        total = len(loader) * 3
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=total)
        first = max(0, int(8 / len(loader)))
        for epoch in range(first, 3):
            for x, y in loader:
                learn(model, optimizer, x, y)
                scheduler.step()
        """,
        (
            "scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=total)",
            "model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)",
            "first = max(0, int(8 / len(loader)))",
        ),
    ),
    Trap(
        "a loop over epochs, in which each step draws its rows",
        """
        losses = []
        for epoch in range(100):
            chosen = torch.randint(0, 32, (4,))
            learn(model, optimizer, rows[chosen], targets[chosen])
            losses.append(float(epoch))
            if epoch > 10:
                print(sum(losses[epoch - 10 : epoch]))
        """,
        ("for epoch in range(100):", "chosen = torch.randint(0, 32, (4,))"),
        ("prepare(range",),
    ),
    Trap(
        "micro-batches of a batch",
        """
        def train_on(x, y):
            for i in range(0, len(x), 2):
                loss = F.mse_loss(model(x[i : i + 2]), y[i : i + 2])
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        loader = DataLoader(TensorDataset(rows, targets), batch_size=4)
        for x, y in loader:
            train_on(x, y)
        """,
        (
            "for i in range(0, len(x), 2):",
            "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
        ),
    ),
    Trap(
        "a list of models",
        """
        models = [nn.Linear(1, 1) for _ in range(3)]
        optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in models]
        loader = DataLoader(TensorDataset(rows, targets), batch_size=4)
        for x, y in loader:
            for i in range(len(models)):
                loss = F.mse_loss(models[i](x), y)
                optimizers[i].zero_grad()
                loss.backward()
                optimizers[i].step()
        """,
        ("accelerator.prepare(*optimizers)", "for x, y in loader:", "for i in range(len(models)):"),
    ),
    Trap(
        "the whole table in each step, with a coin and noise",
        """
        for epoch in range(100):
            noise = torch.randn_like(rows)
            if torch.rand(1) < 0.5:
                print("heads")
            learn(model, optimizer, rows + noise, targets)
        """,
        ("for epoch in range(100):",),
        says="every process trains on the same data",
    ),
    Trap(
        "a schedule over a number of steps that stays",
        """
        loader = DataLoader(TensorDataset(rows, targets), batch_size=4)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=1000)
        batches = iter(loader)
        for step in range(1000):
            try:
                x, y = next(batches)
            except StopIteration:
                batches = iter(loader)
                x, y = next(batches)
            learn(model, optimizer, x, y)
            scheduler.step()
        """,
        ("model, optimizer, loader = accelerator.prepare(model, optimizer, loader)", "scheduler.step()"),
    ),
]


@pytest.mark.parametrize("trap", [*RUN, *LEFT], ids=lambda trap: trap.name)
def test_lines(trap: Trap) -> None:
    check(numbered(trap))
    said = [one.reason for one in converted(script_of(trap)).findings if one.rule == "CT902"]
    assert said if "same data" in trap.says else not said


@pytest.mark.parametrize("trap", RUN, ids=lambda trap: trap.name)
def test_two_processes_train_on_the_batches_of_one(trap: Trap) -> None:
    check_shares(trap)


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

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
source = batches(read("rows.txt"))
for step in range(100):
    loss = model(next(source)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


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
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()

def evaluate(rows):
    total = 0.0
    {block}:
        for batch in batches(rows):
            total += loss_of(batch, only_loss=True)
    return total

model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
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


def test_rows_that_are_divided_by_the_rank_of_mpi() -> None:
    after = converted(MPI).text
    assert "mine = rows[PartialState().process_index :: PartialState().num_processes]" in after
    assert "source = accelerator.prepare(batches(" in after  # whose items differ: they pass through
    assert "if world.rank == 0 else None" in after  # each process reads, in an MPI world of its own
