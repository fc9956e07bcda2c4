"""Which notebooks get a function and a launch, and which are refused because that could not be the same."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest
from crosstrain_migrate.engine import Options
from crosstrain_migrate.results import FileResult

from .notebooks import FLAT, GLOBALS, MAIN, START
from .support import after, migrate, read

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


def refusal(result: FileResult) -> str:
    assert result.refused
    assert not result.changed
    assert [f.rule for f in result.findings if f.severity == "refused"] == ["CT801"], result.findings
    (found,) = [f for f in result.findings if f.rule == "CT801"]
    assert "CT801" in found.remedy, "the way out is named"
    return found.reason


# -- what is done ------------------------------------------------------------------------------------------------


def test_a_loop_becomes_a_function_and_what_other_cells_made_is_passed_in() -> None:
    result = migrate(START + MODEL + LOOP)
    assert not result.refused, result.findings
    assert (
        source(result)
        == """\
def training(model, optimizer, train_loader):
    accelerator = Accelerator()
    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    for epoch in range(2):
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()


notebook_launcher(training, (model, optimizer, train_loader))"""
    )
    assert "from crosstrain import Accelerator, notebook_launcher" in source(result, 2)
    (change,) = [c for c in result.changes if c.rule == "CT801"]
    assert read(START + MODEL + LOOP).place(change.line) == "cell 6:1"


def test_cells_that_do_not_train_keep_their_device_and_their_prints() -> None:
    result = migrate(GLOBALS)
    assert source(result, 3) == after(replace(result, after=result.before))[3]
    assert "CT401" not in {c.rule for c in result.changes if read(GLOBALS).cell_line(c.line)[0] == 3}


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
    assert "def training(model, optimizer, train_loader):\n" in cell, "start values go with the loop"
    assert "    return best, steps\n" in cell
    assert "\nbest, steps = notebook_launcher(" in cell


def test_a_function_that_makes_everything_is_launched_itself() -> None:
    body = (MODEL + LOOP).replace("# %%\n", "").replace("\n", "\n    ").rstrip()
    choice = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
    text = START.replace(choice, "").replace('print("training on", device)\n', "")
    text += f"# %%\ndef main():\n    {choice}    loader = DataLoader(train_set, batch_size=10)\n    {body}\n"
    result = migrate(text.replace("in train_loader", "in loader") + "# %%\nmain()  # go\n")
    assert not result.refused, result.findings
    assert source(result) == "notebook_launcher(main)  # go"
    assert "    accelerator = Accelerator()\n" in source(result, 5)


def test_a_loader_that_only_later_cells_read_is_prepared_there() -> None:
    cell = source(migrate(GLOBALS), 8)
    before, _, below = cell.partition("notebook_launcher(training)")
    assert "test_loader" not in before
    assert below.endswith(
        "accelerator = Accelerator()\nmodel, test_loader = accelerator.prepare(model, test_loader)"
    )


def test_a_model_and_its_optimizer_reach_the_processes_together() -> None:
    """One as an argument and one as a global would be two copies of the parameters where processes are spawned."""
    loop = LOOP.removeprefix("# %%\n").replace("\n", "\n    ").rstrip()
    text = START + MODEL + f"# %%\ndef fit(model):\n    {loop}\n# %%\nfit(model)\n"
    cell = source(migrate(text))
    assert cell.startswith("def training():\n    global accelerator, model, optimizer, train_loader\n")


def test_a_cell_magic_stays_on_top_and_strings_keep_their_lines() -> None:
    loop = LOOP.replace("# %%\n", "# %%\n%%time\n").replace(
        "        optimizer.step()\n", '        optimizer.step()\n    note = f"""\n  as {epoch}\n"""\n'
    )
    cell = source(migrate(START + MODEL + loop))
    assert cell.startswith("%%time\ndef training(")
    assert '\n        note = f"""\n  as {epoch}\n"""\n' in cell


def test_names_that_are_taken_stay() -> None:
    text = START + MODEL + "# %%\ntraining = 3\n" + LOOP + "# %%\nprint(training)\n"
    assert "def training_(model" in source(migrate(text), 7)


def test_tabs_and_windows_line_ends() -> None:
    text = START + MODEL + LOOP.replace("    ", "\t")
    cell = source(migrate(text))
    assert "\n\taccelerator = Accelerator()\n" in cell
    assert "\n\t\tfor x, y in train_loader:\n" in cell
    ast.parse(cell)


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
    for text in (GLOBALS, FLAT, MAIN):
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


def test_what_the_training_needs_is_not_only_looked_at() -> None:
    """`steps` would be another number if it were read after prepare, so it is no matter of looks."""
    text = (
        START
        + MODEL
        + "# %%\nsteps = len(train_loader)\nprint(steps)\n"
        + LOOP
        + "    print(epoch / steps)\n"
    )
    assert "uses `train_loader` between" in refusal(migrate(text))
    moved = migrate(START + MODEL.replace(".to(device)", "") + "# %%\nmodel.to(device)\n" + LOOP)
    assert ".to(device)" not in moved.after


def test_what_is_only_looked_at_keeps_what_it_reads() -> None:
    """The flag goes from the training, and a cell still prints it."""
    text = START.replace("device = torch", "use_cuda = torch.cuda.is_available()\ndevice = torch")
    text = text.replace('"cuda" if torch.cuda.is_available()', '"cuda" if use_cuda')
    result = migrate(text + MODEL + "# %%\nprint(use_cuda)\n" + LOOP)
    assert not result.refused, result.findings
    assert "use_cuda = torch.cuda.is_available()" in source(result, 3)
    assert source(result, 6) == "print(use_cuda)"


PLACED = "classes = torch.tensor([0.0, 1.0, 2.0])\nclasses = classes.to(device)\n"


def test_what_is_put_on_a_device_for_the_training_is_put_there_by_each_process() -> None:
    loop = LOOP.replace("# %%\n", "# %%\n" + PLACED) + "        classes = classes * 2\n"
    cell = source(migrate(START + MODEL + loop))
    assert cell.startswith("classes = torch.tensor([0.0, 1.0, 2.0])\n\ndef training(")
    assert "    device = accelerator.device\n" in cell
    assert "    classes = classes.to(device)\n" in cell
    loop = LOOP + "        classes = classes * 2\n"
    assert "own device" in refusal(migrate(START + MODEL + "# %%\n" + PLACED + loop))


def test_models_go_to_the_device_of_cells_below() -> None:
    text = START + MODEL + LOOP + "# %%\nmodel(torch.ones(1, 8, device=device)).sum().item()\n"
    assert source(migrate(text), 6).endswith(
        "device = accelerator.device\nmodel = accelerator.prepare(model)"
    )


def test_nothing_is_said_of_prints_that_one_process_makes() -> None:
    result = migrate(
        FLAT.replace("correct = 0", "if len(test_set) > 3:\n    print(len(test_set))\ncorrect = 0")
    )
    assert {f.rule for f in result.findings} <= {"CT701"}


# -- what is refused ---------------------------------------------------------------------------------------------


def test_training_in_two_cells() -> None:
    result = migrate(START + MODEL + LOOP + LOOP)
    assert "spread over the cells 6 and 7" in refusal(result)


def test_an_evaluation_that_needs_the_accelerator_before() -> None:
    test = GLOBALS[GLOBALS.index("# %%\ndef test") : GLOBALS.index("# %%\n%%time")]
    text = START + MODEL + test + "# %%\ntest()\n" + LOOP + "# %%\nprint(test())\n"
    result = migrate(text)
    assert "`test()` needs the accelerator before" in refusal(result)
    (found,) = [f for f in result.findings if f.rule == "CT801"]
    assert read(text).place(found.line) == "cell 7:1"


def test_state_that_cannot_travel() -> None:
    text = START + MODEL + LOOP + '# %%\ntorch.save(optimizer.state_dict(), "optimizer.pt")\n'
    assert "cell 7 reads `optimizer`" in refusal(migrate(text))
    text = START + MODEL + LOOP + "# %%\nprint(loss)\n"
    assert "cell 7 reads `loss`" in refusal(migrate(text))


def test_a_list_that_the_training_fills_with_tensors() -> None:
    text = START + MODEL + "# %%\nseen = []\n" + LOOP + "        seen.append(loss)\n# %%\nprint(len(seen))\n"
    assert "reads `seen`" in refusal(migrate(text))


def test_a_list_that_a_function_fills() -> None:
    text = START + MODEL + "# %%\nseen = []\ndef note(log, value):\n    log.append(value)\n"
    text += LOOP + "        note(seen, loss)\n# %%\nprint(len(seen))\n"
    assert "reads `seen`" in refusal(migrate(text))


def test_an_object_of_the_notebooks_own_class_that_later_cells_read() -> None:
    text = START + "# %%\nclass Meter:\n    def see(self, x):\n        self.last = x\n" + MODEL
    text += "# %%\nmeter = Meter()\n" + LOOP + "        meter.see(loss.item())\n# %%\nprint(meter.last)\n"
    assert "reads `meter`" in refusal(migrate(text))


def test_a_loader_that_is_read_between() -> None:
    text = START + MODEL + "# %%\nsteps = len(train_loader) * 2\n" + LOOP + "        done = epoch / steps\n"
    assert "uses `train_loader` between its preparation and the training" in refusal(migrate(text))


def test_a_command_that_runs_migrated_code() -> None:
    text = GLOBALS.replace("%%time\nlosses", "losses") + "# %%\n%time train(4)\n"
    assert "`%time train(4)` runs training code" in refusal(migrate(text))


def test_a_file_opened_in_the_kernel() -> None:
    text = START + MODEL + '# %%\nlog = open("log.txt", "w")\n' + LOOP + "    log.write(str(epoch))\n"
    assert refusal(migrate(text)).startswith("`log")
    text = text.replace('open("log.txt", "w")', "SummaryWriter()").replace(
        "log.write(str(epoch))", "log.flush()"
    )
    text = text.replace(
        "import torch\n", "import torch\nfrom torch.utils.tensorboard import SummaryWriter\n", 1
    )
    assert refusal(migrate(text)).startswith("`log")


def test_results_under_accelerate() -> None:
    """Accelerate's launcher returns nothing."""
    options = Options(runtime="accelerate")
    result = migrate(START + MODEL + LOOP, options)
    assert "from accelerate import Accelerator, notebook_launcher" in result.after
    assert "later cells read `losses`" in refusal(migrate(GLOBALS, options)) or "`model`" in refusal(
        migrate(GLOBALS, options)
    )


@pytest.mark.parametrize("line", ["await something()", "exec('x = 1')", "from math import *"])
def test_code_that_means_another_thing_in_a_function(line: str) -> None:
    loop = LOOP.replace("# %%\n", "").replace("\n", "\n    ").rstrip()
    text = START + MODEL + f"# %%\nif True:\n    {loop}\n    {line}\n"
    assert migrate(text).refused
