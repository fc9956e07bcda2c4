"""CT102 and CT105: the spellings of the choice of a device."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest

from .support import Case, each, leaves, migrate

CONSTRUCT, OTHER = "CT102", "CT105"
GPU = """\
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", type=int, default=0)
parser.add_argument("--device", default="cuda")
args = parser.parse_args()"""
TRAINING = """\
model = moved(nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(torch.ones(8, 8), batch_size=4)
for x in loader:
    optimizer.zero_grad()
    loss = model(x.to(device)).mean()
    loss.backward()
    optimizer.step()
"""
BRANCHES = """\
if torch.cuda.is_available():
    device = torch.device("cuda")
else:
    device = torch.device("cpu")"""
CHOICE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'
FLAG = """\
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--cuda", action="store_true")
args = parser.parse_args()"""


def chosen(name: str, before: str, findings: tuple[tuple[str, str], ...] = (), **more: str) -> Case:
    """A spelling of which nothing is left but the Accelerator."""
    return Case(
        CONSTRUCT,
        name,
        {"device": before, **more},
        {"device": "accelerator = Accelerator()"},
        at=next(line for line in before.split("\n") if "device = " in line and line != 'device = "cpu"'),
        findings=findings,
    )


POSITIVE = [
    Case(
        CONSTRUCT,
        "whatever accelerator there is, or the CPU on demand",
        {
            "options": FLAG.replace("--cuda", "--no-accel"),
            "device": "use_accel = not args.no_accel and torch.accelerator.is_available()\n"
            "if use_accel:\n    device = torch.accelerator.current_accelerator()\n"
            'else:\n    device = torch.device("cpu")',
        },
        {"device": "accelerator = Accelerator(cpu=args.no_accel)"},
        at="current_accelerator",
    ),
    *(
        Case(
            "CT106",
            f"made twice, for training and in a function, as {kind}",
            {
                "definitions": f"def ones(n):\n{textwrap.indent(chosen_by, '    ')}\n    return torch.ones(n, device=device)\n",
                "device": chosen_by,
                "end": "print(ones(3).sum().item())",
            },
            {
                "definitions": "def ones(accelerator, n):\n    device = accelerator.device\n"
                "    return torch.ones(n, device=device)\n",
                "device": "accelerator = Accelerator()",
                "end": "accelerator.print(ones(accelerator, 3).sum().item())",
            },
            at="ones(n):",
            main=True,
        )
        for kind, chosen_by in (("statements", BRANCHES), ("an expression", CHOICE))
    ),
    chosen(
        "an f-string of an ordinal",
        'device = torch.device(f"cuda:{args.gpu}")',
        ((OTHER, 'f"cuda'),),
        options=GPU,
    ),
    chosen("format", 'device = "cuda:{}".format(args.gpu)', ((OTHER, '"cuda:{}"'),), options=GPU),
    chosen("joined", 'device = "cuda:" + str(args.gpu)', ((OTHER, '"cuda:"'),), options=GPU),
    chosen(
        "the kind of whatever accelerator there is",
        "device = torch.accelerator.current_accelerator().type "
        'if torch.accelerator.is_available() else "cpu"',
    ),
    Case(
        CONSTRUCT,
        "an option that a function is handed, too",
        {
            "definitions": "def look(x, device):\n    return x.to(device) * 2\n",
            "options": GPU,
            "device": "",
            "model": "model = nn.Linear(8, 3).to(args.device)",
            "batch": "x, y = look(x, args.device), y.to(args.device)",
        },
        {
            "definitions": "def look(x):\n    return x * 2\n",
            "model": 'accelerator = Accelerator(cpu=args.device == "cpu")\nmodel = nn.Linear(8, 3)',
            "batch": "x, y = look(x), y",
        },
        at="model = nn",
        findings=((OTHER, "model = nn"),),
    ),
    chosen("percent", 'device = "cuda:%d" % args.gpu', ((OTHER, '"cuda:%d"'),), options=GPU),
    chosen("an ordinal apart", 'device = torch.device("cuda", 1)', ((OTHER, "device("),)),
    chosen("the first GPU", 'device = torch.device("cuda:0")'),
    chosen(
        "an if for each kind",
        "if torch.cuda.is_available():\n"
        '    device = torch.device("cuda")\n'
        "elif torch.backends.mps.is_available():\n"
        '    device = torch.device("mps")\n'
        "else:\n"
        '    device = torch.device("cpu")',
    ),
    chosen(
        "better than the default",
        'device = "cpu"\nif torch.cuda.is_available():\n    device = "cuda"',
    ),
    Case(
        CONSTRUCT,
        "an if by a flag",
        {
            "options": FLAG,
            "device": 'if args.cuda:  # as asked\n    device = torch.device("cuda")\nelse:\n    device = torch.device("cpu")',
        },
        {"device": "# as asked\naccelerator = Accelerator(cpu=not args.cuda)"},
        at='device = torch.device("cuda")',
    ),
    Case(
        CONSTRUCT,
        "an if whose device is still used",
        {
            "device": 'device = "cpu"\nif torch.cuda.is_available():\n    device = "cuda"',
            "end": "x = torch.zeros(3, device=device)",
        },
        {"device": "accelerator = Accelerator()\ndevice = accelerator.device"},
        at='device = "cuda"',
    ),
    Case(
        CONSTRUCT,
        "an if in a function",
        {
            "device": 'if torch.cuda.is_available():\n    device = torch.device("cuda")\nelse:\n    device = torch.device("cpu")',
        },
        {"device": "accelerator = Accelerator()"},
        at='device = torch.device("cuda")',
        main=True,
    ),
    chosen(
        "a conditional in a conditional",
        'device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"',
    ),
    chosen(
        "whatever accelerator there is",
        'device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"',
    ),
    Case(
        CONSTRUCT,
        "an attribute of the options",
        {
            "options": GPU,
            "device": 'args.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")',
            "model": "model = nn.Linear(8, 3).to(args.device)",
            "batch": "x, y = x.to(args.device), y.to(args.device)",
        },
        {"device": "accelerator = Accelerator()", "model": "model = nn.Linear(8, 3)", "batch": ""},
        at="args.device = torch",
    ),
    Case(
        CONSTRUCT,
        "the option itself",
        {
            "options": GPU,
            "device": "",
            "model": "model = nn.Linear(8, 3).to(args.device)",
            "batch": "x, y = x.to(args.device), y.to(args.device)",
        },
        {
            "device": "",
            "model": 'accelerator = Accelerator(cpu=args.device == "cpu")\nmodel = nn.Linear(8, 3)',
            "batch": "",
        },
        at="model = nn.Linear",
        findings=((OTHER, "model = nn.Linear"),),
    ),
    Case(
        OTHER,
        "the default device",
        {
            "device": "",
            "setup": 'torch.set_default_device("cuda")',
            "batch": "",
            "model": "model = nn.Linear(8, 3)",
        },
        {
            "device": "",
            "model": "accelerator = Accelerator()\nmodel = nn.Linear(8, 3)",
            "setup": "torch.set_default_device(accelerator.device)",
        },
    ),
]

NEGATIVE = [
    leaves(
        CONSTRUCT,
        "a text that is put together and names no device",
        {"setup": 'name = "epochs:{}".format(2)\nassert name'},
    ),
    leaves(
        OTHER,
        "an if that does more",
        {
            "options": "workers = 0",
            "device": 'device = torch.device("cuda")',
            "setup": "if torch.cuda.is_available():\n    workers = 4\nelse:\n    workers = 0",
        },
        {"device": "accelerator = Accelerator()"},
    ),
    leaves(
        OTHER,
        "an if between the CPU and the CPU",
        {"setup": 'if len(train_set) > 9:\n    host = "cpu"\nelse:\n    host = "cpu"\nassert host'},
    ),
    leaves(
        OTHER,
        "constant tensors that forward makes on CUDA are reported",
        {
            "definitions": (
                "class Net(nn.Module):\n"
                "    def __init__(self):\n"
                "        super().__init__()\n"
                "        self.layer = nn.Linear(8, 3)\n"
                "\n"
                "    def forward(self, x):\n"
                "        return self.layer(x) + torch.zeros(3).cuda()\n"
            ),
            "model": "model = Net().cuda()",
        },
        {"model": "model = Net()"},
        findings=[(OTHER, "torch.zeros(3).cuda()")],
    ),
    leaves(
        OTHER,
        "tensor types of CUDA's own are reported",
        {
            "setup": "Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor",
            "batch": "x = x.type(Tensor)",
        },
        findings=[(OTHER, "Tensor = torch.cuda")],
    ),
    leaves(
        OTHER,
        "a default tensor type of CUDA's own is reported",
        {"options": 'torch.set_default_tensor_type("torch.cuda.FloatTensor")'},
        findings=[(OTHER, "set_default_tensor_type")],
    ),
]


@each(POSITIVE, NEGATIVE)
def test_choice_of_device(case: Case) -> None:
    case.check()


def test_a_short_form_behind_it_does_not_hide_what_an_option_is() -> None:
    options = GPU.replace('"--device",', '"--device", "-d",')
    (spelled,) = (case for case in POSITIVE if case.name == "the option itself")
    assert options != GPU
    replace(spelled, before={**spelled.before, "options": options}).check()


def test_waiting_for_cuda_is_asked_for_where_cuda_is() -> None:
    Case(
        OTHER,
        "a clock around the epoch",
        {
            "after_epoch": "torch.cuda.synchronize()",
            "end": "if torch.cuda.is_available():\n    torch.cuda.synchronize()",
        },
        {"after_epoch": "if torch.cuda.is_available():\n    torch.cuda.synchronize()"},
        at="torch.cuda.synchronize()",
    ).check()


AGAIN = """\
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def moved(model):
    return model.to(device)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="cpu")
    args = parser.parse_args()
    device = torch.device({})
"""


@pytest.mark.parametrize(
    ("again", "said"),
    [
        ('"cuda" if args.backend == "gpu" else "cpu"', [18]),
        ('"cuda" if torch.cuda.is_available() else "cpu"', []),
    ],
    ids=["by a switch", "as before"],
)
def test_a_device_that_is_chosen_again(again: str, said: list[int]) -> None:
    """The first choice becomes the Accelerator, before there are arguments: a switch of the second is lost, and told."""
    script = (
        "import argparse\n\nimport torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\n\n"
        + AGAIN
    )
    script = script.format(again) + textwrap.indent(TRAINING, "    ")
    result = migrate(script)
    assert result.changed
    assert [f.line for f in result.findings if "cannot reach" in f.reason] == said
