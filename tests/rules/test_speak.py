"""CT401: one process speaks."""

from __future__ import annotations

import pytest

from .support import Case, check_invariants, converts, each, leaves, migrate, unbroken

RULE = "CT401"


def said(name: str, before: str, after: str, slot: str = "end") -> Case:
    return converts(RULE, name, {slot: before}, {slot: after})


TELLING = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x):
        return self.layer(x)

    def epoch_end(self, epoch, loss):
        print(f"epoch {epoch}: {loss}")
"""
TOLD = {"definitions": TELLING, "model": "model = Net().to(device)"}
POSITIVE = [
    converts(
        RULE,
        "a method of the model that only prints",
        {**TOLD, "after_epoch": "model.epoch_end(epoch, loss.item())"},
        {
            "model": "model = Net()",
            "after_epoch": 'model.epoch_end(epoch, accelerator.reduce(loss, reduction="mean").item())',
            "definitions": TOLD["definitions"].replace("print(", "accelerator.print("),
        },
        at="print(f",
    ),
    said("at the end of a script", 'print("done")', 'accelerator.print("done")'),
    said(
        "in the epoch loop", 'print(f"epoch {epoch}")', 'accelerator.print(f"epoch {epoch}")', "after_epoch"
    ),
    said(
        "with separators",
        'print("a", "b", sep="", end="\\n\\n")',
        'accelerator.print("a", "b", sep="", end="\\n\\n")',
    ),
    said("flushed", 'print("a", flush=True)', 'accelerator.print("a", flush=True)'),
    said("an empty line", "print()", "accelerator.print()"),
    said("in Python 2's tuple style", 'print(("a", 1))', 'accelerator.print(("a", 1))'),
    said(
        "the old percent style",
        'print("epoch %d" % epoch)',
        'accelerator.print("epoch %d" % epoch)',
        "after_epoch",
    ),
    said(
        "in a branch with a comment",
        'if epoch % 10 == 0:  # now and then\n    print("still here")  # say so',
        'if epoch % 10 == 0:  # now and then\n    accelerator.print("still here")  # say so',
        "after_epoch",
    ),
    converts(
        RULE,
        "inside a function that is called where the accelerator is",
        {"definitions": 'def report(epoch):\n    print("epoch", epoch)\n', "after_epoch": "report(epoch)"},
        {"definitions": 'def report(epoch):\n    accelerator.print("epoch", epoch)\n'},
        at='print("epoch", epoch)',
    ),
    converts(
        RULE,
        "to the standard output by name",
        {"imports": "import sys", "end": 'print("done", file=sys.stdout)'},
        {"end": 'accelerator.print("done", file=sys.stdout)'},
    ),
    converts(
        RULE,
        "written to the standard output, in place",
        {
            "imports": "import sys",
            "after_epoch": 'sys.stdout.write("\\r%d" % epoch)  # no new line\nsys.stdout.flush()',
        },
        {"after_epoch": 'accelerator.print("\\r%d" % epoch, end="")  # no new line\nsys.stdout.flush()'},
    ),
    converts(
        RULE,
        "a logger's level imported by name",
        {"imports": "from logging import INFO, getLogger", "setup": 'getLogger("a").setLevel(INFO)'},
        {
            "accelerator": "from crosstrain import Accelerator\nfrom logging import WARNING",
            "setup": 'getLogger("a").setLevel(INFO if accelerator.is_local_main_process else WARNING)',
        },
        at='getLogger("a")',
    ),
    said(
        "over several lines",
        'print(\n    "epoch",  # which\n    epoch,\n)',
        'accelerator.print(\n    "epoch",  # which\n    epoch,\n)',
        "after_epoch",
    ),
]

BAR = "disable=not accelerator.is_local_main_process"
ONCE = "accelerator.on_local_main_process"
SPEAKERS = [
    said("pretty printing", "pprint.pprint({1: 2})", ONCE + "(pprint.pprint)({1: 2})"),
    said(
        "a line above a bar",
        'tqdm.tqdm.write(f"epoch {epoch}")',
        ONCE + '(tqdm.tqdm.write)(f"epoch {epoch}")',
        "after_epoch",
    ),
    said(
        "a line above a bar, by the bar itself",
        'tqdm.tqdm(range(3)).write("a")',
        f'{ONCE}(tqdm.tqdm(range(3), {BAR}).write)("a")',
    ),
    said(
        "a console of rich's",
        'rich.console.Console().print("[b]a[/b]")',
        ONCE + '(rich.console.Console().print)("[b]a[/b]")',
    ),
    said(
        "what all processes compute and one says",
        "pprint.pprint(loss.item())",
        ONCE + '(pprint.pprint)(accelerator.reduce(loss, reduction="mean").item())',
        "after_step",
    ),
    said(
        "a logger's level",
        'logging.getLogger("a").setLevel(logging.INFO)',
        'logging.getLogger("a").setLevel(logging.INFO if accelerator.is_local_main_process else logging.WARNING)',
        "setup",
    ),
    said(
        "a logger's level by its text",
        'logging.getLogger("a").setLevel("INFO")',
        'logging.getLogger("a").setLevel("INFO" if accelerator.is_local_main_process else "WARNING")',
        "setup",
    ),
    said(
        "a bar around the loader",
        "for x, y in tqdm.tqdm(train_loader):  # one epoch",
        f"for x, y in tqdm.tqdm(train_loader, {BAR}):  # one epoch",
        "loop",
    ),
    said(
        "a bar that is moved by hand",
        "bar = tqdm.tqdm(total=6)",
        f"bar = tqdm.tqdm(total=6, {BAR})",
        "epoch",
    ),
    said(
        "a range with a bar",
        "for i in tqdm.trange(3): pass",
        f"for i in tqdm.trange(3, {BAR}): pass",
        "after_epoch",
    ),
    said(
        "a bar that an option hides",
        "for i in tqdm.trange(3, disable=quiet): pass",
        "for i in tqdm.trange(3, disable=quiet or not accelerator.is_local_main_process): pass",
        "after_epoch",
    ),
    said(
        "a bar that is always shown",
        "for i in tqdm.trange(3, disable=False): pass",
        f"for i in tqdm.trange(3, {BAR}): pass",
        "after_epoch",
    ),
    said(
        "an experiment",
        'wandb.init(project="points")',
        'wandb.init(project="points", mode=None if accelerator.is_main_process else "disabled")',
        "setup",
    ),
    said(
        "a plot server",
        "viz = visdom.Visdom()",
        "viz = visdom.Visdom(send=accelerator.is_main_process)",
        "setup",
    ),
    said(
        "events for TensorBoard",
        'writer = SummaryWriter("runs")',
        'writer = SummaryWriter("runs" if accelerator.is_main_process else tempfile.mkdtemp())',
        "setup",
    ),
    said(
        "events for TensorBoard in the usual place",
        "writer = SummaryWriter()",
        "writer = SummaryWriter(log_dir=None if accelerator.is_main_process else tempfile.mkdtemp())",
        "setup",
    ),
    said(
        "a log file",
        'handler = logging.FileHandler("train.log")',
        'handler = logging.FileHandler("train.log" if accelerator.is_main_process else os.devnull)',
        "setup",
    ),
    said(
        "what is worth knowing once",
        "logging.basicConfig(level=logging.INFO)",
        "logging.basicConfig(level=logging.INFO if accelerator.is_local_main_process else logging.WARNING)",
        "setup",
    ),
]
SPOKEN = "import logging\nimport os\nimport pprint\nimport tempfile\n\nimport rich.console\nimport tqdm\nimport visdom\nimport wandb\nfrom torch.utils.tensorboard import SummaryWriter\n\nquiet = False"
SILENT = [
    said(
        "a bar that is never shown",
        "for i in tqdm.trange(3, disable=True): pass",
        "for i in tqdm.trange(3, disable=True): pass",
        "after_epoch",
    ),
    said(
        "a level that all may say",
        "logging.basicConfig(level=logging.ERROR)",
        "logging.basicConfig(level=logging.ERROR)",
        "setup",
    ),
]


@pytest.mark.parametrize("case", [*SPEAKERS, *SILENT], ids=lambda case: case.name)
def test_speakers(case: Case) -> None:
    """Bars, trackers and logs, made after the Accelerator, are the main process's."""
    before, after = ({**slots, "imports": SPOKEN} for slots in (case.before, case.after))
    Case(RULE, case.name, before, after, case not in SILENT, at=next(iter(case.before.values()))).check()


def test_the_accelerator_is_made_before_what_must_be_silent() -> None:
    before = """\
import logging

logging.basicConfig(filename="train.log", level=logging.INFO)
"""
    case = Case(RULE, "", {"imports": before.strip()}, {})
    result = migrate(case.script)
    made = 'accelerator = Accelerator()\nlogging.basicConfig(filename="train.log" if'
    assert made in unbroken(result.after)
    check_invariants(case.script, result)


NEGATIVE = [
    leaves(
        RULE,
        "before the Accelerator exists",
        {"options": 'print("reading the options")'},
        findings=[(RULE, "reading the options")],
    ),
    leaves(RULE, "to a file", {"imports": "import sys", "end": 'print("oh no", file=sys.stderr)'}),
    leaves(RULE, "written to standard error", {"imports": "import sys", "end": 'sys.stderr.write("oh no")'}),
    leaves(
        RULE,
        "the number of characters written",
        {"imports": "import sys", "end": 'width = sys.stdout.write("done")'},
    ),
    leaves(
        RULE,
        "written before the Accelerator exists",
        {"imports": "import sys", "options": 'sys.stdout.write("reading the options")'},
        findings=[(RULE, "reading the options")],
    ),
    leaves(
        RULE,
        "inside a module, which a library calls",
        {
            "definitions": (
                "class Net(nn.Module):\n"
                "    def __init__(self):\n"
                "        super().__init__()\n"
                "        self.layer = nn.Linear(8, 3)\n"
                "\n"
                "    def forward(self, x):\n"
                '        print("called")\n'
                "        return self.layer(x)\n"
            ),
            "model": "model = Net().to(device)",
        },
        {"model": "model = Net()"},
    ),
    leaves(
        RULE,
        "inside a data set",
        {
            "definitions": (
                "class Points(torch.utils.data.Dataset):\n"
                "    def __len__(self):\n"
                "        return 48\n"
                "\n"
                "    def __getitem__(self, index):\n"
                "        print(index)\n"
                "        return torch.ones(8), 0\n"
            ),
            "data": "train_loader = DataLoader(Points(), batch_size=8)",
        },
    ),
    leaves(
        RULE,
        "a function of the script's own called print",
        {"definitions": "def print(*words):\n    pass\n", "end": 'print("done")'},
    ),
    leaves(
        RULE,
        "a method called print",
        {"setup": "printer = open('log.txt').buffer", "end": "printer.print('done')"},
    ),
    leaves(
        RULE,
        "inside a function that is also called before there is an accelerator",
        {
            "definitions": "def report(word):\n    print(word)\n",
            "options": 'report("begins")',
            "end": 'report("ends")',
        },
        findings=[(RULE, "print(word)")],
    ),
    leaves(RULE, "a file's own write", {"imports": "import io", "end": 'io.StringIO().write("a")'}),
    leaves(RULE, "print in a string", {"end": 'note = "print(1)"'}),
    leaves(
        RULE,
        "print handed on as a value",
        {"definitions": "def call(f):\n    f(1)\n", "end": "call(print)"},
    ),
    leaves(
        RULE,
        "a worker's function, which another process calls",
        {
            "definitions": "def seed_worker(index):\n    print('worker', index)\n",
            "data": (
                "train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))\n"
                "train_loader = DataLoader(train_set, batch_size=8, worker_init_fn=seed_worker)"
            ),
        },
    ),
]


@each(POSITIVE, NEGATIVE)
def test_speaking(case: Case) -> None:
    case.check()
