"""A batch that is looked at before training is set up is whole, and no process's share."""

from __future__ import annotations

from .support import CONVERTED, SLOTS, Case, converts, each, leaves

RULE = "CT602"
LOADER = SLOTS["data"]
HELPER = "def show(loader):\n    images, labels = next(iter(loader))\n    print(images.shape, labels)\n"
DEVICE = {"device": "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is"}


def looks(name: str, look: str, after: str, definitions: str = "", changed: str = "", **more: str) -> Case:
    """Something done with a batch between the loader and the optimizer."""
    return leaves(
        RULE,
        name,
        {"definitions": definitions, "data": f"{LOADER}\n{look}"},
        {"definitions": changed or definitions, "data": f"{CONVERTED['data']}\n{after}", **more},
    )


FIRST = "images, labels = next(iter(train_loader))"
STREAM = "stream = iter(train_loader)\nimages, labels = next(stream)"

LOOKS = [
    looks(
        "its shape and labels",
        f"{FIRST}\nprint(images.shape, labels)",
        f"{FIRST}\naccelerator.print(images.shape, labels)",
    ),
    looks(
        "how many there are",
        f"{FIRST}\nwidth = images.shape[1]\nprint(len(images), width)",
        f"{FIRST}\nwidth = images.shape[1]\naccelerator.print(len(images), width)",
    ),
    looks("from an iterator of its own", f"{STREAM}\nprint(labels)", f"{STREAM}\naccelerator.print(labels)"),
    looks(
        "the first of a loop",
        "for batch in train_loader:\n    break\nprint(batch[0].shape)",
        "for batch in train_loader:\n    break\naccelerator.print(batch[0].shape)",
    ),
    looks(
        "the mean of the data",
        "total = 0.0\nfor i, (images, _) in enumerate(train_loader):\n    total += images.mean().item()\nprint(total / (i + 1))",
        "total = 0.0\nfor i, (images, _) in enumerate(train_loader):\n    total += images.mean().item()\n"
        "accelerator.print(total / (i + 1))",
    ),
    looks(
        "moved by hand",
        f"{FIRST}\nimages = images.to(device)\nprint(images.sum().item())",
        f"{FIRST}\nimages = images.to(device)\naccelerator.print(images.sum().item())",
        **DEVICE,
    ),
    looks(
        "in a function that is called there",
        "show(train_loader)",
        "show(train_loader)",
        definitions=HELPER,
        changed=HELPER.replace("print", "accelerator.print"),
    ),
]
NO_LOOKS = [
    leaves(
        RULE,
        "a picture of a batch after everything is made, gathered once",
        {
            "imports": "import torchvision",
            "setup": f"{FIRST}\ngrid = torchvision.utils.make_grid(images)\nprint(grid)",
        },
        {
            "setup": (
                f"{FIRST}\ngrid = torchvision.utils.make_grid(accelerator.gather_for_metrics(images))\n"
                "accelerator.print(grid)"
            )
        },
    ),
    leaves(
        RULE,
        "a look after everything is made sees the process's share",
        {"setup": f"{FIRST}\nprint(labels.sum().item())"},
        {"setup": f"{FIRST}\naccelerator.print(accelerator.gather_for_metrics(labels).sum().item())"},
    ),
    converts(
        "CT201",
        "a stream that goes on in training",
        {
            "data": f"{LOADER}\n{STREAM}\nprint(labels)",
            "loop": "for _ in range(3):",
            "batch": "x, y = next(stream)\nx, y = x.to(device), y.to(device)",
        },
        {
            "data": (
                f"{LOADER}\ntrain_loader = accelerator.prepare(train_loader)\n"
                f"{STREAM}\naccelerator.print(accelerator.gather_for_metrics(labels))"
            ),
            "prepare": "model, optimizer = accelerator.prepare(model, optimizer)",
            "batch": "x, y = next(stream)",
        },
        at="train_loader = ",
    ),
]


@each(LOOKS, NO_LOOKS)
def test_looks(case: Case) -> None:
    case.check()
