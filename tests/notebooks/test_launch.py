"""Which notebooks get functions and launches, and which train in the kernel because that could not be the same."""

from __future__ import annotations

import pytest
from crosstrain_migrate.results import FileResult, Options

from .notebooks import FLAT, GLOBALS, START
from .support import after, migrate, read
from .support import cells as cells_of

MODEL = """\
# %%
model = nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
"""
LOOP = """\
# %%
for epoch in range(2):
    for x, y in train_loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""


def source(result: FileResult, number: int = -1) -> str:
    cells = after(result)
    return cells[number] if number > 0 else list(cells.values())[number]


def read_cell(text: str, number: int) -> str:
    return cells_of(text)[number - 1][1]


def stays(result: FileResult) -> str:
    """Why the notebook is converted for its kernel's one process."""
    assert not result.refused, result.findings
    assert result.changed
    assert "notebook_launcher" not in result.after
    (found,) = [f for f in result.findings if f.rule == "CT801"]
    assert found.severity == "note"
    _, _, reason = found.reason.partition("the notebook trains in its kernel's one process: ")
    return reason


# -- what is done ------------------------------------------------------------------------------------------------


def test_a_loop_becomes_a_function_and_what_other_cells_made_is_passed_in() -> None:
    result = migrate(START + MODEL + LOOP)
    assert not result.refused, result.findings
    assert (
        source(result)
        == """\
def training(model, optimizer, train_loader):
    accelerator = Accelerator()
    device = accelerator.device
    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    for epoch in range(2):
        for x, y in train_loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()


notebook_launcher(training, (model, optimizer, train_loader))"""
    )
    assert "from crosstrain import Accelerator, notebook_launcher" in source(result, 2)
    (change,) = [c for c in result.changes if c.rule == "CT801"]
    assert read(START + MODEL + LOOP).place(change.line) == "cell 6:1"


def test_trained_weights_and_their_mode_come_back() -> None:
    text = START + MODEL + LOOP + "    model.eval()\n# %%\nprint(model.weight.sum().item())\n"
    cell = source(migrate(text), 6)
    assert "    return accelerator.get_state_dict(model), model.training\n" in cell
    assert "model_state, model_training = notebook_launcher(\n    training,\n" in cell
    assert cell.endswith("model.load_state_dict(model_state)\nmodel.train(model_training)")


def test_numbers_come_back() -> None:
    text = START + MODEL + "# %%\nbest = 9.0\nsteps = 0\n" + LOOP.removeprefix("# %%\n")
    text += "    steps += 1\n    best = min(best, loss.item())\n# %%\nprint(best, steps)\n"
    cell = source(migrate(text), 6)
    assert "def training(model, optimizer, train_loader, steps, best):\n" in cell
    assert "    return best, steps\n" in cell
    assert "\nbest, steps = notebook_launcher(" in cell


def test_a_function_that_makes_everything_is_launched_itself() -> None:
    body = (MODEL + LOOP).replace("# %%\n", "").replace("\n", "\n    ").rstrip()
    choice = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
    text = START.replace(choice, "").replace('print("training on", device)\n', "")
    text += f"# %%\ndef main():\n    {choice}    loader = DataLoader(train_set, batch_size=10)\n    {body}\n"
    result = migrate(text.replace("in train_loader", "in loader") + "# %%\nmain()  # go\n")
    assert not result.refused, result.findings
    assert source(result).endswith("notebook_launcher(training)")
    assert "    main()  # go\n" in source(result)


def test_later_cells_are_left_as_they_are() -> None:
    """What only they use keeps its text: the trained weights are on the device that they name."""
    result = migrate(GLOBALS)
    for number in (7, 9, 10):
        assert source(result, number) == read_cell(GLOBALS, number)
    _, _, below = source(result, 8).partition("notebook_launcher(training)")
    assert below == "\nmodel.load_state_dict(model_state)\nmodel.to(device)"


def test_a_cell_magic_stays_on_top_and_strings_keep_their_lines() -> None:
    loop = LOOP.replace("# %%\n", "# %%\n%%time\n").replace(
        "        optimizer.step()\n", '        optimizer.step()\n    note = f"""\n  as {epoch}\n"""\n'
    )
    cell = source(migrate(START + MODEL + loop))
    assert cell.startswith("%%time\ndef training(")
    assert '\n        note = f"""\n  as {epoch}\n"""\n' in cell


def test_left_out_it_trains_in_the_kernel() -> None:
    result = migrate(START + MODEL + LOOP, Options(ignore=("CT801",)))
    assert not result.refused
    assert "notebook_launcher" not in result.after
    assert "accelerator = Accelerator()" in source(result, 3)
    commented = migrate(START + MODEL + LOOP.replace("range(2):", "range(2):  # migrate: skip CT801"))
    assert not commented.findings
    assert "notebook_launcher" not in commented.after


def test_no_training_no_launch() -> None:
    """A notebook that only defines what another imports."""
    result = migrate(START + "# %%\n" + "def f(loss):\n    loss.backward()\n")
    assert not result.changed


def test_the_second_migration_changes_nothing() -> None:
    for text in (GLOBALS, FLAT):
        result = migrate(text)
        again = migrate("".join(f"# %%\n{cell}\n" for cell in after(result).values()))
        assert not again.changed
        assert not again.findings


LOOK = """\
# %%
images, labels = next(iter(train_loader))
print(images.shape, labels[:3])
fig = plt.figure(figsize=(4, 4))
for index in range(4):
    ax = fig.add_subplot(2, 2, index + 1)
    ax.imshow(images[index].reshape(2, 4), cmap='gray',
              aspect="auto")  # it's small
labels.shape
"""


def test_what_cells_only_look_at_stays() -> None:
    """Batches are shown before there is a model: in a script the loader could not be prepared any more."""
    text = (
        START.replace("import torch\n", "import matplotlib.pyplot as plt\nimport torch\n")
        + LOOK
        + MODEL
        + LOOP
    )
    result = migrate(text)
    assert not result.findings
    assert source(result, 5) == LOOK.removeprefix("# %%\n").rstrip("\n")
    assert "def training(model, optimizer, train_loader):" in source(result)


PLACED = "classes = torch.tensor([0.0, 1.0, 2.0])\nclasses = classes.to(device)\n"


def test_what_is_put_on_the_kernels_device_keeps_the_training_there() -> None:
    loop = LOOP.replace("# %%\n", "# %%\n" + PLACED) + "        classes = classes * 2\n"
    assert "own device" in stays(migrate(START + MODEL + loop))


def test_two_cells_that_train_become_two_functions() -> None:
    """The second has an optimizer of its own, and goes on with the weights of the first."""
    second = "# %%\noptimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n"
    result = migrate(START + MODEL + LOOP + second + LOOP)
    assert not result.refused, result.findings
    first = source(result, 6)
    assert "def training(model, optimizer, train_loader):\n    accelerator = Accelerator()\n" in first
    assert "\nmodel_state = notebook_launcher(" in first
    assert "\nmodel.load_state_dict(model_state)" in first
    assert source(result, 7) == second.removeprefix("# %%\n").rstrip()
    last = source(result, 8)
    assert "def training_2(model, optimizer, train_loader):\n    accelerator = Accelerator()\n" in last
    assert (
        "    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)\n" in last
    )
    assert "notebook_launcher(training_2, (model, optimizer, train_loader))" in last
    launches = [c for c in result.changes if c.rule == "CT801"]
    assert [read(START + MODEL + LOOP + second + LOOP).place(c.line) for c in launches] == [
        "cell 6:1",
        "cell 8:1",
    ]


def test_an_optimizer_that_two_cells_use_keeps_its_state() -> None:
    text = START + MODEL.replace("SGD(model.parameters(), lr=0.2)", "Adam(model.parameters())") + LOOP + LOOP
    first = source(migrate(text), 6)
    assert "    return accelerator.get_state_dict(model), optimizer.state_dict()\n" in first
    assert "\noptimizer.load_state_dict(optimizer_state)" in first


def test_values_that_later_cells_read_come_back() -> None:
    """A tensor, a list of them, a list that a function fills, an object of the notebook's own class."""
    text = START + MODEL + LOOP + "# %%\nprint(loss)\n"
    assert "    return loss\n" in source(migrate(text), 6)
    text = START + MODEL + "# %%\nseen = []\n" + LOOP + "        seen.append(loss)\n# %%\nprint(len(seen))\n"
    assert "    return seen\n" in source(migrate(text), 7)
    text = START + MODEL + "# %%\nseen = []\ndef note(log, value):\n    log.append(value)\n"
    text += LOOP + "        note(seen, loss)\n# %%\nprint(len(seen))\n"
    assert "    return seen\n" in source(migrate(text), 7)
    text = START + "# %%\nclass Meter:\n    def see(self, x):\n        self.last = x\n" + MODEL
    text += "# %%\nmeter = Meter()\n" + LOOP + "        meter.see(loss.item())\n# %%\nprint(meter.last)\n"
    assert "    return meter\n" in source(migrate(text), 8)


# -- what stays in the kernel's one process ----------------------------------------------------------------------


def test_a_command_that_runs_migrated_code() -> None:
    text = GLOBALS.replace("%%time\nlosses", "losses") + "# %%\n%timeit -n 1 train(4)\n"
    assert "`%timeit -n 1 train(4)` runs training code" in stays(migrate(text))


def test_a_step_in_another_cell_than_its_gradients() -> None:
    body = "# %%\nx, y = next(iter(train_loader))\nloss = F.cross_entropy(model(x), y)\nloss.backward()\n"
    result = migrate(START + MODEL.replace(".to(device)", "") + LOOP + body + "# %%\noptimizer.step()\n")
    assert result.refused or "in another cell" in stays(result)


def test_a_file_opened_in_the_kernel() -> None:
    text = START + MODEL + '# %%\nlog = open("log.txt", "w")\n' + LOOP + "    log.write(str(epoch))\n"
    assert stays(migrate(text)).startswith("`log")


def test_results_under_accelerate() -> None:
    """Accelerate's launcher returns nothing."""
    options = Options(runtime="accelerate")
    result = migrate(START + MODEL + LOOP, options)
    assert "from accelerate import Accelerator, notebook_launcher" in result.after
    assert "later cells read `losses`" in stays(migrate(GLOBALS, options))


@pytest.mark.parametrize("line", ["await something()", "exec('x = 1')", "from math import *"])
def test_code_that_means_another_thing_in_a_function(line: str) -> None:
    loop = LOOP.replace("# %%\n", "").replace("\n", "\n    ").rstrip()
    text = START + MODEL + f"# %%\nif True:\n    {loop}\n    {line}\n"
    result = migrate(text)
    assert result.refused or stays(result)
