"""CT401: one process speaks."""

from __future__ import annotations

from .support import Case, converts, each, leaves

RULE = "CT401"


def said(name: str, before: str, after: str, slot: str = "end") -> Case:
    return converts(RULE, name, {slot: before}, {slot: after})


POSITIVE = [
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
    said(
        "over several lines",
        'print(\n    "epoch",  # which\n    epoch,\n)',
        'accelerator.print(\n    "epoch",  # which\n    epoch,\n)',
        "after_epoch",
    ),
]

NEGATIVE = [
    leaves(
        RULE,
        "before the Accelerator exists",
        {"options": 'print("reading the options")'},
        findings=[(RULE, "reading the options")],
    ),
    leaves(RULE, "to a file", {"imports": "import sys", "end": 'print("oh no", file=sys.stderr)'}),
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
    leaves(RULE, "pretty printing", {"imports": "from pprint import pprint", "end": "pprint({1: 2})"}),
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
