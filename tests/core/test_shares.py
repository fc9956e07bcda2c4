"""A number of all batches meets one process's own count of them: it is divided, wherever in the program it was computed."""

from pathlib import Path

import pytest

from .converting import converted, once_more
from .projects import convert, train, write
from .support import each_row

SCRIPT = """
import argparse, math, time
<torch>
from tqdm import tqdm
args = argparse.Namespace(batch_size=4, epochs=3)
class Meter:
    def __init__(self, size): self.size, self.done, self.ends = size, 0, 0
    def count(self):
        self.done += 1
        if self.done % self.size == 0: self.ends += 1
class Rows:
    def __init__(self, rows, size): self.rows, self.size = rows, size
    @property
    def steps(self): return math.ceil(len(self.rows) / self.size)
rows = TensorDataset(torch.ones(64, 4), torch.zeros(64).long())
source = Rows(rows, args.batch_size)
<model>
def fit(loader, period, bar=None):
    done = result = 0
    total = 0.0
    for epoch in range(args.epochs):
        for i, (x, y) in enumerate(loader):
            <step>
            total += loss.item()
            done += 1
            {then}
    return done
{given}
result = fit(loader, steps)
"""
LOADER = "loader = DataLoader(rows, args.batch_size)"


@each_row(r"""
given => then => after
steps = source.steps => print(f"{i}/{period}") => steps = accelerator.share(source.steps)
steps = source.steps => print("%d of %d" % (i + 1, period)) => steps = accelerator.share(source.steps)
steps = source.steps => if done % period == 0: mean = total / period; total = 0 => steps = accelerator.share(source.steps)
args.all = args.epochs * source.steps; steps = 1 => left = args.all - done => args.all = args.epochs * accelerator.share(source.steps)
table = dict(); table["all"] = source.steps; steps = table["all"] => part = i / period => steps = accelerator.share(table["all"])
table = {"all": source.steps}; steps = max(1, table["all"] // 4) => part = i / period => steps = max(1, accelerator.share(table["all"] // 4))
steps = source.steps => rate = (epoch * period + i) / period => steps = accelerator.share(source.steps)
""")
def test_it_is_divided_where_it_is_bound(given: str, then: str, after: str) -> None:
    text = SCRIPT.format(given=f"{LOADER}\n{given}", then=then)
    made = converted(text)
    assert after in made, made
    assert once_more(made) == made


@each_row(r"""
given => then => after
steps = source.steps; keep(steps) => if done % period == 0: print(i) => fit(loader, accelerator.share(steps))
steps = source.steps; print(steps) => if done % period == 0: print(i) => steps = accelerator.share(source.steps); accelerator.print(steps)
steps = 1; last = source.steps - 1; print(last) => if i == last: print(i) => if i == last: accelerator.print(i)  # nothing is sure
steps = source.steps - 1 => if i == period: print(i) => steps = accelerator.share(source.steps) - 1
meter = Meter(source.steps); steps = 1 => meter.count() => meter = Meter(accelerator.share(source.steps))
steps = 100 => if done % period == 0: print(i) => fit(loader, steps)
steps = len(loader) => print(epoch, period) => fit(loader, steps)
steps = source.steps => if i >= period: break => fit(loader, steps)
steps = source.steps => if epoch == period: print(i) => fit(loader, steps)
steps = 64 // args.batch_size => if i % period == 0: print(i) => fit(loader, steps)  # how many to accumulate
""")
def test_what_is_read_beside_a_count_alone(given: str, then: str, after: str) -> None:
    made = converted(SCRIPT.format(given=f"{LOADER}\n{given}", then=then))
    assert after in made, made


def test_a_bar_of_another_function_ends_with_the_batches_of_one_process() -> None:
    given = f"{LOADER}\nsteps = 1\nbar = tqdm(total=3 * source.steps)"
    text = SCRIPT.format(given=given, then="bar.update(1)").replace(
        "fit(loader, steps)", "fit(loader, steps, bar)"
    )
    assert "total=3 * accelerator.share(source.steps)" in converted(text)


ENDLESS = """
<torch>
args = argparse.Namespace(batch_size=4, epochs=3)
def data(args):
    rows = TensorDataset(torch.arange(64.0).view(64, 1))
    args.steps = len(rows) // args.batch_size
    return DataLoader(rows, batch_size=args.batch_size, shuffle=True)
def falling(args, optimizer):
    return torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=args.epochs * args.steps)
def endless(loader):
    while True:
        yield from loader
def main():
    loader = data(args)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    scheduler = falling(args, optimizer)
    batches = endless(loader)
    seen, ends = [], 0
    for step in range(args.epochs * args.steps):
        (x,) = next(batches)
        <step torch.nn.functional.mse_loss(model(x), x)>
        scheduler.step()
        seen += x.flatten().tolist()
        if (step + 1) % args.steps == 0: ends += 1
    return len(seen), ends, round(scheduler.last_epoch / (args.epochs * args.steps), 2)
import argparse
args = argparse.Namespace(batch_size=4, epochs=3)
result = main()
"""


@pytest.mark.parametrize("world", [1, 2])
def test_all_epochs_of_a_loop_that_takes_its_batches_by_next(world: int, tmp_path: Path) -> None:
    text = ENDLESS.replace("<torch>\nargs = argparse.Namespace(batch_size=4, epochs=3)", "<torch>")
    folder = write(tmp_path, script=text)
    convert(folder, "script")
    for rows, ends, _ in train(folder, "script", world):
        assert (rows, ends) == (64 * 3 // world, 3)


SPLIT = """
<torch>
rows = TensorDataset(torch.ones(60, 4), torch.zeros(60).long())
accelerator = Accelerator(split_batches={split})
loader = accelerator.prepare(DataLoader(rows, 8))
result = accelerator.share(len(rows) / 8 // 1 + 1), PartialState().share(8), len(loader)
"""


@pytest.mark.parametrize(("split", "share"), [(False, 4), (True, 8)])
def test_a_share_is_the_length_of_a_prepared_loader(split: bool, share: int, tmp_path: Path) -> None:
    text = SPLIT.format(split=split).replace(
        "<torch>", "<torch>\nfrom crosstrain import Accelerator, PartialState"
    )
    assert train(write(tmp_path, script=text), "script", 2) == [(share, share, share)] * 2


WITH_SCHEDULE = """
import math
<torch>
rows = TensorDataset(torch.arange(40.0).view(40, 1))
loader = DataLoader(rows, batch_size=4, shuffle=True)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
warm, total = 1, 3 * len(loader)
total = 3 * len(loader)
def rate(step):
    return (total - step) / total
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
step, shares = 0, []
for epoch in range(3):
    for x, in loader:
        <step torch.nn.functional.mse_loss(model(x), x)>
        schedule.step()
        step += 1
        shares.append(step / total)
result = shares[-1], schedule.get_last_lr()[0], rate(total)
"""


@pytest.mark.parametrize("world", [1, 2])
def test_what_a_schedule_needs_whole_has_a_second_number_beside_it(world: int, tmp_path: Path) -> None:
    text = WITH_SCHEDULE.replace("warm, total = 1, 3 * len(loader)\n", "")
    assert "own_total = 3" not in converted(text.replace("shares = 0, []", "shares, own_total = 0, [], 1"))
    folder = write(tmp_path, script=text)
    convert(folder, "script")
    assert "own_total = 3 * accelerator.share(len(loader))" in (folder / "script.py").read_text()
    assert train(folder, "script", world) == [(1.0, 0.0, 0.0)] * world


PARTS = """
import math
<torch>
args = argparse.Namespace(size=4, epochs=3)
rows = TensorDataset(torch.ones(64, 4), torch.zeros(64).long())
class Hook:
    def __init__(self, runner, all): self.runner, self.all = runner, all
    def after(self): self.part = self.runner.turns / self.all
class Runner:
    def __init__(self, model, optimizer, loader, all):
        self.model, self.optimizer, self.loader, self.turns = model, optimizer, loader, 0
        self.hook = Hook(self, all)
    def run(self):
        total = 0.0
        for epoch in range(args.epochs):
            for x, y in self.loader:
                <self.step loss = F.mse_loss(self.model(x), y)>
                self.turns += 1
                self.hook.after()
                {then}
        return {behind}
<model>
loader = DataLoader(rows, batch_size=args.size, drop_last={drops})
batches = len(rows) // args.size
result = Runner(model, optimizer, loader, {all}).run()
"""


@each_row("""
then => behind => drops => all => after
pass => 1 => False => args.epochs * batches => batches = accelerator.share(len(rows) // args.size)
pass => 1 => True => args.epochs * batches => batches = accelerator.share(len(rows) // args.size, drop_last=True)
total += loss.item() => total / batches => False => 1 => total = accelerator.reduce(total, "sum")  # which all divides
total += loss.item() / batches => total => False => 1 => batches = accelerator.share(len(rows) // args.size)
part = float(epoch * batches + self.turns) / batches => 1 => False => 1 => batches = accelerator.share(len(rows) // args.size)
every = batches // 4 - 1; part = self.turns % every => 1 => False => 1 => every = accelerator.share(batches // 4 - 1)
""")
def test_it_is_divided_in_every_part(then: str, behind: str, drops: str, all: str, after: str) -> None:
    made = converted("import argparse\n" + PARTS.format(then=then, behind=behind, drops=drops, all=all))
    assert after in made, made


HANDED_ON = """
<torch>
rows = TensorDataset(torch.ones(40, 4), torch.zeros(40).long())
def train_epoch(model, loader, optimizer, lr_scheduler):
    for x, y in loader:
        <step loss = F.cross_entropy(model(x), y)>
        lr_scheduler.step()
loader = DataLoader(rows, batch_size=4)
<model>
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=3 * len(loader))
for epoch in range(3):
    train_epoch(model, loader, optimizer, scheduler)
"""


def test_a_prepared_schedule_by_another_name_keeps_its_number() -> None:
    after = converted(HANDED_ON)
    assert "total_steps=3 * len(loader))" in after and "loader, scheduler = accelerator.prepare(" in after


TURNS = """
import math
<torch>
args = argparse.Namespace(epochs=3, accum=2)
rows = TensorDataset(torch.ones(40, 4), torch.zeros(40).long())
class Ramp:
    def __init__(self, all): self.all, self.turns = all, 0
    def __call__(self):
        self.turns += 1
        return self.turns / self.all
class Falling:
    def __init__(self, epochs, steps): self.steps, self.all = steps, epochs * steps
    def __call__(self, i, epoch):
        step = epoch * self.steps + i
        self.rate = 1 - step / self.all
def rate(step, all): return 1 - step / all
loader = DataLoader(rows, batch_size=4)
{given}
<model>
for epoch in range(args.epochs):
    for i, (x, y) in enumerate(loader):
        <step loss = F.cross_entropy(model(x), y)>
        {then}
"""


@each_row("""
given => then => after
batches = len(rows) // 4; most = 3 * batches => step = epoch * batches + i; part = (1 - step / most) ** 0.9 => batches = accelerator.share(len(rows) // 4); most = 3 * batches
batches = len(rows) // 4; warm = max(round(0.5 * batches), 2) => step = i + batches * epoch; low = step <= warm => warm = max(round(0.5 * batches), 2)
most = len(rows) // 4 => now = rate(i - 1, most) => most = accelerator.share(len(rows) // 4)
steps = (len(loader) + args.accum - 1) // args.accum => part = i / steps => len(loader)
falling = Falling(3, len(rows) // 4) => falling(i, epoch) => falling = Falling(3, accelerator.share(len(rows) // 4))
ramp = Ramp(len(rows) // 4) => weight = ramp() => ramp = Ramp(accelerator.share(len(rows) // 4))
every = 512 // 4 => if i % every == 0: print(i) => every = 512 // 4  # an author's own number
""")
def test_what_counts_and_what_is_counted(given: str, then: str, after: str) -> None:
    made = converted("import argparse\n" + TURNS.format(given=given, then=then))
    assert after in made, made
    assert made.count("accelerator.share(accelerator") == 0 and "share(batches" not in made
