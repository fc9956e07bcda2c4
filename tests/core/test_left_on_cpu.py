"""What the author leaves on the CPU and compares or keeps there is brought back from a prepared loader's batch."""

from pathlib import Path

import pytest

from .converting import converted
from .projects import rewritten
from .running import launched, plain
from .support import each_row

SCRIPT = """<torch>
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
<model nn.Linear(4, 2).to(device)>
X, Y = torch.randn(32, 4), torch.arange(32) % 2
loader = DataLoader(TensorDataset(X, Y), batch_size=8)
held_out = DataLoader(TensorDataset(X, Y), batch_size=8)
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
    optimizer.step()
right, found, wanted, seen = 0, [], [], torch.tensor([], dtype=torch.long)
with torch.no_grad():
    for {targets} in held_out:
        {step}
print("=", model.weight.sum().item(), right, len(wanted))
"""


def script(step: str, targets: str = "x, y") -> str:
    return SCRIPT.format(step=step, targets=targets)


@each_row("""
step => becomes
right += (model(x.to(device)).argmax(1).cpu() == y).sum().item() => .cpu() == y.cpu())
_, p = model(x.to(device)).cpu().max(1); right += (p == y).sum().item() => p == y.cpu()
found.append(model(x.to(device)).cpu()); wanted.append(y) => wanted.append(y.cpu())
p = model(x.to('cuda')).max(1)[1].to('cpu'); right += torch.sum(p == y.data).item() => p == y.cpu().data
o = model(x.to(device)).cpu(); right += nn.functional.cross_entropy(o, y).item() => cross_entropy(o, y.cpu())
p = model(x.to(device)).cpu().argmax(1); wanted += [torch.cat([p, y])] => torch.cat([p, y.cpu()])
right += model(x.to(device)).sum().item(); wanted.extend(y) => wanted.extend(y.cpu())
right += hits(scale.back(model(x.to(device)).cpu()), y).sum().item(); y.view(-1) => , y.cpu())
right += model(x.to(device)).sum().item(); wanted += list(y) => wanted += list(y.cpu())
o = model(x.to(device)).cpu(); p = o.argmax(1); right += p.eq(y.view_as(p)).sum().item()
=> p.eq(y.cpu().view_as(p))
""")
def test_what_meets_the_cpu_is_brought_there(step: str, becomes: str) -> None:
    assert becomes in converted(script(step))


@each_row(r"""
step => becomes
x, y = batch[0], batch[1]; right += (model(x.to(device)).cpu().argmax(1) == y).sum().item() => == y.cpu())
x, y = batch; right += (model(x.to(device)).cpu().argmax(1) == y).sum().item() => == y.cpu())
right += (model(batch[0].to(device)).cpu().argmax(1) == batch[1]).sum().item() => batch[1].cpu())
""")
def test_a_batch_that_is_taken_apart(step: str, becomes: str) -> None:
    assert becomes in converted(script(step, "batch"))


@each_row("""
step
x, y = x.to(device), y.to(device); found.append(model(x).cpu()); wanted.append(y)
right += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
found.append(model(x.to(device))); wanted.append(y)
right += model(x.to(device)).argmax(1).cpu().sum().item() * y.size(0)
right += int(model(x.to(device)).sum().item() > y[0].item())
print(model(x.to(device)).cpu(), y)
right += hits(scale.back(model(x.to(device)).cpu(), device), y).sum().item(); y.view(-1)
found.extend(model(x)); wanted.extend(y)
metric = Accuracy().to('cpu'); right += metric.update(model(x.to(device)), y)
""")
def test_what_is_moved_or_meets_the_device_stays(step: str) -> None:
    after = converted(script(step))
    assert "y.cpu()" not in after
    assert "y[0].cpu()" not in after


@each_row("""
targets => step
x, y, names => model(x.to(device)); wanted.extend(names)
x, y, names => found.append(model(x.to(device)).cpu()); wanted.append(names)
x, y, names => model(x.to(device)); wanted += list(names)
x, y => model(x.to(device)); wanted.extend(y['text'])
x, y, names => p = model(x.to(device)).cpu(); wanted += [t for _, t in zip(p, names)]
x, y, names => p = model(x.to(device)).cpu(); show(p, names)
""")
def test_names_beside_a_batch_are_no_tensors(targets: str, step: str) -> None:
    after = converted(script(step, targets))
    assert "names.cpu()" not in after
    assert "y['text'].cpu()" not in after


@pytest.mark.parametrize(
    "moves",
    ["batch = tuple(t.to(device) for t in batch)", "batch.to(device)", "batch['x'] = batch['x'].to(device)"],
)
def test_a_batch_that_is_moved_as_a_whole_stays_where_it_is(moves: str) -> None:
    """A list of its labels would meet one of what is on the device."""
    step = f"{moves}; x, y = batch; found.extend(model(x).argmax(1)); wanted.extend(y)"
    assert "wanted.extend(y)" in converted(script(step, "batch"))
    step = f"{moves}; found.append(model(batch['x']).cpu()); wanted.append(batch['y'])"
    assert "wanted.append(batch['y'])" in converted(script(step, "batch"))


@each_row("""
rows => becomes
torch.zeros(8, 2).scatter_(1, y.view(-1, 1).long(), 1) => torch.zeros(8, 2, device=y.device)
torch.zeros(8, 2).scatter(1, y[:, None], 1) => torch.zeros(8, 2, device=y.device)
torch.zeros(8, 2).scatter_(1, y.cpu().view(-1, 1), 1) => torch.zeros(8, 2).scatter_
torch.zeros(8, 2).to(device).scatter_(1, y.view(-1, 1), 1) => torch.zeros(8, 2).to(
torch.zeros(8, 2).scatter_(1, torch.tensor(y.tolist()).view(-1, 1), 1) => .zeros(8, 2).scatter_
torch.zeros(8, 2).scatter_(1, y.type(torch.LongTensor).view(-1, 1), 1) => .zeros(8, 2).scatter_
torch.zeros(8, 2, device=device).scatter_(1, y.view(-1, 1), 1) => .zeros(8, 2, device=device).
torch.cat((torch.ones(8, 1), y[:, 0:1])) => torch.cat((torch.ones(8, 1, device=y.device), y[:, 0:1]))
torch.LongTensor([1]); t = y.view(-1).index_select(0, t) => t = y.view(-1).index_select(0, t.to(y.device))
torch.zeros(8, 1).double(); t = torch.cat((y, t), 1) => t = torch.cat((y, t.to(y.device)), 1)
torch.zeros(8, 1).to(device); t = torch.cat((y, t), 1) => t = torch.cat((y, t), 1)
torch.cat((torch.ones(8, 1), y.cpu()[:, 0:1])) => torch.cat((torch.ones(8, 1), y.cpu()[:, 0:1]))
torch.cat((model(x.to(device)).cpu(), y, torch.ones(8, 1))) => .cpu(), y.cpu(), torch.ones(8, 1)))
X.index_select(0, torch.tensor([1])) => X.index_select(0, torch.tensor([1]))
""")
def test_what_meets_a_batch_is_made_where_that_is(rows: str, becomes: str) -> None:
    text = script("pass").replace("optimizer.zero_grad()\n", f"t = {rows}\n    optimizer.zero_grad()\n")
    assert becomes in converted(text)


def test_it_trains_and_counts_as_before(tmp_path: Path) -> None:
    text = script(
        "p = model(x.to(device)).argmax(1).cpu(); right += (p == y).sum().item(); wanted.append(y); found.append(p)"
    )
    after = converted(text)
    assert plain(tmp_path, after) == plain(tmp_path, text)
    assert len(launched(tmp_path, after)) == 1


def test_one_hot_rows_of_a_batch_that_is_taken_and_of_all_data() -> None:
    rows = "torch.zeros(8, 2).scatter_(1, y.view(-1, 1), 1)"
    taken = f"batches = iter(loader)\nfor _ in range(4):\n    x, y = next(batches)\n    t = {rows}\n"
    whole = f"def of_all(y):\n    return {rows}\n\n\nall_rows = {rows.replace('y.', 'Y.')}\n"
    after = converted(script("pass").replace("for x, y in loader:\n", whole + taken))
    assert "t = torch.zeros(8, 2, device=y.device).scatter_(" in after
    assert "return torch.zeros(8, 2).scatter_(" in after
    assert "all_rows = torch.zeros(8, 2).scatter_(" in after


COUNTED = """def counted(loader):
    right = 0
    for x, y in loader:
        right += (model(x).cpu() == y).sum()
    return right
print(counted({}))
for x, y in loader"""


@pytest.mark.parametrize(("other", "is_brought"), [("loader", True), ("[]", False)])
def test_a_function_that_is_given_the_trainings_loader(other: str, is_brought: bool) -> None:
    before = script("pass").replace("for x, y in loader", COUNTED.format(other), 1)
    assert ("== y.cpu()).sum()" in converted(before)) is is_brought


def test_a_library_that_files_hand_on_in_a_circle_is_known(tmp_path: Path) -> None:
    text = script("pass").replace("optimizer.zero_grad()\n", "t = torch.cat((torch.ones(8, 1), y))\n")
    text = text.replace("<torch>\n", "<torch>\nfrom tools import *\nfrom rows import *\n")
    files = {
        "rows": "import torch\nfrom tools import *\n",
        "tools": "import torch\nimport rows\nfrom tools import shown\nshown()\n",
    }
    after = rewritten(tmp_path, "train", train=text, **files)["train"]
    assert "torch.ones(8, 1, device=y.device)" in after
