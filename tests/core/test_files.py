"""Files that stay open, event files, and files that every process goes on to write."""

from __future__ import annotations

import pytest

from .converting import conversion
from .support import Trap, check, converted
from .test_output import GUARD, output

LOOKED = (
    "class shape:\n    width = 3\n\ndef draw(path, width):\n    return cv2.imwrite(path, np.zeros(width))\n\n"
    "def look(path, width):\n    return np.load(path)[:width]\n"
)
LOOKS = """for epoch in range(3):
    for x, y in loader:
        if x.mean() > 0:
            look("{read}", shape.width)
    draw("out.png", shape.width)
"""
OPENED = [
    output(
        "a picture by a function that is told more than its path",
        LOOKS.format(read="mask.npy"),
        GUARD,
        'draw("out.png", shape.width)',
        before=LOOKED,
    ),
    output(
        "but not one that some process may read at any time",
        LOOKS.format(read="out.png"),
        'draw("out.png", shape.width)',
        absent=(GUARD,),
        before=LOOKED,
        says="every process writes this file",
    ),
    output(
        "a write whose result nobody reads",
        "print(draw())",
        "if PartialState().is_main_process:",
        'done = cv2.imwrite("out.png", [1])',
        before='import cv2\n\ndef draw():\n    done = cv2.imwrite("out.png", [1])\n    return 1\n',
    ),
    output(
        "a film, where the script has a function `save` of its own",
        'film = animation.ArtistAnimation(figure, frames)\nfilm.save("film.mp4")\nsave(model)',
        GUARD,
        'film.save("film.mp4")',
        "save(model)",
        before="from matplotlib import animation\n\ndef save(model):\n    return model.state_dict()\n",
    ),
    output(
        "what a method of the project does is its own",
        'film = Film()\nfilm.save("film.mp4")',
        'film.save("film.mp4")',
        absent=(GUARD,),
        before="class Film:\n    def save(self, path):\n        self.path = path\n\n",
    ),
    output(
        "a folder that one process empties is not listed by the others",
        'for name in os.listdir("old"):\n    os.remove(os.path.join("old", name))\nos.rmdir("old")',
        GUARD,
        'for name in os.listdir("old"):',
        'os.remove(os.path.join("old", name))',
        'os.rmdir("old")',
        before="import os\n",
    ),
    output(
        "but is where more is done with its files",
        'for name in os.listdir("old"):\n    names.append(name)\n    os.remove(os.path.join("old", name))',
        'for name in os.listdir("old"):',
        "names.append(name)",
        GUARD,
        before="import os\nnames = []\n",
    ),
    output(
        "a log that stays open",
        'log = open("log.txt", "a")\nlog.write("x")\nlog.close()',
        'log = open("log.txt" if accelerator.is_main_process else os.devnull, "a")',
        'log.write("x")',
        "log.close()",
        absent=(GUARD,),
    ),
    output(
        "a log of a module's top level",
        'log.write("x")',
        "import os",
        'log = open("log.txt" if accelerator.is_main_process else os.devnull, "a")',
        before='log = open("log.txt", "a")\n',
    ),
    output(
        "a log that might be read and is not",
        'log = open("log.txt", "a+")\nlog.write("x")\nprint("y", file=log)\nlog.flush()',
        'log = open("log.txt" if accelerator.is_main_process else os.devnull, "a+")',
    ),
    output(
        "but not one that is",
        'log = open("log.txt", "a+")\nlog.write("x")\nlines = log.readlines()',
        'log = open("log.txt", "a+")',
    ),
    output(
        "windows that open by themselves",
        "plt.ion()\nplt.plot([1])\nplt.pause(0.1)\nplt.clf()",
        GUARD,
        "plt.ion()",
        "plt.plot([1])",
        GUARD,
        "plt.pause(0.1)",
        "plt.clf()",
        before="import matplotlib.pyplot as plt\n",
    ),
    output(
        "a log whose mode is a parameter",
        'def opened(path, mode="a"):\n    return open(path, mode)\nlog = opened("log.txt")\nlog.write("x")',
        "return open(path if accelerator.is_main_process else os.devnull, mode)",
    ),
    output(
        "but not where it reads",
        'def opened(path, mode="a"):\n    return open(path, mode)\nlog(opened("log.txt", "r").read())',
        "return open(path, mode)",
    ),
    output(
        "an array that is dumped to a path",
        'rows.dump(f"{name}.dat")',
        GUARD,
        'rows.dump(f"{name}.dat")',
    ),
    output(
        "what is dumped is no path",
        "rows.dump(name)",
        "rows.dump(name)",
        absent=(GUARD,),
    ),
    output(
        "a file that is opened for a dump",
        'json.dump([1], open("rows.json", "w"))',
        GUARD,
        'json.dump([1], open("rows.json", "w"))',
        before="import json\n",
    ),
    output(
        "a dump into a file that stays open",
        'file = open("rows.bin", "wb")\npickle.dump([1], file)\nfile.close()',
        'file = open("rows.bin" if accelerator.is_main_process else os.devnull, "wb")',
        "pickle.dump([1], file)",
        absent=(GUARD,),
        before="import pickle\n",
    ),
    output(
        "a file that is read stays",
        'rows = open("rows.txt").read()\nmore = open("more.txt", "rb").read()',
        'rows = open("rows.txt").read()',
        'more = open("more.txt", "rb").read()',
    ),
    output(
        "a table by rows",
        'table = csv.writer(open("rows.csv", "w"))\ntable.writerow([1])',
        'table = csv.writer(open("rows.csv" if accelerator.is_main_process else os.devnull, "w"))',
        before="import csv\n",
    ),
    output(
        "a log file of the logging module",
        'log = logging.getLogger()\nlog.addHandler(logging.FileHandler("log.txt"))\nlog.setLevel(logging.INFO)',
        'log.addHandler(logging.FileHandler("log.txt" if accelerator.is_main_process else os.devnull))',
        "log.setLevel(logging.INFO if accelerator.is_main_process else logging.WARNING)",
        before="import logging\n",
    ),
    output(
        "warnings are every process's",
        "logging.getLogger().setLevel(logging.ERROR)",
        "logging.getLogger().setLevel(logging.ERROR)",
        before="import logging\n",
    ),
    output(
        "an event file",
        'writer = SummaryWriter("runs")\nwriter.add_scalar("a", 1)\nwriter.close()',
        'writer = SummaryWriter("runs") if accelerator.is_main_process else None',
        GUARD,
        'writer.add_scalar("a", 1)',
        "writer.close()",
        before="from torch.utils.tensorboard import SummaryWriter\n",
    ),
    output(
        "an event file of which the script says where it is",
        'writer = SummaryWriter("runs")\nlogging.info(f"events in {writer.log_dir}")\nprint("in", writer.log_dir)',
        'writer = SummaryWriter("runs") if accelerator.is_main_process else None',
        GUARD,
        'logging.info(f"events in {writer.log_dir}")',
        'print("in", writer.log_dir)',
        before="import logging\nfrom torch.utils.tensorboard import SummaryWriter\n",
    ),
    output(
        "an event file by which the script names another",
        'writer = SummaryWriter("runs")\nprint(keep(writer.log_dir))\npath = writer.log_dir + "/rows.txt"',
        'writer = SummaryWriter("runs")',
        before="from torch.utils.tensorboard import SummaryWriter\n",
        says="every process writes an event file",
    ),
]


RETURNED = [
    output(
        "a module that writes one event file, also where it is passed on",
        'events.configure("runs")\nshow(events)',
        "if PartialState().is_main_process:",
        'log.log_value("a", 1)',
        GUARD,
        'events.configure("runs")',
        before='import tensorboard_logger as events\n\ndef show(log):\n    log.log_value("a", 1)\n',
    ),
    output(
        "functions that write one event file, where an option asks for it",
        'if len(sys.argv) > 1:\n    start("runs")\nlog_value("a", 1)',
        "if len(sys.argv) > 1 and accelerator.is_main_process:",
        'start("runs")',
        GUARD,
        'log_value("a", 1)',
        before="import sys\nfrom tensorboard_logger import configure as start, log_value\n",
    ),
    output(
        "an event file of tensorboard_logger, of which each is one by itself",
        'log = events.Logger("runs")\nlog.log_value("a", 1)',
        'log = events.Logger("runs") if accelerator.is_main_process else None',
        GUARD,
        'log.log_value("a", 1)',
        before="import tensorboard_logger as events\n",
    ),
    output(
        "an event file that a function makes",
        'writer = make("runs")\nwriter.add_scalar("a", 1)',
        "writer = SummaryWriter(folder) if PartialState().is_main_process else None",
        "return writer",
        GUARD,
        'writer.add_scalar("a", 1)',
        before="from tensorboardX import SummaryWriter\n\ndef make(folder):\n    writer = SummaryWriter(folder)\n"
        "    return writer\n",
    ),
]


SAVED_BY_TRAIN = """
    def train_epoch(model, optimizer, loader):
        model.train()
        for x, y in loader:
            <step F.cross_entropy(model(x), y)>
        GO

    def train(model, loader, start):
        path = "epoch_" + str(start) + ".npy"
        if start:
            seen = np.load(path)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(start, 9):
            train_epoch(model, optimizer, loader)
        path = "epoch_9.npy"
        np.save(path, np.arange(9))

    train(nn.Linear(4, 2), DataLoader(data, batch_size=4), 0)
"""
METHODS = [
    Trap(
        "what a function reads first: `model.train()` is no call of it",
        SAVED_BY_TRAIN.replace("GO", "pass"),
        (GUARD, "np.save(path, np.arange(9))"),
        ("wait_for_everyone",),
    ),
    Trap(
        "and is called again with all that it needs, as a module's function",
        SAVED_BY_TRAIN.replace("GO", "again.train(model, loader, epoch)"),
        ("np.save(path, np.arange(9))",),
        ("is_main_process",),
        says="every process writes this file",
    ),
]


NOTED = [
    output(
        "a function that writes an event file, and is handed on",
        'configure("runs")\nkeep([log_value])',
        'configure("runs")',
        absent=("is_main_process",),
        before="from tensorboard_logger import configure, log_value\n",
        says="every process writes an event file",
    ),
    output(
        "one of its event files that something else uses",
        'log = events.Logger("runs")\nkeep([log])',
        'log = events.Logger("runs")',
        absent=("is_main_process",),
        before="import tensorboard_logger as events\n",
        says="every process writes an event file",
    ),
    output(
        "an event file that something else uses",
        'writer = SummaryWriter("runs")\nkeep([writer])',
        'writer = SummaryWriter("runs")',
        before="from tensorboardX import SummaryWriter\n",
        says="every process writes an event file",
    ),
    output(
        "a file that is read where processes may part",
        'np.save("best.npy", [1])\nif random.random() > 0.5:\n    best = np.load("best.npy")',
        'np.save("best.npy", [1])',
        absent=("is_main_process",),
        before="import random\nimport numpy as np\n",
        says="every process writes this file",
    ),
    output(
        "a write whose result is used",
        'done = cv2.imwrite("out.png", [1])\nprint(done)',
        'done = cv2.imwrite("out.png", [1])',
        before="import cv2\n",
        says="every process writes this file",
    ),
    output(
        "a picture of what is drawn between two passes",
        'save_image(torch.randn(4, 4), "out.png")',
        'save_image(torch.randn(4, 4), "out.png")',
        absent=(GUARD,),
        before="from torchvision.utils import save_image\n",
        says="every process writes this file",
    ),
    output(
        "a table of an evaluation that all take part in",
        'np.save("hits.npy", test(model, DataLoader(data)))',
        'np.save("hits.npy", test(model, DataLoader(data)))',
        absent=(GUARD,),
        before="import numpy as np\n\n@torch.no_grad()\ndef test(model, loader):\n    hits = 0\n"
        "    for x, y in loader:\n        hits += (model(x).argmax(1) == y).sum().item()\n    return hits\n",
        says="every process writes this file",
    ),
    output(
        "a folder because of which the author stops",
        'if os.path.exists("out"):\n    sys.exit()\nelse:\n    os.makedirs("out")',
        'if os.path.exists("out"):',
        "sys.exit()",
        absent=("is_main_process", "exist_ok"),
        before="import os\nimport sys\n",
        says="every process makes this folder",
    ),
    output(
        "a folder by which the author chooses another",
        'try:\n    os.mkdir("out")\nexcept FileExistsError:\n    folder = "other"\n    os.mkdir(folder)\nlog(folder)',
        'os.mkdir("out")',
        before="import os\n",
        says="every process makes this folder",
    ),
]


@pytest.mark.parametrize("trap", [*OPENED, *RETURNED, *METHODS, *NOTED], ids=lambda trap: trap.name)
def test_files(trap: Trap) -> None:
    check(trap)


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        (
            "file.close()",
            'if accelerator.is_main_process:\n    with open("o.txt", "w") as file:\n        file.write("x")\n    file.close()',
        ),
        (
            "print(file.name)",
            'with open("o.txt" if accelerator.is_main_process else os.devnull, "w") as file:',
        ),
        ("file = 3\nprint(file)", "if accelerator.is_main_process:\n    with open("),
    ],
)
def test_a_name_behind_its_block_is_bound_where_it_is_read(behind: str, expected: str) -> None:
    text = """<torch>
<model torch.nn.Linear(1, 1)>
for x in DataLoader(range(8)):
    <step model(x).square().mean()>
with open("o.txt", "w") as file:
    file.write("x")
"""
    done = converted(text + behind + "\n")
    assert expected in done.text, done.text


MADE_BETWEEN = """import argparse
import os
import shutil
<torch>

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args()
    args.cuda = not args.no_cuda and torch.cuda.is_available()
    torch.manual_seed(1)
    if os.path.exists("out"):
        shutil.rmtree("out")
    os.makedirs("out")
    model = torch.nn.Linear(4, 2)
    if args.cuda:
        model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    log = open("out/log", "w")
    <loop>
    log.close()

main()
"""


def test_an_accelerator_between_two_guards_is_made_by_all() -> None:
    done = conversion(MADE_BETWEEN)
    after = done.text
    assert not [one for one in done.findings if one.rule == "CT101"]
    assert '            shutil.rmtree("out")\n    accelerator = Accelerator(cpu=args.no_cuda)\n' in after
    assert '    if accelerator.is_main_process:\n        os.makedirs("out"' in after
    assert "os.devnull" in after
