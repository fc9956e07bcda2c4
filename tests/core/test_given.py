"""Accumulators that a function is given: what it adds to them is merged, or the evaluation stays whole."""

from .support import Trap, case_by_case, cases
from .test_evaluations import after_training

DEALT = "test_loader = accelerator.prepare_evaluation(test_loader)"
LOOP = """
from collections import defaultdict
{functions}
sums, rows = {start}, 0
with torch.no_grad():
    for x, y in test_loader:
        {body}
        rows += len(y)
print(sums, rows)
"""


def given(name: str, functions: str, start: str, body: str, *lines: str, **how: object) -> Trap:
    return after_training(name, LOOP.format(functions=functions, start=start, body=body), *lines, **how)  # type: ignore[arg-type]


ADDS = "def score(out, y, into):\n    into['loss'] += F.cross_entropy(out, y).item() * len(y)\n    return into['loss']\n"
TRAPS = [
    given(
        "a dictionary of sums",
        ADDS,
        "defaultdict(float)",
        "loss = score(model(x), y, sums)",
        DEALT,
        "rows, sums = accelerator.merge(test_loader, rows, sums)",
    ),
    given(
        "through a second function, by a statement",
        ADDS + "\ndef step(batch, sums):\n    score(model(batch[0]), batch[1], into=sums)\n",
        "{'loss': 0.0}",
        "step((x, y), sums)",
        DEALT,
        "rows, sums = accelerator.merge(test_loader, rows, sums)",
    ),
    given(
        "a list",
        "def keep(out, found):\n    found.extend(out.tolist())\n    return len(found)\n",
        "[]",
        "size = keep(model(x), sums)",
        DEALT,
        "rows, sums = accelerator.merge(test_loader, rows, sums)",
    ),
    given(
        "something else is done to it",
        "def keep(out, found):\n    found['best'] = max(found['best'], out.max().item())\n    return found['best']\n",
        "{'best': 0.0}",
        "best = keep(model(x), sums)",
        absent=("prepare_evaluation", "merge("),
        says="evaluated whole",
    ),
    given(
        "a function that only looks",
        "def size(out, found):\n    return len(found) + len(out)\n",
        "[]",
        "sums.append(size(model(x), [])); n = size(x, sums)",
        DEALT,
        "rows, sums = accelerator.merge(test_loader, rows, sums)",
    ),
    after_training(
        "a meter that forgets",
        """
class Smooth:
    def __init__(self):
        self.total, self.n = 0.0, 0
    def add(self, value):
        self.total += value
        self.n += 1
    def decay(self):
        self.total = 0.9 * self.total
meter = Smooth()
with torch.no_grad():
    for x, y in test_loader:
        meter.add(F.cross_entropy(model(x), y).item())
print(meter.total / meter.n)
""",
        absent=("merge(",),
        says="evaluated whole",
    ),
    after_training(
        "a meter of lists",
        """
class Meter:
    def __init__(self, size):
        self.val, self.avg, self.sum, self.count = [0] * size, [0] * size, [0] * size, 0
    def update(self, values, n=1):
        self.count += n
        for i, v in enumerate(values):
            self.val[i] = v
            self.sum[i] += v * n
            self.avg[i] = self.sum[i] / self.count
meter = Meter(2)
with torch.no_grad():
    for x, y in test_loader:
        meter.update([F.cross_entropy(model(x), y).item(), 1.0], len(y))
print(meter.avg)
""",
        DEALT,
        "meter = accelerator.merge(test_loader, meter)",
    ),
    *cases("""
== what meets in a phase is global together
from collections import defaultdict
def score(out, y, into):
    loss = F.cross_entropy(out, y)
    into["loss"] += loss.item() * len(y)
    return loss
<model>
loaders = {"train": DataLoader(data), "val": DataLoader(test)}
for phase in ["train", "val"]:
    sums, rows = defaultdict(float), 0
    for x, y in loaders[phase]:
        loss = score(model(x), y, sums)
        if phase == "train":
            loss.backward()
            optimizer.step()
        rows += len(y)
    print(phase, sums["loss"] / rows)
-> rows, sums = accelerator.merge(loader, rows, sums)
== what meets in a training is local together
def score(out, y, into):
    loss = F.cross_entropy(out, y)
    into["loss"] += loss.item() * len(y)
    return loss
<model>
loader = DataLoader(data)
sums, rows = {"loss": 0.0}, 0
for x, y in loader:
    <step loss = score(model(x), y, sums)>
    rows += len(y)
print(sums["loss"] / rows)
!! reduce(
!! merge(
?? main process's own
"""),
]
test_given = case_by_case(TRAPS)
