"""Where what trains is prepared: in the scope that binds it, once, jointly where one place can."""

from pathlib import Path
from textwrap import indent

import pytest

from .filling import filled
from .projects import convert, train, write
from .support import Trap, case_by_case, cases, converted

MADE = """
<model>
loader = DataLoader(data)
"""
LOOP = """
for x, y in loader:
    <step loss = F.cross_entropy(model(x), y)>
"""
FIT = "def train(model, loader, optimizer):\n" + indent(LOOP, "    ")
PREPARED = "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)"

PER_FOLD = indent(MADE.replace("loader = DataLoader(data)\n", "") + LOOP, "    ")
SCHEDULE = "torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=batches)"
REPLICATED = filled(MADE).replace("optimizer", "model = nn.DataParallel(model).cuda()\noptimizer", 1)


def counted(before: str, begin: str = "pass", shown: str = "batches") -> str:
    """A loop that says how many batches there are; `before` stands in front of it."""
    return f"""{MADE}{before}
for epoch in range(3):
    {begin}
    for n, (x, y) in enumerate(loader):
        <step loss = F.cross_entropy(model(x), y)>
        print(n, "of", {shown})
"""


TRAPS = cases(f"""
== a function that is given another optimizer at each call
{FIT}
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
head = torch.optim.SGD(model[1].parameters(), lr=0.1)
whole = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data)
train(model, loader, head)
train(model, loader, whole)
-> for x, y in loader:
-> model, head, whole, loader = accelerator.prepare(model, head, whole, loader)
-> train(model, loader, head)
== a model that the function only hands on to what it is given for a loss; not what is no model
def train(model, loader, optimizer, criterion, names):
    model.train()
    for x, y in loader:
        <step loss = criterion(model, names, x, y)>
{MADE}train(model, loader, optimizer, losses.of, names)
-> model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
== what a comprehension steps, in a method `step` of a class that is no network
class Pair:
    def __init__(self):
        self.net = nn.Linear(4, 2)
        self.optimizers = dict(net=torch.optim.SGD(self.net.parameters(), lr=0.1))
    def fit(self, loader):
        for x, y in loader:
            F.cross_entropy(self.net(x), y).backward()
            self.step()
    def step(self):
        [one.step() for _, one in self.optimizers.items()]
Pair().fit(DataLoader(data))
-> [accelerator.prepare(one).step() for _, one in self.optimizers.items()]
!! prepare(self)
== what a comprehension steps, of what it goes over
class Pair:
    def __init__(self):
        self.net = nn.Linear(4, 2)
        self.optimizers = dict(net=dict(all=torch.optim.SGD(self.net.parameters(), lr=0.1)))
    def fit(self, loader):
        for x, y in loader:
            F.cross_entropy(self.net(x), y).backward()
            self.step("all")
    def step(self, kind):
        [one[kind].step() for one in self.optimizers.values() if kind in one]
Pair().fit(DataLoader(data))
-> [accelerator.prepare(one[kind]).step() for one in self.optimizers.values() if kind in one]
== what steps a copy of a network within the pass, and what steps behind it
import higher
class Learner:
    def __init__(self):
        self.net = nn.Linear(4, 2)
        self.inner = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.outer = torch.optim.Adam(self.net.parameters())
    def adapt(self, x, y):
        with higher.innerloop_ctx(self.net, self.inner) as (copy, steps):
            steps.step(F.cross_entropy(copy(x), y))
            F.cross_entropy(copy(x), y).backward()
    def fit(self, loader):
        for x, y in loader:
            self.outer.zero_grad()
            self.adapt(x, y)
            self.outer.step()
Learner().fit(DataLoader(data))
-> self.net, self.outer = accelerator.prepare(self.net, self.outer)
== an optimizer that a block gives, and that is stepped by a closure
import sessions
net = nn.Linear(4, 2)
for x, y in DataLoader(data):
    def again():
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        return loss
    with sessions.optimizer(net) as optimizer:
        optimizer.zero_grad()
        optimizer.step(again)
-> accelerator.backward(loss)
== a function in a method that an object holds
from types import SimpleNamespace
def ways(net, optimizer):
    def learn(loader):
        for x, y in loader:
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    return SimpleNamespace(learn=learn)
net = nn.Linear(4, 2)
all_ways = ways(net, torch.optim.SGD(net.parameters(), lr=0.1))
all_ways.learn(DataLoader(data))
-> accelerator.backward(F.cross_entropy(net(x), y))
== a function in a method, and a library's method of its name
import words
class Trainer:
    def __init__(self, loader):
        self.net = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        def train(self):
            for x, y in loader:
                F.cross_entropy(self.net(x), y).backward()
                self.optimizer.step()
        self.train, self.test = read(loader)
def read(rows):
    reader = words.Reader()
    reader.train(rows)
    return rows, None
Trainer(DataLoader(data))
-> self.optimizer = accelerator.prepare(self.optimizer)
!! loader.optimizer
!! rows.optimizer
== what one method steps is prepared in the method that also goes backward, or calls what does
class Run:
    def build(self):
        self.net = nn.Linear(4, 2)
        self.optimizers = dict(net=torch.optim.SGD(self.net.parameters(), lr=0.1))
    def fit(self, loader):
        self.build()
        for x, y in loader:
            self.lose(F.cross_entropy(self.net(x), y))
            self.update("net")
    def lose(self, loss):
        loss.backward()
    def update(self, name):
        self.optimizers[name].step()
Run().fit(DataLoader(data))
-> self.build()
-> accelerator.prepare(*self.optimizers.values())
-> for x, y in loader:
!! accelerator.prepare(self.optimizers[name])
== what a method binds anew in each turn of a loop is prepared behind it, and not above the loop
class Run:
    def build(self):
        self.net = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def fit(self, data):
        for stage in range(2):
            self.build()
            for x, y in DataLoader(data):
                F.cross_entropy(self.net(x), y).backward()
                self.optimizer.step()
Run().fit(data)
-> self.build()
-> self.optimizer = accelerator.prepare(self.optimizer)
-> for x, y in accelerator.prepare(DataLoader(data)):
== a method that is called of the object prepares there
class Run:
    def build(self):
        self.net = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def update(self):
        self.optimizer.step()
run = Run()
run.build()
for x, y in DataLoader(data):
    F.cross_entropy(run.net(x), y).backward()
    run.update()
-> def update(self):
-> self.optimizer = accelerator.prepare(self.optimizer)
-> self.optimizer.step()
== a variable that is bound anew between two calls
{FIT}{MADE}train(model, loader, optimizer)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
train(model, loader, optimizer)
-> {PREPARED}
-> optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
-> optimizer = accelerator.prepare(optimizer)
-> train(model, loader, optimizer)
== two calls in two branches
{FIT}{MADE}if quick:
    train(model, loader, optimizer)
else:
    for turn in range(3):
        train(model, loader, optimizer)
-> {PREPARED}
-> if quick:
== an optimizer that each step takes from a list, with a pass in each branch
<model>
loader = DataLoader(data)
several = [optimizer, *others]
for at, (x, y) in enumerate(loader):
    one = several[at % 2]
    if scaler:
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        scaler.step(one)
    else:
        F.cross_entropy(model(x), y).backward()
        one.step()
    one.zero_grad()
-> one = several[at % 2]
-> one = accelerator.prepare(one)
-> if scaler:
== two calls in one branch
{FIT}{MADE}if quick:
    train(model, loader, optimizer)
    train(model, loader, optimizer)
-> if quick:
-> {PREPARED}
== an attribute that __init__ leaves to the script to bind
class Learner(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)
        self.optimizer = None
    def learn(self, x, y):
        <self.step F.cross_entropy(self(x), y)>
learner = Learner()
learner.optimizer = torch.optim.SGD(learner.parameters(), lr=0.1)
for x, y in DataLoader(data):
    learner.learn(x, y)
-> self.optimizer = None
-> def learn(self, x, y):
-> self.optimizer = accelerator.prepare(self.optimizer)
-> self.optimizer.zero_grad()
== a loader that is a parameter, from a factory
from factory import make
{FIT}model, optimizer = make("model")
train(model, make("loader"), optimizer)
-> loader = accelerator.prepare(loader)
-> for x, y in loader:
-> optimizer = accelerator.prepare(optimizer)
== a loader that an evaluation reads too stays as it is
{MADE}{LOOP}for x, y in loader:
    show(model(x))
-> for x, y in accelerator.prepare(loader):
-> for x, y in loader:
!! loader = accelerator
== parts of a model are prepared with the whole
body, head = nn.Linear(4, 4), nn.Linear(4, 2)
net = nn.Sequential(body, head)
optimizer = torch.optim.SGD([{{"params": body.parameters()}}, {{"params": head.parameters()}}], lr=0.1)
loader = DataLoader(data)
net.train()
{LOOP.replace("model", "net")}
-> net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
== networks whose parts a function calls, of which one is made anew with the other
def joined(a, b, x):
    parts = [a.weight, b.weight]
    return x @ sum(parts).T
def train(a, b, optimizer, loader, report):
    a.train()
    b.train()
    for x, y in loader:
        <step F.cross_entropy(joined(a, b, x), y)>
    joined(report, report, x)
def main():
    a, b, report = nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(4, 2)
    a = renewed(a, b)
    optimizer = made_for(a, b)
    train(a, b, optimizer, DataLoader(data), report)
main()
-> a, b, optimizer = accelerator.prepare(a, b, optimizer)
== a model is prepared once, where DataParallel was
def main():
{indent(REPLICATED + LOOP, "    ")}
main()
-> model = accelerator.prepare(model).to(accelerator.device)
-> optimizer, loader = accelerator.prepare(optimizer, loader)
== a model that the loop makes anew is another one
loader = DataLoader(data)
for fold in range(3):
{PER_FOLD}
-> model, optimizer = accelerator.prepare(model, optimizer)
== an optimizer that an object is given in each step
class Stepper:
    def __call__(self, loss, optimizer):
        loss.backward()
        optimizer.step()
def one_epoch(model, loader, optimizer, stepper):
    for x, y in loader:
        optimizer.zero_grad()
        stepper(F.cross_entropy(model(x), y), optimizer)
def main():
    model = nn.Linear(4, 2)
    loader = DataLoader(data)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper = Stepper()
    for epoch in range(3):
        one_epoch(model, loader, optimizer, stepper)
main()
-> def main():
-> model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
-> for epoch in range(3):
!! optimizer = accelerator.prepare(optimizer)
== an optimizer inside what a step is given
def step(state, x, y):
    loss = F.cross_entropy(state["model"](x), y)
    state["optimizer"].zero_grad()
    loss.backward()
    state["optimizer"].step()
def main():
    model = nn.Linear(4, 2)
    loader = DataLoader(data)
    state = {{"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}}
    for x, y in loader:
        step(state, x, y)
main()
-> def step(state, x, y):
-> loss.backward()
-> accelerator.prepare(state['optimizer'])
-> for x, y in loader:
== an optimizer that is made anew for each call
{FIT}
model = nn.Linear(4, 2)
for epoch in range(3):
    train(model, DataLoader(data), torch.optim.SGD(model.parameters(), lr=0.1))
-> def train(model, loader, optimizer):
-> optimizer, loader = accelerator.prepare(optimizer, loader)
-> for epoch in range(3):
== a loader whose first batch is looked at before
{counted("show(next(iter(loader)))", shown="len(loader)")}
-> show(next(iter(loader)))
-> {PREPARED}
-> for n, (x, y) in enumerate(loader):
-> accelerator.print(n, "of", len(loader))
== a loader whose batches are counted before the loop that shows the number
{counted("batches = len(loader)")}
-> {PREPARED}
-> batches = len(loader)
-> for epoch in range(3):
== a loader whose number of batches a schedule of torch is made for
{counted("batches = len(loader)", begin=f"scheduler = {SCHEDULE}")}
-> batches = len(loader)
-> {PREPARED}
-> for epoch in range(3):
== a loader whose batches are looked at between two loops that train
{MADE}other = DataLoader(data)
{LOOP.replace("loader", "other")}show(next(iter(loader)))
{LOOP}
-> show(next(iter(loader)))
-> for x, y in accelerator.prepare(loader):
""")
TRAPS.append(
    Trap(
        "a loader that is bound anew between two calls",
        f"""{FIT}{MADE}train(model, loader, optimizer)
loader = DataLoader(others)
train(model, loader, optimizer)
""",
        ("loader = accelerator.prepare(loader)", "for x, y in loader:", "train(model, loader, optimizer)"),
        ("= DataLoader(others)\nloader =", PREPARED),
    )
)
test_prepare = case_by_case(TRAPS)


def test_a_model_is_known_where_it_is_held() -> None:
    """A notebook's launch takes the trained weights home: it must know the model of the cell, not the parameter's name."""
    done = converted(next(one.text for one in TRAPS if "another optimizer" in one.name))
    assert ("model", "module") in [(fact.name, fact.role) for fact in done.roles]


HIDES = """
<torch>
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 2)
        {name} = list(self.body.parameters())
    def forward(self, x):
        return self.body(x)
model = Net()
optimizer = torch.optim.SGD({name}, lr=0.1)
model.train()
for x, y in DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 2)), 2):
    <step loss = F.mse_loss(model(x), y)>
result = [one.tolist() for one in model.body.parameters()]
"""


@pytest.mark.parametrize(("name", "prepared"), [("parameters", "optimizer"), ("weights", "model, optimizer")])
def test_a_model_that_hides_its_parameters_is_not_asked_for_them(
    name: str, prepared: str, tmp_path: Path
) -> None:
    text = HIDES.replace("({name}", f"(model.{name}").replace("{name}", f"self.{name}")
    convert(write(tmp_path, script=text), "script")
    after = (tmp_path / "script.py").read_text(encoding="utf-8")
    assert f"{prepared} = accelerator.prepare({prepared})" in after
    first, second = train(tmp_path, "script", 2)
    assert first == second
