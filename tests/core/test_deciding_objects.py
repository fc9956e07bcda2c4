"""What is decided by numbers that objects hold: options, averages, dictionaries of losses."""

from pathlib import Path

import pytest

from tests.support.ranks import run_ranks

from .converting import conversion, converted
from .support import PRELUDE
from .test_deciding import HEAD, after
from .test_deciding_steps import printed


def test_a_tensor_whose_name_becomes_its_number_is_reduced_once() -> None:
    text = after(
        "loss = torch.tensor(test_loss())\nloss = loss.item()\nif loss < best:\n    best = loss\n    train()"
    )
    assert text.count('accelerator.reduce(loss, "mean")') == 1, text


@pytest.mark.parametrize("entry", ['parts["all"] = parts["a"] + 0.1 * parts["b"]', "print(parts)"])
def test_an_entry_that_goes_backward_is_reduced_where_it_is_asked_for(entry: str) -> None:
    text = converted(
        f"""{HEAD}
import math
def losses():
    x, y = next(iter(train_loader))
    a, b = F.cross_entropy(model(x), y), model(x).pow(2).mean()
    return dict(a=a, b=b, all=a + b)
for step in range(9):
    parts = losses()
    {entry}
    if math.isnan(parts["all"].item()):
        break
    <step parts["all"]>
"""
    )
    assert 'if math.isnan(accelerator.reduce(parts["all"], "mean").item()):' in text, text
    assert text.count(".reduce(") == 1, text


SETTINGS = """
settings = {{"start": "", "again": False, "wait": 3.0, "model": {{"scale": 1.0}}}}
fresh = settings.get("start", "") != "" and settings.get("again", False)
if not fresh:
    torch.save(model.state_dict(), "first.pt")
for epoch in range(4):
    {kept} = train()
    for row in range(len(rows)):
        if row >= settings.get("wait", 3.0):
            torch.save(rows[row], "row.pt")
    if epoch > 2:
        torch.save(model.state_dict(), "best.pt")
        break
for row in train_loader:
    print(row)
"""


@pytest.mark.parametrize(
    ("kept", "reduced"),
    [
        ('settings["model"]["scale"]', []),
        ('settings["wait"]', ['settings.get("wait", 3.0)']),
        ("settings", ['settings.get("wait", 3.0)']),
    ],
)
def test_an_entry_by_get_is_not_all_of_its_dictionary(kept: str, reduced: list[str]) -> None:
    text = after(SETTINGS.format(kept=kept))
    found = [line for line in text.splitlines() if "accelerator.reduce(" in line]
    assert len(found) == len(reduced) and all(map(str.__contains__, found, reduced)), text


COLUMNS = """
class Mean:
    def __init__(self):
        self.count, self.value = 0, 0.0
    def add(self, number):
        self.value = (self.value * self.count + number) / (self.count + 1)
        self.count += 1
def measured(names):
    return {name: test_loss() + train() for name in names}
for epoch in range(2):
    columns = FILLED
    if columns["test"] < best:
        best = columns["test"]
        torch.save(model.state_dict(), "best.pt")
    print(epoch, best)
"""

FILLED = """{name: Mean() for name in ("train", "test")}
    for name in columns:
        columns[name].add(train())
    for name, column in columns.items():
        columns[name] = column.value"""

WHOLE = """measured(["test"])
    print(columns["test"])"""


@pytest.mark.parametrize(
    ("filled", "below"),
    [(FILLED, 'if columns["test"] < best'), (WHOLE, 'accelerator.print(columns["test"])')],
    ids=["filled", "whole"],
)
def test_an_entry_is_reduced_when_it_is_a_number(filled: str, below: str, tmp_path: Path) -> None:
    text = after(COLUMNS.replace("FILLED", filled)).replace("'", '"')
    assert f'columns["test"] = accelerator.reduce(columns["test"], "mean")\n    {below}' in text, text
    first, second = run_ranks(printed, 2, text.replace("accelerator.print", "print"), str(tmp_path))
    assert first == second and first


FOLDER = """
import os, time
class Trainer:
    def __init__(self):
        self.folder, self.kept, self.kind = {folder}, model, str(model(rows).sum())
    def run(self):
        keep_settings(self.folder)
        missing, _ = self.kept.load_state_dict(torch.load("kept.pt"))
        self.tell(missing)
        if self.kept or self.kind.find("a") > 0:
            torch.save(self.kept.state_dict(), "kept.pt")
        for x, y in train_loader:
            <step F.cross_entropy(model(x), y)>
        torch.save(model.state_dict(), os.path.join(self.folder, "model.pt"))
def keep_settings(folder):
    if not os.path.exists(folder):
        os.makedirs(folder)
        torch.save(dict(lr=0.1), os.path.join(folder, "settings.pt"))
Trainer().run()
"""


@pytest.mark.parametrize("folder", ["Writer().log_dir", "'run-%s' % time.time()", "SummaryWriter().log_dir"])
def test_neither_a_folder_nor_what_is_loaded_or_found_is_a_number(folder: str) -> None:
    text = HEAD + "from torch.utils.tensorboard import SummaryWriter\n" + FOLDER.format(folder=folder)
    assert "reduce(" not in converted(text)


ROWS = """
class Rows:
    def __init__(self):
        self.test = list(range(9))
def pairs(of):
    found = model(rows[: len(of.test)])
    return found.sum(), found.detach().numpy()
def quality(part, found, both=False):
    value = part + found.max()
    return (value, best) if both else value
def measured(of):
    part, found = pairs(of)
    return quality(part, found)
kept = Rows()
kept.test[0] = train()
value = measured(kept)
if value < best:
    torch.save(model.state_dict(), "best.pt")
"""


def test_neither_rows_nor_what_has_members_is_a_number() -> None:
    reduced = [line.partition("reduce(")[2] for line in after(ROWS).splitlines()]
    assert {one.partition(",")[0] for one in reduced if one} == {"value"}


NAMED = """
from types import SimpleNamespace
import time
args = SimpleNamespace(every=3, folder="out", best=100.0)
args.{name} = {value}
value = test_loss()
if args.every < value:
    best = value
if args.best < 2:
    torch.save(model.state_dict(), "best.pt")
    wait += 1
"""
RETURNED = NAMED.replace("args = S", "def read():\n    args = S").replace("args.{name}", "    args.{name}")
RETURNED = RETURNED.replace("value = t", "    return args\nargs = read()\nvalue = t")


@pytest.mark.parametrize(
    ("name", "value", "is_own"),
    [("folder", 'time.strftime("%H%M%S")', False), ("best", "train()", True), ("best", "len(rows)", False)],
)
@pytest.mark.parametrize("text", [NAMED, RETURNED], ids=["bound", "returned"])
def test_one_attribute_of_the_options_is_not_all_of_them(
    name: str, value: str, is_own: bool, text: str
) -> None:
    text = after(text.format(name=name, value=value))
    assert ("accelerator.reduce(args.best" in text) is is_own, text
    assert "accelerator.reduce(args.every" not in text


CHOSEN_IN_MAIN = f"""{PRELUDE}
import argparse
def fit(model, loader, device):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best = 100.0
    for epoch in range(3):
        losses = []
        for x, y in loader:
            <step loss = F.cross_entropy(model(x.to(device)), y.to(device))>
            losses.append(loss.item())
        if losses[-1] < best:
            best = losses[-1]
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] / 2
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuda", action="store_true")
    args = parser.parse_args()
    device = torch.device(CHOICE)
    fit(nn.Linear(4, 2).to(device), DataLoader([], 8), device)
if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("call", ["save_if_best({state}, train())", "saver.save_if_best(train(), {state})"])
def test_a_method_is_not_called_by_the_name_of_a_plain_function(call: str) -> None:
    """What a function of that name is given in another order may be no number."""
    text = after(f"""
class Saver:
    best = 0.0
    def save_if_best(self, loss, state):
        if loss < self.best:
            self.best = loss
            torch.save(state, "best.pt")
saver = Saver()
def save_if_best(state, loss):
    saver.save_if_best(loss, state)
for epoch in range(2):
    {call.format(state='{"now": train()}')}
""")
    assert '"now": train()' in text and 'accelerator.reduce(train(), "mean")' in text, text


@pytest.mark.parametrize("choice", ['"cuda" if args.cuda else "cpu"', '"cuda"'])
def test_a_number_decides_alike_wherever_the_device_is_chosen(choice: str) -> None:
    text = CHOSEN_IN_MAIN.replace("CHOICE", choice)
    assert 'accelerator.reduce(losses[-1], "mean")' in converted(text)
    assert not [one for one in conversion(text).findings if one.rule == "CT605"]


def test_a_counter_of_turns_is_alike_wherever_it_starts() -> None:
    """The loop's number decides about a file in an object that is given losses, too."""
    text = """<torch>
class Store:
    def restore(self): return torch.load("i.pt")
    def register(self, i, model, loss):
        if i % 5 == 0: torch.save(model.state_dict(), "m.pt"); torch.load("m.pt")
<model>
store, rows = Store(), iter(DataLoader([], 8))
for i in range(store.restore(), 9):
    <step loss = model(next(rows)).mean()>
    store.register(i, model, float(loss))
"""
    assert "reduce(" not in converted(text)


STEPS = """
def renew(layer):
    layer.weight.data.normal_()
class Pair:
    def __init__(self):
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)
        self.first = torch.optim.SGD(self.a.parameters(), lr=0.1)
        self.second = torch.optim.SGD(self.b.parameters(), lr=0.1)
        self.a.train()
        self.b.train()
    def start_again(self):
        self.b.apply(renew)
    def update_a(self):
        self.loss = F.cross_entropy(self.b(self.a(self.x)), self.y)
        self.first.zero_grad()
        self.loss.backward(retain_graph=True)
        self.first.step()
        if self.loss < 1e-5:
            self.start_again()
    def update_b(self):
        self.other = F.cross_entropy(self.b(self.a(self.x)), self.y)
        self.second.zero_grad()
        self.other.backward()
        self.second.step()
        if self.other < 1e-5:
            self.start_again()
pair = Pair()
for pair.x, pair.y in train_loader:
    pair.update_a()
    pair.update_b()
"""


MADE = [
    "self.a, self.b, self.first = accelerator.prepare(self.a, self.b, self.first)",
    "self.second = accelerator.prepare(self.second)",
]


def test_what_two_steps_of_a_class_share_is_prepared_and_drawn_anew_once() -> None:
    text = converted(HEAD + STEPS)
    assert [one.strip() for one in text.splitlines() if "prepare(self" in one] == MADE, text
    assert "self.loss = accelerator" not in text
    assert text.count("common_draws():\n            self.b.apply(renew)") == 1, text


RATED = """
def rate(found, wanted):
    return (found.argmax(1) == wanted).float().mean()
for epoch in range(3):
    train()
    model.eval()
    found = model(rows)
    value = rate(found[24:], labels[24:])
    if value < best:
        best = value
        torch.save(model.state_dict(), "best.pt")
"""


def test_what_rates_rows_of_an_answer_decides_by_its_mean_and_the_rows_stay() -> None:
    text = after(RATED)
    assert text.count("accelerator.reduce(") == 1 and 'value = accelerator.reduce(value, "mean")' in text, (
        text
    )


GOES_ON = """<torch>
def loss_of(net, x):
    return net(x).mean()
class Run:
    def train(self):
        self.config.size = 4
        model = nn.Linear(self.config.size, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step, board = 0, self.config.board
        if self.config.resume:
            kept = torch.load("kept.pt")
            step = kept[1]
        for (x,) in DataLoader([]):
            loss = loss_of(model, x)
            board.add_scalar("loss", loss, step)
            <step loss>
            step += 1
            if {number} >= self.config.steps: return
            if step % 3 == 0:
                kept = [optimizer.state_dict(), step]
Run().train()
"""


@pytest.mark.parametrize(("number", "is_own"), [("step", False), ("loss", True)])
def test_a_count_that_stands_beside_weights_in_a_checkpoint_is_alike(number: str, is_own: bool) -> None:
    reduced = f'accelerator.reduce({number}, "mean")' if is_own else number
    assert f"if {reduced} >= self.config.steps: return" in converted(GOES_ON.format(number=number))
