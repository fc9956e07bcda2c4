"""Numbers of training: added, averaged, merged, or left to the main process; those that meet, together."""

import ast
import re
from dataclasses import replace
from textwrap import indent

import pytest
from crosstrain_migrate.core.numbers.means import is_of_another

from .support import Trap, case_by_case, cases, check, converted, each_row

HEAD = """
<model>
loader = DataLoader(data)
batches = max(1, len(loader))
right, rows, steps, losses = 0, 0, 0, []
{above}for x, y in loader:
    out = model(x)
{loss}    <step loss>
"""
LOCAL = "main process's own"


def numbers(text: str) -> list[Trap]:
    """Cases whose indented lines are in the loop; a loss and a total of their own replace those of `HEAD`."""
    return [replace(case, script=_script(case.script)) for case in cases(text)]


def _script(text: str) -> str:
    parts = re.fullmatch(r"((?:\S.*\n)*)((?: +loss .*\n)*)((?: .*\n)*)((?:\S.*\n)*)", text)
    assert parts is not None, text
    above, loss, body, behind = parts.groups()
    total = "" if "total =" in above else "total = 0.0\n"
    return (
        HEAD.format(above=above + total, loss=loss or "    loss = F.cross_entropy(out, y)\n") + body + behind
    )


TRAPS = numbers("""
== batch means
    total += loss.item()
print(total / len(loader))
-> total = accelerator.reduce(total, "mean")
== sums over rows and counts
    total += loss.item() * len(y); right += (out.argmax(1) == y).sum().item(); rows += y.size(0)
print(total / rows, right / rows)
-> total, right, rows = accelerator.reduce((total, right, rows), "sum")
== counts that are shown undivided
    right += (out.argmax(1) == y).sum().item(); rows += len(y)
print(f"{right} of {rows}")
-> right, rows = accelerator.reduce((right, rows), "sum")
== a count of steps is alike
    total += loss.item(); steps += 1
print(total / steps)
-> total = accelerator.reduce(total, "mean")
!! reduce((total, steps)
== a loss that is a sum
    loss = F.mse_loss(out, y, reduction="sum") + 0.5 * out.pow(2).sum()
    total += loss.item()
print(total / len(loader.dataset))
-> accelerator = Accelerator(loss_reduction="sum")
-> total = accelerator.reduce(total, "sum")
== a count of all rows that is taken above the loop
count = len(loader.dataset)
    total += loss.item() * len(y)
total /= count
-> total = accelerator.reduce(total, "sum")
== a list of which the mean is read
    losses.append(loss.item())
print(sum(losses) / len(losses))
-> losses = accelerator.merge(loader, losses)
== a list that becomes its mean
    losses.append(loss.item())
losses = np.mean(losses)
print(losses, losses / 2)
-> losses = accelerator.merge(loader, losses)
== a list whose sum the process's own number of batches divides
    losses.append(loss.item())
losses = sum(losses) / len(loader)
print(losses)
!! merge(
?? main process's own
== a list that only an option makes
if args.shows: seen = []
    losses.append(loss.item())
    if args.shows: seen.append(loss.item())
print(sum(losses) / len(losses))
if args.shows: print(sum(seen) / len(seen))
-> losses = accelerator.merge(loader, losses)
!! seen = accelerator
?? main process's own
== a list that is kept
    losses.append(loss.item())
plot(losses)
!! merge(
!! reduce(
?? main process's own
== numbers that meet are global together or not at all
    right += lam * hits(out, y); rows += len(y)
print(100. * right / rows)
!! merge(
!! reduce(
?? main process's own
== a number with a start of its own, divided by a count: neither is made global
total = first_total()
    total += loss.item(); rows += len(y)
print(total / rows)
!! merge(
!! reduce(
?? main process's own
== a number that starts as a tensor
total = torch.tensor([0.0], device='cpu')
    total += loss.detach() * len(y); rows += len(y)
print(total / rows)
-> total, rows = accelerator.reduce((total, rows), "sum")
== a number that is set back in the loop meets a count
    total += loss.item() * len(y); rows += len(y)
    if rows > 100: total = 0.0
print(total / rows)
!! merge(
!! reduce(
?? main process's own
== a loss of two parts that is shown beside a total
    loss = F.cross_entropy(out, y)
    loss += decay(model)
    total += loss.item()
print(total / len(loader), loss.item())
-> total = accelerator.reduce(total, "mean")
== numbers that meet in another statement than the unsure one
    total += loss.item() * len(y); right += hits(out, y); rows += len(y)
print(total / rows)
print(right / rows)
!! merge(
!! reduce(
?? main process's own
== batch means that are divided by the rows that the loop counts: the original's number
    total += loss.item(); rows += len(y)
print(total / rows)
-> total, rows = accelerator.reduce((total, rows), "sum")
== hits that are divided by the steps that the loop counts, which are one process's
    right += (out.argmax(1) == y).sum().item(); steps += 1
print(right / steps)
-> right = accelerator.reduce(right, "mean")
== batch means that are divided by a number of rows: the original's number
    total += loss.item()
print(total / len(loader.dataset))
-> total = accelerator.reduce(total, "sum")
== the same, divided in place
    total += loss.item()
total /= len(loader.dataset)
print(total)
-> total = accelerator.reduce(total, "sum")
== an array of means, divided by the batches in place and read by its entries
total = np.zeros(2)
    total = total + np.array([loss.item(), out.mean().item()])
total /= len(loader)
print(total[0], total[1])
-> total = accelerator.reduce(total, "mean")
== another number of that name, divided by rows
    total += loss.item()
shown = total / len(loader)
total = first_total()
print(shown, total / len(loader.dataset))
-> total = accelerator.reduce(total, "mean")
== parts of a mixture
    right += lam * (out.argmax(1) == y).sum() + (1 - lam) * (out.argmin(1) == y).sum(); rows += len(y)
print(100. * right / rows)
-> right, rows = accelerator.reduce((right, rows), "sum")
== rows that a shape is taken apart into, and a loss as it was read once
    n, width = x.shape; total += loss.data[0] * n
print(total / count)
-> total = accelerator.reduce(total, "sum")
== a sum that goes on from pass to pass, and rows
sums = keep.sums
    sums += loss.detach(); rows += len(y)
print(sums / rows)
!! reduce(
?? main process's own
== a number of batches that was taken before the loader is prepared
    total += loss.item()
print(total / batches)
-> total = accelerator.reduce(total, "sum")
== a number of batches that is computed from a size and an option
    total += loss.item()
print(total / (len(data) / args.batch_size))
-> total = accelerator.reduce(total, "sum")
== an entry that holds a number of batches of one process is left
config = {}
    total += loss.item()
config["turns"] = len(loader)
print(total / config["turns"])
!! reduce(total, "sum")
== a number of steps after which the loop breaks off is each process's own
    total += loss.item(); steps += 1
    if steps == args.steps: break
print(total / args.steps)
-> total = accelerator.reduce(total, "mean")
== the index of a loop counts the batches of one process
    total += loss.item(); batch_index = steps
print(total / (batch_index + 1))
-> total = accelerator.reduce(total, "mean")
== not shown
    total += loss.item()
done = True
!! merge(
!! reduce(
""")
TABLE = """
class Table:
    def __init__(self):
        self.sums = {}
    def put(self, more):
        for key in more:
            self.sums[key] = self.sums.get(key, 0) + more[key]
    def __truediv__(self, other):
        return {key: value / other for key, value in self.sums.items()}
table = Table()
"""
TOLD = numbers("""
== a count that an object of the project's is divided by
    table.put({'loss': loss.item()}); rows += len(y)
print(table / rows, rows)
!! reduce(
?? main process's own
== a count beside such an object
    table.put({'loss': loss.item()}); rows += len(y); total += loss.item() * len(y)
print(total / rows, rows)
-> rows, total = accelerator.reduce((rows, total), "sum")
""")
TRAPS += [replace(case, script=TABLE + case.script) for case in TOLD]
test_numbers = case_by_case(TRAPS)


@pytest.mark.parametrize(
    ("behind", "is_local"), [("table.add(share)", True), ("share = 1.0\ntable.add(share)", False)]
)
def test_what_a_loop_computes_of_its_sums_is_local_where_it_is_kept(behind: str, is_local: bool) -> None:
    body = "    right += hits(out, y); rows += len(y); share = right / rows\n"
    reasons = [one.reason for one in converted(_script(f"{body}{behind}\n")).findings]
    assert any(LOCAL in one for one in reasons) is is_local


CUT = """
<model>
size = 4
batches = len(rows) // size
total = 0.0
for k in range(batches):
    <step loss = F.cross_entropy(model(rows[k * size : (k + 1) * size]), words[k * size : (k + 1) * size])>
    total += loss.item()
    done = k + 1
print(total / {divisor})
"""


@pytest.mark.parametrize(("divisor", "kind"), [("batches", "sum"), ("16", "sum"), ("done", "mean")])
@pytest.mark.parametrize("counted", ["len(rows) // size", "count(rows)"])
def test_numbers_that_are_dealt_keep_their_count(divisor: str, kind: str, counted: str) -> None:
    text = CUT.format(divisor=divisor).replace("len(rows) // size", counted)
    check(Trap(divisor, text, (f'total = accelerator.reduce(total, "{kind}")',)))


PHASES = """
<model>
loaders = {"train": DataLoader(data), "val": DataLoader(test)}
sizes = {"train": 24, "val": 16}
state = None
for phase in ["train", "val"]:
    total, right = 0.0, 0
    count = len(loaders[phase])
    size = len(loaders[phase])
    for i, (x, y) in enumerate(loaders[phase]):
        n, width = x.shape
        out = model(x)
        loss = F.cross_entropy(out, y)
        if phase == "train":
            loss.backward()
            optimizer.step()
        state = keep(state, out, i == size - 1)
        step = len(loaders[phase]) * n + i
        total += loss.item() * n
        right += (out.argmax(1) == y).sum().item()
        print(i / len(loaders[phase]), 9.5 * n * (len(loaders[phase]) - 1) / i, n / len(loaders[phase]))
    print(count, total / sizes[phase], right / sizes[phase])
"""


def test_a_phase_that_every_process_evaluates_whole_is_not_added_up() -> None:
    """`merge` adds for the loader that is dealt, and leaves what comes from the other as it is; its loop counts to its end."""
    merged = "total, right = accelerator.merge(loader, total, right)"
    dealt = "loader = accelerator.prepare(loaders[phase]) if phase == 'train' else loaders[phase]"
    shown = "accelerator.print(i / len(loader), 9.5 * n * (len(loader) - 1) / i, n / len(loaders[phase]))"
    lines = (
        "count = len(loaders[phase])",
        dealt,
        "size = len(loader)",
        "step = len(loader) * n + i",
        shown,
        merged,
    )
    check(Trap("", PHASES, lines, ("reduce(",), "evaluated whole"))


def test_a_phase_of_networks_in_branches_of_their_own_is_the_test_that_they_share() -> None:
    trains = '        if phase == "train":\n            loss.backward()\n            optimizer.step()\n'
    branch = trains.replace("\n    ", "\n        ").replace("        if", "            if", 1)
    text = PHASES.replace(
        trains, f"        if n == 1:\n            pass\n        if wide:\n{branch}        else:\n{branch}"
    )
    dealt = "loader = accelerator.prepare(loaders[phase]) if phase == 'train' else loaders[phase]"
    assert dealt in converted("wide = False\n" + text).text


@pytest.mark.parametrize(("size", "is_added"), [("len(rows)", True), ("len(loaders[k])", False)])
def test_sizes_that_a_function_counts_by_phase_are_of_all_rows(size: str, is_added: bool) -> None:
    """Batch means over the number of all rows are the original's number if they are added up."""
    made = f"def made():\n    return 1, {{k: {size} for k, rows in zip(loaders, [data, test])}}\n\nkind, sizes = made()"
    text = PHASES.replace('sizes = {"train": 24, "val": 16}', made).replace("loss.item() * n", "loss.item()")
    text = text.replace("right += (out.argmax(1) == y).sum().item()", "pass")
    text = text.replace(", right / sizes[phase]", "")
    assert ("total = accelerator.merge(loader, total)" in converted(text).text) is is_added


ENDS = """
<model>
loader = DataLoader(data, batch_size=4)
count = len(data)
batches = {batches}
total = 0.0
with tqdm(total=batches) as bar:
    for i, (x, y) in enumerate(loader):
        if i >= {end}: break
        <step loss = F.cross_entropy(model(x), y)>
        total += loss.item()
        bar.update(1)
print(total / batches)
"""


@each_row("""
batches => end => kind => shown => by
count // 4 => batches => sum => min(batches, len(loader)) => batches
int(data.__len__() * 1.0 / 4) => 9 => mean => min(batches, len(loader)) => min(batches, len(loader))
args.steps => batches => mean => batches => batches
""")
def test_a_loop_that_ends_with_its_batches_has_them_all(
    batches: str, end: str, kind: str, shown: str, by: str
) -> None:
    lines = (f"with tqdm(total={shown}) as bar:", f'total = accelerator.reduce(total, "{kind}")')
    lines += (f"accelerator.print(total / {by})",)
    check(Trap(f"ends at {end}", ENDS.format(batches=batches, end=end), lines))


@pytest.mark.parametrize(
    ("step", "shown"),
    [("size", "min(len(loader.dataset), len(loader) * size)"), ("len(x)", "len(loader.dataset)")],
)
def test_a_bar_over_rows_ends_with_those_of_its_process(step: str, shown: str) -> None:
    text = ENDS.replace("        if i >= {end}: break\n", "").replace("update(1)", f"update({step})")
    text = "size = 4\n" + text.format(batches="len(loader.dataset)")
    text = text.replace("total=batches", "total=len(loader.dataset)")
    check(Trap("rows", text, (f"with tqdm(total={shown}) as bar:",)))


PARTS = """
<model nn.Linear(4, 2)>
batches = (len(data) + 3) // 4
total = 0.0
for part in parts:
    for x, y in DataLoader(part):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    {between}
print(total / {divisor})
"""


@each_row("""
between => divisor => kind
pass => batches => sum
pass => len(loader) => mean
print(total) => batches => ''
total = 0.5 * total => batches => ''
""")
def test_a_sum_over_several_loops_is_made_global_behind_all(between: str, divisor: str, kind: str) -> None:
    done = converted(Trap("parts", PARTS.format(between=between, divisor=divisor)).text)
    assert "for part in parts:\n    for x, y in accelerator.prepare(DataLoader(part)):" in done.text
    assert ("\ntotal = accelerator.reduce(" in done.text) is bool(kind)
    assert not kind or f'\ntotal = accelerator.reduce(total, "{kind}")\nac' in done.text
    assert any(LOCAL in one.reason for one in done.findings) is not bool(kind)


@pytest.mark.parametrize(
    ("read", "other"),
    [('log.columns["a"]', True), ('self.totals["a"]', False), ('totals["a"]', False), ("log.best[0]", False)],
)
def test_an_entry_of_another_object_may_be_no_number(read: str, other: bool) -> None:
    """The names of a log's columns were averaged, beside the numbers that the log was given."""
    assert is_of_another(ast.parse(read, mode="eval").body) is other


KEPT = """
class Criterion(nn.Module):
    def __init__(self):
        super().__init__()
        self.log = [0.0]
    def forward(self, out, y):
        loss = F.cross_entropy(out, y)
        self.log[-1] += {added}
        return loss
    def shown(self):
        return self.log[-1]
<model>
def step(x, y):
    loss = criterion(model(x), y)
    <step loss>
    return loss.item()
criterion = Criterion() if args.train else None
batches, total = iter(DataLoader(data)), 0.0
for i in range(4):
    total += step(*next(batches))
print({shown})
"""


@pytest.mark.parametrize(("method", "called"), [("forward", "criterion("), ("of", "criterion.of(")])
@pytest.mark.parametrize(
    ("added", "shown", "is_local"),
    [("1", "total", True), ("loss.item()", "criterion.shown()", True), ("1", "criterion.shown()", False)],
)
def test_what_steps_add_up_in_other_places_is_local(
    added: str, shown: str, is_local: bool, method: str, called: str
) -> None:
    text = KEPT.replace("forward", method).replace("criterion(", called).format(added=added, shown=shown)
    done = converted(Trap("", text).text)
    assert any(LOCAL in one.reason for one in done.findings) is is_local


ENTRIES = """
<torch>
loaders = {"train": DataLoader(torch.arange(14.0).reshape(14, 1), batch_size=2)}
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
total = 0
for x in loaders["train"]:
    loss = model(x).mean()
    <step loss>
    total += loss.item()
"""


@pytest.mark.parametrize("length", ["len(loaders['train'])", "len(loaders['train'].dataset)"])
def test_a_length_behind_what_is_prepared_in_the_head_of_its_loop(length: str) -> None:
    after = converted(f"{ENTRIES}print(total / {length})\n").text
    is_batches = "dataset" not in length
    assert ("total / len(accelerator.prepare(loaders['train'])))" in after) is is_batches
    assert ('accelerator.reduce(total, "mean")' in after) is is_batches


def test_a_pass_that_a_return_may_end_is_local() -> None:
    begin, loop = ENTRIES.replace("total = 0\n", "").split("for x")
    body = f"total = 0\nfor x{loop}    if loss < 0:\n        return 0.0\nreturn total\n"
    text = f"{begin}def run():\n{indent(body, '    ')}print(run())\n"
    for one, is_local in ((text, True), (text.replace("+= loss.item()", "+= 1"), False)):
        assert any(LOCAL in finding.reason for finding in converted(one).findings) is is_local


def test_the_rows_of_an_array_are_counted_as_they_are() -> None:
    rows = ENTRIES.replace("DataLoader(torch.arange(14.0).reshape(14, 1), batch_size=2)", "None")
    rows = rows.replace("model = nn", "rows = np.arange(14.0).reshape(7, 2, 1)\nmodel = nn").replace(
        "loaders['train']", "rows"
    )
    text = rows.replace('loaders["train"]:', "rows:").replace("model(x)", "model(torch.as_tensor(x).float())")
    after = converted(
        f"{text.replace('<torch>', '<torch>' + chr(10) + 'import numpy as np')}print(total / len(rows))\n"
    ).text
    assert 'accelerator.reduce(total, "sum")' in after and "total / len(rows))" in after


BESIDE = """
<model>
def learn(loader):
    more = 0.0
    for epoch in range(2):
        total = 0.0
        for x, y in loader:
            <step loss = F.mse_loss(model(x), y)>
            total += loss.item() * len(x)
            more += loss.item()
        total {by}
        more /= 2
        print(total, more)
learn(DataLoader(TensorDataset(torch.ones(16, 4), torch.ones(16, 2)), 4))
"""


@pytest.mark.parametrize(("by", "is_sum"), [("/= len(loader.dataset)", True), ("*= 2", False)])
def test_a_sum_over_all_rows_beside_a_number_of_one_process(by: str, is_sum: bool) -> None:
    """It would be a part of what it is; any other stays as what it is shown with."""
    after = converted(BESIDE.format(by=by)).text
    assert ('total = accelerator.reduce(total, "sum")' in after) is is_sum


ROW_BY_ROW = """
<model>
loader = DataLoader(data, batch_size=4)
total, hits, rows, steps = 0.0, 0, 0, 0
for x, y in loader:
    out = model(x)
    <step loss = F.cross_entropy(out, y)>
    total += loss.item()
    for one, wanted in zip(out, y):
        hits += 1 if one.argmax() == wanted else 0
        rows += 1
    if out.isnan().any():
        steps += 1
print(total / len(loader), hits / rows)
print(steps)
"""


def test_rows_that_are_counted_one_by_one_are_those_of_all() -> None:
    text = ROW_BY_ROW.replace(
        "hits += 1 if one.argmax() == wanted else 0", "if one.argmax() == wanted:\n            hits += 1"
    )
    after = converted(text).text
    reduced = next(line for line in after.splitlines() if "accelerator.reduce((" in line and '"sum")' in line)
    assert "rows" in reduced and "hits" in reduced, after
