"""Files, folders and downloads that all processes would touch at once; each with code that must be left alone."""

from __future__ import annotations

import pytest

from .support import Trap, check, converted
from .test_output import output

GUARD = "if accelerator.is_main_process:"

HELPERS = [
    output(
        "a helper that only writes is called by one process",
        'draw([1, 2], "out.png")',
        GUARD,
        'draw([1, 2], "out.png")',
        absent=("PartialState",),
        before="import matplotlib.pyplot as plt\n\ndef draw(rows, path):\n    plt.plot(rows)\n    plt.savefig(path)\n",
    ),
    output(
        "a helper that is called more often than it writes is guarded inside",
        'note("a")\nprint("b")\nnote("c")',
        "if PartialState().is_main_process:",
        'with open("notes.txt", "a") as file:',
        'note("a")',
        before='\ndef note(text):\n    with open("notes.txt", "a") as file:\n        file.write(text)\n',
    ),
    output(
        "a helper that returns is guarded inside",
        'size = draw([1, 2], "out.png")\nprint(size)',
        "if PartialState().is_main_process:",
        "plt.savefig(path)",
        "return len(rows)",
        'size = draw([1, 2], "out.png")',
        absent=(GUARD,),
        before="import matplotlib.pyplot as plt\n\ndef draw(rows, path):\n    plt.savefig(path)\n    return len(rows)\n",
    ),
    output(
        "a helper that draws at random is guarded inside",
        "sample(model)",
        "noise = torch.randn(4, 4)",
        "if PartialState().is_main_process:",
        'save_image(model(noise), "out.png")',
        "sample(model)",
        absent=(GUARD,),
        before="from torchvision.utils import save_image\n\n@torch.no_grad()\ndef sample(model):\n"
        '    noise = torch.randn(4, 4)\n    save_image(model(noise), "out.png")\n',
    ),
    output(
        "a helper that keeps something is guarded inside",
        "note(history, 3)",
        "history.append(value)",
        "if PartialState().is_main_process:",
        'plt.savefig("history.png")',
        absent=(GUARD,),
        before="import matplotlib.pyplot as plt\n\ndef note(history, value):\n    history.append(value)\n"
        '    plt.savefig("history.png")\n',
    ),
    output(
        "a helper that leaves the model in another mode is guarded inside",
        "show(model)",
        "model.eval()",
        "if PartialState().is_main_process:",
        'plt.savefig("out.png")',
        absent=(GUARD,),
        before='import matplotlib.pyplot as plt\n\ndef show(model):\n    model.eval()\n    plt.savefig("out.png")\n',
    ),
    output(
        "a helper that downloads, too, is guarded inside",
        "show()",
        "with PartialState().main_process_first():",
        'rows = MNIST("data", download=True)',
        "if PartialState().is_main_process:",
        'save_image(rows, "out.png")',
        "show()",
        absent=(GUARD,),
        before="from torchvision.datasets import MNIST\nfrom torchvision.utils import save_image\n\ndef show():\n"
        '    rows = MNIST("data", download=True)\n    save_image(rows, "out.png")\n',
    ),
    output(
        "a bar of one's own",
        "bar(3)",
        GUARD,
        "bar(3)",
        before="import sys\nlast = 0\n\ndef bar(count):\n    global last\n    for i in range(last, count):\n"
        '        sys.stdout.write("=")\n    last = count\n    sys.stdout.flush()\n',
    ),
    output(
        "a helper that passes on to a library's function of its own name",
        'imsave("out.png", [1])',
        GUARD,
        'imsave("out.png", [1])',
        before="import imageio\n\ndef imsave(path, rows):\n    return imageio.imsave(path, rows)\n",
    ),
    output(
        "a picture that is moved to the device",
        'save_image(rows.cuda(), "out.png")',
        GUARD,
        'save_image(rows.to(accelerator.device), "out.png")',
        before="from torchvision.utils import save_image\n",
    ),
    output(
        "a command",
        'os.system("cp a.py b.py")\nos.system("mkdir out")\nfree = subprocess.check_output(["df"])',
        GUARD,
        'os.system("cp a.py b.py")',
        'os.system("mkdir out")',
        'free = subprocess.check_output(["df"])',
        before="import os\nimport subprocess\n",
    ),
    output(
        "a helper that the author guards stays",
        'if rank == 0:\n    draw("out.png")',
        "plt.savefig(path)",
        absent=("is_main_process",),
        before="import matplotlib.pyplot as plt\n\ndef draw(path):\n    plt.savefig(path)\n",
    ),
    output(
        "code that nothing calls stays",
        'print("done")',
        "plt.savefig(path)",
        absent=("is_main_process",),
        before="import matplotlib.pyplot as plt\n\ndef draw(path):\n    plt.savefig(path)\n",
    ),
    output(
        "a method of a model that nothing calls stays",
        "print(Net()(rows))",
        'np.save("weights.npy", self.rows)',
        absent=("is_main_process",),
        before="import numpy as np\n\nclass Net(nn.Module):\n    def forward(self, rows):\n        return rows\n"
        '    def export(self):\n        np.save("weights.npy", self.rows)\n',
    ),
    output(
        "a method that writes and returns",
        'done = Painter("out").paint(3)',
        "if PartialState().is_main_process:",
        "np.save(self.path, rows)",
        "return self",
        before="import numpy as np\n\nclass Painter:\n    def __init__(self, path):\n        self.path = path\n"
        "    def paint(self, rows):\n        np.save(self.path, rows)\n        return self\n",
    ),
    output(
        "a data set's own files, row by row, stay",
        "for row in DataLoader(Rows()):\n    print(row)",
        'np.save(f"{i}.npy", i)',
        absent=("PartialState",),
        before="import numpy as np\n\nclass Rows(torch.utils.data.Dataset):\n    def __len__(self):\n        return 3\n"
        '    def __getitem__(self, i):\n        np.save(f"{i}.npy", i)\n        return i\n',
    ),
]

OPENED = [
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
        "numbers into a file that stays open",
        'file = open("rows.bin", "wb")\nrows.tofile(file)',
        'file = open("rows.bin" if accelerator.is_main_process else os.devnull, "wb")',
        "rows.tofile(file)",
        absent=(GUARD,),
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
]

RETURNED = [
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

NOTED = [
    Trap(
        "an event file that something else uses",
        output(
            "",
            'writer = SummaryWriter("runs")\nkeep([writer])',
            before="from tensorboardX import SummaryWriter\n",
        ).script,
        ('writer = SummaryWriter("runs")',),
        says="every process writes an event file",
    ),
    Trap(
        "a file that is read where processes may part",
        output(
            "",
            'np.save("best.npy", [1])\nif random.random() > 0.5:\n    best = np.load("best.npy")',
            before="import random\nimport numpy as np\n",
        ).script,
        ('np.save("best.npy", [1])',),
        ("is_main_process",),
        says="every process writes this file",
    ),
    Trap(
        "a write whose result is used",
        output("", 'done = cv2.imwrite("out.png", [1])\nprint(done)', before="import cv2\n").script,
        ('done = cv2.imwrite("out.png", [1])',),
        says="every process writes this file",
    ),
    Trap(
        "a picture of what is drawn between two passes",
        output(
            "",
            'save_image(torch.randn(4, 4), "out.png")',
            before="from torchvision.utils import save_image\n",
        ).script,
        ('save_image(torch.randn(4, 4), "out.png")',),
        (GUARD,),
        says="every process writes this file",
    ),
    Trap(
        "a table of an evaluation that all take part in",
        output(
            "",
            'np.save("hits.npy", test(model, DataLoader(data)))',
            before="import numpy as np\n\n@torch.no_grad()\ndef test(model, loader):\n    hits = 0\n"
            "    for x, y in loader:\n        hits += (model(x).argmax(1) == y).sum().item()\n    return hits\n",
        ).script,
        ('np.save("hits.npy", test(model, DataLoader(data)))',),
        (GUARD,),
        says="every process writes this file",
    ),
    Trap(
        "a folder because of which the author stops",
        output(
            "",
            'if os.path.exists("out"):\n    sys.exit()\nelse:\n    os.makedirs("out")',
            before="import os\nimport sys\n",
        ).script,
        ('if os.path.exists("out"):', "sys.exit()"),
        ("is_main_process", "exist_ok"),
        says="every process makes this folder",
    ),
    Trap(
        "a folder by which the author chooses another",
        output(
            "",
            'try:\n    os.mkdir("out")\nexcept FileExistsError:\n    folder = "other"\n    os.mkdir(folder)',
            before="import os\n",
        ).script,
        ('os.mkdir("out")',),
        says="every process makes this folder",
    ),
]

READ_AGAIN = [
    output(
        "what one process wrote is waited for where all read it",
        'np.save("best.npy", [1])\nprint("saved")\nbest = np.load("best.npy")',
        GUARD,
        'np.save("best.npy", [1])',
        "accelerator.wait_for_everyone()",
        'best = np.load("best.npy")',
        before="import numpy as np\n",
    ),
    output(
        "what is made once and kept",
        'if not os.path.exists("rows.npy"):\n    np.save("rows.npy", [1])\nrows = np.load("rows.npy")',
        "with accelerator.main_process_first():",
        'if not os.path.exists("rows.npy"):',
        'np.save("rows.npy", [1])',
        'rows = np.load("rows.npy")',
        absent=("is_main_process",),
        before="import os\nimport numpy as np\n",
    ),
    output(
        "what a function makes once and keeps",
        'if os.path.exists("rows.npy"):\n    rows = np.load("rows.npy")\nelse:\n    rows = make("rows.npy")',
        "with accelerator.main_process_first():",
        'if os.path.exists("rows.npy"):',
        'rows = make("rows.npy")',
        absent=("is_main_process",),
        before="import os\nimport numpy as np\n\ndef make(path):\n    np.save(path, [1])\n    return [1]\n",
    ),
    output(
        "a folder that is numbered by what is there is the main process's",
        'name = "run%d" % len(os.listdir("runs"))\nos.mkdir(name)\ntorch.save(model.state_dict(), name + "/model.pt")',
        GUARD,
        "os.mkdir(name)",
        'torch.save(model.state_dict(), name + "/model.pt")',
        absent=("exist_ok",),
        before="import os\n",
    ),
    output(
        "what was read before it is written is not waited for",
        'rows = np.load("rows.npy")\nnp.save("rows.npy", rows)',
        'rows = np.load("rows.npy")',
        GUARD,
        'np.save("rows.npy", rows)',
        absent=("wait_for_everyone",),
        before="import numpy as np\n",
    ),
    output(
        "another file is not waited for",
        'np.save("best.npy", [1])\nrows = np.load("rows.npy")',
        GUARD,
        'rows = np.load("rows.npy")',
        absent=("wait_for_everyone",),
        before="import numpy as np\n",
    ),
    output(
        "a path with a time stamp is the main process's",
        'name = time.strftime("%H%M")\nos.makedirs(name)\ntorch.save(model.state_dict(), name + "/model.pt")',
        GUARD,
        "os.makedirs(name)",
        'torch.save(model.state_dict(), name + "/model.pt")',
        absent=("accelerator.save", "exist_ok"),
        before="import os\nimport time\n",
    ),
    output(
        "a folder about which the author warns is one process's",
        'if os.path.exists("out"):\n    print("overwritten")\nelse:\n    os.makedirs("out")',
        GUARD,
        'if os.path.exists("out"):',
        'print("overwritten")',
        'os.makedirs("out")',
        absent=("exist_ok", "accelerator.print"),
        before="import os\n",
    ),
]

MADE_ONCE = [
    output(
        "a folder that is filled where it is not there",
        'if not os.path.exists("small"):\n    os.makedirs("small")\n    for path in os.listdir("large"):\n'
        '        cv2.imwrite("small/" + path, cv2.imread("large/" + path))\nprint(os.listdir("small"))',
        "with accelerator.main_process_first():",
        'if not os.path.exists("small"):',
        absent=(GUARD,),
        before="import os\nimport cv2\n",
    ),
    output(
        "a function that returns where its folder is there",
        'shrink("small")\nprint(os.listdir("small"))',
        "check_output(command, shell=True)",
        "with accelerator.main_process_first():",
        'shrink("small")',
        absent=("is_main_process",),
        before="import os\nfrom subprocess import check_output\n\ndef shrink(folder):\n    missing = False\n"
        "    if not os.path.exists(folder):\n        missing = True\n    if not missing:\n        return\n"
        '    os.makedirs(folder)\n    command = f"cp large/* {folder}"\n    check_output(command, shell=True)\n',
    ),
    output(
        "a function that returns what it finds, or makes it",
        "rows = table()",
        "with accelerator.main_process_first():",
        "rows = table()",
        absent=("is_main_process",),
        before="import os\nimport numpy as np\n\ndef table():\n    if os.path.exists('a.npy'):\n"
        "        return np.load('a.npy')\n    rows = np.arange(3)\n    np.save('a.npy', rows)\n    return rows\n",
    ),
    output(
        "a folder that is made on the way to a file is not waited for",
        'if not os.path.exists("out"):\n    os.makedirs("out")\nplt.savefig("out/a.png")',
        'os.makedirs("out", exist_ok=True)',
        GUARD,
        'plt.savefig("out/a.png")',
        absent=("main_process_first",),
        before="import os\nimport matplotlib.pyplot as plt\n",
    ),
    output(
        "weights that are resumed from, and saved much later",
        'if os.path.isfile("a.pt"):\n    model.load_state_dict(torch.load("a.pt"))\nelse:\n    for x, y in loader:\n'
        "        F.cross_entropy(model(x), y).backward()\n        optimizer.step()\n"
        '    torch.save(model.state_dict(), "a.pt")\n    model.load_state_dict(torch.load("a.pt"))',
        'accelerator.save(model.state_dict(), "a.pt")',
        absent=("main_process_first",),
        before="import os\n",
    ),
    Trap(
        "weights under a path with a time that all read again",
        output(
            "",
            'path = time.strftime("%H%M") + ".pt"\ntorch.save(model.state_dict(), path)\nstate = torch.load(path)',
            before="import time\n",
        ).script,
        (
            GUARD,
            "torch.save(model.state_dict(), path)",
            "accelerator.wait_for_everyone()",
            "state = torch.load(path)",
        ),
        says="makes the path of this file for itself",
    ),
]

DOWNLOADS = [
    output(
        "a data set that is split by a method of its class",
        "train, test = datasets.IMDB.splits(text, label)",
        "with accelerator.main_process_first():",
        "train, test = datasets.IMDB.splits(text, label)",
        before="from torchtext.legacy import datasets\n",
    ),
    output(
        "a data set that is taken from a table",
        'train, test = text_classification.DATASETS["AG_NEWS"](root="data")\nwords.build_vocab(train, vectors="glove.6B.50d")',
        "with accelerator.main_process_first():",
        'train, test = text_classification.DATASETS["AG_NEWS"](root="data")',
        'words.build_vocab(train, vectors="glove.6B.50d")',
        before="from torchtext.datasets import text_classification\n",
    ),
    output(
        "a library's batches and vocabulary are no download",
        "train = data.BucketIterator.splits((rows,), batch_size=4)\nwords.build_vocab(rows, max_size=9)",
        absent=("main_process_first",),
        before="from torchtext.legacy import data\n",
    ),
    output(
        "a download in a helper",
        "print(len(get()))",
        "with PartialState().main_process_first():",
        'return MNIST("data", download=True)',
        before='from torchvision.datasets import MNIST\n\ndef get():\n    return MNIST("data", download=True)\n',
    ),
    output(
        "a download at a module's top level",
        "print(len(rows))",
        'rows = MNIST("data", download=True)',
        before='from torchvision.datasets import MNIST\nrows = MNIST("data", download=True)\n',
    ),
    output(
        "no download",
        'rows = MNIST("data", download=False)',
        'rows = MNIST("data", download=False)',
        absent=("main_process_first",),
        before="from torchvision.datasets import MNIST\n",
    ),
    output(
        "a library's own way to print",
        'say(Loss=0.5)\nprint("done")\nrows = say("kept")',
        "if accelerator.is_main_process:",
        "say(Loss=0.5)",
        'accelerator.print("done")',
        'rows = say("kept")',
        before="from torch_geometric.logging import log as say\n",
    ),
    output(
        "a layer of a library that also has data sets",
        "net = AtomEncoder(3)",
        "net = AtomEncoder(3)",
        absent=("main_process_first",),
        before="from ogb.graphproppred.mol_encoder import AtomEncoder\n",
    ),
    output(
        "one block is enough where a part of it fetches, too",
        'if not os.path.exists("rows.npy"):\n    rows = MNIST("data", download=True)\n    np.save("rows.npy", rows)\n'
        'rows = np.load("rows.npy")',
        "with accelerator.main_process_first():",
        'if not os.path.exists("rows.npy"):',
        'rows = MNIST("data", download=True)',
        absent=("            with accelerator.main_process_first()",),
        before="import os\nimport numpy as np\nfrom torchvision.datasets import MNIST\n",
    ),
    output(
        "a fetch that asks first",
        'if not os.path.exists("rows.zip"):\n    urlretrieve("http://host/rows.zip", "rows.zip")',
        "with accelerator.main_process_first():",
        'if not os.path.exists("rows.zip"):',
        before="import os\nfrom urllib.request import urlretrieve\n",
    ),
    output(
        "a fetch in a function that asks and returns",
        "fetch()",
        'if os.path.exists("rows.zip"):',
        "with accelerator.main_process_first():",
        "fetch()",
        before='import os\nfrom urllib.request import urlretrieve\n\ndef fetch():\n    if os.path.exists("rows.zip"):\n'
        '        return\n    urlretrieve("http://host/rows.zip", "rows.zip")\n',
    ),
    output(
        "a fetch that does not ask",
        'urlretrieve("http://host/rows.zip", "rows.zip")\nrows = open("rows.zip", "rb").read()',
        GUARD,
        'urlretrieve("http://host/rows.zip", "rows.zip")',
        "accelerator.wait_for_everyone()",
        'rows = open("rows.zip", "rb").read()',
        before="from urllib.request import urlretrieve\n",
    ),
]


@pytest.mark.parametrize(
    "trap",
    [*HELPERS, *OPENED, *RETURNED, *NOTED, *READ_AGAIN, *MADE_ONCE, *DOWNLOADS],
    ids=lambda trap: trap.name,
)
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
    text = """import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(range(8)):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
with open("o.txt", "w") as file:
    file.write("x")
"""
    done = converted(text + behind + "\n")
    assert expected in done.text, done.text
