"""Schedules of learning rates reach their end with the training, on any number of processes."""

from pathlib import Path

import pytest

from .converting import converted, notes
from .projects import convert, rewritten, train, write
from .support import Trap, each_row

OWN = """
<torch>
class Falling:
    def __init__(self, optimizer, steps, high=1.0):
        self.optimizer, self.steps, self.high, self.done = optimizer, steps, high, 0
    def step(self):
        self.done += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.high * (1 - self.done / self.steps)
rows = torch.arange(16.0).view(16, 1)
loader = DataLoader(TensorDataset(rows), batch_size=2)
<model torch.nn.Linear(1, 1)>
{made}
for epoch in range(3):
    for x, in loader:
        <step torch.nn.functional.mse_loss(model(x), x)>
        falling.step()
result = optimizer.param_groups[0]["lr"]
"""
GIVEN = {
    "as an argument": "falling = Falling(optimizer, len(loader) * 3, 1e-4)",
    "by a variable": "total = 3 * len(loader)\nfalling = Falling(optimizer, steps=total, high=1e-4)",
    "by a function, moved by another name": "def make(optimizer, steps):\n    return Falling(optimizer, steps, 1e-4)\n"
    "falling = make(optimizer, len(loader) * 3)\nFalling.move = Falling.step",
    "by a function that gives two, moved by another name": "def make(optimizer, steps):\n"
    "    first = Falling(optimizer, steps, 1e-4)\n    return first, None\n"
    "falling, other = make(optimizer, steps=len(loader) * 3)\nFalling.move = Falling.step",
    "in a condition": "if True:\n    falling = Falling(optimizer, 3 * len(loader), 1e-4)",
}


@pytest.mark.parametrize("made", GIVEN.values(), ids=GIVEN.keys())
def test_a_schedule_of_the_scripts_own_ends_with_the_training(made: str, tmp_path: Path) -> None:
    text = OWN.format(made=made)
    text = text.replace("falling.step", "falling.move") if "move" in made else text
    text = rewritten(tmp_path, "script", script=text)["script"]
    assert "prepare(model, optimizer, loader)" in text and "not reach" not in text
    assert train(tmp_path, "script", 2) == pytest.approx([0.0, 0.0])


def test_a_schedule_that_is_given_a_number_of_steps_is_said() -> None:
    text = OWN.format(made="falling = Falling(optimizer, 24, 1e-4)")
    assert "prepare(model, optimizer, loader)" in converted(text)
    assert any("one step a batch" in note.reason for note in notes(text, "CT201"))
    assert not notes(OWN.format(made=GIVEN["as an argument"]), "CT201")


@pytest.mark.parametrize(
    "number",
    ["len(names)", "torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(loader))"],
)
def test_what_is_no_number_of_a_loaders_batches_is_none_of_steps(number: str) -> None:
    text = OWN.replace("falling.step()", "trainer.show()").replace("class Falling", "class Trainer")
    text = text.format(made=f"names = [1]\nnumber = {number}\ntrainer = Trainer(optimizer, number)")
    after = converted(text)
    assert not notes(text, "CT201") and after.index("number =") < after.index(
        ", loader = accelerator.prepare"
    )


def test_a_class_that_derives_from_torchs_scheduler_is_prepared() -> None:
    own = OWN.replace("class Falling:", "class Falling(torch.optim.lr_scheduler.LRScheduler):")
    text = own.replace("falling", "scheduler").format(made="scheduler = Falling(optimizer, len(loader))")
    after = converted(text)
    assert "model, optimizer, loader, scheduler = accelerator.prepare(" in after
    assert after.index("Falling(optimizer, len(loader))") < after.index("accelerator.prepare(")
    assert not notes(text, "CT201")


SAME = """
import torch
x, y = torch.arange(8.0).view(8, 1), torch.ones(8, 1)
model = torch.nn.Linear(1, 1)
torch.nn.init.zeros_(model.weight)
torch.nn.init.zeros_(model.bias)
measure = torch.nn.MSELoss(reduction="sum")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(3):
    loss = measure(model(x), y)
    <step loss>
result = model.weight.item()
"""


def test_equal_gradients_are_not_added(tmp_path: Path) -> None:
    folder = write(tmp_path, before=SAME, script=SAME)
    convert(folder, "script")
    (expected,) = train(folder, "before", launched=False)
    assert train(folder, "script", 2) == pytest.approx([expected, expected])
    assert any("on the same data" in note.reason for note in notes(SAME, "CT902"))


def test_a_sum_over_data_that_is_divided_is_still_added() -> None:
    text = SAME.replace("for step in range(3):", "for x, y in torch.utils.data.DataLoader(rows):")
    assert 'Accelerator(loss_reduction="sum")' in converted(text)


LATE = """
<torch>
rows = torch.arange(16.0).view(16, 1)
loader = DataLoader(TensorDataset(rows), batch_size=2)
<model torch.nn.Linear(1, 1)>
{made}
def one_epoch():
    for x, in loader:
        <step torch.nn.functional.mse_loss(model(x), x)>
        schedule.step()
for epoch in range(3):
    one_epoch()
result = optimizer.param_groups[0]["lr"]
"""
_LAMBDA = "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, {})"
ASKED = {
    "by a lambda": (_LAMBDA.format("lambda step: 1 - step / (3 * len(loader))"), False),
    "by a function": (
        "def part(step):\n    return 1 - step / (3 * len(loader))\n\n" + _LAMBDA.format("part"),
        False,
    ),
    "once": ("total = 3 * len(loader)\n" + _LAMBDA.format("lambda step: 1 - step / total"), True),
}


@pytest.mark.parametrize(("made", "is_prepared"), ASKED.values(), ids=ASKED.keys())
def test_a_schedule_that_asks_for_the_length_at_each_step_ends_with_the_training(
    made: str, is_prepared: bool, tmp_path: Path
) -> None:
    text = rewritten(tmp_path, "script", script=LATE.format(made=made))["script"]
    joined = "optimizer, loader, schedule" if is_prepared else "optimizer, loader"
    assert f"accelerator.prepare(model, {joined})" in text
    assert train(tmp_path, "script", 2) == pytest.approx([0.0, 0.0])


RATES = """
<model>
loader = DataLoader(data)
rows = 0
for i, (x, y) in enumerate(loader):
    <step loss = F.cross_entropy(model(x), y)>
    rate = 0.1
    {counts}
    for group in optimizer.param_groups:
        group["lr"] = rate
"""


@each_row("""
counts => expected
rows += len(y); rate = rate / rows => rows += accelerator.reduce(len(y), "sum")
rate *= i / 100 => rate *= i / 100
done = 100 * rows + i; rate *= done / 100 => rate *= done / 100
rows += loss.item(); plateau.step(rows) => rows += loss.item()
rows += len(y); schedule.step(rows); print(rows) => rows += accelerator.reduce(len(y), "sum")
""")
def test_a_rate_counts_the_rows_of_all_and_its_own_steps(counts: str, expected: str) -> None:
    text = converted(Trap("", RATES.format(counts=counts)).text)
    assert expected in text and text.count("reduce(") == expected.count("reduce(")


@each_row("""
rate => expected
group['step'] * float(size) / 900 => float(size) * PartialState().num_processes / 900
0.1 * size / 256 => 0.1 * size / 256  # of the batch of one process, as the author has it
""")
def test_a_rate_in_a_function_counts_the_batches_of_all(rate: str, expected: str) -> None:
    lower = f"def lower():\n    for group in optimizer.param_groups:\n        group['lr'] = {rate}\n"
    text = RATES.replace("DataLoader(data)", "DataLoader(data, batch_size=size)").format(counts="lower()")
    assert expected in converted(Trap("", f"size = 8\n{lower}{text}").text)


COUNTED = """
import numpy as np
import torch
rows = torch.arange(7.0).view(7, 1)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
count, result = 0, []
for epoch in range(2):
    for row in {order}:
        count += 1
        loss = torch.nn.functional.mse_loss(model(rows[row]), rows[row])
        <step loss>
        if {counted} == 0:
            for group in optimizer.param_groups:
                group["lr"] = 1e-4 / (1 + count / len(rows))
            result.append(group["lr"])
"""
PERMUTED = COUNTED.replace("{order}", "np.random.permutation(len(rows))")


def test_an_epoch_ends_with_the_last_row_of_each_process(tmp_path: Path) -> None:
    text = PERMUTED.replace("{counted}", "count % len(rows)")
    folder = write(tmp_path, script=text)
    before = train(folder, "script")
    convert(folder, "script")
    assert train(folder, "script", 2) == before * 2 == [[1e-4 / 2, 1e-4 / 3]] * 2


@pytest.mark.parametrize("counted", ["epoch % len(rows)", "count % 5", "row % len(rows)"])
def test_what_counts_no_steps_is_not_divided(counted: str) -> None:
    assert f"if {counted} == 0:" in converted(PERMUTED.replace("{counted}", counted))


COUNTED = """
<torch>
rows = torch.arange(16.0).view(16, 1)
loader = DataLoader(TensorDataset(rows), batch_size=2)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=20)
steps, epoch, goes_on = 0, 0, True
{loop}:
    for x, in loader:
        <step torch.nn.functional.mse_loss(model(x), x)>
        scheduler.step()
        steps += 1
        {behind}
    epoch += 1
result = scheduler.get_last_lr()[0]
"""
STOPS = "if steps >= 10:\n            goes_on = False\n            break"


@each_row(r"""
loop => behind => is_prepared
while goes_on => if steps >= 10:\n            goes_on = False\n            break => False
while steps < 8 => pass => False
while epoch < 2 => pass => True
while epoch < 2 => if steps % 4 == 0:\n            print(steps) => True
for epoch in range(2) => if steps >= 10:\n            break => True
for epoch in range(20 // len(loader)) => pass => False
n = len(loader)\nfor epoch in range(20 // n) => pass => False
n = len(loader); print(20 // n)\nfor epoch in range(20 // len(rows)) => pass => True
""")
def test_a_schedule_of_a_number_of_steps_is_not_prepared(loop: str, behind: str, is_prepared: bool) -> None:
    text = COUNTED.format(loop=loop, behind=behind)
    step = "        <step torch.nn.functional.mse_loss(model(x), x)>\n        scheduler.step()\n"
    learn = "def learn(x):\n" + step.replace("        ", "    ") + "steps,"
    for one in (text, text.replace(step, "        learn(x)\n").replace("steps,", learn, 1)):
        assert ("loader, scheduler = accelerator.prepare(" in converted(one)) is is_prepared


def test_a_schedule_that_ends_with_a_counter_falls_as_fast_on_two_processes(tmp_path: Path) -> None:
    folder = write(tmp_path, script=COUNTED.format(loop="while goes_on", behind=STOPS))
    [alone] = train(folder, "script")
    convert(folder, "script")
    assert train(folder, "script", 2) == pytest.approx([alone, alone])


@each_row("""
total => step => is_prepared
3 * len(loader) => if by_epochs: scheduler.step() => False
3 * len(loader) => if by_epochs: other.step() => True
20 => if by_epochs: scheduler.step() => True  # whose end nothing knows
""")
def test_a_schedule_that_may_move_by_epochs_instead(total: str, step: str, is_prepared: bool) -> None:
    text = COUNTED.format(loop="for epoch in range(3)", behind="pass").replace("20", total)
    text = text.replace("        scheduler", "        if not by_epochs: scheduler")
    after = converted(text.replace("epoch += 1", step))
    assert ("loader, scheduler = accelerator.prepare(" in after) is is_prepared
    assert (after.index("accelerator.prepare(") < after.index("scheduler =")) is not is_prepared


LIMITED = COUNTED.replace("scheduler =", "total = limit or 3 * len(loader)\nscheduler =", 1).replace(
    "20", "2 * total"
)


@pytest.mark.parametrize("limit", [0, 9])
def test_a_schedule_ends_with_the_training_whatever_ends_that(limit: int, tmp_path: Path) -> None:
    text = LIMITED.format(loop="for epoch in range(3)", behind="if 0 < limit <= steps:\n            break")
    text = text.replace("total =", f"limit = {limit}\ntotal =", 1)
    convert(write(tmp_path, script=text), "script")
    assert train(tmp_path, "script", 2) == pytest.approx([0.0055, 0.0055])


@pytest.mark.parametrize(
    ("end", "ends"), [("raise SystemExit", True), ("sys.exit()", True), ("print(epoch)", False)]
)
def test_a_number_of_steps_ends_the_training_by_leaving_the_script(end: str, ends: bool) -> None:
    behind = f"if steps == limit:\n            {end}"
    after = converted("import sys\nlimit = 9\n" + LIMITED.format(loop="for epoch in range(3)", behind=behind))
    assert (after.index("accelerator.prepare(model") < after.index("total =")) is ends


LAST = """<torch>
def loaders():
    return DataLoader(torch.ones(8, 4), 2), 1
class Runner:
    def __init__(self):
        self.loader, self.classes = loaders()
        self.steps = len(self.loader)
        <self.model torch.nn.Linear(4, self.classes)>
        self.saved = 0{more}
    def run(self):
        for i, x in enumerate(self.loader):
            <self.step self.model(x).mean()>
            if {test}:
                self.saved += 1
runner = Runner()
for epoch in range(3):
    runner.run()
result = runner.saved
"""


def test_an_attribute_that_tells_the_last_batch_counts_those_of_one_process(tmp_path: Path) -> None:
    text = LAST.format(more="", test="i == self.steps - 1")
    after = rewritten(tmp_path, "script", script=text)["script"]
    assert "        self.loader = accelerator.prepare(self.loader)\n" in after
    assert train(tmp_path, "script") == [3]
    assert train(tmp_path, "script", 2) == [3, 3]
    shown = LAST.format(more="", test="print(i, self.steps)").replace(
        "len(self.loader)", "self.loader.__len__()"
    )
    assert "        self.loader = accelerator.prepare(self.loader)\n" in converted(shown)


@each_row(r"""
more => test
'' => self.steps > 2
\n        self.rate = 1 / self.steps => print(i, self.steps)
\n        n = self.steps; self.falling = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 1, n) => i == self.steps
""")
def test_an_attribute_that_is_no_count_of_one_process_keeps_all_batches(more: str, test: str) -> None:
    after = converted(LAST.format(more=more, test=test))
    assert "self.loader = accelerator.prepare(self.loader)" not in after


@pytest.mark.parametrize(("raised", "is_own"), [("self.steps += 1", True), ("self.saved += 1", False)])
def test_the_length_of_a_parameter_that_begins_a_count_is_the_attributes(raised: str, is_own: bool) -> None:
    text = LAST.format(more="", test="epoch").replace("Runner()", "Runner(loaders()[0])")
    own = "__init__(self, loader):\n        self.loader = loader; self.classes = 1"
    text = text.replace("__init__(self):\n        self.loader, self.classes = loaders()", own)
    text = text.replace("len(self.loader)", "2 * len(loader)").replace("self.saved += 1", raised)
    assert ("self.steps = 2 * len(self.loader)" in converted(text)) is is_own


LOWERED = """
import torch
from pytorch_pretrained_bert import BertAdam
from torch.utils.data import DataLoader
loader = DataLoader([], 8)
model = torch.nn.Linear(4, 2)
total = {total}
optimizer = {made}
for x, y in loader:
    <step>
"""


@each_row("""
total => made => is_cut => is_given
3 * len(loader) => BertAdam(model.parameters(), lr=0.1, warmup=0.1, t_total=total) => False => True
3 * len(loader) => BertAdam(model.parameters(), 0.1, warmup=0.1, t_total=total) => False => True
3 * (len(rows) // 8) => BertAdam(model.parameters(), lr=0.1, t_total=total) => True => False
1000 => BertAdam(model.parameters(), lr=0.1, warmup=0.1, t_total=total) => False => False
3 * len(loader) => torch.optim.Adam(model.parameters(), lr=0.1) => False => False
""")
def test_an_optimizer_that_lowers_its_own_rate(total: str, made: str, is_cut: bool, is_given: bool) -> None:
    """It is given the length of the prepared loader, or one process's share of the steps that are counted otherwise."""
    after = converted(LOWERED.format(total=total, made=made))
    assert ("t_total=accelerator.share(total)" in after) is is_cut
    assert (
        after.index("prepare(model, loader") < after.index("total =")
        if is_given
        else "prepare(model, optimizer, loader)" in after
    )


TOLD = LOWERED.replace(
    "import torch\n",
    "import torch\nclass Told:\n    def __init__(self, n): self.n = n\n    def at(self, i): return i / self.n\n",
    1,
).replace(
    "for x, y in loader:",
    "plan = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total)\ntold = Told(total)\n"
    "for i, (x, y) in enumerate(loader):\n    plan.step(); told.at({count})",
)


@pytest.mark.parametrize(
    ("total", "count", "own"),
    [("3 * len(loader)", "i", True), ("3 * len(loader)", "x", False), ("300", "i", False)],
)
def test_what_the_loop_asks_with_its_count_is_told_its_steps(total: str, count: str, own: bool) -> None:
    made = "torch.optim.Adam(model.parameters(), lr=0.1)"
    after = converted(TOLD.format(total=total, count=count, made=made))
    assert ("told = Told(own_total)" in after) is own, after


PER_EPOCH = """
class Fit:
    def __init__(self, model, optimizer, loader, scheduler=None):
        self.model = model
        self.optimizer = optimizer
        self.loader = loader
        self.scheduler = scheduler
    def step(self, x, y):
        <self.step loss = F.mse_loss(self.model(x), y)>
        {in_step}
    def run(self, epochs):
        for epoch in range(epochs):
            for x, y in self.loader:
                self.step(x, y)
                {in_epoch}
            {behind}
<model>
Fit(model, optimizer, DataLoader(data), torch.optim.lr_scheduler.StepLR(optimizer, 2)).run(3)
"""


@pytest.mark.parametrize(
    ("where", "moves"),
    [
        ("behind", False),
        ("behind, once more", False),
        ("in_epoch", True),
        ("in_epoch, once more", True),
        ("in_step", True),
        ("in_step, at the end", False),
    ],
)
def test_a_schedule_in_a_class_is_prepared_if_it_moves_with_each_batch(where: str, moves: bool) -> None:
    steps = "self.scheduler.step()" if "end" not in where else "if self.ends: self.scheduler.step()"
    steps = f"[self.step(x, y) for _ in (0, 1)]; self.step(x, y); {steps}" if "more" in where else steps
    places = dict.fromkeys(("in_step", "in_epoch", "behind"), "pass") | {where.partition(",")[0]: steps}
    text = Trap("", PER_EPOCH.format(**places)).text
    assert ("self.scheduler = accelerator.prepare(" in converted(text).replace("self.loader, ", "")) is moves


@pytest.mark.parametrize(("of", "moves"), [("self.loader", False), ("loader", True)])
def test_a_schedule_of_a_step_that_init_makes_of_a_length(of: str, moves: bool) -> None:
    places = dict.fromkeys(("in_epoch", "behind"), "pass") | {"in_step": "self.scheduler.step()"}
    made = f"self.scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, len({of}))"
    text = PER_EPOCH.format(**places).replace("self.scheduler = scheduler", made)
    assert ("self.scheduler = accelerator.prepare(" in converted(Trap("", text).text)) is moves


@pytest.mark.parametrize(("length", "moves"), [("len(self.loader)", False), ("30", True)])
def test_a_schedule_of_the_length_of_a_prepared_loader_is_not_prepared(length: str, moves: bool) -> None:
    places = {"in_step": "pass", "in_epoch": "plan.step()", "behind": "pass"}
    made = f"run(self, epochs):\n        plan = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1, 0, {length})"
    text = PER_EPOCH.format(**places).replace("run(self, epochs):", made)
    assert ("plan = accelerator.prepare(" in converted(Trap("", text).text)) is moves
