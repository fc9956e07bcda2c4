"""Functions of the project that write: one process calls them, or writes inside them."""

from __future__ import annotations

import pytest

from .support import Trap, check
from .test_output import GUARD, output

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
        "noise = torch.randn(4, 4, device=PartialState().device)",
        "if PartialState().is_main_process:",
        'save_image(model(noise), "out.png")',
        "sample(model)",
        absent=(GUARD,),
        before="from torchvision.utils import save_image\n\n@torch.no_grad()\ndef sample(model):\n"
        '    noise = torch.randn(4, 4)\n    save_image(model(noise), "out.png")\n',
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
        "a helper that starts a program",
        'film("out")',
        GUARD,
        'film("out")',
        absent=("PartialState",),
        before="import subprocess\n\ndef film(folder):\n    command = 'ffmpeg -y -i {}/%d.png all.mp4'.format(folder)\n"
        "    process = subprocess.Popen(command.split(), stdout=subprocess.PIPE)\n    said, _ = process.communicate()\n",
    ),
    output(
        "a helper that asks a program, or makes ready what all need, stays",
        "print(version())\nfetch()",
        "fetch()",
        absent=(GUARD,),
        before="import subprocess\n\ndef version():\n    process = subprocess.Popen(['git', 'log'], stdout=subprocess.PIPE)\n"
        "    return process.communicate()[0]\n\ndef fetch():\n    process = subprocess.Popen(['wget', 'rows.csv'])\n"
        "    process.wait()\n",
    ),
    output(
        "a helper that the author guards stays",
        'if rank == 0:\n    draw("out.png")',
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
        "a data set's own files, row by row, stay",
        "for row in DataLoader(Rows()):\n    print(row)",
        'np.save(f"{i}.npy", i)',
        absent=("PartialState",),
        before="import numpy as np\n\nclass Rows(torch.utils.data.Dataset):\n    def __len__(self):\n        return 3\n"
        '    def __getitem__(self, i):\n        np.save(f"{i}.npy", i)\n        return i\n',
    ),
]


@pytest.mark.parametrize("trap", HELPERS, ids=lambda trap: trap.name)
def test_helpers(trap: Trap) -> None:
    check(trap)
