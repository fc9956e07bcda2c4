"""Scripts that share a trainer, a model and a helper: one of them is converted, and both train as before."""

from pathlib import Path

import pytest

from .projects import convert, rewritten, train, write
from .support import each_row

NET = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)
        self.scale = torch.ones(1).cuda() if torch.cuda.is_available() else torch.ones(1)
    def forward(self, x):
        return self.line(x) * self.scale
def tested(model, loader):
    last = None
    with torch.no_grad():
        for x, y in loader:
            last = y if last is None else model(x) * last
    print("tested", last)
"""
HELPER = """
import logging, torch, tqdm
logging.getLogger("own").setLevel(logging.INFO)
def unwrapped(model):
    return model.module if hasattr(model, "module") else model
def placed(model, device):
    print(device)
    return model.to(device)
def save(model, path):
    torch.save(unwrapped(model).state_dict(), path)
    print(path)
    tqdm.tqdm([path]).close()
"""
TRAINER = """
import torch
from helper import save
def one_epoch(model, loader, optimizer, device):
    model.train()
    total = 0.0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        <step loss = torch.nn.functional.mse_loss(model(x), y)>
        total += loss.item()
    print("trained", total)
    return total / len(loader)
def finish(model, path):
    save(model, path)
"""
SCRIPT = """
<torch>
from helper import placed
from net import Net, tested
from trainer import finish, one_epoch
def main(path, rate):
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = placed(Net(), device)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    rows = torch.arange(8.0).view(8, 1)
    loader = DataLoader(TensorDataset(rows, 2 * rows), batch_size=2)
    for epoch in range(2):
        print(one_epoch(model, loader, optimizer, device))
    tested(model, loader)
    finish(model, path)
    return {name: value.item() for name, value in torch.load(path).items()}
if __name__ == "__main__":
    result = main("NAME.pt", RATE)
"""


def _project(folder: Path) -> Path:
    teacher = SCRIPT.replace("NAME", "teacher").replace("RATE", "0.01")
    student = SCRIPT.replace("NAME", "student").replace("RATE", "0.02")
    return write(folder, net=NET, helper=HELPER, trainer=TRAINER, teacher=teacher, student=student)


@pytest.mark.parametrize(("first", "second"), [("teacher", "student"), ("student", "teacher")])
def test_the_script_that_was_not_converted_trains_as_before(first: str, second: str, tmp_path: Path) -> None:
    folder = _project(tmp_path)
    before = [train(folder, name, launched=False)[0] for name in (first, second)]
    convert(folder, first)
    assert [train(folder, name, launched=False)[0] for name in (first, second)] == before
    zero, one = train(folder, first, 2)
    assert zero == one and list(zero) == list(before[0])
    convert(folder, second)
    assert [train(folder, name, launched=False)[0] for name in (first, second)] == before
    zero, one = train(folder, second, 2)
    assert zero == one and list(zero) == list(before[1])
    own, others = (folder / "trainer.py").read_text(), (folder / "helper.py").read_text()
    # It trains; a helper may be of any script.
    assert '.print("trained"' in own and "\n    print(path)" in others and "\n    print(device)" in others
    assert '.print("tested"' in (folder / "net.py").read_text()
    text = (folder / f"{second}.py").read_text()
    assert "accelerator = Accelerator()" in text and ".is_main_process" in text, "its own part is converted"


@pytest.mark.parametrize("flag", ["", "and rate < 9 "])
def test_what_a_shared_helper_asks_of_a_wrapper_stays(flag: str, tmp_path: Path) -> None:
    folder = _project(tmp_path)
    above = (
        'placed(Net(), "cpu")  # before the script has chosen its device\n    device' if flag else "device"
    )
    text = (folder / "teacher.py").read_text().replace("    device =", f"    {above} =")
    (folder / "teacher.py").write_text(text.replace("() else", f"() {flag}else"))
    outcome, helper = convert(folder, "teacher"), (folder / "helper.py").read_text()
    assert 'return model.module if hasattr(model, "module") else model' in helper
    assert "return model.to(device)" in helper and ".setLevel(logging.INFO)" in helper
    found = {f.reason: f.line for one in outcome.files for f in one.result.findings}
    for does in ("logger that other scripts use as well logs", "bar that other scripts use as well shows"):
        assert f"a {does} on every process" in found
    assert found["files that neither train nor evaluate print on every process"] == 6


def test_what_the_steps_call_of_a_shared_helper_is_said_once(tmp_path: Path) -> None:
    meter = (
        "import pylab\nclass Meter:\n    def show(self, i):\n        print(i)\n    def close(self):\n"
        "        print('end')\n        self.n = 1\n        pylab.show()\n"
        "    def backward(self, grad):\n        print(grad)\n"
    )
    text = f"from meter import Meter\nmeter = Meter()\n{TRAIN.replace('from measure', '# from measure')}"
    text = text.replace("    return", "        meter.show(x)\n    meter.close()\n    return")
    text = text.replace("measure(3)", "0") + "main(8)\n"
    after = rewritten(tmp_path, "entry", meter=meter, other="from meter import Meter\nMeter()\n", entry=text)
    assert "        PartialState().print(i)\n" in after["meter"] and "        print('end')" in after["meter"]
    assert "        print(grad)" in after["meter"]  # no pass calls it by its name
    assert "is_main_process:\n            pylab.show()\n" in after["meter"]


RUN = """
import torch
def main(size, device_name="cuda:0"):
    device = torch.device(device_name)
    return torch.zeros(size, device=device).sum().item()
"""
TRAIN = """
<torch>
from measure import main as measure
def main(rows):
    <model torch.nn.Linear(1, 1)>
    for x, y in DataLoader(TensorDataset(torch.ones(rows, 1), torch.ones(rows, 1)), batch_size=4):
        <step>
    return measure(3)
"""

ENTRY = """
import torch
from trainer import main
if __name__ == "__main__":
    result = main(8)
"""


def test_functions_of_one_name_in_several_files_are_told_apart(tmp_path: Path) -> None:
    """A call is given the device only where the function that it names takes one."""
    after = rewritten(tmp_path, "entry", measure=RUN, trainer=TRAIN, entry=ENTRY)
    assert "measure(3, device_name=" in after["trainer"] and "main(8)\n" in after["entry"]
    assert train(tmp_path, "entry", 2) == [0.0, 0.0]


@each_row("""
shares => given => moved
True => '' => zeros.to(PartialState().device.type)
False => '' => zeros.to(PartialState().device)
True => x.get_device() => zeros.to(PartialState().device.type)
True => at => zeros.to(PartialState().device.type)
True => 0 => zeros.to(PartialState().device)
""")
def test_a_network_to_be_replicated_follows_the_current_gpu(
    shares: bool, given: str, moved: str, tmp_path: Path
) -> None:
    """DataParallel runs a replica with its own GPU as the current one."""
    at = "zeros, at = torch.zeros(len(x), 1), None\n        at = x.get_device()"
    net = NET.replace("return self.line(x)", f"{at}\n        return zeros.cuda({given}) + self.line(x)")
    folder = write(_project(tmp_path), net=net)
    if not shares:
        (folder / "student.py").unlink()
    convert(folder, "teacher")
    assert f"return {moved} + self.line(x)" in (folder / "net.py").read_text()
    assert len(train(folder, "teacher", 2)) == 2


LEARNER = """
class Learner:
    def __init__(self, model, optimizer=None, device=None):
        self.model = model.to(device)
        self.optimizer = optimizer
    def learn(self, loader):
        self.model.train()
        for x, in loader:
            loss = self.model(x).pow(2).mean()
            <self.step loss>
"""
LEARNS = """
<torch>
from learner import Learner
model = torch.nn.Linear(4, 1)
learner = Learner(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.device("cpu"))
learner.learn(DataLoader(TensorDataset(torch.ones(8, 4)), 2))
"""

MEASURES = "import torch\nfrom learner import Learner\nprint(Learner(torch.nn.Linear(4, 1)))\n"

ABOVE = "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).parent.parent))\n"


@pytest.mark.parametrize("script", ["train", "tools/train"])
@pytest.mark.parametrize("others", [{"measure": MEASURES}, {}])
def test_a_shared_class_prepares_where_it_trains(others: dict[str, str], script: str, tmp_path: Path) -> None:
    """A test may make an object of it on another device than the accelerator's."""
    (tmp_path / "tools").mkdir()
    convert(write(tmp_path, learner=LEARNER, **{script: ABOVE + LEARNS}, **others), script)
    init, learn = (tmp_path / "learner.py").read_text().split("def learn")
    assert ("prepare(self.model" in learn) is bool(others) is ("prepare(self.model" not in init)


GIVEN_DEVICE = {
    "trainer": """
        import torch
        class Base:
            def __init__(self, epochs, device=torch.device("cuda:0")):
                self.epochs = epochs
                self.device = torch.device(device)
            def put(self, device):
                self.at = torch.device(device)
                return self
            def run(self, loader, model):
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                for x, y in loader:
                    <step torch.nn.functional.mse_loss(model(x.to(self.device)), y.to(self.device))>
        class Trainer(Base):
            pass
        """,
    "train": """
        <torch>
        from trainer import Trainer
        device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        model = torch.nn.Linear(4, 2).to(device)
        def made(device):
            return Trainer({given})
        made(device).run(DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 2)), 2), model)
        result = model.weight.tolist()
        """,
}

GOT = "self.device = torch.device(device)"
IF_GIVEN = f"if device:\n{' ' * 20}{GOT}\n{' ' * 16}else:\n{' ' * 20}device = 'cuda'"


@pytest.mark.parametrize(
    ("given", "got", "stays"),
    [
        ("1, device", GOT, True),
        ("1, device=device", IF_GIVEN, True),
        ("1, device", f"device = 'cuda'\n{' ' * 16}{GOT}", False),
        ("*[1, (lambda where: where)(device)]", GOT, False),
        ("1", GOT, False),
        ("1, device).put(device", GOT, True),
        ("1, device).put('cuda'", GOT, True),
    ],
)
def test_a_class_of_another_file_keeps_the_device_it_got(
    given: str, got: str, stays: bool, tmp_path: Path
) -> None:
    """Other scripts of the project give theirs; where a call gives none, the default would be one GPU for all processes."""
    trainer, script = GIVEN_DEVICE["trainer"].replace(GOT, got), GIVEN_DEVICE["train"].format(given=given)
    after = rewritten(tmp_path, "train", trainer=trainer, train=script)["trainer"]
    assert (GOT in after) is stays
    assert ("self.at = torch.device(device)" in after) is ("put('cuda'" not in given)


OWN_GROUP = """
import os
import torch
import torch.distributed as dist
def start(backend="gloo"):
    torch.manual_seed(0)
    dist.init_process_group(backend=backend)
def number():
    return dist.get_rank() if dist.is_initialized() else 0
"""

IN_GROUP = """
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from group import number, start
def main():
    start()
    rows = TensorDataset(torch.arange(8.0).view(8, 1), torch.arange(8.0).view(8, 1))
    loader = DataLoader(rows, batch_size=2, sampler=DistributedSampler(rows))
    <model DistributedDataParallel(torch.nn.Linear(1, 1))>
    for x, y in loader:
        <step>
    return number(), len(loader)
if __name__ == "__main__":
    result = main()
"""

NUMBERED = OWN_GROUP.replace('backend="gloo"', "rank=-1, size=-1").replace(
    "=backend", "='gloo', rank=rank, world_size=size"
)


@pytest.mark.parametrize(
    ("group", "made"),
    [(OWN_GROUP, "PartialState(group_of_one=True)"), (NUMBERED, "dist.is_initialized() or dist.")],
)
def test_another_script_still_has_the_group_that_a_shared_module_makes(
    group: str, made: str, tmp_path: Path
) -> None:
    """The module's function makes it where no accelerator has; in the converted script there is one already."""
    assert made in rewritten(tmp_path, "first", group=group, first=IN_GROUP, second=IN_GROUP)["group"]
    assert train(tmp_path, "second", 2) == [(0, 2), (1, 2)]
    assert train(tmp_path, "first", 2) == [(0, 2), (1, 2)]


@pytest.mark.parametrize("others", [{"measure": "from group import wanted\nprint(wanted(1))"}, {}])
def test_a_count_of_gpus_in_a_shared_module_stays_that_where_nothing_is_launched(
    others: dict[str, str], tmp_path: Path
) -> None:
    wanted = "def wanted(n):\n    assert n < torch.cuda.device_count()\n    return n\n"
    first = IN_GROUP.replace("start\n", "start, wanted\n").replace("    start()", "    start(); wanted(0)")
    after = rewritten(tmp_path, "first", group=OWN_GROUP + wanted, first=first, **others)["group"]
    count = "torch.cuda.device_count() or 1" if others else "1"
    assert f'assert n < int(os.environ.get("LOCAL_WORLD_SIZE", {count}))' in after


@pytest.mark.parametrize("bound", ['"cuda"', "place()"])
def test_a_device_that_a_file_sets_stays_a_setting(bound: str, tmp_path: Path) -> None:
    settings = f"class cfg: pass\ncfg.MODEL = cfg()\ncfg.MODEL.DEVICE = {bound}\ndef place(): ..."
    group = (
        f"{OWN_GROUP}def move(net, device):\n    device = torch.device(device)\n    return net.to(device)\n"
    )
    made = "move(torch.nn.Linear(1, 1), cfg.MODEL.DEVICE).to(torch.device(cfg.MODEL.DEVICE))"
    first = IN_GROUP.replace("torch.nn.Linear(1, 1)", made).replace(
        "start\n", "move, start\nfrom settings import cfg\n"
    )
    after = rewritten(tmp_path, "first", group=group, first=first, settings=settings)
    is_set = bound == '"cuda"'
    assert ("torch.device(cfg.MODEL.DEVICE)" in after["first"]) is is_set
    assert ("= torch.device(device)" in after["group"]) is is_set
    assert ("cfg.MODEL.DEVICE = PartialState().device.type" in after["settings"]) is is_set


@pytest.mark.parametrize(
    ("found", "others", "stays"), [("number()", 1, True), ("number()", 0, False), ('"cuda"', 1, False)]
)
def test_a_device_that_a_shared_function_finds_is_kept(
    found: str, others: int, stays: bool, tmp_path: Path
) -> None:
    asks = f"def place(args):\n    args.device = {found}\n    return torch.device(args.device)\n"
    first = IN_GROUP.replace("start\n", "place, start\n").replace("(1, 1))>", "(1, 1).to(place(start)))>")
    files = {"second": IN_GROUP} if others else {}
    after = rewritten(tmp_path, "first", group=OWN_GROUP + asks, first=first, **files)
    assert ("torch.device(args.device)" in after["group"]) is stays


def test_a_module_of_one_script_makes_no_group_of_its_own(tmp_path: Path) -> None:
    after = rewritten(tmp_path, "first", group=OWN_GROUP, first=IN_GROUP)
    assert "init_process_group" not in after["group"]


GUARDED = """
<torch>
def learn(rows):
    <model torch.nn.Linear(1, 1)>
    for x, in DataLoader(TensorDataset(rows), batch_size=2):
        loss = torch.nn.functional.mse_loss(model(x), x)
        <step loss>
    return model.weight.item()
if __name__ == "__main__":
    rows = torch.arange(8.0).view(8, 1)
    print(rows.sum())
    result = learn(rows)
"""

OTHER = """
import torch
from guarded import learn
torch.manual_seed(0)
result = learn(torch.arange(8.0).view(8, 1))
"""


def test_a_function_of_a_script_works_in_another_script_that_imports_it(tmp_path: Path) -> None:
    """What the script binds under its guard is not there."""
    folder = write(tmp_path, guarded=GUARDED, other=OTHER)
    before = train(folder, "other", launched=False)
    convert(folder, "guarded")
    assert train(folder, "other", launched=False) == before
    zero, one = train(folder, "guarded", 2)
    assert zero == one


FITTER = """
import torch
class Fitter:
    def __init__(self):
        self.net = torch.nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def fit(self, x):
        loss = self.net(x).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()
"""


def test_a_file_that_calls_what_trains_speaks_of_the_training(tmp_path: Path) -> None:
    turn = "def turn(fitter, x):\n    print(fitter.fit(x))\ndef shown(x):\n    print(x)\n"
    first = "import torch, other, turns, fitter\none = fitter.Fitter()\nother.shown(1)\nfor x in torch.ones(4, 1):\n"
    files = {"fitter": FITTER, "turns": turn, "other": turn[turn.index("def shown") :]}
    after = rewritten(
        tmp_path, "first", first=f"{first}    turns.turn(one, x)\n    turns.shown(x)\n", **files
    )
    assert after["turns"].count("PartialState().print(") == 2 and "PartialState" not in after["other"]


def test_a_shared_file_that_trains_does_so_on_the_accelerators_device(tmp_path: Path) -> None:
    arms = "\n        if fast:\n            at = torch.device('cuda')\n        else:\n            at = torch.device('cpu')\n"
    fitter = FITTER.replace("(self):", f"(self, fast=False):{arms}").replace("(1, 1)", "(1, 1).to(at)")
    script = "import torch, fitter\none = fitter.Fitter()\nfor x in torch.ones(4, 1):\n    one.fit(x)\n"
    after = rewritten(tmp_path, "first", fitter=fitter, first=script, second=script)["fitter"]
    assert after.count("at = accelerator.device") == 2


def test_a_shared_class_keeps_the_device_that_it_is_told_and_says_its_lines_once(tmp_path: Path) -> None:
    kept = """
    import loguru, torch
    class Kept:
        def __init__(self, path, device):
            self.path, self.device = path, device
        def read(self):
            loguru.logger.info(self.path)
            return torch.load(self.path, map_location=torch.device(self.device))
    """
    other = "import sys\nfrom kept import Kept\nprint(Kept('net.pt', sys.argv[1]).read())\n"
    script = """
    import argparse, torch
    from kept import Kept
    args = argparse.ArgumentParser().parse_args()
    model = torch.nn.Linear(4, 2).to(args.device)
    model.load_state_dict(Kept("net.pt", args.device).read())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x in torch.utils.data.DataLoader(torch.ones(8, 4)):
        x = x.to(args.device)
        <step model(x).mean()>
    """
    after = rewritten(tmp_path, "script", script=script, kept=kept, other=other)
    assert "map_location=torch.device(self.device)" in after["kept"]
    assert "if PartialState().is_main_process:\n            loguru.logger.info" in after["kept"]
    assert after["other"] == other
