"""Processes decide together: by the same number, where the number may be another one on each."""

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests.support.ranks import run_ranks

from .converting import conversion, converted
from .projects import convert, write
from .support import PRELUDE, each_row

HEAD = f"""{PRELUDE}
from torch.utils.data import TensorDataset
torch.manual_seed(0)
rows = torch.randn(40, 4)
labels = (rows.sum(1) > 0).long()
data, test = TensorDataset(rows[:24], labels[:24]), TensorDataset(rows[24:], labels[24:])
<model nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))>
train_loader, test_loader = DataLoader(data, batch_size=4, shuffle=True), DataLoader(test, batch_size=4)
"""
TRAIN = """
def train():
    losses = []
    for x, y in train_loader:
        <step loss = F.cross_entropy(model(x), y)>
        losses.append(loss.item())
    return losses[-1]
def test_loss():
    total, weight = 0.0, 1.0
    with torch.no_grad():
        for x, y in test_loader:
            weight = weight / 2
            total = total + weight * F.cross_entropy(model(x), y).item()
    return total
train()
best, wait, history = 100.0, 0, []
"""
REDUCED = 'value = accelerator.reduce(value, "mean")'


def after(body: str) -> str:
    return converted(HEAD + TRAIN + body)


STOPPER = """
class Stopper:
    def __init__(self):
        self.best, self.left, self.stop = None, 2, False
    def __call__(self, loss):
        score = -loss
        if self.best is None or score > self.best:
            self.best, self.left = score, 2
            torch.save(model.state_dict(), "best.pt")
        else:
            self.left -= 1
            self.stop = self.left == 0
stopper = Stopper()
for epoch in range(30):
    value = train()
    stopper(value)
    if stopper.stop:
        print("stopped", epoch)
        break
print("left", stopper.left)
"""

DECIDED = """value = train() | <better> |     best = value |     <save>
value = test_loss() | <better> |     best = value |     <save>
for epoch in range(9): |     value = train() |     wait += value > best |     if wait > 3: |         break
value = train() | if len(data) > 9: |     is_best = value < best | else: |     is_best = value > best |\
 def save(state, is_best): |     if is_best: |         torch.save(state, 'a.pt') | save(model, is_best)
value = train() | is_best = -value > best | if is_best: |     <save>
def keep(is_best): |     if is_best: |         <save> | class Fitter(nn.Module): |     def forward(self, x): |\
         return x |     def fit(self): |         value = train() |         keep(value < best) | Fitter().fit()
value = None | for n in range(3): |     value = train() | <better> |     <save>
def fit(): |     for epoch in range(9): |         value = train() |         <better> |             return\
 |  | fit()
def keep(): |     global best |     value = train() |     if not best or value < best: |         best =\
 value |         <save> |  | keep()
value = train() | <better> |     for group in optimizer.param_groups: |         group['lr'] /= 2
def new(m): |     m.bias.data.normal_() |  | value = train() | <better> |     model.apply(new)\
 => with accelerator.common_draws():
loss = test_loss() | if loss < best: |     <save> => loss = accelerator.reduce(loss, "mean")
for epoch in range(9): |     history.append(train()) |     if min(history[:-1]) < history[-1]: |         break\
 => history.append(accelerator.reduce(train(), "mean"))
for epoch in range(9): |     history.append(train()) |     if np.asarray([history]).mean(0)[-1] < best: |         <save>\
 => history.append(accelerator.reduce(train(), "mean"))
plan = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer) | plan.step(train())\
 => plan.step(accelerator.reduce(train(), "mean"))
found = {'loss': train(), 'epoch': 1} | if found['loss'] < best: |     <save>\
 => found['loss'] = accelerator.reduce(found['loss'], "mean")
def say(text, to): |     to.write(text) | def check(to): |     value = train() |     say(str(value), to) |     return value\
 | log = open('a.txt', 'a') | value = check(log) | <better> |     best = value |     <save>
value = train() | name = 'at_{}_{:.2f}.pt'.format(best, value) | torch.save(model, name); torch.load(name)
value = train() | torch.save(model, f"{value:.3f}.pt")"""


def _decision(row: str) -> tuple[str, str]:
    row = row.replace("<save>", "torch.save(model, 'a.pt')").replace("<better>", "if value < best:")
    body, _, expected = row.replace(" | ", "\n").partition(" => ")
    return body, expected or REDUCED


@pytest.mark.parametrize(("body", "expected"), [(STOPPER, REDUCED), *map(_decision, DECIDED.splitlines())])
def test_what_may_differ_decides_by_its_mean(body: str, expected: str) -> None:
    text = after(body)
    assert text.count(".reduce(") == 1 and expected in text, text


@pytest.mark.parametrize(
    "body",
    [
        "steps = 0\nfor x, y in train_loader:\n    steps += 1\n    if steps > 3:\n        break",  # a counter
        "value = train()\nif value < best:\n    print(value, rows.apply(abs))",  # shown, and no more
        "words = []\nfor n in range(9):\n    word = model(words).argmax().item()\n    if word == 3:\n        break\n"
        "    if word > 7:\n        break\n    words.append(word)",  # a word that a model chooses has no mean
        "value = train()\ntorch.save(model, f'{value}.pt')\nprint(f'{value:.2f}')",  # a text, perhaps, and a line
        "if rows.mean() > 0:\n    torch.save(model, 'a.pt')",  # the same on every process
        "def entered(found, key):\n    found[key].append(train())\n    return found, key\ndef started():\n"
        "    found = {'a': []}\n    return found, 1\nfound, other = started()\nfor key in 'ab':\n"
        "    found, _ = entered(found, key)\n    least, arg = (min, 1) if other else (max, 2)\n"
        "    better = least(found[key]) == found[key][-1]\n    if better:\n        torch.save(model, 'a.pt')",  # a list
        "def fit(options):\n    if options.limit < 3:\n        torch.save(model, 'a.pt')\ndef told(x, fit):\n    return x\n"
        "def run(x, fit):\n    return told(x, fit)\nfor x, y in train_loader:\n    run(x, True)\nfit(data)",  # another `fit`
        "class Keeper:\n    better = False\n    def run(self):\n        for n in range(3):\n"
        "            if n:\n                self.better = train() < best\n            self.keep(self.better)\n"
        "    def keep(self, better):\n        if better:\n            torch.save(model, 'a.pt')\nKeeper().run()",
        "for x, y in train_loader:\n    if x.size(0) < 4:\n        continue",  # batches are completed
        """
hits = 0
with torch.no_grad():
    for x, y in test_loader:
        hits += (model(x).argmax(1) == y).sum().item()
if hits > best:
    torch.save(model, 'a.pt')""",  # merged: the number of all processes
        "torch.backends.cudnn.benchmark = True\ntorch.save(train(), 'a.pt')\nkept = torch.load('b.pt')\n"
        "if kept['epoch'] < best:\n    torch.save(model, 'a.pt')",  # a module is no variable that a call changes
        "n = int(train())\nfor e in range(n, 9): pass\nif n > best:\n    torch.save(model, 'a.pt')",  # a count
        "ends = [9]\nfor x in ends: print(x)\nfor x in [history]: x.append(train())\n"
        "if ends[0] < best:\n    torch.save(model, 'a.pt')",  # another loop's item of that name
        "def fit(by=None):\n    if by != None:\n        torch.save(model, 'a.pt')\nfit(train())",  # whether it is there
        "kind = str(train())\nif kind.find('0') > 0:\n    torch.save(model, 'a.pt')",  # a place in a text
        "class Keeper:\n    def __init__(self): self.net, self.optimizer = model, model(optimizer)\n"
        "    def say(self, text): print(text)\n    def load(self):\n        lost = model(rows)\n        self.say(lost)\n"
        "        if self.optimizer and best: self.optimizer.load_state_dict(torch.load('b.pt'))\n"
        "Keeper().load()",  # of no number: nothing that was tried on the way stays
        "def turned(x):\n    kept = x[x > 0]\n    if kept.mean() > 0:\n        torch.save(x, 'a.pt')\n    return x\n"
        "class Rows(torch.utils.data.Dataset):\n    def __getitem__(self, i):\n        return turned(rows[i + train()])\n"
        "Rows()[0]",  # what augments rows sees those of one process
        "parser = argparse.ArgumentParser()\nparser.add_argument('--run-name', default=str(time.time()))\n"
        "args = parser.parse_args()\nif args.width > 3:\n    torch.save(model, 'a.pt')",  # another option's time
    ],
)
def test_what_is_alike_stays(body: str) -> None:
    assert ".reduce(" not in after(body)


@pytest.mark.parametrize(
    "then", ["", "hits = 0\nfor x in DataLoader(rows, 8):\n    hits += model(x).sum().item()\nprint(hits)\n"]
)
def test_lengths_that_each_process_draws_end_a_pass_together(then: str) -> None:
    drawn = "import random\n<model>\nat = 0\nwhile at < 80:\n    more = random.randint(3, 9)\n"
    text = converted(f"<torch>\n{drawn}    <step model(rows[at : at + more]).mean()>\n    at += more\n{then}")
    assert 'while accelerator.reduce(at, "mean") < 80:' in text


EVALUATE = """
def accuracy(net, loader):
    net.eval()
    hits, count = 0, 0
    with torch.no_grad():
        for x, y in loader:
            hits += (net(x).argmax(1) == y).sum().item()
            count += len(y)
            {inside}
    {behind}
"""
SAVES = """
    if value > best:
        best = value
        torch.save(model, 'a.pt')
"""
EPOCHS = EVALUATE + "\nfor epoch in range(3):\n    model.train()\n    train()\n    {call}" + SAVES
WHOLE, CALL = "if count > 99: break", "value = accuracy(model, test_loader)"


def evaluated(inside: str = "pass", behind: str = "return hits / count", call: str = "") -> str:
    return EPOCHS.replace("{inside}", inside).replace("{behind}", behind).replace("{call}", call or CALL)


COPY = "from copy import deepcopy\n"
GLOBAL = """
def check():
    model.eval()
    total = 0
    with torch.no_grad():
        for x, y in test_loader:
            total += (model(x).argmax(1) == y).sum().item()
            print(total)
    value = total / 16
    if value > 0.5:
        torch.save(model, 'a.pt')
for epoch in range(3):
    model.train()
    train()
    check()
"""

RANGE = "n in range(0, 24, 4):\n            x, y = rows[n:n + 4], labels[n:n + 4]"
SAME = {
    "dealt copy": COPY + evaluated(call="value = accuracy(deepcopy(model), test_loader)"),
    "dealt tuple": evaluated(
        behind="return epoch, hits / count", call="_, value = accuracy(model, test_loader)"
    ),
    "dealt entry": evaluated(
        behind="return {'acc': hits / count}", call="value = accuracy(model, DataLoader(data, 4))['acc']"
    ),
    "whole": evaluated(WHOLE),
    "range": evaluated(WHOLE).replace("x, y in loader:", RANGE),
    "whole, no function": GLOBAL,
    "whole, no part in training": f"{COPY}mean_model = deepcopy(model)\n"
    + evaluated(WHOLE, call="value = accuracy(mean_model, test_loader)"),
}


@pytest.mark.parametrize("body", SAME.values(), ids=SAME)
def test_an_evaluation_says_the_same_everywhere(body: str) -> None:
    text = after(body)
    assert "torch.save" not in text or "accelerator.save" in text
    assert ".reduce(value" not in text and ".reduce(total" not in text, text


@pytest.mark.parametrize(
    "body",
    [
        evaluated(WHOLE).replace("    net.eval()\n", ""),  # batch normalisation learns from it
        evaluated(WHOLE + "\n            hits += torch.rand(1).item()"),
        evaluated(WHOLE, call="value = accuracy(model, train_loader)"),  # each process has a share of it
        evaluated(WHOLE, call=f"torch.optim.swa_utils.update_bn(train_loader, model)\n    {CALL}"),
    ],
    ids=["train mode", "draws", "training data", "update_bn"],
)
def test_an_evaluation_that_may_differ_is_made_alike(body: str) -> None:
    assert ".reduce(" in after(body).partition("best, wait")[2], after(body)


def test_within_a_pass_processes_draw_for_themselves() -> None:
    step = "    optimizer.zero_grad(); F.cross_entropy(model(x), y).backward(); optimizer.step()\n"
    body = evaluated(WHOLE).replace("for epoch in range(3):", "for x, y in train_loader:")
    lines = [x.strip() for x in converted(HEAD + TRAIN + body.replace("    train()\n", step)).splitlines()]
    assert lines[lines.index("torch.save(model, 'a.pt')") - 1] == "if accelerator.is_main_process:"


STEP = (
    HEAD
    + """
for i, (x, y) in enumerate(train_loader):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    {test}
    loss.backward()
    optimizer.step()
"""
)


@each_row(r"""
test => expected
if torch.isnan(loss): continue => if torch.isnan(accelerator.reduce(loss, "mean")): continue
if i > 3 and loss < 0.1: break => if i > 3 and accelerator.reduce(loss, "mean") < 0.1: break
if loss < 9: loss = loss * 2 => if loss < 9: loss = loss * 2  # no process parts
model.train(); n = model.a(x)\n    if n > 1: break => if accelerator.reduce(n, "mean") > 1: break
n = y.part(x)\n    if n > 1: break => if n > 1: break  # of the batch
n = y\n    if n[0] > 1: break => n = y\n    if n[0] > 1: break
n = model(x)\n    if n[0] > 1: break => if accelerator.reduce(n[0], "mean") > 1: break
if y.sum() > 2 and loss < 0.1: break => if y.sum() > 2 and loss < 0.1: break  # not all come to it
if rank == 0 and loss < 0.1: break => if rank == 0 and loss < 0.1: break
if i > 3 and time() > 9: exit(3) => if i > 3 and accelerator.reduce(time(), "mean") > 9: exit(3)
if time() > 9: torch.save(model, "a.pt") => if time() > 9:\n        if accelerator.is_main_process:
if loss < 0.1: exit() => if accelerator.reduce(loss, "mean") < 0.1: exit()
if loss > 9: exit(1) => if loss > 9: exit(1)  # an error ends it for all
""")
def test_in_a_step_the_test_alone_is_changed(test: str, expected: str) -> None:
    text = converted(STEP.format(test=test))
    assert expected in text and "accelerator.backward(loss)" in text, text


@each_row("""
start => expected
trainer.train() => if accelerator.reduce(time.time(), "mean") < accelerator.reduce(self.end, "mean"):
if torch.distributed.get_rank() == 1: trainer.train() => if time.time() < self.end:
""")
def test_an_end_by_the_clock_that_an_object_keeps(start: str, expected: str) -> None:
    text = f"""
import sys, time, torch
class Trainer:
    def __init__(self, net):
        self.net, self.end = net, time.time() + 60
        self.optimizer = torch.optim.SGD(net.parameters(), lr=1)
    def train(self):
        for x in torch.utils.data.DataLoader(data):
            if time.time() < self.end:
                self.step(x)
            else:
                sys.exit(0)
    def step(self, x):
        self.net.train()
        self.net(x).sum().backward()
        self.optimizer.step()
trainer = Trainer(torch.nn.Linear(4, 1))
{start}
"""
    assert expected in converted(text)


@each_row("""
test => expected
torch.isfinite(loss) => torch.isfinite(accelerator.reduce(loss, "mean"))
is_good(loss.item()) => is_good(accelerator.reduce(loss, "mean").item())
i % 2 == 1 => i % 2 == 1
is_known(loss) => is_known(loss)
""")
def test_a_step_behind_the_backward_is_left_out_by_all(test: str, expected: str) -> None:
    text = STEP.format(test="pass").replace("    optimizer.step()", f"    if {test}: optimizer.step()")
    text += "def is_good(x):\n    return x < 9\ndef is_known(x):\n    return x in (1, 2)\n"
    assert f"if {expected}: optimizer.step()" in converted(text)


FOUND = "found = y[y > 0] if y.any() else None"
HARD = "hard = np.where((model(x) > 1).cpu().numpy()); n = np.where(y > 1, y, 1)"


@pytest.mark.parametrize(
    ("above", "test", "is_own"),
    [
        ("pass", "y.sum() == 0", True),
        (HARD, "len(hard[0]) == 0", True),
        (HARD, "len(n) < 4", False),
        ("pass", "y.size()[1] == 0", True),
        ("pass", "y.shape[1] > 9 or i == 3", True),
        ("pass", "len(y) == 0", True),
        ("pass", "y.size(0) < 2", False),
        ("pass", "model.weight.shape[1] == 0", False),
        (FOUND, "found is None", True),
        ("found = model if rows.any() else None", "found is None", False),
    ],
)
def test_a_batch_that_one_process_would_skip_is_skipped_by_all(above: str, test: str, is_own: bool) -> None:
    text = converted("import numpy as np\n" + STEP.format(test=f"{above}\n    if {test}: continue"))
    code = f'accelerator.reduce(int(bool({test})), "sum") > 0' if is_own else test
    assert f"if {code}: continue" in text, text


@each_row(r"""
test => other => is_own
if y.any() => pass => True
if len(y) > 0 => model.eval() => True
if i > 0 => pass => False
if y.any() => loss.mean().backward() => False  # each process takes a step
""")
def test_a_step_within_a_test_of_the_batch_is_left_out_by_all(test: str, other: str, is_own: bool) -> None:
    step = f"{test}:\n        loss.backward()\n    else:\n        {other}"
    text = converted(STEP.format(test="pass").replace("loss.backward()", step))
    code = f'if accelerator.reduce(int(bool({test[3:]})), "sum") == accelerator.num_processes:'
    assert (code in text) is is_own and ("num_processes" in text) is is_own, text


@each_row("""
test => gives => is_own
y.sum() == 0 => None => True
y.sum() == 0 => 0.0, y => True
y.sum() == 0 => y[0] => False  # which another batch may not have
model.training => None => False
""")
def test_a_function_that_takes_no_step_for_a_batch_takes_none_on_all(
    test: str, gives: str, is_own: bool
) -> None:
    step = f"if {test}: return {gives}\n    F.cross_entropy(model(x), y).backward()\n    optimizer.step()"
    text = converted(f"{HEAD}\ndef learn(x, y):\n    {step}\nfor x, y in train_loader: learn(x, y)\n")
    code = f'accelerator.reduce(int(bool({test})), "sum") > 0' if is_own else test
    assert f"if {code}: return {gives}" in text, text


@pytest.mark.parametrize("above", ["if loss > random.random():", FOUND + "\n    if found is not None:"])
def test_a_batch_that_one_process_may_skip_is_said(above: str) -> None:
    done = conversion("import random\n" + STEP.format(test=f"{above}\n        if y.shape[-1] > 9: continue"))
    assert any("skips a batch" in one.reason for one in done.findings), done.text
    assert "if y.shape[-1] > 9: continue" in done.text


KEEPS = (
    STEP.replace("{test}", "pass")
    + """
    if i % 2 == 0:
        if loss.item() < best:
            best = {kept}
            print("better", i)
            torch.save(model.state_dict(), "best.pt")
"""
)


@pytest.mark.parametrize("kept", ["loss.item()", "loss", "round(loss.item(), 3)", "float(loss.detach())"])
def test_what_is_kept_is_what_was_compared(kept: str) -> None:
    """Else the next comparison would be with a number of each process's own."""
    text = converted("best = 9.0\n" + KEEPS.replace("{kept}", kept))
    assert f"best = {kept}".replace("loss", 'accelerator.reduce(loss, "mean")', 1) in text


FULL_BATCH = """
best, wait, rest = 9.0, 0, rows[24:]
for epoch in range(8):
    optimizer.zero_grad()
    order = torch.randperm(24)
    loss = F.cross_entropy(model(rows[order]), labels[order]) + 0.1 * model(rest).pow(2).mean()
    if loss < best:
        best, wait = loss.item(), 0
        torch.save(model.state_dict(), "best.pt")
    else:
        wait += 1
    if wait == 2:
        print("stopped", epoch)
        break
    loss.backward()
    optimizer.step()
print(epoch, [p.sum().item() for p in model.parameters()])
"""


def test_what_flows_into_backward_is_not_touched_where_no_loop_goes_over_data(tmp_path: Path) -> None:
    text = converted(HEAD + FULL_BATCH)
    assert "    loss = accelerator.reduce" not in text and "accelerator.backward(loss)" in text, text
    assert 'if accelerator.reduce(loss, "mean") < best:' in text
    assert 'best, wait = accelerator.reduce(loss, "mean").item(), 0' in text
    first, second = run_ranks(printed, 2, text.replace("accelerator.print", "print"), str(tmp_path))
    assert first == second and first


OWN_BATCH = (
    STEP.replace("{test}", "rate = y.float().mean().item()")
    + """
    if rate > 0.6:
        torch.save(model.state_dict(), "often.pt")
        {more}
"""
)


@pytest.mark.parametrize(
    ("more", "alone"), [("pass", 1), ("keep(model)", 2), ("break", 0), ("one_of_two(model)", 0)]
)
def test_one_process_saves_by_a_number_of_its_own_batch(more: str, alone: int) -> None:
    """Unless all must come to what stands beside it."""
    made = "".join(f"def {n}(net):\n    torch.save(net, 'n')\n" for n in ("keep", "one_of_two", "one_of_two"))
    done = conversion(made + OWN_BATCH.replace("{more}", more))
    saves = ['torch.save(model.state_dict(), "often.pt")', more][:alone] or [more]
    guarded = "".join(["accelerator.is_main_process:", *saves]).replace(" ", "")
    assert (guarded in "".join(done.text.split())) is bool(alone), done.text
    assert any(one.rule == "CT605" for one in done.findings) is not bool(alone)


def test_a_function_of_another_file_that_saves_is_guarded_once(tmp_path: Path) -> None:
    script = "from kept import keep\n" + OWN_BATCH.replace("{more}", "keep(model)")
    folder = write(tmp_path, kept="import torch\ndef keep(net):\n    torch.save(net, 'n')\n", train=script)
    assert convert(folder, "train").files[-1].after.decode().count("accelerator.is_main_process:") == 1


def printed(text: str, folder: str) -> str:
    os.chdir(folder)
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(io.StringIO()):
        exec(compile(text, "script.py", "exec"), {"__name__": "__main__"})
        sys.stdout.flush()
    return said.getvalue()


def test_both_processes_stop_after_the_same_epoch(tmp_path: Path) -> None:
    text = after(STOPPER).replace("accelerator.print", "print")
    first, second = run_ranks(printed, 2, text, str(tmp_path))
    assert first.splitlines()[-2:] == second.splitlines()[-2:] and "stopped" in first


BUCKETS = """
import torch
from torch.nn import functional as F
class Rows:
    def __init__(self, number):
        self.number = number
    def __iter__(self):
        for start in range(0, self.number, 4):
            yield torch.ones(min(4, self.number - start), 2)
def learn(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 0
    for x in batches:
        if x.size(0) != 4:
            continue
        <step F.mse_loss(model(x), x)>
        steps += 1
    return steps
batches = Rows(14)
result = learn(torch.nn.Linear(2, 2), batches)
"""


def test_batches_that_are_dealt_whole_have_rows_of_their_own_number() -> None:
    """The fourth of four batches is short: the second process may not leave it out alone."""
    text = converted(BUCKETS)
    assert 'if accelerator.reduce(int(bool(x.size(0) != 4)), "sum") > 0:' in text, text
