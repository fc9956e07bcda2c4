"""What one process does: prints, bars, files, folders, downloads; and what the author guards stays guarded."""

from __future__ import annotations

import pytest

from .support import Trap, check

GUARD = "if accelerator.is_main_process:"
HEAD = """
def main():
    <model>
    loader = DataLoader(data)
    for x, y in loader:
        <step loss = F.cross_entropy(model(x), y)>
"""
TAIL = """
main()
"""


def output(
    name: str, script: str, *lines: str, absent: tuple[str, ...] = (), before: str = "", says: str = ""
) -> Trap:
    indented = "".join(f"    {line}\n" for line in script.strip().splitlines())
    return Trap(name, before + HEAD + indented + TAIL, lines, absent, says)


TRAPS = [
    output(
        "weights that a function of a file that is not there saves",
        'save_checkpoint({"model": model.state_dict()}, "out.pt")\nprint("saved")',
        GUARD,
        'save_checkpoint({"model": model.state_dict()}, "out.pt")',
        'accelerator.print("saved")',
        before="from elsewhere import save_checkpoint\n",
    ),
    output(
        "weights that a function saves which is given",
        'def keep(save_checkpoint):\n    save_checkpoint(model.state_dict(), "out.pt")\nkeep(log)',
        'save_checkpoint(model.state_dict(), "out.pt")',
        absent=(GUARD,),
        before="from elsewhere import *\n",
    ),
    output(
        "and that is waited for where it is read again",
        'save_checkpoint({"model": model.state_dict()}, "out.pt")\nlog(torch.load("out.pt"))',
        GUARD,
        'save_checkpoint({"model": model.state_dict()}, "out.pt")',
        "accelerator.wait_for_everyone()",
        'log(torch.load("out.pt"))',
        before="from elsewhere import save_checkpoint\n",
    ),
    output(
        "weights that such a function takes over, or the path that it gives back",
        'copy_weights(model.state_dict(), model)\npath = save_checkpoint(model.state_dict(), "out.pt")',
        "copy_weights(model.state_dict(), model)",
        'path = save_checkpoint(model.state_dict(), "out.pt")',
        absent=(GUARD,),
        before="from elsewhere import copy_weights, save_checkpoint\n",
    ),
    output("a print", 'print("done")', 'accelerator.print("done")'),
    output(
        "a picture in memory is every process's own",
        "page = io.BytesIO()\nplt.savefig(page, format='png')\npicture.save(page)\nplt.savefig('a.png')",
        "plt.savefig(page, format='png')",
        "picture.save(page)",
        GUARD,
        "plt.savefig('a.png')",
        before="import io\nfrom matplotlib import pyplot as plt\nfrom elsewhere import picture\n",
    ),
    output("a print into a file", 'print("done", file=log)', 'print("done", file=log)'),
    output(
        "the author's own print",
        'print("done")',
        'print("done")',
        before="\ndef print(*what):\n    log(what)\n",
    ),
    output(
        "a print that the file binds to a logger's method",
        'print("done")',
        'print("done")',
        absent=("accelerator.print",),
        before="import logging\n\nprint = logging.getLogger().info\n",
    ),
    output(
        "a bar",
        "for i in tqdm(range(3)):\n    log(i)",
        "for i in tqdm(range(3), disable=not accelerator.is_main_process):",
        absent=("prepare(range",),
        before="from tqdm import tqdm\n",
    ),
    output(
        "a bar that the script computes with counts on every process",
        "bar = tqdm(total=3)\nfor i in range(3):\n    bar.update(i)\n    log(i / bar.n)",
        "bar = tqdm(total=3)",
        absent=("disable=",),
        before="from tqdm import tqdm\n",
    ),
    output(
        "a bar that the script only updates",
        "bar = tqdm(total=3)\nother = rows.n\nbar.update(1)",
        "bar = tqdm(total=3, disable=not accelerator.is_main_process)",
        before="from tqdm import tqdm\n",
    ),
    output(
        "a block that only writes is guarded as a whole",
        'with open("options.json", "w") as file:\n    json.dump(options, file)',
        "if accelerator.is_main_process:",
        'with open("options.json", "w") as file:',
        "json.dump(options, file)",
        absent=("accelerator.is_main_process:\n            if",),
        before="import json\n",
    ),
    output(
        "a helper that only computes does not keep a block from being guarded",
        'with open("rows.txt", "w") as file:\n    file.write(drawn(data))',
        "if accelerator.is_main_process:",
        'with open("rows.txt", "w") as file:',
        before="\ndef drawn(rows):\n    return str(rows)\n",
    ),
    output(
        "a folder",
        'if not os.path.exists("out"):\n    os.makedirs("out")',
        'os.makedirs("out", exist_ok=True)',
        before="import os\n",
    ),
    output(
        "a folder by the function that cannot be told that it may be there",
        'if not os.path.isdir("out"):\n    os.mkdir("out")',
        'os.makedirs("out", exist_ok=True)',
        before="import os\n",
    ),
    output(
        "a folder of a path, beside the project's own function of that name",
        'Path("out").mkdir()\n(Path("out") / "in").mkdir()\nmkdir("more")',
        'Path("out").mkdir(exist_ok=True)',
        '(Path("out") / "in").mkdir(exist_ok=True)',
        'mkdir("more")',
        before="import os\nfrom pathlib import Path\n\ndef mkdir(path):\n    os.mkdir(path)\n",
    ),
    output(
        "a folder whose name is to be kept, which is None",
        'made = os.mkdir("out")',
        'made = os.makedirs("out", exist_ok=True)',
        before="import os\n",
    ),
    output(
        "a folder of another object, which may be a value",
        'made = archive.mkdir("out")',
        'made = archive.mkdir("out")',
        before="archive = open_archive()\n",
    ),
    output(
        "a folder whose name is to be kept, and that must be new",
        'try:\n    made = os.mkdir("out")\nexcept FileExistsError:\n    made = "out"',
        'made = os.mkdir("out")',
        absent=("exist_ok",),
        before="import os\n",
    ),
    output(
        "a folder that must be new",
        'try:\n    os.mkdir("out")\nexcept FileExistsError:\n    print("it is there")',
        'os.mkdir("out")',
        absent=("exist_ok",),
        before="import os\n",
    ),
    output(
        "a folder that is made where the author does not find it",
        'try:\n    os.stat("out")\nexcept OSError:\n    os.mkdir("out")',
        'os.stat("out")',
        'os.makedirs("out", exist_ok=True)',
        before="import os\n",
    ),
    output(
        "a folder that is made anew where it is there already",
        'try:\n    os.mkdir("out")\nexcept FileExistsError:\n    shutil.rmtree("out")\n    os.mkdir("out")',
        GUARD,
        'os.mkdir("out")',
        absent=("exist_ok",),
        before="import os\nimport shutil\n",
    ),
    output(
        "what is saved is there for all",
        'torch.save(model.state_dict(), "model.pt")\nmodel.load_state_dict(torch.load("model.pt"))',
        'accelerator.save(model.state_dict(), "model.pt")',
        'model.load_state_dict(torch.load("model.pt"))',
    ),
    output(
        "a copy of a file",
        'if best:\n    shutil.copyfile("a", "b")',
        "if best and accelerator.is_main_process:",
        'shutil.copyfile("a", "b")',
        before="import shutil\n",
    ),
    output(
        "what the author guards",
        'if rank == 0:\n    print("done")\n    writer.add_scalar("a", 1)',
        "if rank == 0:",
        'print("done")',
        'writer.add_scalar("a", 1)',
    ),
    output(
        "a writer's numbers and pictures",
        'writer.add_image("a", picture)\nplt.savefig("a.png")',
        "if accelerator.is_main_process:",
        'writer.add_image("a", picture)',
        'plt.savefig("a.png")',
    ),
    output(
        "in an evaluation that is dealt one process has the batch",
        "hits = 0\nwith torch.no_grad():\n    for i, (x, y) in enumerate(test_loader):\n"
        '        hits += (model(x).argmax(1) == y).sum().item()\n        torch.save(x, f"{i}.pt")\nprint(hits)',
        'torch.save(x, f"{i}.pt")',
        "accelerator.print(hits)",
        absent=("accelerator.save", "is_main_process"),
    ),
    output(
        "a number that is called a rank",
        'if lora_rank > 0:\n    np.save("a.npy", [1])',
        "if lora_rank > 0 and accelerator.is_main_process:",
        'np.save("a.npy", [1])',
        before="import numpy as np\n",
    ),
    output(
        "a process that is asked for is enough",
        'if int(os.environ.get("LOCAL_RANK", 0)) == 0:\n    np.save("a.npy", [1])',
        'if int(os.environ.get("LOCAL_RANK", 0)) == 0:',
        'np.save("a.npy", [1])',
        absent=(GUARD,),
        before="import os\nimport numpy as np\n",
    ),
    output(
        "what is saved when something has failed",
        'try:\n    play()\nexcept RuntimeError:\n    torch.save(model.state_dict(), "a.pt")',
        "except RuntimeError:",
        GUARD,
        'torch.save(model.state_dict(), "a.pt")',
    ),
    output(
        "what is saved when all are interrupted",
        'try:\n    play()\nexcept KeyboardInterrupt:\n    torch.save(model.state_dict(), "a.pt")',
        'accelerator.save(model.state_dict(), "a.pt")',
    ),
    output(
        "what is said of the batches of an evaluation",
        "model.eval()\nright = 0\nfor x, y in test_loader:\n"
        "    with torch.no_grad():\n        right += (model(x).argmax(1) == y).sum().item()\n"
        '    sys.stdout.write(".")\nprint(right)',
        "for x, y in evaluation_loader:",
        GUARD,
        'sys.stdout.write(".")',
        before="import sys\ntest_loader = DataLoader(test)\n",
    ),
    output(
        "what a worker says of a row",
        "play()",
        'sys.stdout.write(".")',
        absent=(GUARD,),
        before="import sys\n\nclass Rows:\n    def __getitem__(self, i):\n"
        '        sys.stdout.write(".")\n        return i\n\ndata = Rows()\n',
    ),
]


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_output(trap: Trap) -> None:
    check(trap)
