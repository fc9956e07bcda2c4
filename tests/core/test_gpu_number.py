"""`--gpu 1`: a process that nobody launched stays on the GPU that its author's option names."""

from typing import Any

import pytest
from crosstrain_migrate.syntax.program import link

from .converting import conversion, converted, notes
from .support import each_row
from .test_choice_run import Stop, begin

SCRIPT = """import argparse
import os
<torch>
parser = argparse.ArgumentParser()
parser.add_argument("--gpu", type=int, default=0)
parser.add_argument("--gpus", default="0,1")
parser.add_argument("--no_cuda", action="store_true")
{begin}
def train(model, gpu, device=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader([], 8):
        x, y = {batch}
        <step>
{chosen}
"""
PARSED = "args = parser.parse_args()"
IN_CUDA = "x.cuda(gpu), y.cuda(gpu)"
TO_DEVICE = "x.to(device), y.to(device)"
BY_DEVICE = "model = torch.nn.Linear(4, 2).to(device)\ntrain(model, None, device)"
MAIN = """def main():
    {parsed}
    {number}
    model = torch.nn.Linear(4, 2).cuda({use})
    train(model, {use})
if __name__ == "__main__":
    main()
"""

# How the number is written, and what chooses: what the batches are moved by, and the rest of the script.
DEVICES = [
    'torch.device("cuda", args.gpu)',
    'torch.device(f"cuda:{args.gpu}")',
    '"cuda:" + str(args.gpu)',
    '"cuda:{}".format(args.gpu)',
    'torch.device(f"cuda:{args.gpu}" if torch.cuda.is_available() else "cpu")',
    'torch.device("cuda:%d" % args.gpu if torch.cuda.is_available() and not args.no_cuda else "cpu")',
]
IN_CURRENT = "x.cuda(), y.cuda()"
IS_MAIN = f"""if __name__ == "__main__":
    {PARSED}
    gpu = args.gpu[0] if isinstance(args.gpu, list) else args.gpu
    train(torch.nn.Linear(4, 2).cuda(gpu), gpu)"""
LINE = "model = torch.nn.Linear(4, 2)"
ENTRY = f'{LINE}.cuda(params["gpu"])\ntrain(model, params["gpu"])'
SETS = "def set_up(args):\n    args.device = torch.device('cuda', args.gpu)\nset_up(args)"
BY_GLOBAL = "args = None\ndef read():\n    global args\n    args = parser.parse_args()"
READ_IN_MAIN = MAIN.format(parsed="read()", number="torch.cuda.set_device(args.gpu)", use="args.gpu")
SPELLINGS = [
    (BY_GLOBAL, IN_CURRENT, READ_IN_MAIN),
    *((PARSED, TO_DEVICE, f"device = {one}\n{BY_DEVICE}") for one in DEVICES),
    (PARSED, IN_CUDA, f"{LINE}.cuda(args.gpu)\ntrain(model, args.gpu)"),
    (PARSED, IN_CURRENT, f"torch.cuda.set_device(args.gpu)\n{LINE}.cuda()\ntrain(model, 0)"),
    (PARSED, IN_CURRENT, "with torch.cuda.device(args.gpu):\n    train(torch.nn.Linear(4, 2).cuda(), 0)"),
    (PARSED, IN_CUDA, f"{SETS}\n{LINE}.cuda(args.device)\ntrain(model, args.device)"),
    ("", IN_CUDA, IS_MAIN),
    ("params = vars(parser.parse_args())", IN_CUDA, ENTRY),
    ("", IN_CUDA, MAIN.format(parsed=PARSED, number="GPU = args.gpu", use="GPU")),
]


def _number(text: str, flags: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The number of the GPU that a script's first accelerator is told, or "cpu"."""
    with pytest.raises(Stop) as made:
        begin(text, flags, True, monkeypatch)
    kind, number = made.value.args
    return "cpu" if kind == "cpu" else number


@pytest.mark.parametrize(("first", "batch", "chosen"), SPELLINGS)
def test_an_option_still_chooses_the_gpu(
    first: str, batch: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SCRIPT.format(begin=first, batch=batch, chosen=chosen)
    after = converted(text)
    assert _number(after, ["--gpu", "1"], monkeypatch) == 1
    assert _number(after, [], monkeypatch) == 0
    if "no_cuda else" in chosen:
        assert _number(after, ["--gpu", "1", "--no_cuda"], monkeypatch) == "cpu"
    assert not [one for one in notes(text, "CT105") if "chooses no GPU" in one.reason]


@pytest.mark.parametrize(
    ("made", "is_said"),
    [("2).cuda()", False), ("2).cuda(args.cuda + 1)", True), ("args.cuda).cuda()", False)],
)
def test_a_method_is_no_option_of_its_name_and_a_width_no_gpu(made: str, is_said: bool) -> None:
    chosen = f"model = torch.nn.Linear(4, {made}\ntrain(model, 0)"
    text = SCRIPT.format(begin=PARSED, batch=IN_CURRENT, chosen=chosen).replace('--gpu"', '--cuda"')
    assert bool([one for one in notes(text, "CT105") if "chooses no GPU" in one.reason]) is is_said


IN_A_CLASS = """import argparse
<torch>
class Base:
    def __init__(self, args):
        self.args = args
        self.device = torch.device("cuda:{{}}".format(self.args.gpu){choice})
        self.model = torch.nn.Linear(4, 2).to(self.device)
class Trainer(Base):
    def __init__(self, args):
        super().__init__(args)
    def train(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        <loop torch.nn.functional.mse_loss(self.model(x.to(self.device)), y.to(self.device))>
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--use_gpu", type=int, default=1)
    args = parser.parse_args()
    kind = Trainer
    trainer = kind(args)
    trainer.train()
main()
"""


@pytest.mark.parametrize("choice", ["", ' if self.args.use_gpu else "cpu"'])
def test_an_object_that_got_options_keeps_the_number(choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    after = converted(IN_A_CLASS.format(choice=choice))
    assert _number(after, ["--gpu", "1"], monkeypatch) == 1
    if choice:
        assert _number(after, ["--gpu", "1", "--use_gpu", "0"], monkeypatch) == "cpu"


def test_one_option_in_two_words_is_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """`args.gpu` here, `self.args.gpu` in an object; two options are two."""
    parsed = "    args = parser.parse_args()\n"
    text = IN_A_CLASS.format(choice="").replace(parsed, parsed + "    torch.cuda.set_device(args.gpu)\n")
    assert _number(converted(text), ["--gpu", "1"], monkeypatch) == 1
    assert "device=args" not in converted(text.replace("device(args.gpu)", "device(args.use_gpu)"))


def test_a_number_beside_an_option_that_knows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--kind cuda --gpu 1`; without choices the other option may say `cuda:1`."""
    begins = f'parser.add_argument("--kind", default="cuda", choices=["cpu", "cuda"])\n{PARSED}'
    chosen = f"device = torch.device(args.kind)\ntorch.cuda.set_device(args.gpu)\n{BY_DEVICE}"
    after = converted(text := SCRIPT.format(begin=begins, batch=TO_DEVICE, chosen=chosen))
    assert _number(after, ["--gpu", "1"], monkeypatch) == 1
    assert _number(after, ["--gpu", "1", "--kind", "cpu"], monkeypatch) == "cpu"
    assert "Accelerator(device=args.kind)" in converted(text.replace(', choices=["cpu", "cuda"]', ""))


def test_a_constant_number_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    by_device = f'device = torch.device("cuda:2")\n{BY_DEVICE}'
    text = SCRIPT.format(begin=PARSED, batch=TO_DEVICE, chosen=by_device)
    assert "Accelerator(device=2)" in converted(text)
    assert "Accelerator()" in converted(text.replace("cuda:2", "cuda:0"))
    named = 'name = "cuda:0"\nif args.gpu:\n    name = "cuda:" + str(int(args.gpu))\n'
    after = converted(text.replace(by_device, f"{named}device = torch.device(name)\n{BY_DEVICE}"))
    assert _number(after, ["--gpu", "1"], monkeypatch) == 1


@each_row(r"""
chosen
# two models on two GPUs
other = torch.nn.Linear(4, 2).cuda(1)\nmodel = torch.nn.Linear(4, 2).cuda(args.gpu)\ntrain(model, args.gpu)
# bound anew for every round
for gpu in range(args.gpu):\n    model = torch.nn.Linear(4, 2).cuda(gpu)\n    train(model, gpu)
""")
def test_several_numbers_are_none(chosen: str) -> None:
    assert "Accelerator(device" not in converted(SCRIPT.format(begin=PARSED, batch=IN_CUDA, chosen=chosen))


def test_a_local_rank_is_the_launchers() -> None:
    parsed = f'parser.add_argument("--local_rank", type=int, default=0)\n{PARSED}'
    chosen = f'device = torch.device("cuda", args.local_rank)\n{BY_DEVICE}'
    text = SCRIPT.format(begin=parsed, batch=TO_DEVICE, chosen=chosen)
    assert "device=args.local_rank" not in converted(text)


@each_row(r"""
chosen => is_said
model = torch.nn.Linear(4, 2).cuda(args.gpu)\ntrain(model, args.gpu) => True
held = {'gpu': args.gpu, 'first': 0}\nmodel = torch.nn.Linear(4, 2).cuda(held['gpu'])\ntrain(model, 0) => True
held = {'gpu': args.gpu, 'first': 0}\nmodel = torch.nn.Linear(4, 2).cuda(held['first'])\ntrain(model, 0) => False
GPU = args.gpu\n\ndef main():\n    train(torch.nn.Linear(4, 2).cuda(GPU), 0)\n\nmain() => True
""")
def test_accelerate_cannot_be_told_a_number(chosen: str, is_said: bool) -> None:
    text = SCRIPT.format(begin=PARSED, batch=IN_CURRENT, chosen=chosen)
    result = conversion(text, "accelerate")
    assert "Accelerator()" in result.text
    assert any("chooses no GPU any more" in one.reason for one in result.findings) is is_said


TWO_FILES = """<torch>
from tools import device, to_device
def main():
    <model torch.nn.Linear(4, 2).to(device)>
    <loop torch.nn.functional.mse_loss(model(to_device(x)), to_device(y))>
if __name__ == "__main__":
    main()
"""
TOOLS = """import torch
device = torch.device("cuda:1" if torch.cuda.is_available() else "cpu")
def to_device(x):
    return x.to(device)
"""


def test_a_gpu_that_an_imported_file_chooses_is_kept_there() -> None:
    """It is chosen before there is an accelerator: all that the processes compute must be on one device each."""
    chosen = "Accelerator(device=torch.device({})).device\n"
    text = link([("tools.py", TOOLS), ("train.py", TWO_FILES)], ("",))
    after = converted(text)
    assert chosen.format('"cuda:1" if torch.cuda.is_available() else "cpu"') in after
    assert "accelerator = Accelerator()" in after and not notes(text, "CT105")
    branches = (
        TOOLS.replace(' if torch.cuda.is_available() else "cpu"', "")
        .replace("device =", "gpu = 1\nif gpu is not None:\n    device =")
        .replace('"cuda:1")', 'f"cuda:{gpu}")\nelse:\n    device = torch.device("cpu")')
    )
    other_name = (
        TWO_FILES.replace("from tools", "import tools\nfrom tools")
        .replace("import device, ", "import ")
        .replace("    <model", "    device = tools.device\n    <model")
    )
    after = converted(link([("tools.py", branches), ("train.py", other_name)], ("",)))
    assert chosen.format('f"cuda:{gpu}"') in after and chosen.format('"cpu"') in after
    assert "accelerator = Accelerator()" in after and "device = tools.device\n" in after


@pytest.mark.parametrize("begin", ['device = torch.device("cuda:1")', 'device = "cuda:" + str(args.gpu)'])
@pytest.mark.parametrize("moved", [TO_DEVICE, "x.cuda(device), y.cuda(device)"])
def test_the_accelerator_is_above_the_device(begin: str, moved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SCRIPT.format(begin=f"{PARSED}\n{begin}", batch=moved, chosen=BY_DEVICE)
    after = converted(text)
    assert "PartialState" not in after and "cuda:" not in after
    assert after.index("accelerator = Accelerator(device=") < after.index("\ndevice = ")
    assert _number(after, ["--gpu", "1"], monkeypatch) == 1


def test_a_top_level_device_above_a_function_that_begins_the_training() -> None:
    text = TWO_FILES.replace("from tools import device, to_device\n", TOOLS.removeprefix("import torch\n"))
    after = converted(text)
    assert "PartialState" not in after
    assert "accelerator = Accelerator(device=1)\ndevice = accelerator.device\n" in after


def test_the_accelerator_is_above_a_device_beside_settings_of_a_class() -> None:
    read = (
        "args = argparse.ArgumentParser().parse_args()\n        self.gpus = [int(one) for one in args.gpus]"
    )
    text = SCRIPT.format(
        begin=f"class Config:\n    def __init__(self):\n        {read}\nheld = Config()\n{{}}\nprint(held.gpus)",
        batch="x.cuda(), y.cuda()",
        chosen="def main():\n    torch.cuda.set_device(held.gpus[0])\n    train(torch.nn.Linear(4, 2).to({}), 0)\nmain()",
    )
    after = converted(text.format('device = torch.device("cuda")', "device"))
    assert "accelerator = Accelerator(device=held.gpus[0])\ndevice = accelerator.device\n" in after
    assert "held = Config()\nlog()\naccelerator = Accelerator(" in converted(text.format("log()", "0"))


def test_a_number_that_nobody_can_follow_is_said() -> None:
    main = "def main(held):\n    gpu = held.pop()\n    train(torch.nn.Linear(4, 2).cuda(gpu), gpu)\n"
    chosen = f"{main}\nfor one in held:\n    main(one)"
    text = SCRIPT.format(begin="import settings\nheld = settings.read()", batch=IN_CUDA, chosen=chosen)
    assert any("chooses no GPU any more" in one.reason for one in notes(text, "CT105"))
    assert not notes(text.replace(".cuda(gpu)", ".cuda()"), "CT105")
    of_settings = text.replace("gpu = held.pop()", 'torch.cuda.set_device(held["gpu"])')
    assert notes(of_settings.replace(".cuda(gpu)", ".cuda()"), "CT105")


@pytest.mark.parametrize("wrapped", ["Spread(model, device_ids=args.gpus)", "Spread(model)"])
def test_the_first_of_the_gpus_that_a_model_is_spread_over(wrapped: str) -> None:
    kind = f"{PARSED}\nclass Spread(torch.nn.DataParallel):\n    pass\n"
    chosen = f"model = torch.nn.Linear(4, 2).to(args.gpus[0])\nspread = {wrapped}\ntrain(model, 0)"
    after = converted(SCRIPT.format(begin=kind, batch=IN_CURRENT, chosen=chosen))
    assert ("Accelerator(device=args.gpus[0])" in after) is ("device_ids" in wrapped)
    assert (".to(accelerator.device)\nspread" in after) is ("device_ids" in wrapped)


@pytest.mark.parametrize("is_above", [True, False])
def test_the_first_of_the_gpus_above_the_line_that_splits_them(is_above: bool) -> None:
    split = "[int(n) for n in args.gpus.split(',')]"
    lines = [LINE, f"args.gpus = {split}"][:: 1 if is_above else -1]
    used = ["torch.cuda.set_device(args.gpus[0])", "train(model, args.gpus[0])"]
    after = converted(SCRIPT.format(begin=PARSED, batch=IN_CUDA, chosen="\n".join(lines + used)))
    assert f"Accelerator(device={split if is_above else 'args.gpus'}[0])" in after


START = 'torch.distributed.init_process_group("nccl")'


@pytest.mark.parametrize(("number", "told"), [("args.gpu", "device=args.gpu"), ("args.place", "")])
def test_an_option_chooses_the_gpu_of_a_script_that_distributes_itself(number: str, told: str) -> None:
    """A number that such a script computes is that of one of its processes; the accelerator stays where the group is made."""
    group = f"{PARSED}\nargs.place = args.gpu % 2\n{START}"
    chosen = f"{LINE}.cuda({number})\ntrain(model, {number})"
    assert f"Accelerator({told})" in converted(SCRIPT.format(begin=group, batch=IN_CUDA, chosen=chosen))
    main = f"def main(args):\n    {START}\n    {LINE}.cuda(args.gpu)\n    train(model, args.gpu)\nmain(args)"
    assert "Accelerator(device" not in converted(SCRIPT.format(begin=PARSED, batch=IN_CUDA, chosen=main))


CONFIGURED = """import argparse
from settings import cfg, merge
from steps import train
<torch>
def main():
    args = argparse.ArgumentParser().parse_args()
    merge(args.cfg)
    print("read")
    model = torch.nn.Linear(4, 2)
    train(model, {rows}, cfg)
if __name__ == "__main__":
    main()
"""
STEPS = """<torch>
from helpers import loss_of
def train(model, rows, cfg):
    device = cfg.GPU_ID
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in rows:
        out = model(x.cuda(device))
        loss = loss_of(out, y, device)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
HELPERS = (
    "import torch\ndef loss_of(out, y, device):\n    return torch.nn.functional.mse_loss(out, y.to({}))\n"
)


@pytest.mark.parametrize("moved", ["device", "f'cuda:{device}'"])
def test_the_number_of_settings_that_a_file_replaces_below(moved: str) -> None:
    """The settings of another file are those of this run where the function that reads its file needs a GPU; a helper that only
    moves to a number is given the accelerator's device in its place."""
    files = [("helpers.py", HELPERS.format(moved)), ("steps.py", STEPS), ("train.py", CONFIGURED)]
    after = converted(
        link([(name, text.replace("{rows}", "DataLoader([], 8)")) for name, text in files], ("",))
    )
    assert "cfg\naccelerator" not in after
    assert ("loss_of(out, y, accelerator.device)" in after) is (moved == "device")


@each_row(r"""
runs => is_known
train(args.gpu) => True
for n in (0, 1): train(n)\ntrain(2) => False
""")
def test_a_variable_that_holds_the_number_and_then_its_device(runs: str, is_known: bool) -> None:
    own = 'def train(device):\n    device = torch.device(f"cuda:{device}")\n    model = torch.nn.Linear(4, 2).to(device)\n'
    text = SCRIPT[: SCRIPT.index("def train")].format(begin=PARSED) + own
    text += SCRIPT.partition("device=None):\n")[2].format(batch=TO_DEVICE, chosen=runs)
    assert ("device=args.gpu" in converted(text)) is is_known
    assert ("chooses no GPU any more" in str(notes(text, "CT105"))) is not is_known


@pytest.mark.parametrize(("nargs", "is_number"), [("", True), (', nargs="?"', True), (', nargs="*"', False)])
def test_an_option_of_several_numbers_is_no_device(nargs: str, is_number: bool) -> None:
    """Each process of the author's own group has one of them, which its function is given."""
    text = SCRIPT.format(begin=PARSED, batch=IN_CUDA, chosen=f"{LINE}.cuda(args.gpu)\ntrain(model, args.gpu)")
    after = converted(text.replace('"--gpu", type=int', f'"--gpu", type=int{nargs}'))
    assert ("Accelerator(device=args.gpu)" in after) is is_number


GLOBAL = """import argparse
<torch>
def noise(rows, device=torch.device("cuda:0")):
    return torch.randn(rows, device=device)
def main():
    device = torch.device({named} if torch.cuda.is_available() else "cpu")
    model = nn.Linear(2, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x in DataLoader(torch.ones(8, 2)):
        <step model(x.to(device) + noise(1, device)).mean()>
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", type=int, default=0)
    args = parser.parse_args()
    main()
"""


@pytest.mark.parametrize("named", ['"cuda:" + str(args.gpu)', 'f"cuda:{args.gpu}"'])
def test_a_number_of_global_options_is_known_above_the_call_of_what_trains(named: str) -> None:
    after = converted(GLOBAL.format(named=named))
    assert "    accelerator = Accelerator(device=args.gpu)\n    main()" in after, after
