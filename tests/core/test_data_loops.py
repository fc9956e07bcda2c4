"""Loops in and around a training that go over something else than its batches, and rows that are read by hand or drawn."""

from .converting import converted
from .rows import check_lines
from .support import Trap, case_by_case, cases, each_row

ADAPTS = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(4, 2)
            def forward(self, x):
                return self.body(x)
            def learn(self, batches, optimizer):
                for x, y in batches:
                    <step F.cross_entropy(self(x), y)>
            def adapt(self, x, y):
                head = nn.Linear(2, 2)
                {above}
                {steps}
                    own.zero_grad()
                    F.cross_entropy(head(self(x)), y).backward()
                    own.step()
                return head(self(x))
            def score(self, tasks):
                found = []
                count = len(tasks)
                for x, y in tasks:
                    found.append((self.adapt(x, y).argmax(1) == y).float().mean().item())
                print(sum(found) / count)
        <model Net()>
        train_loader = DataLoader(data, 8)
        task_loader = DataLoader(tasks, 8)
        for epoch in range(3):
            model.learn(train_loader, optimizer)
            model.eval()
            model.score(task_loader)
"""
OWN = "own = torch.optim.SGD(head.parameters(), lr=0.1)"

LOOPS = [
    Trap(
        "tasks, each of which a function trains for by itself",
        ADAPTS.format(above=OWN, steps="for turn in range(10):"),
        ("model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)",),
        ("task_loader = accelerator.prepare", "accelerator.prepare(task_loader", "train_loader, task_loader"),
    ),
    Trap(
        "batches of which a function makes one step each",
        ADAPTS.format(above=OWN, steps="if True:"),
        ("model, optimizer, train_loader, task_loader = accelerator.prepare(",),
    ),
    *cases("""
== batches that workers put into a queue, beside an evaluation that draws
from multiprocessing import Process, Queue
def fill(queue, seed):
    np.random.seed(seed)
    while True:
        queue.put(np.random.randint(0, 32, 4))
class Sampler:
    def __init__(self):
        self.queue = Queue(10)
        Process(target=fill, args=(self.queue, 1000), daemon=True).start()
    def next_batch(self):
        return self.queue.get()
def evaluate(model):
    return model(rows[np.random.randint(0, 32, 8)]).mean().item()
sampler = Sampler()
for epoch in range(3):
    for step in range(8):
        chosen = torch.as_tensor(sampler.next_batch())
        loss = F.mse_loss(model(rows[chosen]), targets[chosen])
        <step loss>
    model.eval()
    score = evaluate(model)
    print(score)
-> for step in range(8):
?? every process trains on the same data
== losses that go backward one after another
def backward_all(losses):
    for loss in losses:
        loss.backward()
for x, y in DataLoader(TensorDataset(rows, targets), batch_size=4):
    optimizer.zero_grad()
    backward_all([F.mse_loss(model(x), y), F.l1_loss(model(x), y)])
    optimizer.step()
-> for loss in losses:
== epochs counted by an attribute, over batches that a network's samples go with
class Net(nn.Module):
    def sample(self, count):
        return torch.randint(0, 9, (count,))
class Trainer:
    def __init__(self):
        <self.net Net()>
    def fit(self):
        for self.epoch in range(0, self.last):
            self.learn(self.rows)
    def learn(self, rows):
        at = 0
        while at < len(rows) - 2:
            loss = (self.net(rows[at : at + 4]) * self.net.sample(4)).mean()
            <self.step loss>
            at += 4
Trainer().fit()
-> for self.epoch in range(0, self.last):
?? every process trains on the same data
== rates that are tried one after another on all rows
rates = [0.1, 0.01]
for rate in rates:
    tried = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(tried.parameters(), lr=rate)
    for epoch in range(3):
        learn(tried, optimizer, rows, targets)
-> for rate in rates:
?? every process trains on the same data
== two trainings of one function, by two optimizers of one name
def main():
    <net nn.Linear(1, 1)>
    for x, y in DataLoader(TensorDataset(rows, targets), batch_size=4):
        learn(net, optimizer, x, y)
    other = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    for epoch in range(3):
        other.train()
        <step other(rows).mean()>
main()
-> net, optimizer = accelerator.prepare(net, optimizer)
-> other, optimizer = accelerator.prepare(other, optimizer)
== rates that come from elsewhere, for each of which functions train, one by an optimizer that is not PyTorch's
def train(rate):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for epoch in range(3):
        learn(model, optimizer, rows, targets)
def search(rate):
    optimizer = Searching(model.parameters(), rate)
    for epoch in range(3):
        learn(model, optimizer, rows, targets)
        optimizer.step()
for rate in options.rates:
    train(rate)
for rate in options.others:
    search(rate)
-> for rate in options.rates:
-> for rate in options.others:
?? every process trains on the same data
== agents of a game, each of which trains itself
class Agent(nn.Linear):
    def teach(self, x, y):
        <self.step F.mse_loss(self(x), y)>
agents = [Agent(1, 1), Agent(1, 1)]
for x, y in played(rows):
    for agent in agents:
        agent.teach(x, y)
-> for x, y in accelerator.prepare(played(rows)):
-> for agent in agents:
== but not batches that an object keeps, to train itself on each
class Learner(nn.Linear):
    def teach(self):
        <self.step F.mse_loss(self(self.x), self.y)>
    def fit(self, batches):
        for self.x, self.y in batches:
            self.teach()
Learner(1, 1).fit(played(rows))
-> batches = accelerator.prepare(batches)
== the weights of parents, which a function loads, and not batches that it is given beside others
def breed(parent, x, y):
    model.load_state_dict(copy.deepcopy(parent))
    learn(model, optimizer, x, y)
for parent in read("parents"):
    breed(parent, rows, targets)
for x, y in read("batches"):
    breed(best, x, y)
-> for parent in read("parents"):
-> for x, y in accelerator.prepare(read("batches")):
== batches of a loader, for each of which a function trains
def train(x, y):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        learn(model, optimizer, x, y)
for x, y in DataLoader(TensorDataset(rows, targets), batch_size=4):
    train(x, y)
-> for x, y in accelerator.prepare(DataLoader(TensorDataset(rows, targets), batch_size=4)):
== rows that a generator of the script's own seed draws
drawing = torch.Generator().manual_seed(0)
for step in range(8):
    chosen = torch.randint(0, 32, (4,), generator=drawing)
    learn(model, optimizer, rows[chosen], targets[chosen])
-> for step in range(8):
?? every process trains on the same data
== slices that are left out by what the loop changes
used = 0
for at in range(0, len(rows), 4):
    if at < used:
        continue
    learn(model, optimizer, rows[at : at + 4], targets[at : at + 4])
    used += 1
-> for at in accelerator.prepare(range(0, len(rows), 4)):
-> if accelerator.reduce(int(bool(at < used)), "sum") > 0:
-> continue
== slices that are left out by a step of their own
for at in range(0, len(rows), 4):
    if rows[at] > 1000 or torch.rand(1) > 2:
        continue
    learn(model, optimizer, rows[at : at + 4], targets[at : at + 4])
-> for at in accelerator.prepare(range(0, len(rows), 4)):
-> continue
== rows that an object of the script's own reads by their place
for at in range(0, reader.count, 4):
    x, y = reader.read(at, 4)
    learn(model, optimizer, x, y)
-> for at in accelerator.prepare(range(0, reader.count, 4)):
== batches by their shuffled numbers, and folds by theirs
import random
parts = [rows[:4], rows[4:8], rows[8:]]
folds = tuple(range(3))
for fold in folds:
    order = list(range(len(parts)))
    random.shuffle(order)
    for n, i in enumerate(order):
        learn(model, optimizer, parts[i], parts[i])
-> for fold in folds:
-> for n, i in enumerate(accelerator.prepare(order)):
== rows cut at a place that each turn moves on
for at in range(2):
    at = 0
    for i in range(8):
        end = at + 4
        learn(model, optimizer, rows[at:end], targets[at:end])
        at = end
-> for i in accelerator.prepare(range(8)):
-> at = i * 4
-> at = end
== rows cut between two places that each turn moves on
at = 0
end = 4
for i in range(8):
    learn(model, optimizer, rows[at:end], targets[at:end])
    at = end
    end += 4
-> for i in accelerator.prepare(range(8)):
-> at = i * 4
-> end = at + 4
== but not where a turn also leaves another place to the next, and no more the names of sets around that
def over(name):
    at = 0
    first = 0
    for i in range(8):
        batch = torch.zeros(9, 1)
        left = random.randint(0, 5)
        batch[left : left + 4] = rows[at : at + 4]
        learn(model, optimizer, batch, targets[first : sizes[first]])
        at += 4
        first = sizes[first]
names = args.sets.split(",")
for name in names:
    over(name)
-> for i in range(8):
-> for name in names:
?? every process trains on the same data
== the first line of a file is no batch
def scale():
    with open("counts.txt") as file:
        line = next(file)
    return float(line)
for epoch in range(8):
    size = scale()
    learn(model, optimizer, rows * size, targets)
?? every process trains on the same data
!! prepare(open
== but not where the place is read behind the loop
at = 0
for i in range(8):
    learn(model, optimizer, rows[at : at + 4], targets[at : at + 4])
    at += 4
print(at)
-> for i in range(8):
?? every process trains on the same data
== a loop over epochs, in which each step draws its rows
losses = []
for epoch in range(100):
    few = rows[: epoch + 1]
    chosen = torch.randint(0, 32, (4,))
    learn(model, optimizer, rows[chosen], targets[chosen])
    losses.append(float(epoch))
    if epoch > 10:
        print(sum(losses[epoch - 10 : epoch]))
-> for epoch in range(100):
-> chosen = torch.randint(0, 32, (4,))
!! prepare(range
== micro-batches of a batch
def train_on(x, y):
    for i in range(0, len(x), 2):
        loss = F.mse_loss(model(x[i : i + 2]), y[i : i + 2])
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
loader = DataLoader(TensorDataset(rows, targets), batch_size=4)
for x, y in loader:
    train_on(x, y)
-> for i in range(0, len(x), 2):
-> model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
== parts of a step, cut by the number of the step too
for i in range(len(rows) // 8):
    optimizer.zero_grad()
    for j in range(2):
        at = (i * 2 + j) * 4
        F.mse_loss(model(rows[at : at + 4]), targets[at : at + 4]).backward()
    optimizer.step()
-> for i in accelerator.prepare(range(len(rows) // 8)):
-> for j in range(2):
== steps of a part, cut by the number of the part too
for i in range(2):
    for j in range(4):
        at = (i * 4 + j) * 4
        learn(model, optimizer, rows[at : at + 4], targets[at : at + 4])
-> for i in range(2):
-> for j in accelerator.prepare(range(4)):
== a list of models
models = [nn.Linear(1, 1) for _ in range(3)]
optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in models]
loader = DataLoader(TensorDataset(rows, targets), batch_size=4)
for x, y in loader:
    for i in range(len(models)):
        loss = F.mse_loss(models[i](x), y)
        optimizers[i].zero_grad()
        loss.backward()
        optimizers[i].step()
-> accelerator.prepare(*optimizers)
-> for x, y in loader:
-> for i in range(len(models)):
== optimizers that a loop over names makes, so that the second may not be there
models, optimizers = {"a": nn.Linear(1, 1)}, {}
for name in models:
    optimizers[name] = torch.optim.SGD(models[name].parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(rows, targets), batch_size=4):
    F.mse_loss(models["a"](x), y).backward()
    if "b" in optimizers:
        optimizers["b"].step()
    optimizers["a"].step()
    optimizers["a"].zero_grad()
-> accelerator.prepare(*optimizers.values())
-> for x, y in accelerator.prepare(DataLoader(TensorDataset(rows, targets), batch_size=4)):
== but not those that are made by name
models = {"a": nn.Linear(1, 1)}
optimizers = {name: None for name in "ab"}
optimizers["a"] = torch.optim.SGD(models["a"].parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(rows, targets), batch_size=4):
    F.mse_loss(models["a"](x), y).backward()
    optimizers["a"].step()
    optimizers["a"].zero_grad()
-> accelerator.prepare(optimizers['a'])
-> for x, y in accelerator.prepare(DataLoader(TensorDataset(rows, targets), batch_size=4)):
"""),
]
test_lines = case_by_case(LOOPS, check_lines)

SIZES = """<torch>
def learn(model, loader, sizes):
    points = []
    for size in sizes:
        point = torch.tensor([step / size for step in range(size)], requires_grad=True)
        point.sum().backward()
        points.append(point)
    optimizer = torch.optim.SGD(points, lr=0.1)
    for x in loader:
        <step (model(x).mean() * sum(point.sum() for point in points))>
learn(torch.nn.Linear(4, 1), DataLoader(torch.ones(8, 4), 2), [2, 3])
"""


def test_a_loop_over_sizes_goes_over_no_batches() -> None:
    after = converted(SIZES)
    assert "    for size in sizes:\n" in after and "sizes = " not in after
    assert "accelerator.prepare(optimizer, loader)" in after


PIECES = """import random
<torch>
{pieces}
<model>
for piece in pieces:
    rows = read(piece)
    random.shuffle(rows)
    for step in range(len(rows) // 4):
        <step model(torch.tensor(rows[step * 4 : (step + 1) * 4])).mean()>
"""


@each_row("""
pieces => numbered
pieces = list(range(5)) => True
pieces = DataLoader([], 64) => False  # its batches are dealt, and not the parts of one
pieces = read('names') => False
""")
def test_batches_of_a_numbered_piece_are_dealt(pieces: str, numbered: bool) -> None:
    after = converted(PIECES.format(pieces=pieces))
    assert ("for step in accelerator.prepare(range(len(rows) // 4)):" in after) is numbered
    assert ("optimizer, pieces = accelerator.prepare(model, optimizer, pieces)" in after) is not numbered


CHECKPOINTS = """import glob
import torch
class Agent:
    def __init__(self):
        <self.model>
    def load(self, name):
        self.model.load_state_dict(torch.load(name))
    def step(self, batch, training):
        loss = torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])
        if training:
            <self.step loss>
        return loss.item()
class Source:
    def __init__(self):
        self.at = 0
    def next_batch(self):
        self.at += 1
        return None if self.at % 4 == 0 else (torch.full((8, 4), float(self.at)), torch.ones(8, 2))
agent, source = Agent(), Source()
while True:
    batch = source.next_batch()
    if batch is None:
        break
    agent.step(batch, training=True)
names = found_by(glob.glob("*.pth"))
for name in names:
    {told}
    while True:
        batch = {fetched}
        if batch is None:
            break
        print(name, agent.step(batch, training=bool(name)))
"""


@each_row("""
told => fetched => dealt
agent.load(name) => source.next_batch() => False
source.begin(name) => source.next_batch() => True  # what it fetches is the item's
agent.load('best.pth') => read(name) => True
""")
def test_a_while_that_fetches_its_own_batches(told: str, fetched: str, dealt: bool) -> None:
    after = converted(CHECKPOINTS.format(told=told, fetched=fetched))
    assert (".prepare(names)" in after) is dealt


BARRED = """import os
from tqdm import tqdm
<torch>
def endless(loader):
    while True:
        yield from loader
rows = torch.ones(16, 4)
source = {source}
bar = {bar}
if os.environ.get("RANK", "0") == "0":
    bar = tqdm(bar)
<model>
for i in bar:
    <step model({batch}).mean()>
"""


@each_row("""
source => bar => batch => is_prepared => line
endless(DataLoader(rows, 4)) => range(9) => next(source) => False => source = endless(accelerator.prepare(DataLoader(rows, 4)))
None => range(0, 16, 4) => rows[i : i + 4] => True => bar = range(0, 16, 4)
DataLoader(rows, 4) => zip(source, source) => i[0] => False => source = accelerator.prepare(source)
""")
def test_a_bar_that_one_process_puts_around_what_there_is(
    source: str, bar: str, batch: str, is_prepared: bool, line: str
) -> None:
    after = converted(BARRED.format(source=source, bar=bar, batch=batch))
    assert (("optimizer, bar = " in after), line in after.splitlines()) == (is_prepared, True)


@each_row("""
head => batch
range(0, 32, 4) => rows[i : i + 4]
xrange(0, 32, 4) => rows[i : i + 4]
xrange(8) => next(batches)
""")
def test_numbers_by_another_name(head: str, batch: str) -> None:
    text = f"""
<torch>
from six.moves import xrange
rows = torch.randn(32, 2)
batches = iter(DataLoader(rows, batch_size=4))
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in {head}:
    loss = model({batch}).mean()
    <step loss>
"""
    assert (f"in accelerator.prepare({head})" in converted(text)) is ("rows" in batch)
