"""Which notebooks get functions and launches, and which train in the kernel because that could not be the same."""

import pytest
from crosstrain_migrate.results import Options
from crosstrain_migrate.rules.notebooks.launch import launched

from .notebooks import GLOBALS, START
from .support import after, cells, migrate, read

MODEL = """\
# %%
model = nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
"""
BARE = """\
for epoch in range(2):
    for x, y in train_loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""
LOOP = f"# %%\n{BARE}"
PASS = "".join(line.removeprefix("    ") + "\n" for line in BARE.splitlines()[1:])
EVALUATION = """\
correct = 0
with torch.no_grad():
    for x, y in test_loader:
        correct += (model(x.to(device)).argmax(1).cpu() == y).sum().item()
print("correct", correct)
"""
INSIDE = "".join(f"    {line}\n" for line in (PASS + EVALUATION).splitlines())
COUNTED = START + MODEL + f"# %%\niter = 0\n# %%\n{PASS}    iter += 1\nprint('epoch', iter)\n"
COUNTED += "# %%\nhistory = [iter]\nprint('history', history)\n"
# Counts in two trainings, evaluates in the cell of the second and in one of its own.
EVALUATED = COUNTED + f"# %%\n{PASS}    iter += 1\n{EVALUATION}print('epoch', iter)\n# %%\n{EVALUATION}"
LOOK = """\
images, labels = next(iter(train_loader))
print(images.shape, labels[:3])
fig = plt.figure(figsize=(4, 4))
for index in range(4):
    ax = fig.add_subplot(2, 2, index + 1)
    ax.imshow(images[index].reshape(2, 4), cmap='gray',
              aspect="auto")  # it's small
labels.shape"""
PLOTS = START.replace("import torch\n", "import matplotlib.pyplot as plt\nimport torch\n")
LOOKED_AT = f"{PLOTS}# %%\n{LOOK}\n"
SECOND = "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)"
TWO = START + MODEL + LOOP + f"# %%\n{SECOND}\n" + LOOP
ADAM = MODEL.replace("SGD(model.parameters(), lr=0.2)", "Adam(model.parameters())")
TEST = GLOBALS[GLOBALS.index("# %%\ndef test") : GLOBALS.index("# %%\n%%time")]
METER = "# %%\nclass Meter:\n    def see(self, x):\n        self.last = x\n"
PREPARED = "    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)\n"
BEGUN = f"(model, optimizer, train_loader):\n    accelerator = Accelerator()\n    device = accelerator.device\n{PREPARED}"
LAUNCHED = "(model, optimizer, train_loader))"
CHOICE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
UNPLACED = START.replace(CHOICE, "").replace('print("training on", device)\n', "")
INNER = (MODEL + LOOP).replace("# %%\n", "").replace("\n", "\n    ")
INNER = INNER.replace("train_loader", "loader").rstrip()
MAIN = f"# %%\ndef main():\n    {CHOICE}    loader = DataLoader(train_set, batch_size=10)\n    {INNER}\n"

# The notebook, and what stands in its cells after the migration.
CONVERTED: dict[str, tuple[str, dict[int, list[str]]]] = {
    "a loop becomes a function and what other cells made is passed in": (
        START + MODEL + LOOP,
        {
            2: ["from crosstrain import Accelerator, notebook_launcher"],
            6: [
                f"def training{BEGUN}    for epoch in range(2):\n        for x, y in train_loader:\n",
                f"            accelerator.backward(loss)\n            optimizer.step()\n\n\nnotebook_launcher(training, {LAUNCHED}",
            ],
        },
    ),
    "trained weights and their mode come back": (
        START + MODEL + LOOP + "    model.eval()\n# %%\nprint(model.weight.sum().item())\n",
        {
            6: [
                "    return accelerator.get_state_dict(model), model.training\n",
                f"model_state, model_training = notebook_launcher(training, {LAUNCHED}\n",
                "model.load_state_dict(model_state)\nmodel.train(model_training)",
            ]
        },
    ),
    "weights that a function is given come back": (
        START
        + "# %%\ndef fit(net, lr):\n    optimizer = torch.optim.SGD(net.parameters(), lr=lr)\n"
        + BARE.replace("\n", "\n    ").replace("model", "net").join(["    ", "\n"])
        + "# %%\nmodel, other = nn.Linear(8, 3), nn.Linear(8, 3)\n# %%\nfit(model, 0.1)\n# %%\nprint(model, other)\n",
        {7: ["    return accelerator.get_state_dict(model)\n", "\nmodel.load_state_dict(model_state)"]},
    ),
    "numbers come back": (
        START + MODEL + f"# %%\nbest = 9.0\nsteps = 0\n{BARE}"
        "    steps += 1\n    best = min(best, loss.item())\n# %%\nprint(best, steps)\n",
        {
            6: [
                "def training(model, optimizer, train_loader, steps, best):\n",
                "    return best, steps\n",
                "\nbest, steps = notebook_launcher(",
            ]
        },
    ),
    "a function that makes everything is launched": (
        UNPLACED + MAIN + "# %%\nmain()  # go\n",
        {6: ["    main()  # go\n", "notebook_launcher(training)"]},
    ),
    # What only they use keeps its text: the trained weights are on the device that they name.
    "later cells are left as they are": (
        GLOBALS,
        {
            **{number: [cells(GLOBALS)[number - 1][1]] for number in (7, 9, 10)},
            8: ["notebook_launcher(training)\nmodel.load_state_dict(model_state)\nmodel.to(device)"],
        },
    ),
    "a cell magic stays on top and strings keep their lines": (
        START + MODEL + f'# %%\n%%time\n{BARE}    note = f"""\n  as {{epoch}}\n"""\n',
        {6: ["%%time\ndef training(", '\n        note = f"""\n  as {epoch}\n"""\n']},
    ),
    # Batches are shown before there is a model: in a script the loader could not be prepared any more.
    "what cells only look at stays": (LOOKED_AT + MODEL + LOOP, {5: [LOOK], 7: [f"def training{BEGUN}"]}),
    # The second has an optimizer of its own, and goes on with the weights of the first.
    "two cells that train become two functions": (
        TWO,
        {
            6: [
                f"def training{BEGUN}",
                "\nmodel_state = notebook_launcher(",
                "\nmodel.load_state_dict(model_state)",
            ],
            7: [SECOND],
            8: [f"def training_2{BEGUN}", f"notebook_launcher(training_2, {LAUNCHED}"],
        },
    ),
    # Its batches are those of one process in the second, too; what is held elsewhere is trained in the kernel, too.
    "a loader made anew, epochs by its length and a model that another object holds": (
        f"{START}{MODEL}kept = dict(of=model)\n{LOOP}# %%\ntrain_loader = DataLoader(train_set, batch_size=5)\n"
        f"turns = 9 // len(train_loader)\n{LOOP.replace('2', 'turns', 1)}# %%\nprint(kept)\n",
        {
            7: ["turns = 9"],
            8: [
                f"{PREPARED}    turns = 9 // len(train_loader)\n    for epoch in range(turns):\n",
                "\nmodel.load_state_dict(model_state)",
            ],
        },
    ),
    "an optimizer that two cells use keeps its state": (
        START + ADAM + LOOP + LOOP,
        {
            6: [
                "    return accelerator.get_state_dict(model), optimizer.state_dict()\n",
                "\noptimizer.load_state_dict(optimizer_state)",
            ]
        },
    ),
    # On its device, as its author has put it there: the one way in which the kernel needs the device first.
    "a model that is tried out before the training": (
        START + MODEL + "# %%\nprint(model(torch.ones(1, 8).to(device)))\n" + LOOP,
        {5: ["model = nn.Linear(8, 3).to(device)\n"]},
    ),
    "an evaluation before the training has the notebook's own accelerator": (
        START + MODEL + TEST + "# %%\nprint(test())\n" + LOOP + "    test()\n# %%\nprint(test())\n",
        {7: ["# in the notebook's own process\naccelerator = Accelerator()\n"], 8: ["notebook_launcher"]},
    ),
    # What `score` holds of the first model is not the second's.
    "only the model that was trained comes back": (
        f"{START}{MODEL}# %%\ndef judge(net):\n    return net(train_set[0][0]).sum().item()\n{LOOP}# %%\n"
        f"score = judge(model)\n{(MODEL + LOOP).replace('model', 'other')}# %%\nprint(score, other.weight)\n",
        {10: ["    return accelerator.get_state_dict(other)\n"]},
    ),
    "a tensor comes back": (START + MODEL + LOOP + "# %%\nprint(loss)\n", {6: ["    return loss\n"]}),
    "a list comes back": (
        START + MODEL + "# %%\nseen = []\n" + LOOP + "        seen.append(loss)\n# %%\nprint(len(seen))\n",
        {7: ["    return seen\n"]},
    ),
    "a list that a function fills comes back": (
        START + MODEL + "# %%\nseen = []\ndef note(log, value):\n    log.append(value)\n"
        f"{LOOP}        note(seen, loss)\n# %%\nprint(len(seen))\n",
        {7: ["    return seen\n"]},
    ),
    "an object of the notebook's own class comes back": (
        f"{START}{METER}{MODEL}# %%\nmeter = Meter()\n{LOOP}"
        "        meter.see(loss.item())\n# %%\nprint(meter.last)\n",
        {8: ["    return meter\n"]},
    ),
    # `iter += 1` is unbound in a function that is not given it.
    "a variable that has a builtin's name is passed in and comes back": (
        COUNTED,
        {
            7: [
                "def training(model, optimizer, train_loader, iter):",
                "    return iter\n",
                "iter = notebook_launcher(training, (model, optimizer, train_loader, iter))",
                "print('epoch', iter)",
            ]
        },
    ),
    "an evaluation in the cell that trains is dealt in the function": (
        START + MODEL + f"# %%\nfor epoch in range(2):\n{INSIDE}",
        {
            6: [
                "    test_loader = accelerator.prepare_evaluation(test_loader)\n",
                "\n\n\nnotebook_launcher(training, (model, optimizer, train_loader, test_loader))",
            ]
        },
    ),
    "what stands below the training is the author's": (
        START + MODEL + f"# %%\n{PASS}{EVALUATION}# %%\n{PASS}{EVALUATION}",
        {number: ["prepare_evaluation(", '\nprint("correct", correct)'] for number in (6, 7)},
    ),
    "timed training is converted with its function": (
        GLOBALS.replace("losses.append(train(epoch))", "%time losses.append(train(epoch))"),
        {8: ["        %time losses.append(train(epoch))\n", "notebook_launcher("]},
    ),
}


@pytest.mark.parametrize(("text", "expected"), CONVERTED.values(), ids=CONVERTED)
def test_is_launched(text: str, expected: dict[int, list[str]]) -> None:
    result = migrate(text)
    others = [
        one for one in result.findings if one.rule != "CT602"
    ]  # numbers of one process that come back are said to be
    assert not result.refused and not others, others
    found = after(result)
    assert [(n, part) for n, parts in expected.items() for part in parts if part not in found[n]] == []
    for number, cell in found.items():
        assert cell.count(" = Accelerator()") <= 1 and cell.count("prepare_evaluation(") <= 1, number
    places = [read(text).place(change.line) for change in result.changes if change.rule == "CT801"]
    launching = [number for number, cell in found.items() if "notebook_launcher(" in cell]
    assert [place.partition(":")[0] for place in places] == [f"cell {number}" for number in launching]
    again = migrate("".join(f"# %%\n{cell}\n" for cell in found.values()))
    assert not again.changed and not again.findings


def test_left_out_it_trains_in_the_kernel() -> None:
    result = migrate(START + MODEL + LOOP, Options(ignore=("CT801",)))
    assert not result.refused
    assert "notebook_launcher" not in result.after
    assert "accelerator = Accelerator()" in after(result)[3]
    commented = migrate(START + MODEL + LOOP.replace("range(2):", "range(2):  # migrate: skip CT801"))
    assert not commented.findings
    assert "notebook_launcher" not in commented.after


def test_the_import_keeps_what_else_it_brings() -> None:
    result = migrate(START + MODEL + LOOP, Options(ignore=("CT801",)))
    more = "import Accelerator, PartialState\n", "# in the kernel\nPartialState().print(2)\n"
    text = result.after.replace("import Accelerator\n", more[0]) + more[1]
    done = launched(result.before, text, result.roles, "crosstrain")
    assert done is not None and "import Accelerator, PartialState, notebook_launcher\n" in done.text


def test_no_training_no_launch() -> None:
    """A notebook that only defines what another imports."""
    assert not migrate(START + "# %%\n" + "def f(loss):\n    loss.backward()\n").changed


STEP = "# %%\nx, y = next(iter(train_loader))\nloss = F.cross_entropy(model(x), y)\nloss.backward()\n"
PLACED = f"# %%\nclasses = torch.tensor([0.0, 1.0]).to(device)\n{BARE}        classes = classes * 2\n"
# The notebook, and why it trains in its kernel's one process.
KEPT = {
    "what is put on the kernel's device": (START + MODEL + PLACED, "own device"),
    "a command that runs migrated code": (
        GLOBALS.replace("%%time\nlosses", "losses") + "# %%\n%timeit -n 1 train(4)\n",
        "`%timeit -n 1 train(4)` runs training code",
    ),
    "a step in another cell than its gradients": (
        START + MODEL.replace(".to(device)", "") + LOOP + STEP + "# %%\noptimizer.step()\n",
        "in another cell",
    ),
    "a file opened in the kernel": (
        START + MODEL + '# %%\nlog = open("log.txt", "w")\n' + LOOP + "    log.write(str(epoch))\n",
        "`log",
    ),
    "an await": (START + MODEL + LOOP + "    await something()\n", "the training awaits something"),
    "exec": (START + MODEL + LOOP + "    exec('x = 1')\n", "the training uses `exec`"),
    "a star import": (START + MODEL + LOOP + "    from math import *\n", "a star import"),
}


@pytest.mark.parametrize(("text", "reason"), KEPT.values(), ids=KEPT)
def test_trains_in_the_kernel(text: str, reason: str) -> None:
    stays(text, reason)


def stays(text: str, reason: str, **options: str) -> None:
    result = migrate(text, Options(**options))  # type: ignore[arg-type]
    assert result.changed and "notebook_launcher" not in result.after
    (found,) = [f for f in result.findings if f.rule == "CT801"]
    assert found.severity == "note"
    assert reason in found.reason.partition("the notebook trains in its kernel's one process: ")[2]


def test_results_under_accelerate() -> None:
    """Accelerate's launcher returns nothing."""
    result = migrate(START + MODEL + LOOP, Options(runtime="accelerate"))
    assert "from accelerate import Accelerator, notebook_launcher" in result.after
    stays(GLOBALS, "later cells read `losses`", runtime="accelerate")
