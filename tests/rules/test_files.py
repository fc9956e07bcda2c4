"""CT402 and CT403: directories may exist already, files are written by one process."""

from __future__ import annotations

from .support import Case, converts, each, leaves

DIRECTORY, FILE = "CT402", "CT403"
LOG = 'with open("log.txt", "a") as log:\n'
MAIN = "if accelerator.is_main_process:\n"
OS = {"imports": "import os"}
READ_BACK = """\
with open("h.json", "w") as file:
    json.dump([1], file)
{}with open("h.json") as file:
    history = json.load(file)"""

OWN_FILE = """\
class Points:
    def __init__(self, path, scale):
        self.points = np.load(path) * scale"""


def directory(name: str, before: str, after: str, slot: str = "setup", imports: str = "import os") -> Case:
    return converts(DIRECTORY, name, {slot: before, "imports": imports}, {slot: after})


def guarded(name: str, code: str, imports: str = "") -> Case:
    after = MAIN + "\n".join("    " + line for line in code.split("\n"))
    return converts(FILE, name, {"end": code, "imports": imports}, {"end": after}, at=code.split("\n")[0])


SAVES_ITSELF = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x):
        return self.layer(x)

    def save(self):
        {save}
"""
POSITIVE = [
    converts(
        FILE,
        "rows of a batch, gathered before one process writes them",
        {
            "imports": "from torchvision.utils import save_image",
            "after_step": 'if epoch == 0:\n    save_image(x, "real.png")  # look at them',
        },
        {
            "after_step": "if epoch == 0:\n    gathered = accelerator.gather_for_metrics(x)\n"
            '    if accelerator.is_main_process:\n        save_image(gathered, "real.png")  # look at them'
        },
        at="save_image(x",
    ),
    converts(
        FILE,
        "a loss, reduced before one process writes it",
        {"after_step": f"{LOG}    log.write(str(loss.item()))"},
        {
            "after_step": 'loss = accelerator.reduce(loss, reduction="mean")\n'
            f"{MAIN}    {LOG}        log.write(str(loss.item()))"
        },
        at="with open",
    ),
    converts(
        FILE,
        "a loss that is needed as it is, too",
        {"after_step": f"{LOG}    log.write(str(loss.item()))\nkept = loss"},
        {
            "after_step": 'reduced = accelerator.reduce(loss, reduction="mean")\n'
            f"{MAIN}    {LOG}        log.write(str(reduced.item()))\nkept = loss"
        },
        at="with open",
    ),
    converts(
        FILE,
        "hits, gathered before one process writes them",
        {"after_step": f"if epoch == 0:\n    {LOG}        log.write(str((out.argmax(1) == y).sum().item()))"},
        {
            "after_step": "if epoch == 0:\n    gathered = accelerator.gather_for_metrics(out.argmax(1) == y)\n"
            f"    {MAIN}        {LOG}            log.write(str(gathered.sum().item()))"
        },
        at="with open",
    ),
    guarded(
        "a file of a Path",
        'with Path("log.txt").open("w") as file:\n    file.write("done")',
        "from pathlib import Path",
    ),
    directory("makedirs", 'os.makedirs("out")', 'os.makedirs("out", exist_ok=True)'),
    directory(
        "makedirs before the Accelerator",
        'os.makedirs("out")',
        'os.makedirs("out", exist_ok=True)',
        "options",
    ),
    directory(
        "makedirs with a mode", 'os.makedirs("out", 0o755)', 'os.makedirs("out", 0o755, exist_ok=True)'
    ),
    directory(
        "makedirs where there is none",
        'if not os.path.exists("out"):  # first time\n    os.makedirs("out")',
        'if not os.path.exists("out"):  # first time\n    os.makedirs("out", exist_ok=True)',
    ),
    directory(
        "makedirs by name",
        'makedirs("out")',
        'makedirs("out", exist_ok=True)',
        imports="from os import makedirs",
    ),
    directory("mkdir", 'os.mkdir("out")', 'os.makedirs("out", exist_ok=True)'),
    directory(
        "a Path",
        'Path("out").mkdir()',
        'Path("out").mkdir(exist_ok=True)',
        imports="from pathlib import Path",
    ),
    directory(
        "a Path with its parents",
        'Path("out").mkdir(parents=True)',
        'Path("out").mkdir(parents=True, exist_ok=True)',
        imports="from pathlib import Path",
    ),
    guarded("a text file", 'with open("log.txt", "w") as file:  # all of it\n    file.write("done")'),
    guarded("a text file that grows", 'with open("log.txt", mode="a") as file:\n    file.write("done")'),
    guarded("json", 'with open("log.json", "w") as file:\n    json.dump([1], file)', "import json"),
    guarded("an array", 'np.save("a.npy", np.zeros(3))', "import numpy as np"),
    guarded(
        "two in a row share a guard",
        'np.save("a.npy", np.zeros(3))\nnp.save("b.npy", np.zeros(3))',
        "import numpy as np",
    ),
    guarded("a table", 'pd.DataFrame([1]).to_csv("a.csv")', "import pandas as pd"),
    guarded(
        "a tokenizer of transformers",
        'AutoTokenizer.from_pretrained("a").save_pretrained("b")',
        "from transformers import AutoTokenizer",
    ),
    guarded("a copy", 'shutil.copy("a.txt", "b.txt")', "import shutil"),
    converts(
        FILE,
        "a figure",
        {"imports": "import matplotlib.pyplot as plt", "end": 'plt.plot([1, 2])\nplt.savefig("a.png")'},
        {"end": 'plt.plot([1, 2])\nif accelerator.is_main_process:\n    plt.savefig("a.png")'},
        at="savefig",
    ),
    converts(
        FILE,
        "a file that stays open",
        {**OS, "setup": 'log = open("log.txt", "a")', "after_epoch": 'log.write("done")'},
        {"setup": 'log = open("log.txt" if accelerator.is_main_process else os.devnull, "a")'},
    ),
    converts(
        FILE,
        "what is read back is waited for",
        {"imports": "import json", "end": READ_BACK.format("")},
        {
            "end": (
                'if accelerator.is_main_process:\n    with open("h.json", "w") as file:\n        json.dump([1], file)\n'
                "accelerator.wait_for_everyone()\n"
                'with open("h.json") as file:\n    history = json.load(file)'
            )
        },
        at='"h.json", "w"',
    ),
    converts(
        FILE,
        "what a class of the script's own reads back is waited for",
        {
            "imports": "import numpy as np",
            "definitions": OWN_FILE,
            "setup": 'np.save("points.npy", np.ones((6, 2)))\npoints = Points(path="points.npy", scale=2)',
        },
        {
            "setup": (
                'if accelerator.is_main_process:\n    np.save("points.npy", np.ones((6, 2)))\n'
                'accelerator.wait_for_everyone()\npoints = Points(path="points.npy", scale=2)'
            )
        },
        at="np.save(",
    ),
    converts(
        FILE,
        "several files are waited for once",
        {
            "imports": "import numpy as np",
            "setup": 'np.save("a.npy", np.ones(6))\nnp.save("b.npy", np.ones(6))\n'
            'a = np.load("a.npy")\nb = np.load("b.npy")',
        },
        {
            "setup": (
                'if accelerator.is_main_process:\n    np.save("a.npy", np.ones(6))\n    np.save("b.npy", np.ones(6))\n'
                'accelerator.wait_for_everyone()\na = np.load("a.npy")\nb = np.load("b.npy")'
            )
        },
        at="np.save(",
    ),
    converts(
        "CT501",
        "a model that saves itself",
        {
            "definitions": SAVES_ITSELF.format(save='torch.save(self.state_dict(), "net.pt")'),
            "model": "model = Net().to(device)",
            "end": "model.save()",
        },
        {
            "definitions": SAVES_ITSELF.format(save='accelerator.save_model(self, "net.pt")'),
            "model": "model = Net()",
        },
        at="torch.save",
    ),
    converts(
        FILE,
        "a model that saves itself, where no accelerator comes",
        {
            "definitions": SAVES_ITSELF.format(save='torch.save(self.state_dict(), "net.pt")'),
            "model": "model = Net().to(device)",
            "end": "model.save()",
        },
        {
            "accelerator": "from crosstrain import Accelerator, PartialState",
            "definitions": SAVES_ITSELF.format(
                save='if PartialState().is_main_process:\n            torch.save(self.state_dict(), "net.pt")'
            ),
            "model": "model = Net()",
        },
        at="torch.save",
        main=True,
    ),
]

NEGATIVE = [
    leaves(
        FILE,
        "a file of a Path that is read, and a member of an archive",
        {
            "imports": "import zipfile\nfrom pathlib import Path",
            "setup": 'with Path("a.txt").open() as file:\n    names = file.read()\n'
            'with zipfile.ZipFile("a.zip").open("w.txt") as file:\n    names += str(file.read())',
        },
    ),
    leaves(
        FILE,
        "a file that is read line by line",
        {
            "setup": 'with open("names.txt", encoding="utf-8") as file:\n    names = [line.strip() for line in file]'
        },
    ),
    leaves(
        FILE,
        "a file that is asked for its size",
        {
            "imports": "import os",
            "after_epoch": 'if os.path.exists("log.txt"):\n    size = os.path.getsize("log.txt")',
        },
    ),
    leaves(
        FILE,
        "a table that is made into text",
        {"imports": "import json", "after_epoch": 'text = json.dumps({"epoch": epoch})'},
    ),
    leaves(
        FILE,
        "a file that is opened to be changed in place",
        {"after_epoch": 'with open("log.txt", "rb") as file:\n    first = file.readline()'},
    ),
    leaves(
        FILE,
        "a text that is written into memory",
        {"imports": "import io", "after_epoch": 'text = io.StringIO()\ntext.write("epoch")'},
    ),
    leaves(
        FILE,
        "a file whose mode is not known",
        {"options": "mode = input()", "after_epoch": 'with open("log.txt", mode) as file:\n    file.read()'},
    ),
    leaves(
        "CT402",
        "makedirs whose error is ignored",
        {"imports": "import os", "setup": 'try:\n    os.makedirs("out")\nexcept OSError:\n    pass'},
    ),
    leaves(
        FILE,
        "what a module makes of noise is no share of a batch",
        {
            "imports": "from torchvision.utils import make_grid",
            "definitions": (
                "class Net(nn.Module):\n"
                "    def __init__(self):\n"
                "        super().__init__()\n"
                "        self.layer = nn.Linear(8, 8)\n"
                "\n"
                "    def decode(self, z):\n"
                "        return self.layer(z)\n"
                "\n"
                "    def forward(self, x):\n"
                "        return self.decode(x)\n"
            ),
            "model": "model = Net().to(device)",
            "after_epoch": "made = model.decode(torch.ones(64, 8))\ngrid = make_grid(made.view(64, 1, 2, 4))",
        },
        {"model": "model = Net()"},
    ),
    leaves(
        DIRECTORY,
        "mkdir by name is reported",
        {"imports": "from os import mkdir", "setup": 'mkdir("out")'},
        findings=[(DIRECTORY, 'mkdir("out")')],
    ),
    leaves(DIRECTORY, "one that may exist", {**OS, "setup": 'os.makedirs("out", exist_ok=True)'}),
    leaves(DIRECTORY, "one that may exist, by position", {**OS, "setup": 'os.makedirs("out", 0o755, True)'}),
    leaves(
        DIRECTORY,
        "a Path that may exist",
        {"imports": "from pathlib import Path", "setup": 'Path("out").mkdir(parents=True, exist_ok=True)'},
    ),
    leaves(
        DIRECTORY,
        "one that must not exist is reported",
        {**OS, "setup": 'os.makedirs("out", exist_ok=False)'},
        findings=[(DIRECTORY, "os.makedirs")],
    ),
    leaves(
        DIRECTORY,
        "a temporary directory",
        {"imports": "import tempfile", "setup": "out = tempfile.mkdtemp()"},
    ),
    leaves(DIRECTORY, "asking whether there is one", {**OS, "setup": 'there = os.path.isdir("out")'}),
    leaves(DIRECTORY, "listing one", {**OS, "setup": 'names = os.listdir(".")'}),
    leaves(
        DIRECTORY,
        "a method called mkdir of the script's own",
        {
            "definitions": "class Disk:\n    def mkdir(self, name):\n        return name\n",
            "setup": 'Disk().mkdir("out")',
        },
    ),
    leaves(
        DIRECTORY,
        "a function of the script's own called makedirs",
        {"definitions": "def makedirs(name):\n    return name\n", "setup": 'makedirs("out")'},
    ),
    leaves(DIRECTORY, "the word in a comment or a string", {"setup": '# os.makedirs("out")\nnote = "mkdir"'}),
    leaves(FILE, "a file that is read", {"end": 'with open("log.txt") as file:\n    text = file.read()'}),
    leaves(
        FILE,
        "a file that is read in a mode",
        {"end": 'with open("log.txt", "rb") as file:\n    text = file.read()'},
    ),
    leaves(
        FILE,
        "a file written before there is an Accelerator",
        {"options": 'with open("log.txt", "w") as file:\n    file.write("hello")'},
    ),
    leaves(
        FILE,
        "a file that is read and kept open",
        {"setup": 'words = open("words.txt")'},
    ),
    leaves(
        FILE,
        "a block that runs the model, too, is reported",
        {
            "end": 'with open("log.txt", "w") as file:\n    for x, y in train_loader:\n        file.write(str(model(x).argmax().item()))'
        },
        {
            "end": 'with open("log.txt", "w") as file:\n    for x, y in train_loader:\n'
            "        file.write(str(accelerator.gather_for_metrics(model(x)).argmax().item()))"
        },
        findings=[(FILE, 'open("log.txt", "w")')],
    ),
    leaves(
        FILE,
        "a call that runs the model, too, is reported",
        {
            "imports": "import numpy as np",
            "end": 'np.save("a.npy", model(torch.ones(1, 8).to(device)).detach().cpu().numpy())',
        },
        {"device": "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is"},
        findings=[(FILE, "np.save")],
    ),
    leaves(
        FILE,
        "a block whose names are read afterwards is reported",
        {"end": 'with open("log.txt", "w") as file:\n    count = file.write("done")\nassert count'},
        findings=[(FILE, 'open("log.txt", "w")')],
    ),
    leaves(
        FILE, "text in memory", {"imports": "import io", "end": "buffer = io.StringIO()\nbuffer.write('a')"}
    ),
    leaves(FILE, "json to a string", {"imports": "import json", "end": "text = json.dumps([1])"}),
    leaves(FILE, "an array in memory", {"imports": "import numpy as np", "end": "table = np.array([1])"}),
    leaves(
        FILE,
        "a file in the data set's own code",
        {
            "definitions": (
                "class Points(torch.utils.data.Dataset):\n"
                "    def __len__(self):\n"
                "        return 48\n"
                "\n"
                "    def __getitem__(self, index):\n"
                '        with open("seen.txt", "a") as file:\n'
                "            file.write(str(index))\n"
                "        return torch.ones(8), 0\n"
            ),
            "data": "train_loader = DataLoader(Points(), batch_size=8)",
        },
    ),
]


@each(POSITIVE, NEGATIVE)
def test_files(case: Case) -> None:
    case.check()
