"""Evaluations: which are dealt and merged, which stay whole, and where the loader is prepared."""

import pytest

from .converting import converted
from .support import PRELUDE, Trap, case_by_case, cases, each_row

TRAIN = """
<model>
train_loader, test_loader = DataLoader(data), DataLoader(test)
for x, y in train_loader:
    <step loss = F.cross_entropy(model(x), y)>
"""
PREPARED = "test_loader = accelerator.prepare_evaluation(test_loader)"


def after_training(name: str, script: str, *lines: str, absent: tuple[str, ...] = (), says: str = "") -> Trap:
    return Trap(name, TRAIN + script, lines, absent, says)


def evaluating(
    name: str, before: str, body: str, shown: str, *lines: str, absent: tuple[str, ...] = (), says: str = ""
) -> Trap:
    """A pass over the test data without gradients, behind the training."""
    text = f"{before}\nwith torch.no_grad():\n    for x, y in test_loader:\n        {body}\nprint({shown})\n"
    return after_training(name, text, *lines, absent=absent, says=says)


def whole(name: str, before: str, body: str, shown: str, says: str) -> Trap:
    """One that stays whole, with a note."""
    return evaluating(name, before, body, shown, absent=("prepare_evaluation",), says=says)


HITS = "hits += (model(x).argmax(1) == y).sum().item()"
AVERAGER = """
class Averager:
    def __init__(self):
        self.total, self.n = 0.0, 0
    def add(self, value, n):
        self.total += value * n
        self.n += n
meter = Averager()
"""

BARS = f"""from tqdm import tqdm; hits = 0; {{above}}
with torch.no_grad():
    for x, y in {{data}}:
        {HITS}; bar.update()
print(hits)
"""


@each_row(r"""
above => data => ends
bar = None => tqdm(test_loader) => True
bar = None => tqdm(enumerate(test_loader), total=len(test_loader)) => True
bar = tqdm(total=len(test_loader)) => test_loader => True
bar = tqdm(total=len(test_loader) * 8) => test_loader => False
\nif hits: bar = tqdm(total=len(test_loader)) => test_loader => False
bar = Bar(max=len(test_loader)); bar.finish() => test_loader => True  # of the package `progress`
bar = Bar(max=len(test_loader)) => test_loader => False
own_loader = Batches(rows) => tqdm(own_loader) => False  # which may be no DataLoader
bar = None => tqdm(enumerate(test_loader)) => False
bar = None => tqdm(test_loader, total=3) => False
bar = None => tqdm(test_loader, total=len(rows) // 8) => True
bar = tqdm(total=int(len(rows) / 8)) => test_loader => True
bar = tqdm(total=len(rows)) => test_loader => True  # moved by rows
n = len(test_loader); bar = tqdm(total=n) => test_loader => True
n = len(test_loader); n = 3; bar = tqdm(total=n) => test_loader => False
""")
def test_a_bar_ends_with_the_batches_of_its_process(above: str, data: str, ends: bool) -> None:
    text = TRAIN + BARS.format(above=above, data=data)
    assert ("_loader.own_length" in converted(text)) is ends
    inside = text.replace(above, "pass").replace("    for x, y in", f"    {above}\n    for x, y in")
    assert above[:1] == "\n" or ("_loader.own_length" in converted(inside)) is ends


IN_TRAINING = """
def evaluate():
    hits = 0
    with torch.no_grad():
        for x, y in test_loader:
            hits += (model(x).argmax(1) == y).sum().item()
    return hits
<model>
train_loader, test_loader = DataLoader(data), DataLoader(test)
steps = 0
for x, y in train_loader:
    <step loss = F.cross_entropy(model(x), y)>
    steps += 1
    place = steps + len(train_loader)
    width = steps + x.size(1)
    if steps == size: turns += 1
    if loss > 1: large += 1
    if {test}:
        print(evaluate())
"""


@each_row("""
test => is_dealt
steps % 10 == 0 => True
place % 10 == 0 => True  # computed from the counter
width % 10 == 0 => False  # computed from the batch
turns % 10 == 0 => True  # counted where all do
large % 10 == 0 => False  # counted where one may do so alone
loss.item() < best => False
random.random() < 0.1 => False
time.time() > end => False
""")
def test_an_evaluation_to_which_some_processes_may_come_alone_stays_whole(test: str, is_dealt: bool) -> None:
    """The merge behind it would wait for the others for ever."""
    after = converted(PRELUDE + IN_TRAINING.format(test=test))
    assert ("merge(" in after) is is_dealt and ("prepare_evaluation(" in after) is is_dealt


DEALT = [
    after_training(
        "not before it is made",
        """
for fold in folds:
    test_loader = DataLoader(fold)
    hits = 0
    with torch.no_grad():
        for x, y in test_loader:
            hits += (model(x).argmax(1) == y).sum().item()
    print(hits)
""",
        "for fold in folds:",
        PREPARED,
    ),
    after_training(
        "the index counts as in the original, and the last batch stays",
        """
@torch.no_grad()
def evaluate():
    total = 0.0
    for i, (x, y) in enumerate(test_loader):
        total += F.cross_entropy(model(x), y).item()
        if i % 20 == 0:
            torch.save(x, f"{i}.pt")
    return total / i
print(evaluate())
""",
        "evaluation_loader = accelerator.prepare_evaluation(test_loader)",
        "for i, (x, y) in enumerate(evaluation_loader, evaluation_loader.start):",
        'torch.save(x, f"{i}.pt")',
        "total = accelerator.merge(evaluation_loader, total)",
        "i = accelerator.merge(evaluation_loader, i, last=True)",
    ),
    after_training(
        "the index counts as in the original, from where it begins",
        """
hits = 0
with torch.no_grad():
    for i, (x, y) in enumerate(test_loader, 0):
        hits += (model(x).argmax(1) == y).sum().item()
        torch.save(x, f"{i}.pt")
print(hits)
hits = 0
with torch.no_grad():
    for i, (x, y) in enumerate(test_loader, start=1):
        hits += (model(x).argmax(1) == y).sum().item()
        torch.save(x, f"{i}.pt")
print(hits)
""",
        "for i, (x, y) in enumerate(evaluation_loader, evaluation_loader.start):",
        "for i, (x, y) in enumerate(evaluation_loader, evaluation_loader.start + 1):",
    ),
    evaluating(
        "a bar that one process puts over it",
        "hits = 0\nif is_main_process():\n    test_loader = tqdm(test_loader)",
        HITS,
        "hits",
        PREPARED,
        "if is_main_process():",
        "hits = accelerator.merge(test_loader, hits)",
    ),
    evaluating(
        "what the body computes of its sums is computed again of the merged ones",
        "hits = rows = 0",
        f"{HITS}\n        rows += len(y)\n        share = hits / rows\n        rate = 100 * share",
        "rate",
        "hits, rows = accelerator.merge(test_loader, hits, rows)",
        "share = hits / rows",
        "rate = 100 * share",
        absent=("last=True",),
    ),
    evaluating(
        "names of a comprehension are not the loop's",
        "sums = {}\nhits = 0",
        "for k, v in losses(x, y).items():\n            hits += v",
        "[k for k, v in pairs.items()], hits",
        "hits = accelerator.merge(test_loader, hits)",
        absent=("last=True",),
    ),
    *cases("""
== a loader that no name tells of, on which the trained model is called
<model>
one, two = DataLoader(data), DataLoader(test)
for x, y in one:
    <step loss = F.cross_entropy(model(x), y)>
hits = {k: 0.0 for k in names}
model.eval()
for x, y in two:
    for k in names:
        hits[k] += metric[k](model(x), y).item()
print(hits)
-> two = accelerator.prepare_evaluation(two)
-> hits = accelerator.merge(two, hits)
== two phases, a dictionary of loaders
loaders = {k: DataLoader(sets[k]) for k in ["train", "test"]}
sizes, others = {k: len(sets[k]) for k in sets}, {k: 3 for k in sets}
<model>
for epoch in range(3):
    for phase in ["train", "test"]:
        model.train(phase == "train")
        hits = 0
        for i, (x, y) in enumerate(loaders[phase]):
            with torch.set_grad_enabled(phase == "train"):
                out = model(x)
                if phase == "train":
                    F.cross_entropy(out, y).backward()
                    optimizer.step()
            hits += (out.argmax(1) == y).sum()
            print(i, round(sizes[phase] / 4) - 1, round(others[phase] / 4))
        print(phase, hits / sizes[phase])
-> model, optimizer = accelerator.prepare(model, optimizer)
-> for epoch in range(3):
-> for i, (x, y) in enumerate(loader, getattr(loader, "start", 0)):
-> i, min(round(sizes[phase] / 4), len(loader)) - 1, round(others[phase] / 4)
-> hits = accelerator.merge(loader, hits)
"""),
    *cases("""
== one loop for both phases, prepared by the author's own test
def run(model, loader, optimizer=None):
    train = optimizer is not None
    total = 0.0
    with torch.set_grad_enabled(train):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            if train:
                <step loss>
            total += loss.item()
            print(loss.item())
    return total / len(loader)
<model>
run(model, DataLoader(data), optimizer)
print(run(model, DataLoader(test)))
-> loader = accelerator.prepare(loader) if train else accelerator.prepare_evaluation(loader)
-> accelerator.print(loss.item())
-> total = accelerator.reduce(total, "mean") if train else accelerator.merge(loader, total)
-> model, optimizer = accelerator.prepare(model, optimizer)
== one loop for both phases, whose length a variable holds
def run(model, loader, optimizer=None):
    train = optimizer is not None
    total = 0.0
    batches = len(loader)
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        if train:
            <step loss>
        total += loss.item()
    mean = total / batches
    return mean
<model>
run(model, DataLoader(data), optimizer)
print(run(model, DataLoader(test)))
-> loader = accelerator.prepare(loader) if train else accelerator.prepare_evaluation(loader)
-> batches = len(loader)
-> total = accelerator.reduce(total, "mean") if train else accelerator.merge(loader, total)
== a test that the loop's call answers by a constant is none for training
class Run:
    def __init__(self, data, test):
        self.net = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.loader, self.test = DataLoader(data), DataLoader(test)
    def epoch(self):
        for i, batch in enumerate(self.loader):
            print(i, self.process(batch, train=True).item())
        for batch in self.test:
            print(self.process(batch, train=False).item())
    def process(self, batch, train=True):
        loss = F.cross_entropy(self.net(batch["x"]), batch["y"])
        if train:
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss
run = Run(data, test)
for _ in range(3):
    run.epoch()
-> self.loader = accelerator.prepare(self.loader)
!! if True
== a number of the last batch that is bound anew within the block behind the loop
def score(model, loader):
    seen = []
    with torch.no_grad():
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            seen.append(loss.item())
        loss = sum(seen)
    return loss
<model>
for x, y in DataLoader(data):
    <step F.cross_entropy(model(x), y)>
print(score(model, DataLoader(test)))
-> seen = accelerator.merge(loader, seen)
!! last=True
== a test that asks the clock is none for training
def run(model, loader, end):
    for x, y in loader:
        if time.time() < end:
            <step F.cross_entropy(model(x), y)>
        else:
            sys.exit(0)
<model>
run(model, DataLoader(data), time.time() + 60)
-> loader = accelerator.prepare(loader)
!! else loader
!! prepare_evaluation
== the same, divided in place by the loop's index, beside what is not
def run(loader, optimizer=None):
    total, hits = 0.0, 0
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y)
        if optimizer:
            <step loss>
        total += loss.item()
        hits += (model(x).argmax(1) == y).sum().item()
    total /= (i + 1) * 4
    print(total, hits / 10)
<model>
run(DataLoader(data), optimizer)
run(DataLoader(test))
-> total = accelerator.reduce(total, "mean") if optimizer else accelerator.merge(loader, total)
-> hits = accelerator.merge(loader, hits)
-> i = accelerator.merge(loader, i, last=True)
== a schedule that steps under a test of its own, and a number that the batches are counted to
def run(loader, optimizer, scheduler=None):
    most = len(loader) if args.most < 0 else args.most
    for i, (x, y) in enumerate(loader):
        if i >= most:
            break
        loss = F.cross_entropy(model(x), y)
        if optimizer:
            <step loss>
        if scheduler is not None:
            scheduler.step()
<model>
run(DataLoader(data), optimizer)
run(DataLoader(test), None)
-> loader = accelerator.prepare(loader) if optimizer else loader
-> most = len(loader) if args.most < 0 else args.most
== a step that a function within the loop's own makes, by the test of that one
def run(loader, optimizer=None):
    def step():
        loss = F.cross_entropy(model(x), y)
        if optimizer:
            <step loss>
    for x, y in loader:
        step()
<model>
run(DataLoader(data), optimizer)
run(DataLoader(test))
-> loader = accelerator.prepare(loader) if optimizer else loader
== two phases, of batches that are cut out by their number
def run(rows, optimizer=None):
    hits = 0
    n = len(rows) // 4
    for at in range(n):
        loss = F.cross_entropy(model(rows[at * 4 : at * 4 + 4]), y)
        if optimizer:
            <step loss>
        hits += loss.item()
    return hits
<model>
run(data, optimizer)
run(test)
-> accelerator.prepare(range(n)) if optimizer else accelerator.prepare_evaluation(range(n))
-> hits = accelerator.merge(loader, hits)
== two phases, of numbers by which something happens every so many turns: the turns are counted
def mix():
    model.seed += 1
def run(rows, optimizer=None):
    for at in range(9):
        if at % 4 == 0 or not optimizer: mix()
        loss = F.cross_entropy(model(rows[at * 4 : at * 4 + 4]), y)
        if optimizer:
            <step loss>
<model>
run(data, optimizer)
run(test)
-> for turn, at in enumerate(accelerator.prepare(range(9))):
-> if turn % 4 == 0 or not optimizer: mix()
== two phases, the training in an else
<model>
for phase in ["train", "test"]:
    hits = 0
    for x, y in loaders[phase]:
        out = model(x)
        if phase == "test":
            hits += (out.argmax(1) == y).sum()
        else:
            F.cross_entropy(out, y).backward()
            optimizer.step()
    print(phase, hits)
-> for x, y in accelerator.prepare(loaders[phase]):
!! if phase == 'test' else
"""),
    *(
        evaluating(f"lists by name, {made}", f"rows = {made}", "rows['a'].append(y)", "rows", PREPARED)
        for made in ("{'a': []}", "defaultdict(lambda: [])", "{n: [] for n in names}")
    ),
    evaluating(
        "batches that are taken apart before the model is asked, and a bar",
        "hits = 0",
        f"x, y = unpack(x)\n        {HITS}\n        bar.set_postfix(hits=hits)",
        "hits",
        PREPARED,
        "hits = accelerator.merge(test_loader, hits)",
    ),
    *(
        evaluating(
            line,
            f"hits, last, clock = 0, {{}}, 0\ndef show(at):\n    {line}",
            f"{HITS}\n        show(y[0])",
            "hits",
            PREPARED,
        )
        for line in (
            "last['at'] = at",
            "global clock; clock = time.time()",
            "here = []; here.append(at); here += here",
        )
    ),
]

WHOLE = [
    *(
        whole(one, "hits = 0", f"{HITS}\n        {one}", "", "shown inside the loop alone")
        for one in ("progress_bar('%.3f' % (100. * hits / 8))", "bar.set_postfix(hits=hits)")
    ),
    *(
        whole(f"{at} of {made}", f"hits = {made}", f"hits{at}{change}", "hits", "a list of sums or lists")
        for made, at, change in (
            ("[0.0] * 10", "[int(y[0])]", " += 1"),
            ("[[] for _ in range(2)]", "[0]", ".append(y)"),
            ("{'a': [0] * 2}", "['a'][0]", " += y.sum()"),
            ("defaultdict(lambda: [0, 0])", "['a'][0]", " += y.sum()"),
        )
    ),
    whole(
        "a share", "hits = 0", f"{HITS}\n        rate = hits / len(y)", "rate", "computed of what it adds up"
    ),
    *(
        whole(
            line,
            f"hits, rows = 0, {opened}",
            f"{HITS}\n        {line}",
            "hits",
            "a file that was opened before",
        )
        for opened, line in (
            ("open('rows.txt', 'w')", "rows.write(str(y))"),
            ("Path('rows.txt').open('a')", "print(y, file=rows)"),
        )
    ),
    whole("broken", "hits = 0", f"{HITS}\n        if hits > 100:\n            break", "hits", "breaks off"),
    after_training(
        "a meter that lives longer than the pass",
        AVERAGER
        + """
for epoch in range(3):
    with torch.no_grad():
        for x, y in test_loader:
            meter.add(1.0, len(y))
print(meter.n)
""",
        absent=("prepare_evaluation",),
        says="not made for this pass",
    ),
    whole(
        "a state", "state, hits = None, 0", f"out, state = model(x, state)\n        {HITS}", "hits", "carried"
    ),
    *(
        whole(
            line,
            f"shown, hits = [0] * 10, 0\ndef show(at):\n    {line}",
            f"{HITS}\n        show(y[0])",
            "hits",
            "keeps something",
        )
        for line in (
            "shown[at] = shown[at] + 1; open(f'{shown[at]}.txt', 'w').write('x')",
            "global hits; hits += 1",
            "shown.append(at)",
        )
    ),
    whole("drawn", "hits = 0", HITS.replace("(x)", "(x + torch.randn(4))"), "hits", "draws random numbers"),
]

GENERATED = """
def slices(rows, size=2):
    for start in range(0, len(rows), size):
        yield rows[start:start + size]
def evaluate(batches):
    total = 0
    with torch.no_grad():
        for number, x in enumerate({batches}):
            total += model(x).sum().item()
    return total / (number + 1)
print(evaluate({given}))
"""
WHOLE += [
    after_training(
        f"batches of a generator{how}",
        GENERATED.format(batches=batches, given=given),
        absent=("prepare_evaluation", "merge"),
        says="generator",
    )
    for how, batches, given in (("", "slices(test)", "test"), (" that is given", "batches", "slices(test)"))
]
DEALT += [
    after_training(
        "what may be no DataLoader has no start",
        GENERATED.format(batches="batches", given="fetch(test)"),
        'for number, x in enumerate(batches, getattr(batches, "start", 0)):',
    ),
    after_training(
        "a function that makes a DataLoader",
        GENERATED.format(batches="batches", given="make(test)")
        + "def make(rows):\n    return DataLoader(rows)\n",
        "for number, x in enumerate(batches, batches.start):",
    ),
]

CLOCKED = """
import time
hits{more} = 0{start}
for x, y in test_loader:
    with torch.no_grad():
        begin = time.time()
        hits += (model(x).argmax(1) == y).sum().item()
print(hits, time.time() - begin)
"""
DEALT += [
    after_training(
        "a clock that is read behind the loop",
        CLOCKED.format(more="", start=""),
        "begin = None",
        "begin = accelerator.merge(test_loader, begin, last=True)",
    ),
    after_training(
        "a clock that was there before",
        CLOCKED.format(more=", begin", start=", 0.0"),
        PREPARED,
        absent=("last=True",),
    ),
]
DEALT += [
    after_training(
        "a bar over an iterator of the loader",
        "from tqdm import tqdm\nhits = 0\nbatches = iter(test_loader)\nwith torch.no_grad():\n"
        "    for x, y in tqdm(batches):\n        hits += (model(x).argmax(1) == y).sum().item()\nprint(hits)\n",
        "batches, total=test_loader.own_length, disable=not accelerator.is_main_process",
    ),
]
DELETED_TEXT = """
for x, y in test_loader:
    x += 1
{gone}
hits = 0
for x, y in test_loader:
    with torch.no_grad():
        hits += (model(x).argmax(1) == y).sum().item()
print(hits, x.shape)
"""
DELETED = [
    ("a batch that is deleted above, of which one process may have none", "del x", ("x = None",), ()),
    ("a batch that another loop has left", "pass", (), ("x = None",)),
]
DEALT += [
    after_training(name, DELETED_TEXT.format(gone=gone), *made, absent=left)
    for name, gone, made, left in DELETED
]
KEPT_BY_MODEL = """
class Net(nn.Module):
    def forward(self, x, y):
        out = self.fc(x)
        self.tell(out, y)
        return F.cross_entropy(out, y)
    def tell(self, out, y):
        for metric in self.metrics.values():
            metric(out, y)
    def get_metrics(self, reset):
        return {{name: metric.compute(reset) for name, metric in self.metrics.items()}}
    def get_names(self):
        return list(self.names)
net = Net()
def evaluate():
    loss = 0.0
    with torch.no_grad():
        for x, y in test_loader:
            loss += net(x, y).item()
    return loss
print(evaluate(), net.{asked})
"""
DEALT += [
    after_training("a model's names", KEPT_BY_MODEL.format(asked="get_names()"), f"evaluation_{PREPARED[5:]}")
]
WHOLE += [
    after_training(
        "metrics that a model keeps",
        KEPT_BY_MODEL.format(asked="get_metrics(reset=True)"),
        absent=("prepare_evaluation", "merge"),
        says="keeps what `get_metrics()` gives",
    )
]


@pytest.mark.parametrize(("first", "then", "is_dealt"), [("train", "eval", True), ("eval", "train", False)])
def test_the_last_mode_before_a_loop_is_its_own(first: str, then: str, is_dealt: bool) -> None:
    loop = "hits = 0\nfor x, y in test_loader:\n    hits += (model(x).argmax(1) == y).sum().item()\nprint(hits)\n"
    text = converted(PRELUDE + TRAIN + f"model.{first}()\nprint(len(test))\nmodel.{then}()\n{loop}")
    assert (PREPARED in text) is is_dealt, text


test_evaluations = case_by_case([*DEALT, *WHOLE])
