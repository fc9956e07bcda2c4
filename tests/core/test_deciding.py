"""Processes decide together: by the same number, where the number may be another one on each."""

import pytest

from .converting import converted
from .support import PRELUDE

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
        "state = {'a': train()}\ndef state_dict_small(): return state\nkept = state_dict_small()\n"
        "if kept:\n    torch.save(model, 'a.pt')\nmodel.load_state_dict(torch.load('b.pt'))",  # weights
        "def turned(x):\n    kept = x[x > 0]\n    if kept.mean() > 0:\n        torch.save(x, 'a.pt')\n    return x\n"
        "class Rows(torch.utils.data.Dataset):\n    def __getitem__(self, i):\n        return turned(rows[i + train()])\n"
        "Rows()[0]",  # what augments rows sees those of one process
        "parser = argparse.ArgumentParser()\nparser.add_argument('--run-name', default=str(time.time()))\n"
        "args = parser.parse_args()\nif args.width > 3:\n    torch.save(model, 'a.pt')",  # another option's time
        "def keep(save, every):\n    if save or 4 % every == 0:\n        torch.save(model, 'a.pt')\n"
        "def run(sets):\n    sets['save']['name'] = str(time.time())\n"
        "    keep(sets['save']['mode'] == 'all', every=sets['save']['every'])\n"
        "run({'save': {'mode': 'all', 'every': 2}})",  # a text, and what is counted by
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


MAML = """
import copy, others
class Base:
    def judged(self, *args, **options):
        raise NotImplementedError
class Maml(Base):
    def train(self):
        net, least = others.Maml(model, lr=0.1), 9.0
        for epoch in range(3):
            train()
            losses = []
            for x, y in test_loader:
                loss = self.judged(x, {copied}, epoch)
                losses.append(loss.detach())
            total = float(torch.Tensor(losses).mean().item())
            if total < least:
                least = total
                torch.save(model, 'a.pt')
Maml().train()
"""


@pytest.mark.parametrize("copied", ["net.clone()", "copy.deepcopy(net)"])
def test_a_copy_of_a_model_is_no_number(copied: str) -> None:
    """What a step is given to judge may be told apart, but has no mean."""
    assert f"self.judged(x, {copied}, epoch)" in after(MAML.format(copied=copied))
