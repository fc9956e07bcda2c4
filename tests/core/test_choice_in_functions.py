"""A choice of the CPU that a function or a class makes: where its accelerator is made, and what knows it."""

import pytest

from .converting import converted, notes
from .support import each_row

IN_FUNCTION = """import argparse
<torch>
args = argparse.ArgumentParser().parse_args()
def train():
    {own}
    net = model = torch.nn.Linear(4, 2)
    net = torch.nn.DataParallel(model)
    if {flag}:
        net = net.cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    <loop torch.nn.functional.mse_loss(net(x), y)>
train()
"""


def test_a_wrapper_above_a_choice_that_the_function_makes_is_left_and_said() -> None:
    text = IN_FUNCTION.format(own="options = load()", flag="options.cuda")
    after = converted(text)
    assert "torch.nn.DataParallel(model)" in after and notes(text, "CT301")
    made = after.index("Accelerator(cpu=not options.cuda)")
    assert all(at > made for at in (after.index("accelerator.prepare("), after.index("accelerator.device")))


SUBCOMMANDS = IN_FUNCTION.replace("args = argparse.ArgumentParser().parse_args()\n", "").replace(
    "\ntrain()",
    """
def test(args):
    total = 0
    with torch.no_grad():
        for x, y in DataLoader(rows):
            total += (x.cuda() if args.cuda else x).sum().item()
    print(total)
parser = argparse.ArgumentParser()
parser.{gives}(run=train)
parser.{gives}(run=test)
args = parser.parse_args()
args.run(args)""",
)


@pytest.mark.parametrize(("gives", "is_kept"), [("set_defaults", True), ("show", False)])
def test_a_subcommands_own_choice_is_kept_in_its_function(gives: str, is_kept: bool) -> None:
    script = SUBCOMMANDS.replace("train()", "train(args)").format(own="pass", flag="args.cuda", gives=gives)
    after = converted(script)
    assert after.count("    accelerator = Accelerator(cpu=not args.cuda)") == 2 * is_kept, after


SET_UP = """import argparse, os
import torch
from torch.utils.data import DataLoader
def setup({name}):
    {name}.cuda = not {of}
    os.makedirs("runs")
opt = argparse.ArgumentParser().parse_args()
setup(opt)
net = torch.nn.Linear(4, 2)
if opt.cuda:
    net.cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
<loop torch.nn.functional.mse_loss(net(x), y)>
"""


@pytest.mark.parametrize(
    ("name", "of", "cpu"),
    [("opt", "opt.cpu", "opt.cpu"), ("opt", "HOST", "not opt.cuda"), ("args", "args.cpu", "not opt.cuda")],
)
def test_an_option_that_a_function_sets_is_asked_where_it_is_there(name: str, of: str, cpu: str) -> None:
    after = converted(SET_UP.format(name=name, of=of))
    assert (after.index("\nsetup(opt)") < after.index(f"Accelerator(cpu={cpu})")) is ("cuda" in cpu)


@each_row("""
test => body => otherwise => cpu
not options.cpu => net.cuda() => pass => cpu=options.cpu
options.cpu => net.float() => net.cuda() => cpu=options.cpu
options.cpus > 3 => net.cuda() => pass => ''
options.cpu_offload => net.offload() => net.cuda() => ''
options.gpus > 1 => net.share() => net.cuda() => ''
""")
def test_a_flag_that_names_the_cpu_chooses_it(test: str, body: str, otherwise: str, cpu: str) -> None:
    moves = f"if {test}:\n        {body}\n    else:\n        {otherwise}"
    text = IN_FUNCTION.format(own=f"options = load(); net = torch.nn.Linear(4, 2)\n    {moves}", flag="False")
    assert f"Accelerator({cpu})" in converted(text)


EARLY = """import argparse
<torch>
def setup(options):
    {device}
    options.seed = 3
    return options
parser = argparse.ArgumentParser()
parser.add_argument("--cpu", action="store_true")
args = parser.parse_args()
args = setup(args)
args.cpu = args.cpu or args.slow
<net torch.nn.Linear(4, 2).to(args.{name})>
<loop torch.nn.functional.mse_loss(net(x), y)>
"""


@each_row("""
device => name => own
options.device = torch.device("cpu" if options.cpu else "cuda:0") => device => device = accelerator.device
options.place = "cpu" if options.cpu else "cuda:0" => place => place = accelerator.device.type
options.device = torch.device("cpu") => device => ''
""")
def test_a_device_that_a_function_has_put_among_the_options_before_is_the_accelerators(
    device: str, name: str, own: str
) -> None:
    after = converted(EARLY.format(device=device, name=name))
    assert ("Accelerator(cpu=args.cpu)\nargs." + own + "\n" in after) is bool(own)
    assert device in after


BOUND_ANEW = """import argparse
<torch>
def choose({name}):
    if {name} == "gpu" and torch.cuda.is_available():
        device = torch.device("cuda:0")
    else:
        device = torch.device("cpu")
    return device
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="gpu")
args = parser.parse_args()
device = choose(args.device)
<net torch.nn.Linear(4, 2).to(device)>
<loop torch.nn.functional.mse_loss(net(x.to(device)), y.to(device))>
"""


def test_a_parameter_that_holds_the_device_behind_its_test_is_asked_as_any_other() -> None:
    after = [converted(BOUND_ANEW.format(name=name)) for name in ("device", "wanted")]
    made = "accelerator = Accelerator(device=device)\ndevice = accelerator.device\n"
    assert all(made in one for one in after)


EITHER = """import argparse
<torch>
def train(args):
    net = torch.nn.Linear(4, 2)
    if not args.cpu:
        net.cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    <loop torch.nn.functional.mse_loss(net(x), y)>
def test({name}):
    net, hits = torch.nn.Linear(4, 2), 0
    if not {name}.cpu:
        net.cuda()
    with torch.no_grad():
        for x, y in DataLoader([]):
            hits += (net(x) == y).sum().item()
    print(hits)
parser = argparse.ArgumentParser()
parser.add_argument("--cpu", action="store_true")
options = parser.parse_args()
if options.test:
    test(options)
else:
    train(options)
"""


def test_a_choice_of_the_cpu_is_that_of_a_function_which_runs_instead_too() -> None:
    assert converted(EITHER.format(name="args")).count("Accelerator(cpu=args.cpu)") == 2
    assert converted(EITHER.format(name="given")).count("Accelerator(cpu=args.cpu)") == 1
    entries = EITHER.format(name="args").replace("net.cuda()", 'net.cuda(args["gpu"])')
    entries = entries.replace("s.cpu", 's["cpu"]')
    entries = entries.replace("options = parser.parse_args()", "options = vars(parser.parse_args())")
    assert converted(entries).count('Accelerator(cpu=args["cpu"], device=args["gpu"])') == 2
    other = entries.replace('args["gpu"]', 'args["gpus"][0]', 1)
    assert "device=" not in converted(other)


TASKS = """import argparse
<torch>
def fit(net, args):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in DataLoader([]):
        if not args.{asked}:
            x, y = x.cuda(), y.cuda()
        <step torch.nn.functional.mse_loss(net(x), y)>
def rows(args):
    weight = torch.ones(2).cuda()
    fit(torch.nn.Linear(4, 2), args)
def pictures(args):
    net = torch.nn.Linear(9, 2)
    if not args.cpu:
        net.cuda()
    fit(net, args)
parser = argparse.ArgumentParser()
parser.add_argument("--cpu", action="store_true")
options = parser.parse_args()
if options.pictures:
    pictures(options)
else:
    rows(options)
"""


def test_a_choice_of_one_of_several_callers_is_that_of_the_function_which_all_run() -> None:
    assert converted(TASKS.format(asked="cpu")).count("Accelerator(cpu=args.cpu)") == 2
    assert converted(TASKS.format(asked="gpu")).count("Accelerator(cpu=args.cpu)") == 1


IN_A_CLASS = """import argparse
<torch>
class Settings:
    use_gpu: bool = True
    def read(self, given):
        for key, value in given.items():
            setattr(self, key, value)
class Trainer:
    def __init__(self, args):
        self.args = args
        self.model = torch.nn.Linear(4, 2)
        if {test}:
            self.model = self.model.cuda()
    def train(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for x, y in DataLoader([], 8):
            if {test}:
                x, y = x.cuda(), y.cuda()
            <step torch.nn.functional.mse_loss(self.model(x), y)>
settings = Settings()
{begin}
"""
PARSED = """def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-cuda", action="store_true")
    parser.add_argument("--use_gpu", type=int, default=1)
    args = parser.parse_args()
    {computed}
    print(args)
    Trainer(args).train()
if __name__ == "__main__":
    main()"""
OVERWRITTEN = """
def read(parser):
    args = parser.parse_args()
    args.use_gpu = torch.device("cuda" if args.use_gpu >= 0 else "cpu")
    return args
"""
PLACED = """def place(args):
    return torch.device(args.use_gpu if torch.cuda.is_available() else "cpu")
"""
READ = """def run(**given):
    settings.read(given)
    Trainer(settings).train()
run()"""


GIVEN_DEVICE = PARSED.format(computed="pass").replace("parser.parse_args()", "read(parser)") + OVERWRITTEN
BEGINS = {
    "computed": PARSED.format(computed="args.cuda = not args.no_cuda and torch.cuda.is_available()"),
    "an option": PARSED.format(computed="args.extra = 1"),
    "an object": READ,
    "a device's name": PLACED + READ.replace("    Trainer", "    place(settings)\n    Trainer"),
    "the device": GIVEN_DEVICE,
    "the first GPU": GIVEN_DEVICE.replace('"cuda" if', '"cuda:0" if'),
    "imported": "from options import args\nTrainer(args).train()",
    "given": """parser = argparse.ArgumentParser()
parser.add_argument("--use_gpu", type=int)
def main(args):
    Trainer(args).train()
main(parser.parse_args())""",
}


CHOOSES = """def choose(options):
    os.environ["CUDA_VISIBLE_DEVICES"] = options.gpu
import os
"""


@each_row(r"""
begin => test => above => made
computed => self.args.cuda => args.cuda = not args.no_cuda and torch.cuda.is_available() => cpu=not args.cuda
an option => self.args.use_gpu => args = parser.parse_args() => cpu=not args.use_gpu
an option => self.own.use_gpu => args = parser.parse_args() => cpu=not args.use_gpu
computed => self.own.use_gpu != '-1' => choose(args) => cpu=not (args.use_gpu != '-1')
an object => settings.use_gpu => settings.read(given) => cpu=not settings.use_gpu
a device's name => True => settings.read(given) => device=settings.use_gpu
the device => True => args = read(parser) => cpu=str(args.use_gpu) == 'cpu'
the first GPU => True => args = read(parser) => device=args.use_gpu
given => self.own.use_gpu => def main(args): => cpu=not args.use_gpu
imported => self.args.use_gpu => from options import args => cpu=not args.use_gpu
""")
def test_a_choice_in_a_class_is_known_below_the_options(
    begin: str, test: str | bool, above: str, made: str
) -> None:
    text = IN_A_CLASS.format(test=test, begin=BEGINS[begin]).replace(
        "self.args = args", "self.args = args; self.own = args"
    )
    if above == "choose(args)":
        text = f"{CHOOSES}{text}".replace("args.cuda = not args.no_cuda and torch.cuda.is_available()", above)
    after = converted(text)
    lines = [line.strip() for line in after.splitlines()]
    made = f"accelerator = Accelerator({made})\n"
    made += "args.use_gpu = accelerator.device\n" if begin == "the first GPU" else ""  # of each process
    assert "\n".join(lines[lines.index(above) + 1 :]).startswith(made)


GIVEN = """import argparse
import torch
class Trainer:
    def __init__(self, rows, on_gpu=False, local_rank=0):
        {first}
        self.device = torch.device("cuda" if on_gpu else "cpu")
        <self.net torch.nn.Linear(4, 2).to(self.device)>
    def fit(self, loader):
        for x, y in loader:
            <self.step torch.nn.functional.mse_loss(self.net(x.to(self.device)), y.to(self.device))>
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--use_cuda", type=int, default=1)
    options = parser.parse_args()
    {made}.fit(torch.utils.data.DataLoader([], 8))
"""


@each_row("""
made => first => is_kept
Trainer(3, on_gpu=options.use_cuda) => self.rows = rows => True
Trainer(3, options.use_cuda) => self.rows = rows => True
Trainer(3, options.use_cuda) => on_gpu = on_gpu and rows > 2 => False
Trainer(3, bool(options.use_cuda)) => self.rows = rows => False
""")
def test_a_choice_by_a_parameter_is_that_of_the_only_call(made: str, first: str, is_kept: bool) -> None:
    text = GIVEN.format(made=made, first=first)
    assert ("Accelerator(cpu=not options.use_cuda)" in converted(text)) == is_kept
    assert any("own choice of the CPU" in one.reason for one in notes(text, "CT105")) != is_kept


@each_row("""
made => is_cpu
Trainer(3, on_gpu=False) => True
Trainer(3, False) => True
Trainer(3, False, local_rank=1) => True
Trainer(3, on_gpu=True) => False
Trainer(2, True).fit([]), Trainer(3, False) => False
""")
def test_a_call_that_asks_for_the_cpu_has_it_and_the_number_of_its_process(made: str, is_cpu: bool) -> None:
    after = converted(GIVEN.format(made=made, first="self.rows = rows"))
    assert ("Accelerator(cpu=True)" in after) == is_cpu
    told = after.count("local_rank=PartialState().local_process_index")
    assert told == made.count("Trainer(") - made.count("local_rank"), after


OWN, BOTH = "self.on_gpu = args.use_gpu", "not (args.use_gpu and args.no_cuda)"


@pytest.mark.parametrize(
    ("test", "bound", "computed", "cpu"),
    [
        ("self.on_gpu", OWN, "pass", "not args.use_gpu"),
        ("self.on_gpu", OWN, "kind = [k for k in KINDS if issubclass(k, Trainer)][0]", "not args.use_gpu"),
        ("self.on_gpu", f"{OWN} and args.width > 2", "pass", None),
        ("self.on_gpu", f"{OWN}\n        if args.no_cuda:\n            {OWN}", "pass", None),
        ("self.on_gpu and self.fits", f"{OWN}; self.fits = args.no_cuda", "pass", BOTH),
        ("self.on_gpu and self.fits", f"{OWN}; self.fits = ask()", "pass", None),
        ("self.on_gpu", 'self.on_gpu = args["gpu"]', "args = {'gpu': args.use_gpu}", "not args.use_gpu"),
        ("self.on_gpu", 'self.on_gpu = args["gpu"]', "args = {'gpu': args.use_gpu and args.wide}", None),
        ("self.args.gpu.use", "self.args = args", 'args.gpu = __import__("gpus").first()', None),
        ("torch.cuda.is_available()", "self.args = args", "pass", ""),
    ],
)
def test_an_objects_own_flag_is_the_option_that_it_is_bound_to(
    test: str, bound: str, computed: str, cpu: str | None
) -> None:
    """What the beginning cannot know is said; whether there is a GPU is no choice."""
    begin = PARSED.format(computed=computed.replace("args =", "given ="))
    begin = begin.replace("Trainer(args)", "Trainer(given)") if "given" in begin else begin
    begin = begin.replace("Trainer(args)", "kind(args)") if "kind" in begin else begin
    text = IN_A_CLASS.format(test=test, begin=begin).replace("self.args = args", bound)
    assert f"Accelerator(cpu={cpu})" in converted(text) if cpu else "cpu=" not in converted(text)
    assert any("own choice of the CPU" in one.reason for one in notes(text, "CT105")) is (cpu is None)


MOVED = """import argparse
<torch>
def put(x, use_cuda):
    return x.cuda() if use_cuda else x
class Trainer:
    def __init__(self, args):
        self.on_gpu = args.gpu {more}
        <self.net put(nn.Linear(4, 2), self.on_gpu){after}>
    def fit(self, loader):
        for x, y in loader:
            <self.step F.mse_loss(self.net(put(x, {given})), y)>
parser = argparse.ArgumentParser()
parser.add_argument("--gpu", action="store_true")
options = parser.parse_args()
Trainer(options).fit(DataLoader([], 8))
"""


@each_row("""
more => after => given => is_asked
and torch.cuda.is_available() => '' => self.on_gpu => True
'' => '' => self.on_gpu => True
; put(args.noise, args.noise.is_cuda) => '' => self.on_gpu => True  # there it follows a tensor
'' => '' => len(x) > 2 => False
'' => .cuda() => self.on_gpu => False  # the model is there in any case
'' => ; device = 'cuda' if torch.cuda.is_available() else 'cpu' => self.on_gpu => False
""")
def test_a_helper_that_moves_by_what_all_give_it(more: str, after: str, given: str, is_asked: bool) -> None:
    done = converted(MOVED.format(more=more, after=after, given=given))
    assert ("parse_args()\naccelerator = Accelerator(cpu=not options.gpu)\n" in done) is is_asked


IN_CLASS = """import argparse
from absl import app, flags
<torch>
FLAGS = flags.FLAGS
flags.DEFINE_bool("gpu", False, "")
class Trainer:
    def fit(self, loader):
        device = torch.device("cuda" if FLAGS.gpu else "cpu")
        <model>
        model.to(device)
        for x, y in loader:
            <step F.mse_loss(model(x.to(device)), y.to(device))>
def main(argv):
    print("begins")
    Trainer().fit(DataLoader([], 8))
{begin}
"""
TWICE = """parser = argparse.ArgumentParser()
parser.add_argument("--gpu", action="store_true")
FLAGS = parser.parse_args()
main(0)
FLAGS = parser.parse_args()
main(1)"""


@each_row(r"""
begin => known
app.run(main) => def main(argv):\n    <made>\n    accelerator.print  # no top level knows it
<twice> => FLAGS = parser.parse_args()\n<made>\nmain(0)
""")
def test_an_option_is_asked_where_it_is_known_first(begin: str, known: str) -> None:
    after = converted(IN_CLASS.format(begin=begin.replace("<twice>", TWICE)))
    assert known.replace("<made>", "accelerator = Accelerator(cpu=not FLAGS.gpu)") in after


BRANCHES = """import json
<torch>
from contextlib import nullcontext
def main():
    with open("settings.json") as file:
        settings = json.load(file)
    {calls}
def train(settings):
    if settings["cuda"]:
        device = torch.device("cuda:0")
    else:
        device = torch.device("cpu")
    model = torch.nn.Linear(3, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x in DataLoader(torch.ones(8, 3)):
        <step model(x.to(device)).mean()>
main()
"""


@pytest.mark.parametrize(
    ("calls", "is_kept"),
    [
        (
            "if settings['slow']:\n        with nullcontext():\n            train(settings)\n    else:\n        train(settings)",
            True,
        ),
        ("train(settings)\n    train(json.load(open('other.json')))", False),
    ],
)
def test_a_choice_of_a_function_that_two_branches_call_alike(calls: str, is_kept: bool) -> None:
    after = converted(BRANCHES.format(calls=calls))
    assert ('accelerator = Accelerator(cpu=not settings["cuda"])' in after) is is_kept


@each_row("""
setting => is_below
torch.set_float32_matmul_precision("high") => True
torch.autograd.set_detect_anomaly(True) => True
open("log").close() => False
""")
def test_what_only_sets_something_asks_for_no_accelerator(setting: str, is_below: bool) -> None:
    text = f"<torch>\n{setting}\nif __name__ == '__main__':\n    model = nn.Linear(4, 2)\n"
    text += "    optimizer = torch.optim.SGD(model.parameters(), 0.1)\n    for x in DataLoader(torch.ones(8, 4)):\n        <step model(x).mean()>\n"
    after = converted(text)
    assert (after.index("accelerator = Accelerator()") > after.index("__main__")) is is_below


TUPLE = """import json
<torch>
def prepared(number):
    number = min(number, torch.cuda.device_count())
    device = torch.device("cuda:0" if {asked} else "cpu")
    return device, list(range(number))
settings = json.load(open("settings.json"))
device, numbers = prepared(settings["gpus"])
model = torch.nn.Linear(2, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(torch.ones(8, 2)):
    x = x.to(device)
    <step model(x).mean()>
"""


@pytest.mark.parametrize(("asked", "is_chosen"), [("number > 0", True), ("torch.cuda.is_available()", False)])
def test_a_device_that_a_function_returns_beside_others_is_the_choice(asked: str, is_chosen: bool) -> None:
    after = converted(TUPLE.format(asked=asked))
    assert ("accelerator = Accelerator(device=device)\ndevice = accelerator.device\n" in after) is is_chosen
