"""What the report says: places by file, and no import that nothing uses."""

from pathlib import Path

import pytest

from .converting import conversion, converted, notes
from .projects import convert, write
from .support import each_row

TRAINS = """<torch>
import shown

<model>
for x, y in DataLoader([], 8):
    loss = shown.loss_of(model(x), y)
    <step loss>
"""
SHOWN = """import sys, torch

def loss_of(out, y):
    print("rows", len(y))
    print("mean", out.mean().item())
    return torch.nn.functional.mse_loss(out, y)
"""


@pytest.mark.parametrize(
    ("again", "said"),
    [
        ("", "also line 5)"),
        ("    print('a')\n", "also lines 5, 6)"),
        ("    sys.stdout.write('a')\n", "also lines 5, 6)"),
        ("    print('a')\n" * 9, "also lines 5, 6, 7, 8, 9, 10, 11, 12 and 2 more)"),
    ],
)
def test_further_lines_of_a_note_are_those_of_the_file(again: str, said: str, tmp_path: Path) -> None:
    shown = SHOWN.replace("    return", f"{again}    return")
    trains = TRAINS.replace(
        "import shown", "import other, shown\n\nprint(other.__name__)\nfirst = shown.loss_of([], 1)"
    )
    trains = trains.replace("shown.loss_of(model(x), y)", "model(x).mean()")
    more = "import shown\n\nif __name__ == '__main__':\n    print(shown)\n"
    folder = write(tmp_path, other="import torch\n" * 40, shown=shown, train=trains, more=more)
    files = convert(folder, "train").files
    found = [f.reason for one in files for f in one.result.findings if "also" in f.reason]
    assert found and all(said in reason for reason in found), found


def test_a_tracker_that_is_given_options_is_silent_on_the_other_processes() -> None:
    made = "import visdom\n\n\ndef draw(**options):\n    return visdom.Visdom(port=8097, **options)\n\n\nboard = draw(env='a')\n"
    after = conversion(TRAINS.replace("import shown", made).replace("shown.show", "print")).text
    assert "visdom.Visdom(port=8097, **options, send=" in after, after
    made = "from comet_ml import Experiment\n\nrun = Experiment(project_name='a')\nold = Experiment(disabled=True)\n"
    after = conversion(TRAINS.replace("import shown", made).replace("shown.show", "print")).text
    assert (
        "project_name='a', disabled=not accelerator.is_main_process" in after and "(disabled=True)" in after
    )
    made = "from torchinfo import summary\n\nsummary(model, (2, 4))\nkept = summary(model, verbose=0)\n"
    after = conversion(TRAINS.replace("import shown", made).replace("shown.show", "print")).text
    assert "(2, 4), verbose=int(accelerator.is_main_process))" in after and "(model, verbose=0)" in after
    made = "import wandb\n\nkept = dict(mode='offline')\nwandb.init(mode=kept['mode'])\nwandb.init(mode=choose())\n"
    after = conversion(TRAINS.replace("import shown", made).replace("shown.show", "print")).text
    assert "mode=kept['mode'] if accelerator.is_main_process" in after and "mode=choose())" in after, after
    made = made.replace("kept['mode']", "'online' if kept else 'disabled'").replace("choose()", "'disabled'")
    after = conversion(TRAINS.replace("import shown", made).replace("shown.show", "print")).text
    assert "mode=('online' if kept else 'disabled') if accelerator.is_main_process else" in "".join(
        after.splitlines()
    )
    assert "wandb.init(mode='disabled')" in after


@each_row("""
made => is_said
importlib.import_module("nets." + name).Net() => True
getattr(__import__(name), 'Net')() => True
importlib.import_module("nets.small").Net() => False
nets.small.Net() => False
""")
def test_modules_that_nobody_can_read_are_said(made: str, is_said: bool) -> None:
    text = TRAINS.replace("import shown", "import importlib, shown").replace("<model>", f"<model {made}>")
    said = [one for one in conversion(text).findings if "imported by a computed name" in one.reason]
    assert bool(said) is is_said


FINDER = """
    import importlib

    def find(name):
        path = {path}
        return importlib.import_module(path).Trainer
"""
TRAINER = """
    <torch>

    class Trainer:
        def __init__(self):
            <self.model torch.nn.Linear(2, 1)>
            self.loader = DataLoader(torch.rand(8, 2), batch_size=2)

        def fit(self):
            for batch in self.loader:
                <self.step self.model(batch).mean()>
"""
FINDS = """
    import sys
    from finder import find

    trainer = find(sys.argv[1])()
    trainer.fit()
"""


@each_row("""
path => is_found
"kinds." + name + "_trainer" => True
f"kinds.{name}" => True
"kinds.%s_trainer" % name => True
"kinds.{}_trainer".format(name) => True
".".join(["kinds", name]) => True
"kinds." + name + "_network" => False
name + ".plain_trainer" => False
""")
def test_a_computed_name_means_what_its_folder_holds(tmp_path: Path, path: str, is_found: bool) -> None:
    (tmp_path / "kinds").mkdir()
    write(tmp_path / "kinds", plain_trainer=TRAINER, other="import shown")
    write(tmp_path, finder=FINDER.format(path=path), run=FINDS)
    done = convert(tmp_path, "run")
    after = (tmp_path / "kinds" / "plain_trainer.py").read_text()
    assert ("accelerator.prepare(" in after) is is_found
    found = [finding.rule for one in done.files for finding in one.result.findings]
    assert ("CT905" in found) is not is_found


@pytest.mark.parametrize("own_loop", [False, True])
def test_a_library_with_a_loop_of_its_own_is_named(own_loop: bool) -> None:
    engine = "from torchnet.engine import Engine\n\nEngine().train(lambda rows: 0, [], 3, None)\n"
    text = engine + (TRAINS if own_loop else "")
    said = [one.reason for one in conversion(text).findings if "loop of its own" in one.reason]
    assert said == ([] if own_loop else ["torchnet's Engine trains, in a loop of its own"])


SAMPLES = """import torch
import wandb
from PIL import Image
from torch.utils.data import DataLoader

def keep(picture, path):
    picture.save(path, quality=90)

wandb.init(project="samples")
<model>
for epoch in range(3):
    <loop>
    picture = Image.new("RGB", (8, 8))
    keep(picture, "sample.jpg")
    {log}
"""


def test_one_process_shows_the_pictures_that_one_process_writes() -> None:
    log = 'wandb.log({"sample": wandb.Image("sample.jpg")}, step=epoch)'
    after = converted(SAMPLES.format(log=log))
    assert f'if accelerator.is_main_process:\n        keep(picture, "sample.jpg")\n        {log}\n' in after


@pytest.mark.parametrize(
    ("asks", "becomes"),
    [
        ("assert board.check_connection()", "assert (board.check_connection() or not "),
        ("board.check_connections()", "\nboard.check_connections()"),
    ],
)
def test_a_board_that_sends_nothing_is_asked_for_no_connection(asks: str, becomes: str) -> None:
    made = f"import visdom\n\nboard = visdom.Visdom()\n{asks}\n"
    after = conversion(TRAINS.replace("import shown", made).replace("shown.show", "print")).text
    assert becomes in after, after


def test_a_method_that_is_named_print_is_no_print() -> None:
    says = "import shown\n\nclass Options:\n    def print(self):\n        print(self)\n\nOptions().print()\nprint('rows')\n"
    after = converted(TRAINS.replace("import shown\n", says))
    assert "accelerator.print('rows')" in after and "\nOptions().print()" in after
    own = says.replace("class Options:\n    def print(self):\n        print(self)", "def print(*args): ...")
    assert "\nprint('rows')" in converted(TRAINS.replace("import shown\n", own))


@pytest.mark.parametrize(("chosen", "said"), [('"cuda" if args.gpu else "cpu"', True), ('"cuda"', False)])
def test_what_is_printed_before_the_device_is_chosen_is_said(chosen: str, said: bool) -> None:
    text = f"""
import argparse
<torch>
parser = argparse.ArgumentParser()
parser.add_argument("--gpu", action="store_true")
args = parser.parse_args()
print(args)
device = torch.device({chosen})
<model torch.nn.Linear(1, 1).to(device)>
for x in DataLoader(torch.ones(8, 1)):
    <step model(x.to(device)).mean()>
"""
    assert any("every process prints" in one.reason for one in notes(text, "CT401")) is said
    assert ("\nprint(args)" in converted(text)) is said
