"""A choice of the CPU that functions hand on: in globals, in what they return, in the options of a command."""

import pytest

from .converting import converted, notes, once_more
from .support import each_row
from .test_choice_in_functions import GIVEN, IN_FUNCTION

PARSED_HERE = "options = argparse.ArgumentParser().parse_args()"
SET_IN_MAIN = """import argparse
<torch>
from torch.utils.tensorboard import SummaryWriter
{top}
def read():
    global options
    options = argparse.ArgumentParser(__doc__).parse_args()
class Log:
    def __init__(self):
        self.writer = SummaryWriter("runs")
def main():
    global options
    {own}
    if options.log:
        log = Log()
    <model>
    if options.cuda:
        model.cuda()
    <loop torch.nn.functional.mse_loss(model(x), y)>
if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("top", "own", "known"),
    [("", PARSED_HERE, PARSED_HERE), (PARSED_HERE, "pass", PARSED_HERE), ("", "read()", "    read()")],
)
def test_an_option_that_functions_make_a_global_is_asked_behind_them(top: str, own: str, known: str) -> None:
    after = converted(SET_IN_MAIN.format(top=top, own=own))
    assert after.rindex(known) < after.index("Accelerator(cpu=not options.cuda)")
    assert after.count("Accelerator(") == 1


IN_CALLED = """import argparse
<torch>
def train({given}, loader, model, optimizer):
    {first}
    device = "cuda:0" if torch.cuda.is_available() and {flag} else "cpu"
    model.to(device)
    for x, y in loader:
        <step torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))>
def main():
    options = argparse.ArgumentParser().parse_args()
    if torch.cuda.is_available() and not options.cuda:
        print("there is a GPU")
    <model>
    loader = DataLoader(list(range(8)), 8)
    train({call}, loader, model, optimizer)
main()
"""


@each_row("""
given => flag => call => first
opt => opt.cuda => options => pass
use_cuda => use_cuda => options.cuda => pass
options => options.cuda => options => print('begins')
n => opt.cuda => 8 => opt = read(n)  # which it cannot know
""")
def test_the_first_accelerator_has_the_flag(given: str, flag: str, call: str, first: str) -> None:
    text = IN_CALLED.format(given=given, flag=flag, call=call, first=first)
    main = converted(text).partition("def main")[2]
    is_known = "parse_args()\n    accelerator = Accelerator(cpu=not options.cuda)\n" in main
    assert converted(text).count("cpu=") == is_known == (given != "n")
    assert is_known or "not kept" in notes(text, "CT105")[0].reason


@pytest.mark.parametrize("end", ["", "if __name__ == '__main__':\n    import fire\n    fire.Fire()\n"])
def test_a_file_whose_functions_are_called_from_outside(end: str) -> None:
    text = """<torch>
def train(**options):
    <model>
    <loop>
"""
    assert "def train(**options):\n    accelerator = Accelerator()" in converted(text + end)


def test_a_wrapper_above_the_choice_has_the_accelerator_where_the_flag_is_known_before() -> None:
    after = converted(IN_FUNCTION.format(own="pass", flag="args.cuda"))
    made, wrapped = after.index("Accelerator(cpu=not args.cuda)"), after.index("accelerator.prepare(model)")
    assert made < wrapped


IN_TRY = """import argparse
<torch>
parser = argparse.ArgumentParser()
parser.add_argument("--cuda", action="store_true")
def train(options, say):
    <model>
    if options.cuda:
        model.cuda()
    <loop>
def main():
    {block}:
        options = parser.parse_args()
        print("begin")
        {inside}
    {end}
    {behind}
main()
"""
BOTH = "train(options, len) if options.quiet else train(options, print)"


@each_row("""
block => end => said
try => except KeyboardInterrupt: print('stopped') => PartialState().print('stopped')
with open('log') as file => print('over') => accelerator.print('over')
""")
def test_options_that_one_block_alone_knows_choose_in_it(block: str, end: str, said: str) -> None:
    after = converted(IN_TRY.format(block=block, inside=BOTH, end=end, behind=""))
    made = "parse_args()\n        accelerator = Accelerator(cpu=not options.cuda)\n        accelerator.print("
    assert made in after and said in after and "model.to(accelerator.device)" in after
    below = converted(IN_TRY.format(block=block, inside="pass", end=end, behind=BOTH))
    assert "\n    accelerator = Accelerator(cpu=not options.cuda)\n" in below


ASKED = """import argparse
<torch>
def choose(asked):
    chosen = None
    if asked:
        wanted = {made}
        chosen = wanted
    if chosen is None:
        chosen = {other}
    return chosen
args = argparse.ArgumentParser().parse_args()
device = choose(args.device)
half = args.half and device in ("cuda", "cpu")
print(f"on {{device}}")
<model torch.nn.Linear(4, 2).to(device)>
for x, y in DataLoader([], 8):
    with torch.autocast("cpu", enabled=half):
        loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
    <step loss>
"""


@each_row("""
made => other => device
# A device is equal to no text, before and after.
torch.device(asked) => torch.device("cpu") => accelerator.device
asked => "cpu" => accelerator.device.type
torch.device(asked) => "cpu" => accelerator.device.type
""")
def test_a_device_that_a_function_returns_stays_what_it_is(made: str, other: str, device: str) -> None:
    after = converted(ASKED.format(made=made, other=other))
    assert f"accelerator = Accelerator(device=device)\ndevice = {device}\n" in after


SELECTS = """def select(id):
    off = False
    if id == -1:
        off = {off}
    on = False if off else torch.cuda.is_available()
    return torch.device(f"cuda:{{id}}" if on else "cpu")
class Trainer"""


@pytest.mark.parametrize(
    ("off", "cpu"), [("True", "cpu=options.use_cuda == -1, device=options.use_cuda"), ("load()", "")]
)
def test_what_a_helper_makes_of_a_number_is_asked_in_the_words_of_its_caller(off: str, cpu: str) -> None:
    text = GIVEN.format(made="Trainer(3, options.use_cuda)", first="pass")
    text = text.replace('torch.device("cuda" if on_gpu else "cpu")', "select(on_gpu)")
    text = text.replace("class Trainer", SELECTS.format(off=off))
    assert f"accelerator = Accelerator({cpu})\n    Trainer(" in converted(text)
    assert any("CPU is not kept" in one.reason for one in notes(text, "CT105")) is not cpu


GIVEN_BACK = """<torch>
import argparse
def load(args):
    args.width = 4
    return DataLoader([], 8), {given}
def run(args):
    loader, args = load(args)
    model = nn.Linear(4, 2)
    if args.cuda:
        model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        <step>
parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true")
args = parser.parse_args()
args.cuda = not args.no_cuda and torch.cuda.is_available()
if __name__ == "__main__":
    run(args)
"""


@pytest.mark.parametrize(("given", "is_first"), [("args", True), ("read(args)", False)])
def test_options_that_a_function_gives_back_are_known_above(given: str, is_first: bool) -> None:
    after = converted(GIVEN_BACK.format(given=given))
    assert ("def run(args):\n    accelerator = Accelerator(cpu=args.no_cuda)\n" in after) is is_first


SETTINGS = """<torch>
def read(names):
    settings = Settings()
    if {test}:
        settings.device = "cuda"
    else:
        settings.device = "cpu"
    return settings
settings = read(sys.argv[1:])
<model torch.nn.Linear(4, 2).to(settings.device)>
<loop torch.nn.functional.mse_loss(model(x), y)>
"""


@pytest.mark.parametrize("test", ["names", "names and <there>", "<there>", "not <there>"])
def test_a_device_among_settings_that_a_function_returns(test: str) -> None:
    after = converted(SETTINGS.format(test=test.replace("<there>", "torch.cuda.is_available()")))
    assert ("= Accelerator(device=settings.device)\nsettings.device = " in after) is ("names" in test), after


COMMAND = """import click
<torch>
class Base:
    def __init__(self, device):
        self.device = device
class Runner(Base):
    def __init__(self, device):
        super().__init__(device)
    def fit(self, rows):
        <model>
        model.to(self.device)
        for x, y in DataLoader(rows, 8):
            <step>
@click.command()
@click.option("--{option}", default="cuda")
def main({option}):
    if not torch.cuda.is_available():
        {option} = "cpu"
    Runner(device={option}).fit([])
main()
"""


@pytest.mark.parametrize(("option", "made"), [("device", "device=device"), ("folder", "")])
def test_the_option_of_a_command_is_the_device(option: str, made: str) -> None:
    """Here the class that gets it hides that the network goes there."""
    after = converted(COMMAND.format(option=option))
    assert f"    accelerator = Accelerator({made})\n" in after
    assert ("    device = accelerator.device" in after) is (option == "device")


FITTED = """import argparse
<torch>
class Runner:
    def __init__(self, settings):
        self.settings = settings
        self.device = torch.device(self.settings["device"])
    def fit(self, rows):
        <model>
        for x, y in DataLoader(rows, 8):
            <step>
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
args = parser.parse_args()
settings = vars(args)
settings["rows"] = []
Runner(settings).fit(settings["rows"])
"""


@pytest.mark.parametrize(("made", "is_known"), [("vars(args)", True), ("args", False), ("read()", False)])
def test_the_options_as_a_dictionary_have_the_device(made: str, is_known: bool) -> None:
    after = converted(FITTED.replace("vars(args)", made))
    known = (
        'accelerator = Accelerator(device=settings["device"])\nsettings["device"] = accelerator.device.type\n'
    )
    assert (known in after) is is_known and once_more(after) == after
    by_name = FITTED.replace('settings["device"]', "settings.device").replace("vars(args)", "args")
    assert "accelerator = Accelerator(device=settings.device)\n" in converted(by_name)


SETTINGS_OF_FILE = """import argparse, sys, yaml
<torch>
class Settings:
    def __init__(self, path):
        read = yaml.safe_load(open(path))
        self.rate = read["rate"]
        self.device = {value}
def train(settings):
    model = torch.nn.Linear(4, 2).to(settings.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.rate)
    for x, y in DataLoader([], 8):
        x, y = x.to(settings.device), y.to(settings.device)
        <step>
def main():
    settings = Settings(sys.argv[1])
    train(settings)
main()
"""


@each_row("""
value => is_kept
torch.device(read["device"]) => True
read["device"] => True
torch.device("cuda" if torch.cuda.is_available() else "cpu") => False
""")
def test_a_class_of_settings_has_its_device_from_a_file(value: str, is_kept: bool) -> None:
    after = converted(SETTINGS_OF_FILE.format(value=value))
    made = "settings = Settings(sys.argv[1])\n    accelerator = Accelerator(device=settings.device)\n"
    assert (made in after) is is_kept
    assert (f"self.device = {value}" in after) is is_kept


SET_BY_NAME = """import fire, logging
logging.basicConfig(level=logging.INFO)
<torch>
class Options:
    use_gpu = True
options = Options()
def train(**given):
    {sets}
    rate = 0.1
    device = torch.device("cuda") if options.use_gpu else torch.device("cpu")
    model = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for x, y in DataLoader([], 8):
        x, y = x.to(device), y.to(device)
        <step>
fire.Fire()
"""


@each_row("""
sets => is_below
for key in given: setattr(options, key, given[key]) => True
options.__dict__.update(given) => True
setattr(options, "rate", 1) => False
setattr(other, key, 1) => False
""")
def test_options_that_are_set_by_their_names_are_asked_behind_that(sets: str, is_below: bool) -> None:
    after = converted(SET_BY_NAME.format(sets=sets))
    place = after.index("accelerator = Accelerator(cpu=not options.use_gpu)")
    assert (
        after.index("given" if is_below else "setattr", after.index("def train(**given):") + 20) < place
    ) is is_below
