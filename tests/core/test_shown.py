"""A printed loss is that of the whole batch, where every process comes to the print."""

from textwrap import indent

import pytest
from crosstrain_migrate.core.conversion import convert

from .converting import converted, notes
from .support import each_row

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.MSELoss()
loader = DataLoader(data, batch_size=4)
for epoch in range(3):
    running, right, seen = 0.0, 0, 0
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        both = loss + loss
        hits = (model(x) > 0).sum()
        loss.backward()
        optimizer.step()
        running += loss.item()
        right += (model(x) > 0).eq(y).sum().item()
        seen += y.size(0)
        {shown}
"""
MEAN = 'accelerator.reduce(loss, "mean").item()'


def _shown(line: str) -> str:
    return convert(SCRIPT.format(shown=line), "crosstrain", lambda rule, node: True).text


@each_row("""
line => expected
print(running / (i + 1)) => accelerator.print(accelerator.reduce(running, "mean") / (i + 1))
print(right / seen) => accelerator.print(accelerator.reduce(right, "sum") / accelerator.reduce(seen, "sum"))
print((i + 1) * x.size(0)) => accelerator.print((i + 1) * accelerator.reduce(x.size(0), "sum"))
print("%d %.3f" % (epoch, loss)) => accelerator.print("%d %.3f" % (epoch, accelerator.reduce(loss, "mean")))
print("%.3f" % (loss + loss)) => "%.3f" % accelerator.reduce(loss + loss, "mean")
print("{:.3f}".format(loss)) => "{:.3f}".format(accelerator.reduce(loss, "mean"))
print(f"{loss:.3f}") => print(f"{accelerator.reduce(loss, 'mean'):.3f}")
print(both.item()) => accelerator.print(accelerator.reduce(both, "mean").item())
print(loss.item()) => accelerator.print(accelerator.reduce(loss, "mean").item())
if i % 10 == 0: print(epoch, loss.item()) => accelerator.print(epoch, accelerator.reduce(loss, "mean").item())
print(i * len(x), loss.item()) => i * accelerator.reduce(len(x), "sum"), accelerator.reduce(loss, "mean").item()
print(len(loader) * len(x)) => len(loader) * accelerator.reduce(len(x), "sum")
""")
def test_a_printed_loss_is_the_mean_over_the_processes(line: str, expected: str) -> None:
    assert expected in _shown(line)


@each_row("""
head => is_reduced
for i in range(8): => True
for i in tqdm(range(8)): => True
while len(seen) < 8: => False  # whose turns nothing counts
""")
def test_a_loss_that_is_printed_in_the_turns_of_next(head: str, is_reduced: bool) -> None:
    loop = f"batches = iter(loader)\nseen = []\n{head}\n    x, y = next(batches)\n    seen.append(x)\n"
    body = SCRIPT.partition("(loader):\n")[2].replace("        {shown}", "        print(loss.item())")
    text = SCRIPT.partition("for epoch")[0] + loop + body.replace("        ", "    ")
    text = text.replace("    running += loss.item()\n", "").replace(
        "    right += (model(x) > 0).eq(y).sum().item()\n", ""
    )
    after = convert(text.replace("    seen += y.size(0)\n", ""), "crosstrain", lambda rule, node: True).text
    assert (f"accelerator.print({MEAN})" in after) is is_reduced


@pytest.mark.parametrize(
    ("shown", "is_reduced"),
    [('kept["sum"] / kept["rows"]', True), ('sum(kept["all"]) / len(kept["all"])', False)],
)
def test_a_list_beside_sums_in_a_dictionary_is_not_added_up(shown: str, is_reduced: bool) -> None:
    steps = """kept["all"].append(loss.item())
        kept["sum"] += loss.item() * len(x)
        kept["rows"] += len(x)
        """
    text = SCRIPT.replace("running, right", 'kept = {{"sum": 0, "rows": 0, "all": []}}\n    running, right')
    after = convert(text.format(shown=f"{steps}print({shown})"), "crosstrain", lambda rule, node: True).text
    assert ("reduce(kept" in after) is is_reduced


@each_row(r"""
line
if loss.item() < best: print(loss.item())  # processes would part
if y.sum() > 2: print(loss.item())  # the batch is another one on each
if rank == 0: print(loss.item())  # one process alone
if is_main: print(loss.item())
if args.master: print(loss.item())
if random.random() < 0.1: print(loss.item())  # a draw of the process's own
if time.time() - start > 60: print(loss.item())  # a clock
if self.full: print(loss.item())\n        self.full = y.sum() > 2  # bound in the loop, by the batch
if y.sum() > 2: n += 1\n        if n % 10 == 0: print(loss.item())  # counted on some processes
if y.sum() > 2: continue\n        print(loss.item())  # some processes are past it
print(loss.item(), hits.item())  # a count beside a mean: together or not at all
if i % 10 == 0 and rank == 0: print(i * len(x))
print(i * len(model), len(model) * len(x))  # no rows of the batch
print(loss.item(), file=log)
bar.set_postfix(loss=loss.item())  # a bar's own text may be a share
""")
def test_what_may_differ_between_the_processes_stays(line: str) -> None:
    assert "reduce" not in _shown(line)


@pytest.mark.parametrize(
    ("part", "is_reduced"), [("net(x, y)", True), ("F.mse_loss(x, y, reduction='sum')", False)]
)
def test_a_part_of_a_loss_is_that_of_the_whole_batch(part: str, is_reduced: bool) -> None:
    line = "loss = criterion(model(x), y)\n"
    text = SCRIPT.format(shown="print(f'{part.data:.3f}', part.item())")
    text = text.replace(line, f"part = {part}\n        {line[:-1]} + 0.1 * part\n")
    done = convert(f"import torch.nn.functional as F\n{text}", "crosstrain", lambda rule, node: True).text
    assert ('{accelerator.reduce(part, "mean").data:.3f}' in done.replace("'mean'", '"mean"')) is is_reduced
    assert ('accelerator.reduce(part, "mean").item()' in done) is is_reduced


@pytest.mark.parametrize(
    "scaled", ["scaler.scale(loss).backward()", "with amp.scale_loss(loss, optimizer) as it: it.backward()"]
)
def test_a_loss_that_is_scaled_for_its_backward(scaled: str) -> None:
    text = SCRIPT.format(shown="print(loss.item())").replace("loss.backward()", scaled)
    assert MEAN in convert(text, "crosstrain", lambda rule, node: True).text


@each_row(r"""
behind => is_reduced
print(epoch, loss.item()) => True
if loss.item() < best: print(loss.item()) => False
if epoch % 5 == 0: print(epoch, loss.item()) => True
if epoch % 5 == 0:\n    with torch.no_grad():\n        print(loss.item()) => True
if best < bound: print(loss.item())\nbest = loss.item() => False  # processes would part
if epoch > 5: pass\nelse: print(loss.item()) => False
if running < 1.0: break\nprint(loss.item()) => False
if epoch > 5: break\nprint(loss.item()) => True
for x, y in other:\n    if y is None: continue\nprint(loss.item()) => True
loss = criterion(model(test), wanted)\nprint(loss.item()) => False  # alike on every process
""")
def test_a_loss_printed_behind_the_loop_is_that_of_the_whole_batch(behind: str, is_reduced: bool) -> None:
    text = SCRIPT.format(shown="pass") + indent(behind, "    ") + "\n"
    assert (MEAN in convert(text, "crosstrain", lambda rule, node: True).text) is is_reduced


@each_row(r"""
line => behind => is_noted
pass => print(hits.item()) => True
if loss.item() < best: print(loss.item()) => '' => True
part = loss / 2; log.info(part.item()) => '' => True
sure = model(x).mean().item(); log.info(sure) => '' => True
sure = model(x).mean().item(); rows = len(x); log.info(i) => '' => False
pass => if loss.item() < best: print(loss.item()) => True
writer.add_scalar('loss', loss.item(), i) => '' => True
out = model(x); log.info(share(out, y)) => '' => True
out = model(x); share(out, y) => log.info(share(test, wanted)) => False
loss, parts = model(x); mean = 0.9 * mean + parts[0] => log.info(mean) => True
loss, state = model(x, state) => log.info(state) => False
mean.add(loss.item()) => print(mean.value) => True
mean.add(time.time()) => print(mean.value) => False
for k, v in {'loss': loss.detach()}.items(): log.info(v) => '' => True
for k, v in {'step': i}.items(): log.info(v) => '' => False
average = 0.9 * average + 0.1 * loss.item(); log.info(average) => '' => True
average = 0.9 * average + 0.1 * float(loss) => state['loss'] = average => True
average = 0.9 * average + 0.1 * float(loss) => '' => False  # nothing shows it
average = 0.9 * average + 0.1 * i => state['i'] = average => False
value = float(loss) => print(value) => True
print(loss.item()) => print(loss.item()) => False  # reduced
print(loss.data.item()) => '' => False
bar.set_postfix(loss=loss.item()) => '' => False
print(i, epoch) => print(epoch) => False
pass => loss = criterion(model(test), wanted)\nprint(loss.item()) => False
""")
def test_a_loss_that_stays_local_is_said(line: str, behind: str, is_noted: bool) -> None:
    text = SCRIPT.format(shown=line) + indent(behind, "    ") + "\n"
    text = "def share(out, y):\n    return (out == y).float().mean().item()\n\n" + text
    done = convert(text, "crosstrain", lambda rule, node: True)
    assert any("main process's own" in one.reason for one in done.findings) is is_noted, done.text


METER = """
class Meter:
    def __init__(self):
        self.total, self.count, self.mean = 0.0, 0, 0.0
    def update(self, value):
        self.total += value
        self.count += 1
        self.mean = self.total / self.count
    __call__ = update
class Board:
    def __init__(self, *meters):
        self.meters = meters
    def display(self, step):
        print(step, [meter.mean for meter in self.meters])
def bar(step, text):
    print(step, text)
"""


@each_row("""
said => start => grows => shown
True => meter = Meter() => meter.update(loss.item()) => print(meter.mean)
True => meter = Meter(); board = Board(meter) => meter.update(loss.item()) => board.display(i)
True => worst = 0.0 => worst += abs(loss.item()) => bar(i, f'{worst / (i + 1)}')
True => losses = [] => losses.append(loss.item()) => print(sum(losses[-10:]) / 10)
False => steps = 0 => steps += 1 => print(steps)
False => clock = Meter() => clock.update(time.time()) => print(clock.mean)
True => meter = Meter() => meter(loss.item()) => print(meter.mean)
False => clock = Meter() => clock(time.time()) => print(clock.mean)
False => meter = Meter() => meter.update(loss.item()) => pass  # not shown
False => pass => pass => print(running / (i + 1))  # reduced
""")
def test_running_numbers_that_stay_local_are_said_once(
    said: bool, start: str, grows: str, shown: str
) -> None:
    text = SCRIPT.replace("import torch\n", "import torch, time\n" + METER, 1)
    text = text.replace("running, right, seen = 0.0, 0, 0", f"running, right, seen = 0.0, 0, 0; {start}")
    done = convert(text.format(shown=f"{grows}\n        {shown}"), "crosstrain", lambda rule, node: True)
    assert len([one for one in done.findings if "main process's own" in one.reason]) == said


OWN = {
    "a step that is given the loss": (
        "def learn(loss):\n    <step loss>\n",
        "learn(loss)\n    print(loss.item())",
    ),
    "a sum that is divided behind its loop": ("total = 0.0\n", "<step loss>\n    total += loss.item()"),
    "the text of a bar": ("bar = Bar()\n", '<step loss>\n    bar.suffix = "{:.3f}".format(loss.item())'),
    "a meter": ("mean = Mean()\n", "<step loss>\n    mean.update(loss.item())\n    print(mean.value)"),
}


@pytest.mark.parametrize(("call", "is_said"), [("print(learn())", True), ("learn()", False)])
def test_the_last_loss_that_a_training_returns_is_said(call: str, is_said: bool) -> None:
    learn = "def learn():\n    for x in DataLoader(data):\n        <step loss = model(x).mean()>\n    return loss\n"
    assert bool(notes(f"<torch>\n<model>\n{learn}{call}\n", "CT602")) is is_said


@each_row("""
number => behind => is_said
loss.item() => print(net.kept) => True
loss.item() => pass => False
1 => print(net.kept) => False
""")
def test_a_loss_in_a_list_of_an_object_that_the_caller_reads_is_said(
    number: str, behind: str, is_said: bool
) -> None:
    learn = "def learn(net):\n    total = 0.0\n    for x in DataLoader(data):\n        <step loss = net(x).mean()>\n"
    learn += f"        total += loss.item()\n        net.kept['loss'].append({number})\n    print(total)\n"
    text = f"<torch>\n<model>\n{learn}net = model\nnet.kept = {{'loss': []}}\nlearn(net)\n{behind}\n"
    assert bool(notes(text, "CT602")) is is_said


@pytest.mark.parametrize("own", OWN)
def test_a_loss_that_is_shown_of_one_process_is_said(own: str) -> None:
    above, step = OWN[own]
    loop = "batches = iter(DataLoader(data, 4))\nwhile (batch := next(batches, None)) is not None:\n"
    loop += f"    x, y = batch\n    loss = F.mse_loss(model(x), y)\n    {step}\n"
    behind = "total /= 3\nprint(total)\n" if "total" in above else ""
    assert notes(f"<torch>\n{above}<model>\n{loop}{behind}", "CT602")


@each_row("""
given => behind => is_said
scores.keep(model(x), y) => print(scores.value) => True
scores.keep(model(x), y) => pass => False
scores.keep(3) => print(scores.value) => False
scores.keep(model(x), y) => scores = None; print(scores) => True
""")
def test_an_object_that_each_step_tells_its_outputs_is_said_where_it_is_read(
    given: str, behind: str, is_said: bool
) -> None:
    own = "class Scores:\n    def keep(self, *rows): self.value = len(rows)\nscores = Scores()\n"
    loop = f"for x, y in DataLoader(data):\n    <step model(x).mean()>\n    {given}\n{behind}\n"
    assert bool(notes(f"<torch>\n{own}<model>\n{loop}", "CT602")) is is_said


@each_row("""
goes => read => is_said
kept["loss"].append(loss.item()); loss => 1 => True
self.loss_all => self.loss_all => True
self.loss_all => getattr(self, "loss_" + kept) => True
self.loss_all => getattr(self, "rate_" + kept) => False
loss => 1 => False
""")
def test_a_loss_that_a_step_keeps_where_others_read_it_is_said(goes: str, read: str, is_said: bool) -> None:
    step = "loss = self.loss_all = F.mse_loss(model(x), y)\n        optimizer.zero_grad()\n        "
    step = (
        f"class Steps:\n    def learn(self, x, y, kept):\n        {step}{goes}.backward(); optimizer.step()\n"
    )
    text = (
        f"<torch>\n<model>\n{step}    def show(self): print({read})\nsteps, kept = Steps(), {{'loss': []}}\n"
    )
    loop = "for x, y in batches():\n    steps.learn(x, y, kept)\nprint(kept)\nsteps.show()\n"
    assert bool(notes(text + loop, "CT602")) is is_said


@pytest.mark.parametrize("more", ["if i == 4:\n            break\n        ", ""])
def test_a_metric_that_adds_up_by_itself_is_named_where_every_process_has_all_rows(more: str) -> None:
    text = "<torch>\nimport torchmetrics\nmetric = torchmetrics.MeanMetric()\n<model>\nfor x, y in loader:\n"
    text += "    <step F.mse_loss(model(x), y)>\nmodel.eval()\nwith torch.no_grad():\n"
    text += f"    for i, (x, y) in enumerate(test_loader):\n        {more}metric.update(model(x))\nprint(metric.compute())\n"
    assert any("sync_on_compute" in note.remedy for note in notes(text, "CT603")) is bool(more)


def test_what_was_added_since_the_last_line_is_reduced_together() -> None:
    text = "<torch>\n<model>\ntotal, told = 0.0, 0.0\nfor i, x in enumerate(DataLoader(data)):\n    <step loss = model(x).mean()>\n"
    text += "    total += loss.item()\n    if i % 10 == 9:\n        print((total - told) / 10)\n        told = total\n"
    assert 'accelerator.reduce(total - told, "mean") / 10' in converted(text)
