"""A training whose batches come by `next`, through a generator expression, or in a function within: what it shows is said
to be one process's own, and its backward is the accelerator's."""

import pytest

from .converting import converted, notes

SCRIPT = """
<torch>
loader = DataLoader(data, 8)
<model nn.Linear(4, 1)>
{loop}
"""
NEXT = """
it, total, steps = iter(loader), 0.0, 0
while True:
    x = next(it, None)
    if x is None:
        break
    <step loss = model(x).mean()>
    total += loss.item()
    steps += 1
print({shown})
"""
WITHIN = """
def train():
    total = 0.0
    for x in loader:
        def step():
            nonlocal total
            <step loss = model(x).mean()>
            total += loss.item()
        step()
    print(total)
train()
"""
EXPRESSION = """
for x in (batch.float() for batch in loader):
    <step model(x).mean()>
"""


def script(loop: str) -> str:
    return SCRIPT.format(loop=loop)


SHOWN = NEXT.format(shown="total")
LISTED = SHOWN.replace("0.0, 0", "[], 0").replace("total += loss.item()", "total.append(loss.item())")


@pytest.mark.parametrize(
    ("loop", "is_own"),
    [
        (NEXT.format(shown="total / steps"), True),
        (SHOWN.replace("total += loss", "print(total)\n    total += loss"), True),
        (SHOWN.replace("total += loss.item()", "now = str(loss); print(now); total = 0"), True),
        (LISTED, True),
        (WITHIN, True),
        (NEXT.format(shown="steps").replace("total += loss.item()", "pass"), False),  # a counter
    ],
    ids=["next", "in the loop", "by a text", "a list", "within", "steps"],
)
def test_what_it_shows_is_said_to_be_one_process_s_own(loop: str, is_own: bool) -> None:
    assert bool(notes(script(loop), "CT602")) is is_own


def test_the_last_loss_beside_what_was_bound_since() -> None:
    loop = "for epoch in range(3):\n    for x in loader:\n        <step loss = model(x).mean()>\n"
    behind = "    score = evaluate()\n    {says}('%f %f', loss.item(), score)\n"
    assert notes(script("import logging\n" + loop + behind.format(says="logging.info")), "CT602")
    assert 'accelerator.reduce(loss, "mean").item()' in converted(script(loop + behind.format(says="print")))


def test_a_generator_expression_reads_its_loader() -> None:
    assert "accelerator.prepare(model, optimizer, loader)" in converted(script(EXPRESSION))
    of_numbers = EXPRESSION.replace("batch.float() for batch in loader", "torch.rand(4) for i in range(9)")
    assert "accelerator.prepare(model, optimizer)" in converted(script(of_numbers))


TWO_LOOPS = """
<torch>
train_loader, test_loader = DataLoader(data, 8), DataLoader(test, 8)
<model nn.Linear(4, 1)>
for epoch in range(3):
    batches = iter(train_loader)
    for i in range(len(train_loader)):
        x = next(batches)
        <step model(x).mean()>
    total = 0
    batches = iter(test_loader)
    for i in range(len(test_loader)):
        total += model(next(batches)).sum().item()
    print(total / len(test))
"""


def test_an_iterator_of_the_same_name_over_a_test_set_is_not_trained_on() -> None:
    """It would be dealt, and a part of the test set added up as if it were all of it."""
    after = converted(TWO_LOOPS)
    assert "accelerator.prepare(model, optimizer, train_loader)" in after
    assert "prepare(test_loader" not in after
    begun_anew = TWO_LOOPS.replace("batches = iter(test_loader)", "pass").replace(
        "        x = next(batches)",
        "        if i % 2:\n            batches = iter(test_loader)\n        x = next(batches)",
    )
    assert "train_loader, test_loader" in converted(begun_anew).split(".prepare(")[1]


def test_what_a_branch_binds_between_is_trained_on_as_well() -> None:
    """Left as it is, every process would train on the same data in that branch."""
    branch = "batches = iter(train_loader)\n    if epoch:\n        batches = iter(test_loader)"
    text = TWO_LOOPS.replace("batches = iter(train_loader)", branch).partition("    total = 0")[0]
    assert "train_loader, test_loader" in converted(text).split(".prepare(")[1]


PREFETCHER = """
<torch>
class Prefetcher:
    def __init__(self, batches):
        self.batches = {kept}(batches)
    def next(self):
        return next(self.batches, None)
loader = DataLoader(data, 8)
<model nn.Linear(4, 1)>
prefetcher = Prefetcher({given})
fetched = prefetcher.next()
while fetched is not None:
    i, x = fetched
    model(x).mean().backward()
    if i % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
    fetched = prefetcher.next()
"""


def test_a_class_that_is_given_numbered_batches_leaves_each_process_its_own_numbers() -> None:
    """Dealt together with their numbers, the processes would step at different times, and wait for each other."""
    numbered = converted(PREFETCHER.format(kept="iter", given="enumerate(loader)"))
    assert "accelerator.prepare(model, optimizer, loader)" in numbered
    plain = converted(PREFETCHER.format(kept="iter", given="loader"))
    assert "batches = accelerator.prepare(batches)" in plain
    for kept in ("iter", "enumerate"):  # another object of the class is not trained on
        two = converted(PREFETCHER.format(kept=kept, given="loader)\ntests = Prefetcher(test_loader"))
        assert "accelerator.prepare(model, optimizer, loader)" in two and "prepare(batches)" not in two


def test_two_loops_train_what_is_prepared_above_the_first() -> None:
    """And what is stepped beside the second one alone is prepared too."""
    rates = "rates = torch.optim.lr_scheduler.StepLR(optimizer, 2)"
    after = converted(f"<torch>\n<model>\n{rates}\n<loop>\n<loop>\n    rates.step()\n")
    above, behind = after.split("for x, y in", 1)
    assert above.endswith("model, optimizer, rates = accelerator.prepare(model, optimizer, rates)\n")
    assert "accelerator.prepare(model" not in behind


SEEDED = """import random
from multiprocessing import Process, Queue
<torch>
def fill(ready, start):
    random.seed(start)
class Feeder:
    def __init__(self):
        self.ready = Queue(4)
        Process(target=fill, args=(self.ready, random.randint(0, 9))).start()
    def take(self):
        return self.ready.get()
feeder = Feeder()
<model>
for step in range(8):
    x, y = feeder.take()
    <step>
"""


def test_workers_that_draw_the_batches_have_seeds_of_their_process_s_own() -> None:
    """A number, or none, leaves them alike: see `test_data_loops.py`."""
    assert "(self.ready, random.randint(0, 9) + PartialState().process_index)" in converted(SEEDED)
    assert not notes(SEEDED, "CT902"), "every process trains on the same data"
    assert notes(SEEDED.replace("random.seed(start)", "rows[start]"), "CT902"), "it is no seed"
    own = SEEDED.replace("seed(start)", "seed(os.getpid())")
    assert notes(own, "CT902"), "it fills no queue"
    own = own.replace("(os.getpid())", "(os.getpid())\n    ready.put((1, 2))")
    assert not notes(own, "CT902") and "random.randint(0, 9))).start()" in converted(own)


def test_what_moves_a_bar_gives_no_batch() -> None:
    rows = "rows = iter(DataLoader([], 8))\nbar = Bar()\nfor step in range(8):\n    x, y = next(rows)\n"
    after = converted(f"<torch>\nfrom progress.bar import Bar\n<model>\n{rows}    <step>\n    bar.next()\n")
    assert "bar = Bar()\n" in after and "rows = iter(accelerator.prepare(DataLoader([], 8)))" in after
