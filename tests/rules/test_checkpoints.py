"""CT501 to CT503: the same files, written once."""

from __future__ import annotations

from .support import Case, converts, each, leaves

MODEL, ANYTHING, LOAD = "CT501", "CT502", "CT503"
WEIGHTS = "torch.save(model.state_dict(), {})"
SAVED = "accelerator.save_model(model, {})"
SAVED_ANYHOW = "accelerator.save(model.state_dict(), {})"
KEEP = 'def keep({}):\n    file = "epoch_" + file\n    {}\n'
GROWN = "while True:\n    name = tag + name"
WAIT = "accelerator.wait_for_everyone()"
STATE = '{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}'
RUNNING = {"epoch": "model.train()\ntotal = 0.0", "after_step": "total += loss.item()"}
RUNNING_AFTER = {
    "after_step": "total += accelerator.weighted(loss).item()",
    "after_loop": 'total = accelerator.reduce(total, reduction="mean")',
}
TO_FILE, SAVED_TO_FILE = WEIGHTS.format('"m.pt"'), SAVED.format('"m.pt"')
READ = 'model.load_state_dict(torch.load("m.pt"))'


def weights(name: str, path: str, **more: str) -> Case:
    return converts(MODEL, name, {"end": WEIGHTS.format(path), **more}, {"end": SAVED.format(path)})


def anything(name: str, before: str, after: str, **more: str) -> Case:
    return converts(ANYTHING, name, {"end": before, **more}, {"end": after})


POSITIVE = [
    weights("to a name", '"m.pt"'),
    weights("to a name in a variable", "path", options='path = "m.pth"'),
    weights("to a joined path", 'os.path.join("out", f"m{epoch}.pt")', imports="import os"),
    weights("to a formatted name", '"m_{}.pth".format(epoch)'),
    weights("to a name made with percent", '"m_%d.pth" % epoch'),
    weights("to a sum of strings", '"out" + "/m.pth"'),
    weights("to a Path", 'Path("out") / "m.pth"', imports="from pathlib import Path"),
    converts(
        MODEL,
        "the best so far",
        {
            **RUNNING,
            "setup": "best = 1e9",
            "after_epoch": 'if total < best:\n    best = total\n    torch.save(model.state_dict(), "best.pt")  # keep it',
        },
        {
            **RUNNING_AFTER,
            "after_epoch": 'if total < best:\n    best = total\n    accelerator.save_model(model, "best.pt")  # keep it',
        },
        at='"best.pt"',
    ),
    anything(
        "a name without a suffix",
        WEIGHTS.format('"weights"'),
        'accelerator.save(model.state_dict(), "weights")',
    ),
    anything(
        "everything for a restart", f'torch.save({STATE}, "all.pt")', f'accelerator.save({STATE}, "all.pt")'
    ),
    anything("the whole model", 'torch.save(model, "m.pt")', 'accelerator.save(model, "m.pt")'),
    anything(
        "by keywords",
        'torch.save(obj=model.state_dict(), f="m.pt")',
        'accelerator.save(obj=model.state_dict(), f="m.pt")',
    ),
    anything(
        "another tensor", 'torch.save(torch.ones(3), "t.pt")', 'accelerator.save(torch.ones(3), "t.pt")'
    ),
    anything(
        "a model that is not trained",
        'torch.save(teacher.state_dict(), "t.pt")',
        'accelerator.save(teacher.state_dict(), "t.pt")',
        setup="teacher = nn.Linear(8, 3)",
    ),
    converts(
        ANYTHING,
        "into an open file, which one process opens",
        {"end": 'with open("m.pt", "wb") as file:\n    torch.save(model.state_dict(), file)'},
        {
            "end": (
                'if accelerator.is_main_process:\n    with open("m.pt", "wb") as file:\n'
                "        accelerator.save(model.state_dict(), file)"
            )
        },
        at="torch.save",
    ),
    converts(
        LOAD,
        "waits before a file of this run is read",
        {"end": WEIGHTS.format('"m.pt"') + "\n" + READ},
        {"end": SAVED.format('"m.pt"') + f"\n{WAIT}\n" + READ},
        at="torch.load",
    ),
    converts(
        LOAD,
        "waits before it asks whether the file exists",
        {
            "imports": "import os",
            "after_epoch": WEIGHTS.format('"m.pt"'),
            "end": f'if os.path.exists("m.pt"):  # the best\n    {READ}',
        },
        {
            "after_epoch": SAVED.format('"m.pt"'),
            "end": f'{WAIT}\nif os.path.exists("m.pt"):  # the best\n    {READ}',
        },
        at="os.path.exists",
    ),
    converts(
        LOAD,
        "waits between the save and the load of one branch",
        {"imports": "import sys", "end": f"if len(sys.argv) > 1:\n    {TO_FILE}\n    {READ}"},
        {"end": f"if len(sys.argv) > 1:\n    {SAVED_TO_FILE}\n    {WAIT}\n    {READ}"},
        at="torch.load",
    ),
    converts(
        LOAD,
        "waits before a function that reads",
        {
            "definitions": f"def best(model):\n    {READ}\n    return model\n",
            "after_epoch": WEIGHTS.format('"m.pt"'),
            "end": "model = best(model)",
        },
        {
            "definitions": f"def best(model):\n    {WAIT}\n    {READ}\n    return model\n",
            "after_epoch": SAVED.format('"m.pt"'),
        },
        at="torch.load",
    ),
    converts(
        LOAD,
        "waits for a file that an object saved when it was called",
        {
            "definitions": (
                "class Keeper:\n"
                "    def __call__(self, model):\n"
                '        torch.save(model.state_dict(), "m.pt")\n'
            ),
            "setup": "keep = Keeper()",
            "after_epoch": "keep(model)",
            "end": READ,
        },
        {
            "definitions": (
                "class Keeper:\n"
                "    def __call__(self, model):\n"
                '        accelerator.save_model(model, "m.pt")\n'
            ),
            "end": f"{WAIT}\n{READ}",
        },
        at=READ,
    ),
]

NEGATIVE = [
    leaves(
        MODEL,
        "a name that a parameter is made into",
        {"definitions": KEEP.format("model, file", WEIGHTS.format("file")), "end": 'keep(model, "m.pt")'},
        {
            "definitions": KEEP.format("accelerator, model, file", SAVED_ANYHOW.format("file")),
            "end": 'keep(accelerator, model, "m.pt")',
        },
        main=True,
    ),
    leaves(
        MODEL,
        "a name that is made from itself",
        {"setup": "tag = name = None", "end": f"{GROWN}\n    {WEIGHTS.format('name')}"},
        {"end": f"{GROWN}\n    {SAVED_ANYHOW.format('name')}"},
    ),
    leaves(MODEL, "weights that are counted", {"end": "size = sum(p.numel() for p in model.parameters())"}),
    leaves(
        MODEL,
        "weights that are compared",
        {"end": "same = model.state_dict().keys() == model.state_dict().keys()"},
    ),
    leaves(ANYTHING, "a file that is only named", {"options": 'path = "m.pt"'}),
    leaves(LOAD, "a file from before this run", {"setup": READ}),
    leaves(
        LOAD,
        "a file from before this run, although one is saved later",
        {"setup": READ, "end": WEIGHTS.format('"n.pt"')},
        {"end": SAVED.format('"n.pt"')},
    ),
    leaves(
        LOAD, "a file that is loaded to the CPU", {"setup": 'state = torch.load("m.pt", map_location="cpu")'}
    ),
    leaves(
        LOAD,
        "json",
        {"imports": "import json", "end": 'with open("h.json") as file:\n    history = json.load(file)'},
    ),
    leaves(
        LOAD,
        "weights kept in memory",
        {
            **RUNNING,
            "imports": "import copy",
            "setup": "best, state = 1e9, None",
            "after_epoch": "if total < best:\n    best = total\n    state = copy.deepcopy(model.state_dict())",
            "end": "model.load_state_dict(state)",
        },
        RUNNING_AFTER,
    ),
    leaves(
        ANYTHING,
        "into memory, where every process wants it",
        {
            "imports": "import io",
            "end": "buffer = io.BytesIO()\ntorch.save(model.state_dict(), buffer)\nbuffer.seek(0)",
        },
    ),
    leaves(
        ANYTHING,
        "numpy's own save of nothing",
        {"imports": "import numpy as np", "setup": "table = np.zeros(3)"},
    ),
    leaves(
        ANYTHING,
        "a method called save of something else",
        {"imports": "import robots", "end": "robots.Arm().save('a.txt')"},
    ),
    leaves(MODEL, "the state is only looked at", {"end": "names = list(model.state_dict())"}),
    leaves(
        MODEL, "the state is copied", {"end": "state = {k: v.cpu() for k, v in model.state_dict().items()}"}
    ),
    leaves(
        MODEL,
        "a save before there is an Accelerator",
        {"options": 'torch.save(torch.ones(3), "start.pt")'},
    ),
    leaves(
        MODEL,
        "a function of the script's own called save",
        {
            "definitions": "def save(thing, path):\n    return path\n",
            "end": 'save(model.state_dict(), "m.pt")',
        },
    ),
    leaves(
        MODEL,
        "the word in a comment or a string",
        {"end": '# torch.save(model.state_dict(), "m.pt")\nnote = "torch.save"'},
    ),
    leaves(
        MODEL,
        "an optimizer's state that is loaded",
        {"setup": "optimizer.load_state_dict(optimizer.state_dict())"},
    ),
    *(
        leaves(
            ANYTHING,
            f"{name} is left, and reported",
            {"end": code},
            findings=[("CT403", code)],
        )
        for name, code in (
            ("an export", 'torch.onnx.export(model, torch.ones(1, 8), "m.onnx")'),
            ("a compiled model's own save", 'torch.jit.script(model).save("m.pt")'),
        )
    ),
    leaves(
        ANYTHING,
        "a compiled model is guarded as any file",
        {"end": 'torch.jit.save(torch.jit.script(model), "m.pt")'},
        {"end": 'if accelerator.is_main_process:\n    torch.jit.save(torch.jit.script(model), "m.pt")'},
    ),
    leaves(
        LOAD,
        "a pretrained model",
        {"setup": 'state = torch.hub.load_state_dict_from_url("https://x.y/z.pt")'},
    ),
]


@each(POSITIVE, NEGATIVE)
def test_checkpoints(case: Case) -> None:
    case.check()
