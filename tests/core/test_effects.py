"""Code that writes and does something else besides: what the other processes need, they do too."""

from __future__ import annotations

import pytest

from .support import Trap, check
from .test_output import output

GUARD = "if accelerator.is_main_process:"
PLOT = "import matplotlib.pyplot as plt\n\n"

NEEDED = [
    output(
        "random numbers that all draw from one stream",
        'np.save("noise.npy", torch.randn(3).numpy())',
        'np.save("noise.npy", torch.randn(3).numpy())',
        absent=(GUARD,),
        before="import numpy as np\n\n",
    ),
    output(
        "options that are set and shown",
        'settings.take({"rate": 0.2})\nprint(settings.rate)',
        "setattr(self, name, value)",
        GUARD,
        "pprint(vars(self))",
        'settings.take({"rate": 0.2})',
        "accelerator.print(settings.rate)",
        before="from pprint import pprint\n\nclass Settings:\n    rate = 0.1\n    def take(self, given):\n"
        "        for name, value in given.items():\n            setattr(self, name, value)\n"
        "        pprint(vars(self))\n\nsettings = Settings()\n",
    ),
    output(
        "a dictionary under a second name",
        "show(state)",
        absent=(GUARD,),
        before=PLOT
        + 'def show(state):\n    best = state["best"]\n    best["shown"] = True\n    plt.savefig("a.png")\n',
    ),
    output(
        "weights that a library's function fills",
        "show(model)",
        absent=(GUARD,),
        before=PLOT
        + 'def show(model):\n    nn.init.constant_(model.weight, 0.0)\n    plt.savefig("a.png")\n',
    ),
    output(
        "a folder that is gone into",
        "show()",
        absent=(GUARD,),
        before=PLOT + 'import os\n\ndef show():\n    os.chdir("out")\n    plt.savefig("a.png")\n',
    ),
    output(
        "an array that is changed through a view",
        "show(rows)",
        absent=(GUARD,),
        before=PLOT
        + "import numpy as np\n\ndef show(rows):\n    shown = np.asarray(rows)\n    shown[0] = 1\n"
        '    plt.savefig("a.png")\n',
    ),
    output(
        "an argument that takes something away",
        "np.save(queue.pop(), rows)",
        "np.save(queue.pop(), rows)",
        absent=(GUARD,),
        before="import numpy as np\n",
    ),
    output(
        "predictions that are gathered while a file is written",
        'with open("a.txt", "w") as file:\n    for x in rows:\n        found.append(x)\n        file.write(str(x))\n'
        "print(len(found))",
        'with open("a.txt" if accelerator.is_main_process else os.devnull, "w") as file:',
        absent=(GUARD,),
    ),
]
ENOUGH = [
    output(
        "pictures in a grid of one's own",
        "show(rows)",
        GUARD,
        "show(rows)",
        absent=("PartialState",),
        before=PLOT
        + "def show(rows):\n    figure, axes = plt.subplots(2, 2)\n    for ax, row in zip(axes.flat, rows):\n"
        '        ax.plot(row)\n        ax.set_title("row")\n    names = []\n    for row in rows:\n'
        '        names.append(str(row))\n    figure.legend(names)\n    figure.savefig("a.png")\n',
    ),
    output(
        "a copy that is changed",
        "show(rows)",
        GUARD,
        "show(rows)",
        absent=("PartialState",),
        before=PLOT + "def show(rows):\n    shown = rows.copy()\n    shown[0] = 1\n    shown /= shown.max()\n"
        '    plt.imshow(shown)\n    plt.savefig("a.png")\n',
    ),
    output(
        "a table that is put together while it is written",
        'with open("a.txt", "w") as file:\n    cells = []\n    for x in rows:\n        cells.append(str(x))\n'
        '    file.write(",".join(cells))',
        GUARD,
        'with open("a.txt", "w") as file:',
        absent=("devnull",),
    ),
    output(
        "an argument that is computed",
        "np.save(name_of(3), rows)",
        GUARD,
        "np.save(name_of(3), rows)",
        before="import numpy as np\n\ndef name_of(number):\n    parts = []\n    parts.append(str(number))\n"
        '    return "-".join(parts)\n',
    ),
]


@pytest.mark.parametrize("trap", [*NEEDED, *ENOUGH], ids=lambda trap: trap.name)
def test_effects(trap: Trap) -> None:
    check(trap)
