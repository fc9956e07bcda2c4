"""Numbers of batches and rows that are computed from lengths count those of one process where its loop counts them."""

import pytest

from .converting import converted
from .support import each_row

MEASURED = """<torch>
def learn(model, optimizer, loader, epoch):
    start, total = 0, 0
    {lines}
    for i, (x, y) in enumerate(loader):
        part = {part}
        <step (model(x) * part).mean()>
    {behind}
<model>
loader = DataLoader([], 8)
for epoch in range(3):
    learn(model, optimizer, loader, epoch)
print(len(loader), [loader])
"""


@each_row("""
lines => part => behind => above
total = 3 * len(loader) => (i + epoch) / total => pass => True
start = epoch * max(1, len(loader)) => (i + start) * 0.1 => pass => True
total = 3 * len(loader); print(total) => (i + epoch) / total => pass => True
total = 3 * len(loader) => start / total; start += 1 => pass => True
total = 3 * len(loader) => 1; n = epoch * len(loader) + i; print(n, total) => pass => True
total = 3 * len(loader) => 1; n = epoch * len(loader) + 1; print(n, total) => pass => False
start = epoch * len(loader) => 1; start += 1; print(start) => pass => True
start = epoch * len(loader) => 1; print(start) => pass => False
total = 3 * len(loader) => (i + epoch) / 9 => print(total) => False
total = ceil(9.5 * len(loader)) => i / total => print(range(total // len(loader))) => True
total = ceil(9.5 * len(loader)) => i / total => print(range(total // 4)) => False
total = 3 * len(loader) => epoch / total => pass => False  # no count of batches beside it
total = epoch if epoch else len(loader) => (i + 1) % total => pass => True
total = epoch or len(loader) => (i + 1) % total => pass => True
total = epoch or len(loader) => 1 => print(total) => False
print('{} steps'.format(len(loader))) => 1 => pass => True
print('{} rows'.format(8 * len(loader))) => 1 => pass => False
total = tqdm(total=8 * len(loader)) => 1; total.update(8) => pass => True
most = len(loader); kept = np.zeros(most) => 1; kept[i] = 1; print(i == most) => pass => True
done, most = 0, len(loader) => 1; print(i == most) => pass => True
done, most = 0, len(loader) => 1 => print(most) => False
total = tqdm(total=8 * len(loader)) => 1 => total.update(8) => False
total = Bar('train', max=len(loader)) => 1; total.next() => pass => True
""")
def test_what_measures_the_way_by_a_count_of_batches(lines: str, part: str, behind: str, above: bool) -> None:
    """The count is one process's, so that the length must be."""
    after = converted(MEASURED.format(lines=lines, part=part, behind=behind))
    assert (after.index("accelerator.prepare(") < after.index(lines[:16])) is above


def test_a_bar_in_which_the_training_loop_stands() -> None:
    text = "<torch>\n<model>\nloader = DataLoader([], 8)\nwith tqdm(total=len(loader)) as bar:\n"
    text += "    for x, y in loader:\n        <step model(x).mean()>\n        bar.update()\n"
    after = converted(text)
    assert after.index("loader = accelerator.prepare(loader)") < after.index("with tqdm(")


@pytest.mark.parametrize(("test", "above"), [("i == total", True), ("epoch == total", False)])
def test_a_length_that_the_training_function_is_given(test: str, above: bool) -> None:
    text = MEASURED.format(lines="pass", part=test, behind="pass").replace("print(len(loader), [loader])", "")
    text = text.replace("epoch):", "epoch, total):", 1).replace("start, total = 0, 0", "pass")
    text = text.replace("for epoch", "n = len(loader)\nprint(n)\nfor epoch")
    assert ("loader)\nn = len(loader)" in converted(text.replace("epoch)\n", "epoch, n)\n"))) is above


@pytest.mark.parametrize(("test", "above"), [("i == total", True), ("epoch == total", False)])
def test_a_length_of_the_file_that_the_training_function_counts_by(test: str, above: bool) -> None:
    text = MEASURED.format(lines="pass", part="1", behind=f"    print({test})")
    text = text.replace("start, total = 0, 0", "pass").replace("print(len(loader), [loader])\n", "")
    after = converted(text.replace("for epoch in", "total = len(loader)\nfor epoch in"))
    assert (after.index(" = accelerator.prepare(") < after.index("total = len(loader)")) is above


@each_row("""
lines => part => own
pass => i / len(loader) => True
pass => epoch / len(loader) => False
turns = len(loader) => turns - i => True
turns = len(loader); print(turns) => epoch - turns => False
""")
def test_a_length_beside_the_count_of_batches_that_are_dealt_in_place(
    lines: str, part: str, own: bool
) -> None:
    text = MEASURED.format(lines=lines, part=part, behind="pass").replace("(loader)", "(loader[0])")
    after = converted(text.replace("DataLoader([], 8)", "[DataLoader([], 8), 1]"))
    assert ("len(accelerator.prepare(loader[0])" in after) is own


@each_row(r"""
bar => asked => own
'' => i + 1 == len(loader) => True
'' => epoch == len(loader) => False
\nif x: bar = tqdm(Reader(loader), total=min(9, len(loader)))\nelse: bar = tqdm(Reader(loader))\n => i => True
\nif x: bar = tqdm(Reader(loader), total=min(9, 8))\nelse: bar = tqdm(Reader(loader))\n => i => False
""")
def test_a_length_of_the_loader_within_what_is_dealt_in_place(bar: str, asked: str, own: bool) -> None:
    reader = "class Reader:\n    def __init__(self, of):\n        self.of = of\n"
    reader += "    def __iter__(self):\n        yield from self.of\n"
    loop = f"for epoch in range(2):\n    for i, x in enumerate(Reader(loader)):\n        <step model(x).mean()>\n        if {asked}:\n"
    loop = bar + loop.replace("Reader(loader)", "bar" if bar else "Reader(loader)")
    after = converted(f"<torch>\n{reader}loader = DataLoader(data, 8)\n<model>\n{loop}            print(i)\n")
    assert ("len(accelerator.prepare(loader))" in after) is own


MADE_LONG = """
<torch>
STEPS, ROWS = 6, 4
<model>
loader = DataLoader(Rows("rows", length=2 * {length}), 2)
{above}for step in range(STEPS):
    {within}x, y = next(batches)
    <step>
"""


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("length", ["STEPS", "ROWS"])
def test_data_made_as_long_as_the_steps_is_as_long_for_each_process(length: str, above: bool) -> None:
    """Unless they begin anew in each of them."""
    made = "batches = iter(loader)\n"
    text = MADE_LONG.format(length=length, above=made * above, within=f"{made}    " * (not above))
    made_long = f"2 * {length} * accelerator.num_processes"
    assert (made_long in converted(text)) is (above and length == "STEPS")
    ends = f"for n, x in enumerate(loader):\n    <step>\n    if {'n' if above else 'x'} >= STEPS - 1:\n        break\n"
    ended = MADE_LONG.partition("{above}")[0].format(length=length) + ends
    assert (made_long in converted(ended)) is (above and length == "STEPS")
    of_rows = converted(ended.replace('"rows"', "rows").replace("STEPS - 1", "len(rows)"))
    assert "Rows(rows, length=2 * " in of_rows  # the rows themselves are none


@pytest.mark.parametrize(
    ("size", "above", "is_all"),
    [("size", "", True), ("other", "", False), ("size", "for epoch in range(3):\n    ", False)],
)
@pytest.mark.parametrize(
    "drawn", ["Drawn(rows, steps * size)", "RandomSampler(rows, True, num_samples=steps * size)"]
)
def test_rows_drawn_for_all_steps_of_a_training_are_drawn_for_each_process(
    size: str, above: str, is_all: bool, drawn: str
) -> None:
    text = f"<torch>\n<model>\nloader = DataLoader(rows, batch_size={size}, sampler={drawn})\n"
    step = "optimizer.zero_grad(); model(x).mean().backward(); optimizer.step()"
    after = converted(f"{text}{above}for x, y in loader: {step}\n")
    number = "steps * size * (1 if accelerator.split_batches else accelerator.num_processes)"
    assert (number in after) is is_all
    ends = f"{text}for i, x in enumerate(loader):\n    <step model(x).mean()>\n    if i > len(rows) // size: break\n"
    ends = ends.replace("steps * size", "9").replace("DataLoader(rows", "DataLoader(Held(rows)")
    assert "rows * accelerator" not in converted(ends)


HANDED_ON = """<torch>
def learn(model, optimizer, loader, i, x, y):
    print({asked})
    <step>
    {more}
    return model, i
<model>
loader = DataLoader([], 8)
for epoch in range(3):
    for i, (x, y) in enumerate(loader):
        model, n = learn(model, optimizer, loader, i, x, y)
"""


@pytest.mark.parametrize(
    ("asked", "more", "above"),
    [
        ("i / len(loader)", "pass", ["model", "loader"]),
        ("i / len(loader)", "model = torch.nn.Sequential(model)", ["loader"]),
        ("next(iter(loader))", "pass", ["model"]),
    ],
)
def test_what_is_handed_on_and_comes_back_is_prepared_above(asked: str, more: str, above: list[str]) -> None:
    """A loader that is asked for its length, a model that is given back as it was."""
    first = converted(HANDED_ON.format(asked=asked, more=more)).partition("for epoch")[0]
    prepared = first.rpartition(" = accelerator.prepare(")[0].rpartition("\n")[2].split(", ")
    assert [one for one in ("model", "loader") if one in prepared] == above


@each_row("""
bound => behind => above
self.steps = len(self.loader) => pass => True
self.steps = len(self.loader) * 8 => pass => False
self.steps = len(self.loader) => make = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 1, self.steps) => False
steps = len(self.loader) => print(steps) => False
""")
def test_a_length_for_the_methods_that_the_loop_over_that_loader_calls(
    bound: str, behind: str, above: bool
) -> None:
    """Also where the loop counts in an attribute of what it calls `step` of, which is no optimizer that it goes over."""
    text = f"""<torch>
class Base:
    def __init__(self):
        <self.model>
        self.loader = DataLoader([], 8)
    def step(self, x):
        <self.step self.model(x).mean()>
        if self.at == self.steps:
            print(x)
class Trainer(Base):
    def run(self):
        {bound}
        {behind}
        for self.at, (x, y) in enumerate(self.loader):
            self.step(x)
Trainer().run()
"""
    after = converted(text)
    assert (after.index("loader = accelerator.prepare(self.loader)") < after.index(bound)) is above


COUNTING = """<torch>
class Log:
    def __init__(self, epochs, batches):
        self.epochs, self.given = epochs, [batches]
        self.batches = batches
        self.batch = 1
    def tell(self, loss):
        {reads}
        self.batch += 1
<model>
loader = DataLoader(data, 4)
log = Log(3, len(loader))
for x, y in loader:
    <step loss = torch.nn.functional.mse_loss(model(x), y)>
    log.tell(loss)
"""


@each_row("""
reads => is_counted
print(self.batch / self.batches) => True
if self.batch % self.batches == 0: print(loss) => True
print(self.batches * self.epochs) => False
print(self.batch / self.epochs) => False
""")
def test_a_length_that_an_object_reads_beside_its_count_of_calls_is_one_processs(
    reads: str, is_counted: bool
) -> None:
    after = converted(COUNTING.format(reads=reads))
    assert ("self.batches = accelerator.share(batches)" in after) is is_counted


def test_also_where_the_loader_is_prepared_in_its_loop() -> None:
    text = COUNTING.replace("loader = DataLoader(data, 4)", "loaders = {'a': DataLoader(data, 4)}")
    text = text.replace("len(loader)", "len(loaders['a'])").replace("in loader:", "in loaders['a']:")
    after = converted(text.replace("{reads}", "print(self.batch / self.batches)"))
    assert "log = Log(3, len(accelerator.prepare(loaders['a'])))" in after
