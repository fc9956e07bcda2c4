"""Batches that come from no DataLoader, by all the ways in which a loop may read them: two processes share them out."""

from .converting import converted
from .rows import check_lines, check_shares
from .support import Trap, case_by_case, each_row

MADE = """
from itertools import count, islice
from types import SimpleNamespace
from tqdm import tqdm
def batches():
    for at in range(0, 32, 4):
        yield rows[at : at + 4], targets[at : at + 4]
def endless():
    while True:
        yield from batches()
class Iterator:
    def __iter__(self):
        return batches()
    @classmethod
    def splits(cls):
        return cls(), cls()
library = SimpleNamespace(Iterator=Iterator)
"""
PREPARED, ALONE = "accelerator.prepare(batches())", "disable=not accelerator.is_main_process"
WAYS = [
    ("for (x, y), number in zip(batches(), count()):", f"for (x, y), number in zip({PREPARED}, count()):"),
    ("for number, (x, y) in enumerate(batches()):", f"for number, (x, y) in enumerate({PREPARED}):"),
    ("for x, y in tqdm(batches(), total=8):", f"for x, y in tqdm({PREPARED}, total=8, {ALONE}):"),
    ("for x, y in tqdm(batches()):\n    x = x[int(y.max()) :]", f"for x, y in tqdm({PREPARED}, {ALONE}):"),
    ("for x, y in islice(batches(), 100):", f"for x, y in islice({PREPARED}, 100):"),
    ("for number, (x, y) in enumerate(tqdm(batches())):", f"tqdm({PREPARED}, {ALONE})"),
]
TAKEN = """
source = {made}
step = 0
while step < 8:
    step += 1
    x, y = next(source)
    learn(model, optimizer, x, y)
"""
QUEUED = """
from queue import Queue
from threading import Thread
class Feeder:
    def __init__(self):
        self.ready = Queue(4)
        Thread(target=self.fill, daemon=True).start()
    def fill(self):
        for pair in endless():
            self.ready.put(pair)
    def take(self):
        got = self.ready.get()
        return got
class Trainer:
    def __init__(self):
        self.feeder = Feeder()
    def train(self):
        iter = step = 0
        while step < 8:
            step += 1
            x, y = self.feeder.take()
            learn(model, optimizer, x, y)
Trainer().train()
"""
BEGUN_ANEW = """
packs = list(batches())
source = iter(packs)
step = 0
while step < 8:
    step += 1
    try:
        x, y = next(source)
    except StopIteration:
        source = iter(packs)
        x, y = next(source)
    learn(model, optimizer, x, y)
"""
ZIPPED = """
def over(pairs):
    for x, y in pairs:
        learn(model, optimizer, x, y)
told = {}
loaders = [endless() for turn in range(2)]
both = zip(*loaders)
step = 0
while step < 8:
    step += 1
    packs = [(x, y) for x, y in next(both)]
    over(packs)
    told.update({"packs": packs})
"""
LIBRARY = """
class Corpus:
    def __init__(self):
        self.train_iter, self.test_iter = library.Iterator.splits()
corpus = Corpus()
for epoch in range(2):
    for x, y in corpus.train_iter:
        learn(model, optimizer, x, y)
"""
BOUNDS = """
import random
def bounds(number, size):
    start = int(number * size)
    return start, start + size
options = {"size": 4}
held, wanted = next(iter([(rows, targets)]))
for epoch in range(2):
    for number in range(len(rows) // 4):
        start, end = bounds(number, options["size"])
        learn(model, optimizer, held[start:end], wanted[start:end])
"""


def trap(name: str, script: str, *lines: str, absent: tuple[str, ...] = ()) -> Trap:
    return Trap(name, MADE + script, lines, absent)


LOOPS = trap(
    "loops over a generator: zip, enumerate, tqdm, islice",
    "".join(f"{loop}\n    learn(model, optimizer, x, y)\n" for loop, _ in WAYS),
    *(line for _, line in WAYS),
)
TRAPS = [
    LOOPS,
    trap("next of a generator", TAKEN.format(made="endless()"), "source = accelerator.prepare(endless())"),
    trap(
        "what threads put into a queue",
        QUEUED,
        "batches = accelerator.prepare(self.feeder.take() for _ in itertools.count())",
        "x, y = next(batches)",
    ),
    trap(
        "next of an iterator over a list that begins anew",
        BEGUN_ANEW,
        "model, optimizer, packs = accelerator.prepare(model, optimizer, packs)",
    ),
    trap(
        "next of a zip over all of a list, and a function that goes over what it gave",
        ZIPPED,
        "loaders = [accelerator.prepare(endless()) for turn in range(2)]",
        absent=("prepare(pairs", "prepare(packs"),
    ),
    trap("another library's iterator", LIBRARY, "for x, y in accelerator.prepare(corpus.train_iter):"),
    trap("slices between bounds", BOUNDS, "for number in accelerator.prepare(range(len(rows) // 4)):"),
]
LEARNS = "            learn(model, optimizer, x, y)"
UNQUEUED = [
    Trap(f"queue: {name}", MADE + QUEUED.replace(before, after), absent=("prepare(self.feeder",), says=said)
    for name, said, before, after in (
        ("a dictionary", "same data", "Queue(4)", "{}"),
        (
            "the end is asked for",
            "same data",
            LEARNS,
            f"            if x is None:\n                break\n{LEARNS}",
        ),
        ("a place is given", "same data", "self.feeder.take()", "self.feeder.take(*())"),
        ("not trained on", "", LEARNS.strip(), f"print(x, y)\nfor x, y in batches():\n    {LEARNS.strip()}"),
    )
]
DRAWN = trap(
    "slices between what a function draws",
    BOUNDS.replace("int(number * size)", "random.randrange(number + 1)"),
    "for number in range(len(rows) // 4):",
)
BOTH = trap(
    "a function that goes over what `next` gave, and elsewhere over a list",
    ZIPPED.replace("step = 0", "plain = list(batches())\nover(plain)\nstep = 0"),
    "pairs = accelerator.prepare(pairs)",
)
test_lines = case_by_case([*TRAPS, *UNQUEUED, BOTH, DRAWN], check_lines)
test_each_batch_is_trained_on_once = case_by_case(TRAPS, check_shares)


@each_row("""
made => key => is_dealt
library.make() => "train" => True
make(9) => "train" => True
library.make() => i => False  # of several, perhaps counters
""")
def test_an_iterator_that_others_keep_under_a_name(made: str, key: str, is_dealt: bool) -> None:
    text = f"""import library
<torch>
def make(n):
    return library.several(n)
kept = {made}
<model>
for i in range(9):
    x, y = next(kept[{key}])
    <step>
"""
    assert (f"x, y = next(accelerator.prepare(kept[{key}]))" in converted(text)) is is_dealt


@each_row("""
made => is_dealt
loaders.append(DataLoader(rows, 4)) => True
loader = DataLoader(rows, 4); loaders.append(loader) => True
loaders.append(1) => False
""")
def test_loaders_that_are_appended_to_a_list(made: str, is_dealt: bool) -> None:
    text = f"""
<torch>
rows = torch.ones(8, 2)
loaders = []
for part in range(2):
    {made}
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(loader):
    for x in loader:
        <step model(x).mean()>
train(loaders[0])
"""
    after = converted(text)
    assert ("loader = accelerator.prepare(loader)\n" in after) is is_dealt
