"""Each process has a device of its own; what already works on any device stays."""

from pathlib import Path

import pytest

from .converting import converted, notes, once_more
from .projects import rewritten
from .support import each_row

TRAINING = """<torch>
def train(rows, args):
    {before}
    <model>
    loader = DataLoader(rows, 8)
    for x, y in loader:
        {inside}
        <step>
train([], None)
"""


def script(before: str = "pass", inside: str = "pass") -> str:
    return TRAINING.format(before=before, inside=inside)


@each_row(r"""
code => becomes
device = torch.device("cuda") => device = accelerator.device
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu") => device = accelerator.device
device = torch.device("cuda" if args else "cpu") => device = accelerator.device
device = "cuda:%d" % args if args else 0 => device = accelerator.device if args else 0
place: str = "cuda" if args else "cpu" => place: str = accelerator.device.type
import shapes\n    rows = shapes.Batch(args, "cuda") => rows = shapes.Batch(args, accelerator.device.type)
process = args.process\n    rows = process([1], "cuda") => rows = process([1], accelerator.device.type)
import shapes\n    rows = shapes.name(args, "cuda") => rows = shapes.name(args, "cuda")
weights = torch.ones(2, device="cuda") => weights = torch.ones(2, device=accelerator.device)
state = torch.load("w", map_location="cuda:" + str(args)) => torch.load("w", map_location=accelerator.device)
state = torch.load("w", map_location="cuda:%d" % args) => torch.load("w", map_location=accelerator.device)
many = map(lambda one: one.cuda(), args) => map(lambda one: one.to(accelerator.device), args)
loss = torch.nn.L1Loss().cuda(args) => loss = torch.nn.L1Loss().to(accelerator.device)
ones = torch.cuda.FloatTensor(3) => ones = torch.FloatTensor(3).to(accelerator.device)
one = args.to(0).to(device=0) => one = args.to(accelerator.device).to(device=accelerator.device)
args.run.device = args.device = "cuda" => args.run.device = args.device = accelerator.device.type
ones, more = torch.ones(3).to(args), torch.ones(3).cuda(args) => torch.ones(3).to(accelerator.device), torch
main = f"cuda:{args.gpus[0]}"\n    model.to(args.gpus[0]) => model.to(accelerator.device)
torch.cuda.empty_cache() => if torch.cuda.is_available():\n        torch.cuda.empty_cache()
device = f"cuda:{args}"\n    kind = "cuda" if "cuda" in device else "cpu" => device = str(accelerator.device)
kind = 1 if args == torch.device("cuda") else 2 => kind = 1 if args.type == "cuda" else 2
kind = 1 if args == torch.device("cuda:1") else 2 => kind = 1 if args == accelerator.device else 2
kind = 1 if args is torch.device("cuda") else 2 => kind = 1 if args is accelerator.device else 2
torch.cuda.set_device(0) => torch.cuda.set_device(accelerator.device)
torch.cuda.set_device(args.gpu) => torch.cuda.set_device(accelerator.device)
main = f"cuda:{args}"\n    ones = torch.ones(3, device=main) => main = accelerator.device
device = torch.device("cuda:1") if args else torch.device("cpu") => device = accelerator.device
state = torch.load("w", map_location=lambda s, p: s.cuda(args)) => s, p: s.to(device=accelerator.device)
if args: ones = torch.cuda.FloatTensor(3) => if args: ones = torch.FloatTensor(3).to(accelerator.device)
place = args.get("device", "cuda") => place = args.get("device", accelerator.device.type)
place = getattr(args, "device", "cuda:0") => place = getattr(args, "device", accelerator.device.type)
cfg = TensorDataset(); cfg.DEVICE = "cuda" => cfg.DEVICE = accelerator.device.type
cfg = args(); cfg.DEVICE = "cuda" => cfg.DEVICE = accelerator.device\n
Tensor = torch.cuda.FloatTensor => torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
assert isinstance(args, torch.cuda.FloatTensor) => args, torch.cuda.FloatTensor if torch.cuda.is_available() else torch.F
n = args.type(torch.cuda.LongTensor) => n = args.type(torch.LongTensor).to(accelerator.device)
n = args.type("torch.cuda.FloatTensor") => n = args.type(torch.FloatTensor).to(accelerator.device)
torch.set_default_tensor_type("torch.cuda.FloatTensor") => if torch.cuda.is_available():\n        torch.set
torch.set_default_tensor_type(torch.cuda.FloatTensor) => if torch.cuda.is_available():\n        torch.set
with torch.cuda.device(0):\n        kind = torch.zeros(2)
=> with torch.cuda.device(accelerator.device if accelerator.device.type == 'cuda' else -1):
with torch.cuda.device(args.gpus[0]):\n        kind = torch.zeros(2)
=> with torch.cuda.device(accelerator.device if accelerator.device.type == 'cuda' else -1):
if rows.is_cuda:\n        extra = torch.ones(2).cuda() => accelerator = Accelerator()\n
try:\n        kind = torch.ones(1).cuda()\n    except RuntimeError:\n        kind = None => kind = torch.ones(1).to(accelerator.device)
""")
def test_what_chooses_a_gpu(code: str, becomes: str) -> None:
    after = converted(script(before=code))
    assert becomes in after
    assert once_more(after) == after


@each_row(r"""
code
device = torch.device("cpu")
kind = args.add("cuda", True)
table = {"cuda": 1}
print("cuda")
lines = ["cuda", "cpu"]
where = torch.ones(3, device="cpu")
several = torch.cuda.device_count() > 1
x = rows.to(args)
place = args.get("library", "cuda"), args.get("device", "cpu")
x = rows.to(args.kinds[0])
place = rows.get_device()\n    with torch.cuda.device(place):\n        kind = torch.zeros(2)
with torch.cuda.device(rows.get_device()):\n        kind = torch.zeros(2)
def place_of(x):\n        return "cuda" if x.is_cuda else "cpu"
def place_of(x):\n        return torch.device("cpu" if not x.is_cuda else "cuda")
kind = "cuda" if args.weight.device.type == "cuda" else "cpu"
if args.weight.is_cuda:\n        device = torch.device("cuda")\n    else:\n        device = torch.device("cpu")
Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
if torch.cuda.is_available():\n        torch.set_default_tensor_type("torch.cuda.FloatTensor")
torch.set_default_tensor_type(torch.DoubleTensor)
is_there = isinstance(args, torch.cuda.FloatTensor)
noise = args.type(torch.LongTensor)
def works(n):\n        try:\n            torch.ones(1).to(torch.device(f"cuda:{n}"))\n            return True\n        except Exception:\n            return False
if args.cuda: ones = torch.cuda.FloatTensor(3)
if torch.cuda.is_available(): ones = torch.cuda.FloatTensor(3)
""")
def test_what_names_no_choice_of_a_gpu_stays(code: str) -> None:
    after = converted(script(before=code))
    assert code.replace("print(", "accelerator.print(") in after and "cpu=" not in after
    assert after.count("is_available") == code.count("is_available")


@pytest.mark.parametrize(("code", "is_said"), [("n = args.type({})", False), ("kind = {}", True)])
def test_a_type_of_cuda_that_stays_one_is_said(code: str, is_said: bool) -> None:
    found = notes(script(before=code.format("torch.cuda.LongTensor")), "CT105")
    assert any("stay on the CPU" in one.reason for one in found) is is_said


@each_row("""
test => is_guard
torch.cuda.is_available() => True
args.kind == 'cuda' => True
args.kind.startswith('cuda') => True
gpu => True
args == 'cuda' => False  # what a caller wishes
args.fast => False
""")
def test_a_guard_of_the_authors_needs_no_second_one(test: str, is_guard: bool) -> None:
    code = f"gpu = torch.cuda.is_available()\n    if {test}:\n        torch.cuda.synchronize()"
    after = converted(script(before=code))
    assert code in after if is_guard else f"if {test} and torch.cuda.is_available():" in after


@pytest.mark.parametrize(
    "code", ["assert torch.cuda.is_available()", "if not torch.cuda.is_available():\n        raise OSError"]
)
def test_what_stops_without_a_gpu_goes(code: str) -> None:
    assert code.split("\n")[0] not in converted(script(before=code))


@each_row(r"""
asked => is_said
name = torch.cuda.get_device_name() => True
stream = torch.cuda.Stream() => True
torch.distributed.barrier(device_ids=[0]) => True
name = torch.cuda.get_device_name() if torch.cuda.is_available() else 'cpu' => False
try:\n        name = torch.cuda.get_device_name()\n    except RuntimeError:\n        pass => False
torch.distributed.barrier() => False
""")
def test_what_cuda_alone_answers_keeps_the_stop_and_is_said(asked: str, is_said: bool) -> None:
    stop = "assert torch.cuda.is_available()\n    "
    assert (stop in converted(script(before=stop + asked))) is is_said
    assert bool(notes(script(before=asked), "CT308")) is is_said


GIVEN = """class Net(torch.nn.Module):
    def __init__(self, size, device={default}):
        self.device = device
def train"""


@pytest.mark.parametrize(
    "default", ['"cuda"', 'torch.device("cuda:0")', '"cuda" if torch.cuda.is_available() else "cpu"']
)
def test_a_default_device_elsewhere_is_given(default: str) -> None:
    """The default stays: it is computed where the function is defined, before the script has chosen its device."""
    text = script(before="net = Net(args)").replace("def train", GIVEN.format(default=default))
    after = converted(text)
    assert "net = Net(args, device=accelerator.device)" in after
    assert f"def __init__(self, size, device={default}):" in after


RUNNERS = """<torch>
class Fitter:
    def train(self, rows):
        <model>
        model.train()
        for x, y in DataLoader(rows, 8):
            <step>
        return model
class Runner:
    def __init__(self):
        self.fitter = Fitter()
    def train(self, rows, rate=0.1, device="cuda"):
        return self.fitter.train(rows)
def train(rows):
    return rows
runner = Runner()
runner.train(train([]))
"""


def test_a_default_device_is_given_to_the_method_that_has_it() -> None:
    """Not to a network's `train()`, nor to another class's, nor to a function."""
    after = converted(RUNNERS)
    assert "model.train()" in after and "self.fitter.train(rows)" in after
    assert "runner.train(train([]), device=" in after


def test_a_default_device_is_given_to_no_librarys_function_of_that_name(tmp_path: Path) -> None:
    own = "import torch\ndef load(name, device='cuda'):\n    return torch.load(name, map_location=device)\n"
    line = "json.load(open('a')); nets.load('a'{}); args.load('a')\n"
    after = rewritten(tmp_path, "entry", entry="import json, nets\n" + script(line.format("")), nets=own)
    assert line.format(", device=accelerator.device") in after["entry"]


def test_a_modules_own_function_called_cuda_is_no_method_of_the_module(tmp_path: Path) -> None:
    own = "def cuda(rows, number):\n    return rows.cuda(number) if number else rows\n"
    lines = "tools.cuda(net, 0); other.cuda()\n"
    made = "import torch\nother = torch.nn.Linear(1, 1)\n"
    entry = "import tools\nfrom nets import other\n" + script(lines)
    after = rewritten(tmp_path, "entry", entry=entry, tools=own, nets=made)
    assert "tools.cuda(net, 0); other.to(" in after["entry"] and "return rows.to(" in after["tools"]


@pytest.mark.parametrize(
    ("asked", "kind"), [('device.startswith("cuda")', ".type"), ("torch.zeros(2, device=device)", "")]
)
@pytest.mark.parametrize("chosen", ['"cuda:2"', '"cuda" if args.gpu else "cpu"'])
def test_a_function_that_reads_a_text_is_given_one(asked: str, kind: str, chosen: str) -> None:
    given = f"device={chosen}"
    text = script(f"place({given}); summary(net, {given}); torch.ones(2, {given})\n    place({chosen})")
    text = text.replace("def train", f"def place(device):\n    print({asked})\n\ndef train")
    after = converted("from torchsummary import summary\n" + text)
    assert f"place(device=accelerator.device{kind}); summary(net, device=accelerator.device.type); " in after
    assert f"torch.ones(2, device=accelerator.device)\n    place(accelerator.device{kind})\n" in after


SHARED = """import torch
class Part:
    def to(self, device): ...
    def cuda(self, device=None):
        self.kept = torch.device("cuda" if device else "cpu")
        self.rows = self.rows.cuda(device)
    def draw(self, **options):
        return torch.device(options.pop("device", self.place))
    def gather(self, backend):
        return torch.device("cpu" if backend == "gloo" else "cuda")
    def pick(self, fast):
        if self.fast:
            place = torch.device("cuda")
        else:
            place = torch.device("cpu")
        return self.rows.to(place)
def near(rows, device=None):
    if device is None:
        device = rows.device
    else:
        device = torch.device(device)
    return rows.to(device)
def build(device=None):
    if device is None:
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    return device
def small(device=None):
    return build(device)
def set_up(settings, device=None):
    if device is None:
        device = settings.device
    return torch.device(device)
"""


@pytest.mark.parametrize(("given", "is_left"), [("", True), ('device="cuda"', False)])
def test_what_a_shared_class_is_told_stays(given: str, is_left: bool, tmp_path: Path) -> None:
    own = f"part = shared.Part(); part.cuda(); part.draw({given}); part.gather(kind); shared.build({given})"
    own += f"; shared.set_up(args); shared.near(torch.ones(2), {given}); part.pick(1)"
    text = f"import shared\n{script(before=own)}"
    after = rewritten(tmp_path, "entry", shared=SHARED, other=text, entry=text)["shared"]
    assert "self.rows.cuda(device)" in after and ("options.pop" in after) is is_left, after
    assert 'torch.device(PartialState().device if device else "cpu")' in after
    assert 'torch.device("cpu" if backend == "gloo" else PartialState().device)' in after
    assert after.count("    device = torch.device(device)\n") == 2 * is_left
    assert 'place = PartialState().device\n        else:\n            place = torch.device("cpu")\n' in after
    assert "        device = settings.device\n    return PartialState().device\n" in after


def test_a_choice_of_the_cpu_that_cannot_be_kept_is_said() -> None:
    text = script(before="place(args)")
    code = 'def place(flags):\n    flags.device = torch.device("cuda") if flags.gpu else torch.device("cpu")\n\ndef train'
    text = text.replace("def train", code)
    assert "flags.device = PartialState().device" in converted(text)
    assert [one.reason for one in notes(text, "CT105")] == ["the script's own choice of the CPU is not kept"]


@each_row(r"""
call => becomes
torch.nn.parallel.data_parallel(model, x, [0, 1]) => y = model(x)
torch.nn.parallel.data_parallel(model, (x, y), device_ids=[0]) => y = model(x, y)
torch.nn.parallel.data_parallel(model, *[x], [0, 1]) => y = model(*[x])
y; both = (x, y); z = torch.nn.parallel.data_parallel(model, both, [0]) => z = model(*both)
y; both = x; z = torch.nn.parallel.data_parallel(model, both, [0]) => z = model(both)
torch.nn.parallel.data_parallel(model, x, module_kwargs={'train': True}) => module_kwargs
torch.nn.parallel.replicate(model, [0, 1])[0](x) => replicate(model, [0, 1])
(\n            hot(\n                x,\n            )\n            .cuda()\n        )
=> ).to(accelerator.device)\n        )\n
""")
def test_a_model_that_is_called_on_all_gpus(call: str, becomes: str) -> None:
    text = script(inside=f"y = {call}")
    assert becomes in converted(text)
    assert bool(notes(text, "CT301")) == any(one in becomes for one in ("parallel", "replicate", "module"))


COMPILED = """<torch>
{helper}
model = torch.nn.Linear(4, 2)
{use}(torch.ones(2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
<loop loss = torch.nn.functional.mse_loss(model(x), y)>
"""
DECORATED = "@torch.jit.script\ndef shifted(x):\n    return x + torch.ones(2).cuda()"
PLAIN = "def shifted(x):\n    return x + torch.ones(2).cuda()"
NET = """class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(2).cuda()
    def forward(self, x):
        return x * torch.ones(2, device="cuda")"""


@pytest.mark.parametrize(
    ("helper", "use", "is_compiled"),
    [
        (DECORATED, "shifted", True),
        (PLAIN, "quick = torch.jit.script(shifted)\nquick", True),
        (NET, "net = torch.jit.script(Net())\nnet", True),
        (PLAIN, "shifted", False),
        (PLAIN, "quick = torch.jit.trace(shifted, torch.ones(2))\nquick", False),
    ],
)
def test_torchscript_knows_no_accelerator(helper: str, use: str, is_compiled: bool) -> None:
    text = COMPILED.format(helper=helper, use=use)
    after = converted(text)
    assert (helper.splitlines()[-1] in after) is is_compiled
    assert any("TorchScript" in one.reason for one in notes(text, "CT105")) is is_compiled
    assert helper != NET or "self.scale = torch.ones(2).to(accelerator.device)" in after


CHOOSER = """<torch>
def try_gpu({given}):
    if torch.cuda.is_available():
        device = torch.device("cuda:0")
    else:
        device = {other}
    return device
device = try_gpu({given})
<model torch.nn.Linear(4, 2).to(device)>
<loop torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))>
"""


@pytest.mark.parametrize("other", ['torch.device("cpu")', "fallback", "None"])
def test_a_function_that_may_choose_something_else_is_asked(other: str) -> None:
    """What it chooses by the machine alone is the accelerator's; the helper stays its author's."""
    after = converted(CHOOSER.format(given="", other=other))
    asked = "try_gpu()\naccelerator = Accelerator(device=device)"
    assert f"\ndevice = {asked if 'cpu' not in other else 'accelerator.device'}\n" in after, after
    assert 'device = torch.device("cuda:0")' in after


def test_a_function_that_returns_the_device_at_once_returns_the_accelerators() -> None:
    body = CHOOSER[CHOOSER.index("    if torch") : CHOOSER.index("\ndevice = try_gpu")]
    text = CHOOSER.replace(body, '    return torch.device("cuda" if torch.cuda.is_available() else "cpu")\n')
    assert "    return accelerator.device\n" in converted(text.format(given=""))
