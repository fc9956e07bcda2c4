"""Files and folders that one process writes and all read again, also under a path that differs by process."""

from __future__ import annotations

import pytest

from .support import Trap, check
from .test_output import GUARD, output

STEPS = """for epoch in range(2):
    running = 0.0
    for x, y in loader:
        <step loss = F.cross_entropy(model(x), y)>
        running += loss.item()
"""

READ_AGAIN = [
    output(
        "what all have read is removed when the last has read it",
        'rows = np.load("rows.npy")\nprint(len(rows))\nos.remove("rows.npy")',
        "accelerator.print(len(rows))",
        "accelerator.wait_for_everyone()",
        GUARD,
        'os.remove("rows.npy")',
        before="import os\nimport numpy as np\n",
    ),
    output(
        "what nobody reads is removed at once, under the guard of its neighbours",
        'rows = np.load("rows.npy")\nnp.save("old.npy", rows)\nos.remove("older.npy")\nos.remove("oldest.npy")',
        GUARD,
        'np.save("old.npy", rows)',
        'os.remove("older.npy")',
        'os.remove("oldest.npy")',
        absent=("wait_for_everyone",),
        before="import os\nimport numpy as np\n",
    ),
    output(
        "the wait for the readers is under no guard",
        'rows = np.load("rows.npy")\nnp.save("old.npy", rows)\nos.remove("rows.npy")',
        GUARD,
        'np.save("old.npy", rows)',
        "accelerator.wait_for_everyone()",
        GUARD,
        'os.remove("rows.npy")',
        before="import os\nimport numpy as np\n",
    ),
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
        "what a command wrote is waited for, whichever of its files that is",
        'scores = "scores.txt"\nos.system("%s < %s > %s" % ("eval", "rows.txt", scores))\nlines = open(scores).read()',
        GUARD,
        'os.system("%s < %s > %s" % ("eval", "rows.txt", scores))',
        "accelerator.wait_for_everyone()",
        "lines = open(scores).read()",
        before="import os\n",
    ),
    output(
        "a path that the file names once is the same in every function",
        "write_table()\nprint(read_table())",
        "PartialState().wait_for_everyone()",
        'return open("out/table.txt").read()',
        GUARD,
        "write_table()",
        before='TABLE = "out/table.txt"\n\ndef write_table():\n    with open(TABLE, "w") as file:\n        file.write("x")\n'
        '\ndef read_table():\n    return open("out/table.txt").read()\n',
    ),
    output(
        "a file that a command is not told of is not waited for",
        'os.system("zip runs.zip runs")\nlines = open("rows.txt").read()',
        GUARD,
        'os.system("zip runs.zip runs")',
        'lines = open("rows.txt").read()',
        absent=("wait_for_everyone",),
        before="import os\n",
    ),
    output(
        "a file whose name is not written out may be any of its folder",
        'path = os.path.join(out, name)\nwith open(path, "w") as file:\n    file.write("x")\n'
        'rows = open(os.path.join(args.out, "rows.txt")).read()',
        GUARD,
        'with open(path, "w") as file:',
        "accelerator.wait_for_everyone()",
        'rows = open(os.path.join(args.out, "rows.txt")).read()',
        before="import os\n",
    ),
    output(
        "a file that is named is no other of its folder",
        'path = os.path.join(out, "log.txt")\nwith open(path, "w") as file:\n    file.write("x")\n'
        'rows = open(os.path.join(args.out, "rows.txt")).read()\n'
        'other = open(os.path.join(args.data, "rows.txt")).read()',
        GUARD,
        'with open(path, "w") as file:',
        absent=("wait_for_everyone",),
        before="import os\n",
    ),
    output(
        "what is written in some of the training's steps is waited for where all read it",
        """for epoch in range(2):
    for step, (x, y) in enumerate(loader):
        <step F.cross_entropy(model(x), y)>
        if step % 2 == 0:
            np.save("best.npy", [1])
            best = np.load("best.npy")""",
        GUARD,
        'np.save("best.npy", [1])',
        "accelerator.wait_for_everyone()",
        'best = np.load("best.npy")',
        before="import numpy as np\n",
    ),
    output(
        "nobody waits in a loop within a loop that may turn more often on one process",
        """for epoch in range(2):
    while rows < 9 * random.random():
        np.save("best.npy", [1])
        best = np.load("best.npy")""",
        'np.save("best.npy", [1])',
        'best = np.load("best.npy")',
        absent=("wait_for_everyone",),
        before="import random\nimport numpy as np\nrows = 1\n",
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
        "a folder that is numbered by what is there is the main process's",
        'name = "run%d" % len(os.listdir("runs"))\nos.mkdir(name)\ntorch.save(model.state_dict(), name + "/model.pt")',
        GUARD,
        "os.mkdir(name)",
        'torch.save(model.state_dict(), name + "/model.pt")',
        absent=("exist_ok",),
        before="import os\n",
    ),
    output(
        "weights under a number of training, each process's own, are one process's",
        STEPS + '    torch.save(model.state_dict(), "model_%d_%.3f.pt" % (epoch, running / 3))',
        GUARD,
        'torch.save(model.state_dict(), "model_%d_%.3f.pt" % (epoch, running / 3))',
        absent=("accelerator.save",),
    ),
    output(
        "weights under a number that is alike on all processes are there for all",
        STEPS
        + """    hits = 0
    with torch.no_grad():
        for x, y in others:
            hits += (model(x).argmax(1) == y).sum().item()
    torch.save(model.state_dict(), f"model_{epoch}_{hits}.pt")""",
        'accelerator.save(model.state_dict(), f"model_{epoch}_{hits}.pt")',
        absent=("if accelerator.is_main_process:",),
        before="others = rows\n",
    ),
    output(
        "a temporary file is each process's own",
        'file = tempfile.NamedTemporaryFile()\nrows = file.name + ".npy"\nnp.save(rows, [1])\n'
        'with open(file.name + ".txt", "w") as text:\n    text.write("x")\nnp.save("rows.npy", [1])\nrun(["count", rows])',
        "np.save(rows, [1])",
        'with open(file.name + ".txt", "w") as text:',
        'text.write("x")',
        GUARD,
        'np.save("rows.npy", [1])',
        before="import tempfile\nfrom subprocess import run\nimport numpy as np\n",
    ),
    output(
        "a picture that all open again is waited for",
        'save_image(rows, "shown.png")\nif args.show:\n    show(Image.open("shown.png"))\nother = Image.open("other.png")',
        GUARD,
        'save_image(rows, "shown.png")',
        "if args.show:",
        "accelerator.wait_for_everyone()",
        'show(Image.open("shown.png"))',
        'other = Image.open("other.png")',
        before="from PIL import Image\n",
    ),
    output(
        "weights in a temporary file that is moved are one process's, and each removes what is left of its own",
        'handle, part = tempfile.mkstemp(suffix=".pt")\ntorch.save(model.state_dict(), part)\nos.replace(part, "out.pt")\n'
        "if os.path.exists(part):\n    os.remove(part)",
        GUARD,
        "torch.save(model.state_dict(), part)",
        'os.replace(part, "out.pt")',
        "if os.path.exists(part):",
        "os.remove(part)",
        before="import os\nimport tempfile\n",
    ),
    output(
        "also where weights are loaded from a path with a time in it",
        'handle, part = tempfile.mkstemp(suffix=".pt")\ntorch.save(model.state_dict(), part)\n'
        "try:\n    model.load_state_dict(torch.load(args.out + time.ctime()))\nexcept OSError:\n    pass",
        GUARD,
        "torch.save(model.state_dict(), part)",
        before="import tempfile\nimport time\n",
    ),
    output(
        "but each keeps those that it loads again from its own",
        "part = tempfile.mkstemp()[1]\ntorch.save(model.state_dict(), part)\nmodel.load_state_dict(torch.load(part))",
        "accelerator.save(model.state_dict(), part)",
        absent=(GUARD,),
        before="import tempfile\n",
        says="each process makes the path of this file for itself",
    ),
    output(
        "a link to the last file is made by one process, which removes the old one",
        'last = Path("last.pt")\nif last.exists():\n    last.unlink()\nlast.symlink_to("out.pt")',
        "if last.exists() and accelerator.is_main_process:",
        "last.unlink()",
        GUARD,
        'last.symlink_to("out.pt")',
        before="from pathlib import Path\n",
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
        "a folder about which the author warns is one process's",
        'if os.path.exists("out"):\n    print("overwritten")\nelse:\n    os.makedirs("out")',
        GUARD,
        'if os.path.exists("out"):',
        'print("overwritten")',
        'os.makedirs("out")',
        absent=("exist_ok", "accelerator.print"),
        before="import os\n",
    ),
    output(
        "a folder that may be there where an option says so",
        'name = time.strftime("%H%M")\nPath(name).mkdir(exist_ok=args.overwrite)\nopen(name + "/log", "a")',
        'name = broadcast_object_list([time.strftime("%H%M")])[0]',
        "with accelerator.main_process_first():",
        "Path(name).mkdir(exist_ok=args.overwrite or not accelerator.is_main_process)",
        before="import time\nfrom pathlib import Path\n",
    ),
    output(
        "a folder that is removed where a person says so",
        'if os.path.exists("out"):\n    answer = input("overwrite? ")\n    if answer == "y":\n        shutil.rmtree("out")\n'
        'os.makedirs("out")\nlog = open("out/log", "a")',
        GUARD,
        'if os.path.exists("out"):',
        'answer = input("overwrite? ")',
        'if answer == "y":',
        'os.makedirs("out")',
        "accelerator.wait_for_everyone()",
        absent=("exist_ok",),
        before="import os\nimport shutil\n",
    ),
    output(
        "a folder that a person may have removed before the main process alone writes into it",
        'if os.path.isdir("out"):\n    answer = input("delete it? ")\n    if answer == "y":\n        shutil.rmtree("out")\n'
        'writer = SummaryWriter("out")',
        GUARD,
        'if os.path.isdir("out"):',
        'answer = input("delete it? ")',
        'shutil.rmtree("out")',
        absent=("broadcast",),
        before="import os\nimport shutil\nfrom tensorboardX import SummaryWriter\n",
    ),
    output(
        "an answer by which every process goes on or ends",
        'if os.path.isdir("out"):\n    if input("go on? ") != "y":\n        sys.exit()\nask("q")',
        'if broadcast_object_list([os.path.isdir("out")])[0]:',
        '[input("go on? ") if accelerator.is_main_process else None]',
        "sys.exit()",
        'ask("q")',
        absent=(GUARD,),
        before="import os\nimport sys\n\ndef ask(text, input=str):\n    return input(text)\n\n",
    ),
    output(
        "another folder than the one that a person is asked about",
        'if os.path.exists("out"):\n    answer = input("overwrite? ")\nos.makedirs("other")\nlog = open("out/log", "a")',
        'os.makedirs("other", exist_ok=True)',
        absent=("wait_for_everyone",),
        before="import os\n",
    ),
    output(
        "a sparse matrix that is written where it cannot be read",
        "rows = matrix()",
        "found = sp.load_npz('a.npz')",
        "if PartialState().is_main_process:",
        "sp.save_npz('a.npz', found)",
        before="import scipy.sparse as sp\n\ndef matrix():\n    try:\n        found = sp.load_npz('a.npz')\n"
        "    except OSError:\n        found = sp.eye(3)\n        sp.save_npz('a.npz', found)\n    return found\n",
    ),
    output(
        "a class or a function that reads a file waits for it",
        'json.dump([1], open("rows.json", "w"))\nrows = Rows("rows.json")\nnp.save(path, [1])\nprint(read(path))',
        GUARD,
        'json.dump([1], open("rows.json", "w"))',
        "accelerator.wait_for_everyone()",
        'rows = Rows("rows.json")',
        GUARD,
        "np.save(path, [1])",
        "accelerator.wait_for_everyone()",
        "accelerator.print(read(path))",
        before="import json\nimport numpy as np\n\nclass Rows:\n    def __init__(self, path):\n        self.path = path\n"
        "        self.rows = json.load(open(self.path))\n\ndef read(path):\n    return np.load(path)\n",
    ),
    output(
        "what a helper wrote is waited for",
        'put("rows.npy", [1])\nrows = np.load(file="rows.npy")',
        GUARD,
        'put("rows.npy", [1])',
        "accelerator.wait_for_everyone()",
        'rows = np.load(file="rows.npy")',
        before="import numpy as np\n\ndef put(path, rows):\n    np.save(path, rows)\n",
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
]

STAMPED = [
    output(
        "all have the main process's time where they read again what is written there",
        'path = time.strftime("%H%M") + ".pt"\nos.makedirs(path)\ntorch.save(model.state_dict(), path)\nstate = torch.load(path)',
        'path = broadcast_object_list([time.strftime("%H%M")])[0] + ".pt"',
        "os.makedirs(path, exist_ok=True)",
        "accelerator.save(model.state_dict(), path)",
        "state = torch.load(path)",
        absent=(GUARD,),
        before="import os\nimport time\n",
    ),
    output(
        "a function in which all take the main process's time is called by all",
        'np.save(new("rows"), [1])\npath = new("model")\ntorch.save(model.state_dict(), path)\nstate = torch.load(path)',
        'return broadcast_object_list([time.strftime("%H%M")])[0] + name',
        'np.save(new("rows"), [1])',
        "accelerator.save(model.state_dict(), path)",
        absent=(GUARD,),
        before='import time\nimport numpy as np\n\ndef new(name):\n    return time.strftime("%H%M") + name\n',
    ),
    output(
        "another time is each process's own",
        'print(time.strftime("%H%M"))\nnp.save(time.strftime("%H") + ".npy", [1])\nrows = np.load("rows.npy")',
        'accelerator.print(time.strftime("%H%M"))',
        absent=("broadcast_object_list",),
        before="import time\nimport numpy as np\n",
    ),
    output(
        "a time that is asked before the processes know each other",
        "os.makedirs(PATH)\ntorch.save(model.state_dict(), PATH)\nstate = torch.load(PATH)",
        "os.makedirs(PATH, exist_ok=True)",
        "accelerator.save(model.state_dict(), PATH)",
        "state = torch.load(PATH)",
        absent=(GUARD,),
        before="import argparse\nimport os\nimport time\n"
        'PATH = time.strftime("%H%M")\nparser = argparse.ArgumentParser()\n'
        'parser.add_argument("--no-cuda", action="store_true")\nargs = parser.parse_args()\n'
        'device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")\n',
        says="makes the path of this file for itself",
    ),
]


@pytest.mark.parametrize("trap", [*READ_AGAIN, *MADE_ONCE, *STAMPED], ids=lambda trap: trap.name)
def test_read_again(trap: Trap) -> None:
    check(trap)
