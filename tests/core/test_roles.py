"""What trains, by use: optimizers, and the data of the training loop, wherever they were made."""

import pytest

from .support import PRELUDE, Trap, case_by_case, cases, check, converted

TRAPS = cases("""
== chunks of a batch are no data
<model>
loader = DataLoader(data, batch_size=8)
for x, y in loader:
    optimizer.zero_grad()
    parts, targets = x.chunk(2), y.chunk(2)
    for a, b in zip(parts, targets):
        loss = F.cross_entropy(model(a), b)
        (loss * 0.5).backward()
    optimizer.step()
-> model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
-> accelerator.backward(loss * 0.5)
!! prepare(parts
!! prepare(targets
== nor are those of a batch that a function is given
<model>
loader = DataLoader(data, batch_size=8)
def pieces(x, y):
    x = x.float()
    parts = torch.split(x, 2)
    targets = y.split(2)
    for a, b in zip(parts, targets):
        F.cross_entropy(model(a), b).backward()
for x, y in loader:
    pieces(x, y)
    optimizer.step()
-> model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
!! prepare(parts
!! prepare(targets
== pieces of all rows are data
<model>
parts = torch.split(rows, 8)
for x in parts:
    <step model(x).mean()>
-> model, optimizer, parts = accelerator.prepare(model, optimizer, parts)
== a loop that makes a model in each of its turns goes over trainings
for scale in scales:
    <model>
    <step model(scale * x).mean()>
!! prepare(scales
?? every process trains on the same data
== a loop that makes an optimizer for its batch goes over batches
<model>
for x in scales:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    <step model(x).mean()>
-> for x in accelerator.prepare(scales):
== a bar that is one thing or another
def run(model, loader, optimizer, is_train):
    bar = tqdm(enumerate(loader)) if is_train else enumerate(loader)
    for i, (x, y) in bar:
        loss = F.cross_entropy(model(x), y)
        if is_train:
            loss.backward(); optimizer.step()
run(model, train_loader, optimizer, True); run(model, test_loader, optimizer, False)
-> loader = accelerator.prepare(loader) if is_train else loader
-> bar = tqdm(enumerate(loader)) if is_train else enumerate(loader)
?? evaluated whole
== a bar in one branch and none in the other
def run(model, loader, optimizer, is_train, shows):
    if shows: bar = tqdm(loader)
    else: bar = loader
    for x, y in bar:
        loss = F.cross_entropy(model(x), y)
        if is_train:
            loss.backward(); optimizer.step()
run(model, train_loader, optimizer, True, args.bar); run(model, test_loader, optimizer, False, args.bar)
-> loader = accelerator.prepare(loader) if is_train else loader
?? evaluated whole
== a bar that is told where it logs, or its name
<model>
log = logging.getLogger()
for x in LogProgress(log, batches(4), updates=2):
    <step model(x).mean()>
for x in progress("train", batches(5)):
    <step model(x).mean()>
-> for x in LogProgress(log, accelerator.prepare(batches(4)), updates=2):
-> for x in progress("train", accelerator.prepare(batches(5))):
== a bar of its own in one branch
<model>
if args.bar: bar = tqdm(batches(4))
else: bar = kept
for x in bar:
    <step model(x).mean()>
-> if args.bar: bar = tqdm(accelerator.prepare(batches(4)))
-> else: bar = accelerator.prepare(kept)
== a bar for each of two, of which one is not trained on
def run(loader, optimizer, tests, first):
    bar = tqdm(timed(loader), ncols=9)
    if not tests: bar = tqdm(timed(loader))
    if first and tests: bar = tqdm(timed(loader, 1))
    for x in bar:
        if not tests:
            <step model(x).mean()>
run(train_loader, optimizer, False, True)
-> if not tests: bar = tqdm(accelerator.prepare(timed(loader)))
-> if first and tests: bar = tqdm(timed(loader, 1))
== methods of other classes by the name of a step
class Meter:
    def update(self, value): ...
class Trainer(Meter):
    def update(self, x):
        <step self.model(x).mean()>
from collections import Counter; Kind = {'a': Trainer}[kind]
words, meter, trainer = Counter(), Meter(), Kind()
for x in names: words.update(x)
for x in held: meter.update(x)
for x in loader: trainer.update(x)
-> for x in accelerator.prepare(loader): trainer.update(x)
!! prepare(names
!! prepare(held
== an optimizer that steps twice, and a log that is called and told that it is to be trained
<model>
for x in loader:
    log.train(rows=len(x))
    accelerated(model(x).mean()).backward(); optimizer.first_step()
    model(x).mean().backward(); optimizer.second_step()
    log(x)
-> model, optimizer = accelerator.prepare(model, optimizer)
-> for x in accelerator.prepare(loader):
-> accelerator.backward(model(x).mean()); optimizer.second_step()
== an optimizer that is made of a class, which an attribute holds that is another trainer's optimizer
class Plain:
    def __init__(self, model, rows):
        self.model, self.rows = model, rows
    def run(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1)
        for x in self.rows:
            self.optimizer.zero_grad(); self.model(x).mean().backward(); self.optimizer.step()
class Sharp(Plain):
    def run(self):
        self.optimizer = torch.optim.SGD
        twice = SAM(self.model.parameters(), base_optimizer=self.optimizer)
        for x in self.rows:
            self.model(x).mean().backward(); twice.first_step(zero_grad=True)
            self.model(x).mean().backward(); twice.second_step(zero_grad=True)
(Sharp if args.sharp else Plain)(nn.Linear(4, 2), DataLoader(data)).run()
-> self.optimizer = accelerator.prepare(self.optimizer)
-> self.model, twice, self.rows = accelerator.prepare(self.model, twice, self.rows)
== what gives a step its batches, handed on by a variable
class Steps:
    def __init__(self, rows): self.rows, self.held = rows, None
    def first(self):
        if self.held is None: self.held = enumerate(self.rows)
        return next(self.held)[1]
    def second(self):
        return 2 * self.first()
    def step(self, model, optimizer, draw):
        x = draw()
        <step model(x).mean()>
    def run(self, model, optimizer):
        for _ in range(9):
            draw = self.first if twice else self.second
            if once: draw = self.first
            self.step(model, optimizer, draw)
<model>
Steps(DataLoader(data)).run(model, optimizer)
-> self.rows = accelerator.prepare(self.rows)
== a step function that is passed on
def step(x, y):
    <step loss = F.cross_entropy(model(x), y)>
def fit(batches, step_fn):
    for x, y in batches:
        step_fn(x, y)
<model>
train_batches = DataLoader(data, batch_size=8)
fit(train_batches, step)
-> model, optimizer, train_batches = accelerator.prepare(model, optimizer, train_batches)
-> fit(train_batches, step)
== an iterator that is a parameter
def train(model, optimizer, iterator):
    for step in range(100):
        x, y = next(iterator)
        <step loss = F.cross_entropy(model(x), y)>
<model>
loader = DataLoader(data, batch_size=8)
train(model, optimizer, iter(loader))
-> x, y = next(iterator)
-> model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
-> train(model, optimizer, iter(loader))
== a module that counts epochs is no optimizer
class Trainer:
    def __init__(self, model, loss, loader):
        self.model, self.loss, self.loader = model, loss, loader
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def train(self):
        self.loss.step()
        for x, y in self.loader:
            loss = self.loss(self.model(x), y)
            <self.step loss>
Trainer(nn.Linear(4, 2), Counting(), DataLoader(data)).train()
-> self.optimizer, self.loader = accelerator.prepare(self.optimizer, self.loader)
!! prepare(self.loss
== optimizers of a dictionary, stepped by a scaler
models = {"g": nn.Linear(4, 2), "d": nn.Linear(2, 1)}
optimizers = {k: torch.optim.Adam(m.parameters()) for k, m in models.items()}
scaler, loader = torch.amp.GradScaler("cuda"), DataLoader(data, batch_size=8)
for x in islice(loader, 100):
    loss = models["d"](models["g"](x)).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizers["g"]); scaler.step(optimizers["d"]); scaler.update()
-> accelerator.prepare(optimizers['g'], optimizers['d'])
-> accelerator.backward(scaler.scale(loss))
== schedulers of a list, stepped behind the epoch, and optimizers of another
<model>
second = torch.optim.SGD(model.parameters(), lr=0.1)
schedulers, loader = [torch.optim.lr_scheduler.StepLR(optimizer, 1), momentum(model)], DataLoader(data)
for x in loader:
    F.cross_entropy(model(x), x).backward()
    for one in [optimizer, second]:
        one.step()
for other in schedulers:
    other.step()
-> one = accelerator.prepare(one)
!! other = accelerator
== what steps an optimizer that it holds is one, whatever its name is; not what steps another schedule
class Rising:
    def __init__(self, optimizer):
        self.optimizer = optimizer
    def step(self):
        self.optimizer.param_groups[0]["lr"] = 0.1
        self.optimizer.step()
class Later:
    def __init__(self, schedule):
        self.after_scheduler = schedule
    def step(self):
        self.after_scheduler.step()
<model>
scheduler, loader = Rising(optimizer), DataLoader(data)
lr_scheduler = Later(torch.optim.lr_scheduler.StepLR(optimizer, 1))
for epoch in range(3):
    for x, y in loader:
        F.cross_entropy(model(x), y).backward()
        scheduler.step()
    lr_scheduler.step()
-> model, scheduler, loader = accelerator.prepare(model, scheduler, loader)
!! lr_scheduler = accelerator
== and where the wrapper has the name of what it wraps, in a variable or an attribute
class Rising:
    def __init__(self, optimizer):
        self.optimizer = optimizer
    def step(self):
        self.optimizer.step()
class Run:
    def __init__(self):
        self.net = nn.Linear(4, 2)
        self.optimizer = Rising(torch.optim.SGD(self.net.parameters(), lr=0.1))
    def fit(self, x, y):
        F.cross_entropy(self.net(x), y).backward()
        self.optimizer.step()
<model>
optimizer = Rising(optimizer)
run = Run()
for x, y in DataLoader(data):
    run.fit(x, y)
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
-> self.net, self.optimizer = accelerator.prepare(self.net, self.optimizer)
-> model, optimizer = accelerator.prepare(model, optimizer)
""")

RISING = "rising(optimizer, 10)", "rising(start=10, of=optimizer)"
SECOND = """
<model>
loader = DataLoader(data)
second = {made}
for x, y in loader:
    <step F.cross_entropy(model(x), y)>
    second.step()
"""


@pytest.mark.parametrize("made", [*RISING, "rising(model)", "torch.optim.SGD(others, lr=0.1)"])
def test_a_scheduler_is_made_of_an_optimizer(made: str) -> None:
    order = "optimizer, loader, second" if made in RISING else "optimizer, second, loader"
    check(Trap(made, SECOND.format(made=made), (f"model, {order} = accelerator.prepare(model, {order})",)))


test_roles = case_by_case(TRAPS)

NO_BACKWARD = "for epoch in range(3):\n    env.step(action)\n    logger.step()\n"
NO_STEP = "x = torch.zeros(3, requires_grad=True)\nx.sum().backward()\nprint(x.grad)\n"


PICTURE = """import torch
class Part(torch.nn.Module):
    def backward(self):
        self.loss.backward()
        return self.loss
parts = [Part()]
picture = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.LBFGS([picture])
def closure():
    optimizer.zero_grad()
    total = 0
    for part in parts:
        total += part.backward()
    return total
for n in range(9):
    optimizer.step(closure)
"""


@pytest.mark.parametrize("script", [NO_BACKWARD, NO_STEP, PICTURE])
def test_left_alone(script: str) -> None:
    """What does not train is not touched."""
    done = converted(script)
    assert done.text == script
    assert not done.trains


def test_the_gradient_of_an_operator_trains_nothing() -> None:
    text = """
class Pool(torch.autograd.Function):
    def backward(ctx, gradient):
        return pools.backward(gradient)
<model>
for x in DataLoader(data):
    <step loss = model(Pool.apply(x)).mean()>
"""
    before = PRELUDE + text
    lines = before.splitlines()
    assert not [one for one in converted(before).findings if "pools" in lines[one.line - 1]]


def test_a_backward_that_gives_something_back_is_the_scripts_own() -> None:
    text = """
class Part(nn.Module):
    def backward(self):
        self.loss.backward()
        return self.loss
part = Part()
<model>
for x in DataLoader(data):
    part.loss, total = model(x).mean(), 0
    total += part.backward()
    optimizer.step()
"""
    after = converted(PRELUDE + text).text
    assert "total += part.backward()" in after
    assert "accelerator.backward(self.loss)" in after
