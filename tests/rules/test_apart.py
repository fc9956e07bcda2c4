"""CT310: a test that processes may answer differently is answered once where all of them work under it."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import pytest

from tests.support.ranks import run_ranks

from .support import SLOTS, Case, converts, each, leaves, migrate, script

RULE = "CT310"
ONCE = {
    "accelerator": "from crosstrain import Accelerator\nfrom crosstrain.utils import broadcast_object_list",
    "imports": "import os",
}
SHOWN = 'accelerator.print(accelerator.reduce(loss, reduction="mean").item())'
HITS = "(model(x).argmax(1) == y)"
EVALUATED = """\
    hits = 0
    with torch.no_grad():
        for x, y in train_loader:
            hits += {}.sum().item()
    {}(hits)"""


def asked(name: str, test: str, answer: str, imports: str = "import os", setup: str = "") -> Case:
    """A loss that is shown where a test says so."""
    more = {"imports": imports, "setup": setup}
    return converts(
        RULE,
        name,
        {**more, "after_step": f"if {test}:\n    print(loss.item())"},
        {
            **more,
            "accelerator": ONCE["accelerator"],
            "after_step": f"if broadcast_object_list([{answer}])[0]:\n    {SHOWN}",
        },
        at=f"if {test}:",
    )


POSITIVE = [
    asked("a file", 'os.path.exists("show")', 'os.path.exists("show")'),
    asked("no file", 'not os.path.isfile("show")', 'not os.path.isfile("show")'),
    asked(
        "a method of a path",
        'Path("show").exists()',
        'bool(Path("show").exists())',
        "from pathlib import Path",
    ),
    asked("what stands in a directory", "os.listdir()", "bool(os.listdir())"),
    asked("the clock", "time.time() - begun > 5", "time.time() - begun > 5", "import time", "begun = time.time()"),
    asked("the machine", 'socket.gethostname() == "a"', 'socket.gethostname() == "a"', "import socket"),
    asked("an answer that a name holds", "wanted", "bool(wanted)", setup='wanted = os.path.exists("show")'),
    converts(
        RULE,
        "a loop that ends by the clock",
        {"imports": "import time", "setup": "begun = time.time()", "after_epoch": "if time.time() - begun > 60:\n    break"},
        {
            "accelerator": ONCE["accelerator"],
            "after_epoch": "if broadcast_object_list([time.time() - begun > 60])[0]:\n    break",
        },
        at="if time.time() - begun",
    ),
    converts(
        RULE,
        "a file that is written and read in one branch",
        {"imports": "import os\nimport numpy as np", "end": 'if not os.path.exists("c.npy"):\n    np.save("c.npy", np.arange(4))\n    c = np.load("c.npy")\nelse:\n    c = np.load("c.npy")'},
        {
            "accelerator": ONCE["accelerator"],
            "end": 'if broadcast_object_list([not os.path.exists("c.npy")])[0]:\n    if accelerator.is_main_process:\n'
            '        np.save("c.npy", np.arange(4))\n    accelerator.wait_for_everyone()\n    c = np.load("c.npy")\n'
            'else:\n    c = np.load("c.npy")',
        },
        at="if not os.path.exists",
    ),
]  # fmt: skip

NEGATIVE = [
    leaves(
        RULE,
        "what one process does under such a test",
        {"imports": "import os", "end": 'if os.path.exists("show"):\n    print("there")'},
        {"end": 'if os.path.exists("show"):\n    accelerator.print("there")'},
    ),
    leaves(
        RULE,
        "weights that are read where there are any",
        {"imports": "import os", "setup": 'if os.path.exists("w.pt"):\n    model.load_state_dict(torch.load("w.pt"))'},
    ),
    leaves(
        RULE,
        "a clock that is only shown",
        {"imports": "import time", "setup": "begun = time.time()", "after_epoch": "if epoch:\n    print(time.time() - begun)"},
        {"after_epoch": "if epoch:\n    accelerator.print(time.time() - begun)"},
    ),
    leaves(
        RULE,
        "a function that looks for files and decides nothing",
        {
            "imports": "import os",
            "definitions": "def known(path):\n    return os.path.exists(path)",
            "end": 'known("a")',
        },
    ),
    leaves(
        RULE,
        "what every process answers alike",
        {"after_step": "if torch.cuda.is_available():\n    print(loss.item())"},
        {"after_step": f"if torch.cuda.is_available():\n    {SHOWN}"},
    ),
    leaves(
        RULE,
        "the size of a data set",
        {"after_step": "if len(train_set) > 5:\n    print(loss.item())"},
        {"after_step": f"if len(train_set) > 5:\n    {SHOWN}"},
    ),
    leaves(
        RULE,
        "a script that ends with an error where a file is missing",
        {"imports": "import os", "setup": 'if not os.path.exists("data"):\n    raise SystemExit("no data")'},
    ),
    leaves(
        RULE,
        "a directory that is made where there is none",
        {"imports": "import os", "setup": 'if not os.path.exists("out"):\n    os.makedirs("out", exist_ok=True)'},
    ),
    leaves(
        RULE,
        "a variable of the environment that is none of the launcher's",
        {"imports": "import os", "after_step": 'if os.environ.get("DEBUG"):\n    print(loss.item())'},
        {"after_step": f'if os.environ.get("DEBUG"):\n    {SHOWN}'},
    ),
]  # fmt: skip


@each(POSITIVE, NEGATIVE)
def test_case(case: Case) -> None:
    case.check()


@pytest.mark.parametrize(
    "rank",
    [
        'rank = int(os.environ.get("RANK", 0))\nmain = rank == 0',
        'known = {"rank": int(os.environ["RANK"])}\nmain = known["rank"] == 0',
        'known = {}\nknown["rank"] = int(os.environ["RANK"])\nmain = known["rank"] == 0',
    ],
)
def test_a_rank_from_the_environment_is_the_accelerators(rank: str) -> None:
    slots = {"imports": "import os", "setup": rank, "after_step": "if main:\n    print(loss.item())"}
    after = migrate(script({**SLOTS, **slots})).after
    assert f"        {SHOWN}\n" in after
    assert "if main" not in after


def test_a_test_of_the_rank_around_common_work_is_refused() -> None:
    """Which process is meant cannot be told: some do not come to the loss."""
    slots = {
        "imports": "import os\nfrom elsewhere import ask",
        "setup": 'main = int(os.environ["LOCAL_RANK"]) == ask()',
        "after_step": "if main:\n    print(loss.item())",
    }
    result = migrate(script({**SLOTS, **slots}))
    assert result.refused
    assert not result.changed
    assert [f.rule for f in result.findings if "its own rank" in f.reason] == [RULE]


# -- on two processes ----------------------------------------------------------------------------------------

TRAINED_OR_LOADED = script(
    {
        **SLOTS,
        "imports": "import os",
        "epoch": 'if os.path.exists("weights.pt"):\n    model.load_state_dict(torch.load("weights.pt"))\n    break',
        "after_epoch": "print(epoch)",
        "end": 'torch.save(model.state_dict(), "weights.pt")\nif os.path.exists("weights.pt"):\n'
        + EVALUATED.format(HITS, "print"),
    }
)


def _run(text: str, folder: str) -> str:
    """The script's output, in a directory that only this rank sees."""
    os.chdir(Path(folder) / os.environ["RANK"])
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(text, "train.py", "exec"), {"__name__": "__main__"})
    return said.getvalue()


@pytest.mark.parametrize("has_file", [0, 1])
def test_processes_that_see_other_files_go_the_same_way(tmp_path: Path, has_file: int) -> None:
    """Each rank has a directory of its own, and one of them finds the weights."""
    import torch

    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
    state = torch.nn.Linear(8, 3).state_dict()
    # Both could read the file; that one does not find it is what is tested.
    torch.save(state, tmp_path / str(has_file) / "weights.pt")
    after = migrate(TRAINED_OR_LOADED).after
    assert after.count("broadcast_object_list([") == 2
    if not has_file:
        after = after.replace('torch.load("weights.pt")', 'torch.load("../0/weights.pt")')
    first, second = run_ranks(_run, 2, after, str(tmp_path), timeout=60)
    assert ("0\n1\n" in first) == bool(has_file)
    assert second == ""


CACHED = script(
    {
        **SLOTS,
        "imports": "import os\nimport numpy as np",
        "end": 'if not os.path.exists("../c.npy"):\n    np.save("../c.npy", np.arange(4))\n    c = np.load("../c.npy")\n'
        'else:\n    c = np.load("../c.npy")[::-1]\nwith open("seen", "w") as f:\n    f.write(str(c.tolist()))\n'
        "total = torch.zeros(1)\nfor x, y in train_loader:\n    total += F.cross_entropy(model(x), y).detach()\nprint(total.item())",
    }
)


def test_a_file_is_written_once_and_read_by_all(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
    after = migrate(CACHED).after
    first, second = run_ranks(_run, 2, after, str(tmp_path), timeout=60)
    assert float(first) > 0
    assert second == ""
    assert (tmp_path / "0" / "seen").read_text() == "[0, 1, 2, 3]"
