"""The author's own choice of the CPU keeps its meaning: `Accelerator(cpu=...)` says exactly when it is made."""

from pathlib import Path

import pytest

from .converting import converted, notes
from .filling import filled
from .projects import rewritten, train
from .support import each_row

TRAINING = """import argparse
<torch>
parser = argparse.ArgumentParser()
args = parser.parse_args()
{choice}
<model>
for x, y in DataLoader([], 8):
    {inside}
    <step>
"""

MPS_OR_CPU = """
    device = torch.device("cuda")
else:
    if hasattr(torch.backends, "mps"):
        device = torch.device("mps") if torch.backends.mps.is_available() else torch.device("cpu")
    else:
        device = torch.device("cpu")
    print("no CUDA")"""

WORDS = {
    "<mps or cpu>": MPS_OR_CPU,
    "<placed>": 'device = torch.device("cuda" if <there> else "cpu")',
    "<flagged>": 'device = "cuda" if <there> and not args.off else "cpu"',
    "<host>": 'HOST = torch.device("cpu")\nsettings = {}\nsettings.update(read())',
    "<loaded>": 'net.load_state_dict(torch.load("a.pt", map_location="cpu" if args.cuda else None))',
    "<there>": "torch.cuda.is_available()",
}


def meant(text: str) -> str:
    for word, lines in WORDS.items():
        text = text.replace(word, lines)
    return text


def accelerator_of(choice: str, inside: str = "pass") -> str:
    after = converted(TRAINING.format(choice=meant(choice), inside=inside))
    return next(line.strip() for line in after.splitlines() if line.strip().startswith("accelerator = "))


@each_row(r"""
choice => made
device = "cuda" if not args.off and args.gpu else "cpu" => cpu=not (not args.off and args.gpu)
device = torch.device("cuda" if torch.cuda.device_count() > 0 else "cpu") => ''
cuda = True if <there> else False\ndevice = "cuda" if cuda else "cpu" => ''
cuda = True if args.gpu else False\ndevice = "cuda" if cuda else "cpu" => cpu=not cuda
device = "cuda" if <there> else ("mps" if args.mps else "cpu") => cpu=not (<there> or args.mps)
device = "mps" if args.mps else "cuda" if <there> else "cpu" => cpu=not (args.mps or <there>)
if <there> and args.use_gpu:<mps or cpu> => cpu=not args.use_gpu
if <there>:<mps or cpu> => ''
if <there>:\n    device = "cuda"\nelse:\n    device = "mps" if args.mps else "cpu" => ''  # no GPU comes to that arm
device = "cpu"\nif <there>:\n    device = "cuda"\nkind = "cuda" if device[:1] == "c" else "cpu" => ''
if args.cuda:\n    device = torch.device("cuda")\n    print(rows.to(device)) => cpu=not args.cuda
if args.cuda:\n    device = torch.device("cuda") => ''
device = "cuda" if <there> else "cpu"\nif args.gpu:\n    device = "cuda:0" => ''
device = "cuda" if <there> else "cpu"\nif args.many:\n    device = "cuda:0" if <there> else "cpu" => ''
if args.one:\n    <flagged>\nelse:\n    device = "cuda"\nnet = torch.nn.Linear(4, 2)\nnet.cuda() => ''
if args.one:\n    device = "cuda"\nelse:\n    <flagged>\nnet = torch.nn.Linear(4, 2)\nnet.cuda() => ''
# What is moved besides is no choice for the training.
<placed>\nema = torch.nn.Linear(4, 2)\nif args.ema_on_gpu:\n    ema.to("cuda") => ''
<placed>\nclock = torch.zeros(1)\nif args.timestamps:\n    clock = clock.cuda() => ''
<placed>\nnet = torch.nn.Linear(4, 2)\nif args.all:\n    net.cuda()\nelse:\n    net.to(device) => ''
# What a flag says above the choice counts, unless that is made again and again.
device = torch.device("cuda" if not args.no_cuda and <there> else "cpu")\nargs = more(args) => cpu=args.no_cuda
args.device = torch.device("cuda") if args.device is None else torch.device(args.device) => device=args.device
for fold in range(2):\n    device = "cuda" if args.gpu else "cpu"\n    args.gpu = False => ''
for fold in range(2):\n    args.gpu = "cuda" if args.gpu else "cpu"\n    device = args.gpu => ''
if args.gpu:\n    args.gpu = "cuda"\nelse:\n    args.gpu = "cpu"\ndevice = args.gpu => cpu=not args.gpu
""")
def test_a_choice(choice: str, made: str) -> None:
    """What the usual spellings mean is asked in test_choice_run."""
    assert accelerator_of(choice) == f"accelerator = Accelerator({meant(made)})"


@each_row(r"""
choice => inside => made
# Where something is already.
'' => y = y.to(x.device) => ''
'' => device = x.device\n    print(x.shape)\n    y = y.to(device) => ''
'' => device = next(model.parameters()).device\n    x, y = x.to(device), y.to(device) => ''
'' => x = x.to(torch.float32) => ''
'' => kind = torch.float32 if args.full else torch.float16\n    x = x.to(kind) => ''
# What takes results back to the CPU is no choice.
<host> => x = x.to(settings["device"])\n    shown = x.detach().to(HOST) => ''
<host> => x = x.to(settings.device)\n    shown = x.detach().to(HOST) => ''
<host> => x = x.to(HOST)\n    shown = x.to(torch.float64) => device=HOST
# The CPU of a file's tensors is not where data waits.
net = torch.nn.Linear(4, 2)\n<loaded>\nif args.cuda:\n    net = net.cuda()
=> if args.cuda:\n        x = x.cuda() => cpu=not args.cuda
""")
def test_a_choice_by_what_is_done_with_a_batch(choice: str, inside: str, made: str) -> None:
    assert accelerator_of(choice, inside) == f"accelerator = Accelerator({made})"


@each_row(r"""
drawn
order = torch.randperm(784)
train, test = torch.utils.data.random_split(data, [8, 2])
data = MNIST(root, download=True)
os.makedirs(args.folder)
logging.FileHandler('log.txt')
placed = put(data)\ndef put(x, cuda=True): return x.cuda() if cuda else x
""")
def test_the_accelerator_is_made_before_what_all_processes_share(drawn: str) -> None:
    """A permutation that each process draws for itself would be another one on each."""
    choice = f"print(args)\n{drawn}\nnet = torch.nn.Linear(4, 2)\nif args.cuda:\n    net.cuda()"
    lines = [line.strip() for line in converted(TRAINING.format(choice=choice, inside="pass")).splitlines()]
    made = lines.index("accelerator = Accelerator(cpu=not args.cuda)")
    assert lines.index("args = parser.parse_args()") < made < lines.index("net = torch.nn.Linear(4, 2)")
    assert any(drawn.split("(")[0] in line for line in lines[made:])


GONE = "args.cuda = (not args.no_cuda) and torch.cuda.is_available(); del args.no_cuda"
DRAWN = "order = torch.randperm(784)"


@pytest.mark.parametrize(
    ("above", "made"),
    [
        (f"print(args)\n{DRAWN}\n{GONE}", "cpu=args.no_cuda"),
        (f"print(args)\n{GONE}\n{DRAWN}", "cpu=not args.cuda"),
        (f"print(args)\n{DRAWN}\nargs.cuda = read_settings()", "cpu=not args.cuda"),
    ],
)
def test_a_flag_that_is_made_of_another_is_known_sooner(above: str, made: str) -> None:
    """What all processes draw alike is drawn below the Accelerator, wherever the flag can be known above it."""
    choice = f"{above}\nnet = torch.nn.Linear(4, 2)\nif args.cuda:\n    net.cuda()"
    lines = [line.strip() for line in converted(TRAINING.format(choice=choice, inside="pass")).splitlines()]
    accelerator = lines.index(f"accelerator = Accelerator({made})")
    assert "read_settings" in above or accelerator < lines.index(DRAWN)
    assert made != "cpu=args.no_cuda" or accelerator < lines.index(GONE)


KIND = 'parser.add_argument("--kind", default="float16")'


def test_an_option_that_names_the_device_is_the_accelerators_from_then_on() -> None:
    """`--device cpu` is kept, and `--device cuda:1` no place for the batch alone."""
    text = TRAINING.format(choice="", inside="x, y = x.to(args.device), y.to(args.device)").replace(
        "args = parser",
        'parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")\nargs = parser',
    )
    after = converted(text)
    made = "accelerator = Accelerator(device=args.device)\nargs.device = accelerator.device.type\n"
    assert made in after
    assert 'default="cuda" if torch.cuda.is_available() else "cpu"' in after
    assert made in converted(text.replace("available()", "available"))  # its author has not called it
    kind = TRAINING.format(choice="", inside="x = x.to(args.kind)").replace("args = p", f"{KIND}\nargs = p")
    assert "accelerator = Accelerator()" in converted(kind)


@each_row("""
asked => is_said
torch.cuda.get_device_properties(torch.device("cuda:0")) => True
torch.cuda.get_device_name(torch.cuda.current_device()) => True
faiss.index_cpu_to_gpu(pool, torch.cuda.current_device(), rows) => False
torch.cuda.get_rng_state() => True
torch.cuda.get_rng_state() if torch.cuda.is_available() else None => False
""")
def test_what_only_cuda_answers_is_asked_as_before(asked: str, is_said: bool) -> None:
    text = TRAINING.format(choice=f"print({asked})", inside="x = x.to(torch.device('cuda'))")
    assert asked in converted(text) and "x.to(accelerator.device)" in converted(text)
    assert bool([one for one in notes(text, "CT308") if "needs CUDA" in one.reason]) is is_said


@each_row(r"""
moves => made
if args.gpus > 1:\n    model = model.cuda() => cpu=not (args.gpus > 1)
if args.gpus:\n  model = torch.nn.DataParallel(model).cuda()\nelse:\n  model = model.cuda() => ''
if args.gpus > 1:\n    model.cuda()\nelse:\n    model.to("cuda") => ''
if args.gpus > 1:\n    model.cuda()\nelse:\n    model.cpu() => cpu=not (args.gpus > 1)
cuda = True if torch.cuda.is_available() else False\nif cuda:\n    model.cuda() => ''
if args.gpus is not None:\n    model.cuda(args.gpus) => cpu=args.gpus is None, device=args.gpus
kept = model.cuda(args.gpus)\nif args.gpus is not None:\n    model.cuda(args.gpus) => device=args.gpus
""")
def test_a_condition_with_a_gpu_on_both_sides_is_no_choice(moves: str, made: str) -> None:
    text = filled(TRAINING).format(choice="", inside="pass").replace("optimizer = ", moves + "\noptimizer = ")
    assert f"accelerator = Accelerator({made})\n" in converted(text)


@pytest.mark.parametrize(
    "other",
    ['cache = "cuda" if args.cache else "cpu"', 'state = torch.load("a.pt", "cuda" if args.fast else "cpu")'],
    ids=["a second device", "where a file is loaded"],
)
def test_a_second_device_is_no_choice_for_the_training_and_is_said(other: str) -> None:
    choice = meant(f"<placed>\n{other}")
    assert accelerator_of(choice) == "accelerator = Accelerator()"
    said = notes(TRAINING.format(choice=choice, inside="pass"), "CT105")
    assert [one.reason for one in said] == ["the script's own choice of the CPU is not kept"]


def test_a_device_from_elsewhere_is_asked() -> None:
    """What a library chooses is one device for all processes."""
    picked, moved = "device = library.pick(args)", "x, y = x.to(device), y.to(device)"
    after = converted(TRAINING.format(choice=picked, inside=moved))
    assert f"{picked}\naccelerator = Accelerator(device=device)\ndevice = accelerator.device\n" in after


FULL_BATCH = """import torch
{choice}
x, y = torch.rand(8, 4), torch.rand(8, 2)
<model>
for epoch in range(3):
    <step>
"""


@each_row("""
choice => made
'' => cpu=True  # nothing moves what it computes with: a prepared model on a GPU would be alone there
device = "cuda" if torch.cuda.is_available() else "cpu" => ''
torch.set_default_device("cuda") => ''
move = library.to_gpu => ''
""")
def test_a_training_without_a_loader_goes_where_the_script_says(choice: str, made: str) -> None:
    assert f"accelerator = Accelerator({made})\n" in converted(FULL_BATCH.format(choice=choice))


@each_row(r"""
code => made
if x.device.type == 'cuda':\n        x = gpu_square(x)\n    return x => cpu=True
if device is None:\n        device = torch.device('cuda')\n    return x.to(device) => ''
""")
def test_a_module_that_goes_by_what_it_is_given_names_no_device(code: str, made: str, tmp_path: Path) -> None:
    text = FULL_BATCH.format(choice="import own").replace("x, y = ", "x, y = own.square(1), ", 1)
    after = rewritten(tmp_path, "train", train=text, own=f"def square(x, device=None):\n    {code}\n")
    assert f"accelerator = Accelerator({made})\n" in after["train"]


def test_batches_that_are_cut_by_numbers_are_not_moved() -> None:
    text = FULL_BATCH.format(choice="").replace("x, y =", "rows, words =", 1)
    cut = "for start in range(0, 8, 2):\n    x, y = rows[start : start + 2], words[start : start + 2]\n"
    after = converted(text.replace("for epoch in range(3):\n", cut))
    assert "accelerator = Accelerator(cpu=True)\n" in after
    assert "for start in accelerator.prepare(range(0, 8, 2)):" in after


def test_a_model_that_is_moved_under_another_name_chooses_the_device() -> None:
    move = "if args.gpu >= 0:\n    on_gpu = model.cuda()\n"
    text = filled(TRAINING).format(choice="", inside="pass").replace("optimizer = ", move + "optimizer = ")
    after = converted(text)
    assert "on_gpu = model.to(accelerator.device)" in after
    assert after.index("accelerator = ") < after.index("on_gpu")


def test_a_choice_stands_below_what_it_imports() -> None:
    early = 'from torchvision.datasets import MNIST\npictures = MNIST("data", download=True)\nimport os\n'
    choice = 'device = torch.device("cuda" if os.environ["GPU"] and torch.cuda.is_available() else "cpu")'
    after = converted(filled(TRAINING).format(choice=early + choice, inside="x = x.to(device)"))
    assert 0 < after.index("import os") < after.index("= Accelerator(")


MPS = "torch.backends.mps.is_available()"


@pytest.mark.parametrize("test", [MPS, f'hasattr(torch.backends, "mps") and {MPS}'])
@pytest.mark.parametrize(("there", "made"), [("cpu", "device=device"), ("mps", "")])
def test_an_author_who_keeps_the_cpu_where_there_is_more_is_asked(test: str, there: str, made: str) -> None:
    choice = f"""if torch.cuda.is_available():
    device = torch.device("cuda")
elif {test}:
    device = torch.device("{there}")
else:
    device = torch.device("cpu")"""
    assert accelerator_of(choice, "x = x.to(device)") == f"accelerator = Accelerator({made})"


NAMED = """<torch>
device = "cuda" if torch.cuda.is_available() else "cpu"
settings = {{"rate": 0.1}}
{keep}
for name, value in settings.items():
    print(f"{{name:10}}{{value:>10}}")
<model torch.nn.Linear(4, 2).to(device)>
<loop torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))>
"""


@pytest.mark.parametrize("keep", ['settings["device"] = device', 'settings.update({"device": device})'])
def test_the_name_of_a_device_in_settings_stays_a_text(keep: str, capsys: pytest.CaptureFixture[str]) -> None:
    after = converted(NAMED.format(keep=keep))
    assert "device = accelerator.device.type\n" in after
    exec(compile(after, "script.py", "exec"), {"__name__": "__main__"})
    assert "device           cpu" in capsys.readouterr().out


def test_a_device_that_is_only_moved_to_is_the_accelerators() -> None:
    assert "device = accelerator.device\n" in converted(NAMED.format(keep=""))


SETTINGS = """import json
import sys
<torch>
def train(options):
    model = torch.nn.Linear(4, 2)
    <model model.to(options["run"]["device"])>
    for x, y in DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 2)), 2):
        x, y = x.to(options["run"]["device"]), y.to(options["run"]["device"])
        <step>
    return str(next(model.parameters()).device)
if __name__ == "__main__":
    settings = {settings}
    {set}
    result = train(settings)
"""


@pytest.mark.parametrize("settings", ['{"run": {"device": "cpu"}}', "json.load(open('settings.json'))"])
def test_the_accelerator_is_given_the_device_among_settings(settings: str, tmp_path: Path) -> None:
    """Else it takes the GPU, and the batches go where the settings say."""
    (tmp_path / "settings.json").write_text('{"run": {"device": "cpu"}}')
    text = SETTINGS.replace("{settings}", settings).replace("    {set}\n", "")
    after = rewritten(tmp_path, "script", script=text)["script"]
    made = 'accelerator = Accelerator(device=settings["run"]["device"])\n'
    assert made + '    settings["run"]["device"] = accelerator.device.type\n' in after
    assert train(tmp_path, "script", 1, launched=False) == ["cpu"]


def test_a_device_among_settings_may_be_called_otherwise() -> None:
    text = "<torch>\nimport yaml\nsettings = yaml.safe_load(open('a.yaml'))\n<model nn.Linear(4, 2).to(settings['KEY'])>\n"
    text += "for x in DataLoader(data):\n    x = x.to(settings['KEY'])\n    <step model(x).mean()>\n"
    assert 'Accelerator(device=settings["gpus"])' in converted(text.replace("KEY", "gpus"))
    assert "Accelerator()" in converted(text.replace("KEY", "dtype"))


READ = "def read():\n    found = SimpleNamespace(**json.load(open('settings.json')))\n    return found\nif __name__"


@pytest.mark.parametrize(("then", "is_given"), [("pass", True), ("settings.device = choose()", False)])
def test_settings_whose_parts_are_attributes(then: str, is_given: bool, tmp_path: Path) -> None:
    text = SETTINGS.replace("if __name__", READ).replace('options["run"]["device"]', "options.device")
    text = "from types import SimpleNamespace\n" + text.replace("{settings}", "read()").replace("{set}", then)
    after = rewritten(tmp_path, "script", script=text)["script"]
    assert ("settings.device = accelerator.device.type\n" in after) is is_given, after
    of_tensors = text.replace("json.load(open('settings.json'))", "torch.load('settings.pt')")
    assert "settings.device =" not in converted(of_tensors.replace("settings.device = choose()", "pass"))
    if is_given:
        (tmp_path / "settings.json").write_text('{"device": "cpu"}')
        assert train(tmp_path, "script", 1, launched=False) == ["cpu"]


@each_row("""
settings => then
{"run": {"device": torch.device("cuda" if torch.cuda.is_available() else "cpu")}} => pass
json.load(open('settings.json')) => settings["run"]["device"] = choose()
Settings() => pass  # what is no dictionary may not be set
""")
def test_other_settings_stay(settings: str, then: str) -> None:
    text = SETTINGS.replace("{settings}", settings).replace("{set}", then)
    assert "Accelerator(device=" not in converted(text)


TOLD = """import json
<torch>
class Fit:
    def __init__(self, options):
        self.device = options["device"]{more}
        self.rows = 8
    def train(self):
        model = torch.nn.Linear(4, 2)
        <model model.to(self.device)>
        for x, y in DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 2)), 2):
            x, y = x.to(self.device), y.to(self.device)
            <step>
        return str(next(model.parameters()).device)
if __name__ == "__main__":
    result = Fit(json.load(open("settings.json"))).train()
"""


@pytest.mark.parametrize("more", ["", ' if torch.cuda.is_available() else "cpu"'])
def test_the_object_that_trains_is_told_its_device(more: str, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"device": "cpu"}')
    text = TOLD.replace("{more}", more)
    made = "accelerator = Accelerator(device=self.device)\n        self.device = accelerator.device\n"
    assert made in rewritten(tmp_path, "script", script=text)["script"]
    assert train(tmp_path, "script", 1, launched=False) == ["cpu"]
    for other in (
        text + "    print(result)\n",
        text.replace("    result =", "    for _ in range(2): result ="),
    ):
        assert "device=self.device" not in converted(other)


LOOKED_AT = "\nfor rows in DataLoader([], 8):\n    {looked}\n"


@each_row("""
before => inside => looked => made
seen = rows_of()[:8] / 255 => print(model(seen).numpy()) => pass => Accelerator(cpu=True)
seen = rows_of().view(-1, 4) => pass => print(model(seen)) => Accelerator(cpu=True)
seen = torch.rand(8, 4) => pass => print(model(seen)) => Accelerator()  # made on the device
seen = rows_of().cuda() => print(model(seen)) => pass => Accelerator()
seen = rows_of() => rows = x.view(-1, 4); print(model(rows)) => pass => Accelerator()
seen = rows_of() => pass => own = rows[0]; print(model(own)) => Accelerator()
pass => x = x.type(torch.FloatTensor) => pass => Accelerator(cpu=True)  # the CPU's
pass => pass => print([model(one) for one in rows]) => Accelerator(cpu=True)
pass => print([model(x) for turn in range(2)]) => pass => Accelerator()
pass => x = x.type(torch.float) => x = rows.type(torch.FloatTensor) => Accelerator()
""")
def test_what_no_loader_has_moved_is_on_the_cpu(before: str, inside: str, looked: str, made: str) -> None:
    """A prepared model on a GPU would not take it, and the script names no device."""
    text = TRAINING.format(choice=before, inside=inside) + LOOKED_AT.format(looked=looked)
    assert f"accelerator = {made}\n" in converted(text)


WAITS = """import argparse
<torch>
def rows_at(keep_cuda_free):
    place = torch.device("cpu") if keep_cuda_free else torch.device("cuda")
    return torch.ones(8, 4).to(place)
def train(keep_cuda_free):
    <model torch.nn.Linear(4, 2).cuda()>
    for x in DataLoader(rows_at(keep_cuda_free), 8):
        if keep_cuda_free:
            x = x.cuda()
        <step model(x).mean()>
parser = argparse.ArgumentParser()
parser.add_argument("--keep-cuda-free", action="store_true")
train(parser.parse_args().keep_cuda_free)
"""


def test_a_flag_by_which_data_waits_on_the_cpu_is_no_choice_of_where_to_compute() -> None:
    after = converted(WAITS)
    assert 'place = torch.device("cpu") if keep_cuda_free else PartialState().device' in after, after
    assert "cpu=" not in after and not notes(WAITS, "CT105")


def test_a_flag_by_which_nothing_else_is_moved_is_one() -> None:
    after = converted(WAITS.replace("if keep_cuda_free:", "if True:"))
    assert 'torch.device("cpu")' not in after, after


@each_row(r"""
way => made
if args.load:\n    load(model)\nelse:\n    train(model)\nevaluate(model) => cpu=True
if args.load:\n    evaluate(model)\nelse:\n    train(model) => cpu=True
if args.load:\n    load(model)\ntrain(model)\nevaluate(model) => ''
for turn in range(2):\n    if turn:\n        train(model)\n    evaluate(model) => ''
if __name__ == "__main__":\n    train(model)\n    evaluate(model) => ''
""")
def test_a_network_that_is_used_where_nothing_has_prepared_it(way: str, made: str) -> None:
    trains = "def train(model):\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n    for x, y in loader:\n        <step F.mse_loss(model(x), y)>\n"
    tests = "def evaluate(model):\n    with torch.no_grad():\n        print(model(torch.zeros(1, 4)))\n"
    text = f"<torch>\nloader = DataLoader(rows)\n{trains}{tests}model = torch.nn.Linear(4, 2)\n{way}\n"
    assert f"Accelerator({made})\n" in converted(text)
