"""Evaluations that keep something in objects or names from before their loop, and steps that are told not to train."""

import pytest

from .converting import converted
from .support import PRELUDE, each_row
from .test_evaluations import PREPARED, TRAIN

STEP_OF_BOTH = """
def step(x, y):
    loss = F.cross_entropy(model(x), y)
    if {test}:
        <step loss>
    return loss
<model>
for x, y in DataLoader(data):
    step(x, y)
model.{mode}()
total, test_loader = 0.0, DataLoader(test)
for x, y in test_loader:
    total += step(x, y).item()
print(total)
"""


@pytest.mark.parametrize(
    ("test", "mode", "is_dealt"),
    [("model.training", "eval", True), ("model.training", "train", False), ("data", "eval", False)],
)
def test_a_step_that_trains_in_training_mode_evaluates_below_eval(
    test: str, mode: str, is_dealt: bool
) -> None:
    assert (PREPARED in converted(PRELUDE + STEP_OF_BOTH.format(test=test, mode=mode))) is is_dealt


@pytest.mark.parametrize("body", ["dist.all_reduce(total)", "return total"])
def test_what_the_script_adds_up_over_the_processes_is_not_merged_before(body: str) -> None:
    function = f"def over_all(total):\n    {body}\n"
    loop = "hits = 0\nfor x, y in test_loader:\n    hits += (model(x).argmax(1) == y).sum()\n"
    text = converted(PRELUDE + function + TRAIN + f"model.eval()\n{loop}over_all(hits)\nprint(hits.item())\n")
    assert PREPARED in text
    assert ("hits = accelerator.merge(test_loader, hits)" in text) is (body == "return total"), text
    loop = loop.replace("test_loader", "train_loader").replace("hits +=", "<step>\n    hits +=")
    # What a flag of the script's own leaves out is added by nobody; one that asks for a group lets it happen.
    for asks, is_own in (("", True), ("if dist.is_initialized(): ", True), ("if flags.sharded: ", False)):
        end = f"{asks}over_all(hits)\nprint(hits.item() / len(train_set))\n"
        is_ours = body == "return total" or not is_own
        after = converted(PRELUDE + function + loop + end)
        assert ('hits = accelerator.reduce(hits, "sum")' in after) is is_ours


@each_row(r"""
before => is_dealt
if wanted:\n    kept = [] => False
if wanted:\n    if more:\n        kept = []\nelse:\n    kept = [] => False
if wanted:\n    kept = []\nelse:\n    kept = [0][:0]\n    kept = [] => True
if wanted:\n    kept = []\nelse:\n    raise ValueError(more) => True
with torch.no_grad():\n    kept = [] => True
if wanted:\n    model.eval()\nkept = [] => True
""")
def test_what_not_every_way_to_the_loop_binds_cannot_be_merged_behind_it(before: str, is_dealt: bool) -> None:
    loop = "for x, y in test_loader:\n    out = model(x)\n    hits += (out.argmax(1) == y).sum().item()\n"
    loop = f"hits = 0\n{loop}    if wanted:\n        kept.append(out)\nprint(hits)\nif wanted:\n    print(len(kept))\n"
    text = converted(f"{PRELUDE}wanted = more = False\n{TRAIN}model.eval()\n{before}\n{loop}")
    assert (PREPARED in text) is is_dealt, text
    inside = loop.replace("\n", "\n    ").rstrip()
    text = converted(
        f"{PRELUDE}wanted = False\n{TRAIN}model.eval()\nif wanted:\n    kept = []\nif wanted:\n    {inside}\n"
    )
    assert PREPARED in text, text


OBJECTS = """
def evaluate(metrics, note):
    total = 0.0
    with torch.no_grad():
        for x, y in test_loader:
            out = model(x)
            total += F.cross_entropy(out, y).item()
            {body}
    return total / len(test_loader), [metric.value() for metric in metrics]
"""


@each_row("""
body => is_dealt
for metric in metrics: metric(out, y) => False
for metric in metrics: metric.update(out, y) => False
for place, metric in enumerate(metrics): metric.count(out[place]) => False
note(out) => False
for row in out: row.sort() => True
model = model.eval() => True
for row, answer in zip(out, y): print(row, answer) => True
for rows in torch.chunk(out, 2): rows.clamp_(0, 1) => True
""")
def test_objects_from_before_the_loop_that_keep_something(body: str, is_dealt: bool) -> None:
    after = converted(PRELUDE + TRAIN + OBJECTS.format(body=body) + "print(evaluate([Hits()], seen))\n")
    assert ("prepare_evaluation(" in after) is is_dealt


COLLATE = """from functools import partial
<torch>
def together(batch, scale=1):
    rows, sizes = [], []
    with torch.no_grad():
        for row in batch:
            rows.append(row[0] * scale)
            sizes.append(len(row[0]))
    return torch.stack(rows), torch.tensor(sizes)
{given}
<model>
for x, y in loader:
    <step>
{end}
"""


@each_row(r"""
given
loader = DataLoader([], 8, collate_fn=together)
loader = DataLoader([], 8, collate_fn=partial(together, scale=2))
collate = partial(together, scale=2)\nloader = DataLoader([], 8, collate_fn=collate)
""")
def test_a_collate_function_evaluates_nothing(given: str) -> None:
    after = converted(COLLATE.format(given=given, end=""))
    assert "prepare_evaluation" not in after
    assert "merge" not in after


def test_the_same_loop_over_batches_is_dealt() -> None:
    after = converted(COLLATE.format(given="loader = DataLoader([], 8)", end="print(together(loader))"))
    assert ".prepare_evaluation(batch)" in after


TOLD = """<torch>
<model>
def learn(x, y, train=True):
    loss = F.mse_loss(model(x), y)
    if train:
        <step loss>
    return loss
def step(batch, train):
    return learn(*batch, train=train)
for batch in DataLoader([], 8):
    step(batch, True)
total = 0.0
model.eval()
for batch in DataLoader([], 4):
    total += step(batch, {told}).item()
print(total)
"""


@pytest.mark.parametrize(("told", "is_test"), [("False", True), ("batch is not None", False)])
def test_a_step_that_is_told_not_to_train(told: str, is_test: bool) -> None:
    after = converted(TOLD.format(told=told))
    assert ("prepare_evaluation(DataLoader([], 4))" in after) is is_test, after
    assert "for batch in accelerator.prepare(DataLoader([], 8)):" in after
