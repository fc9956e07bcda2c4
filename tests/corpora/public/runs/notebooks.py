"""Notebooks: their numbers are in the cells, so that is where smaller ones are put."""

from __future__ import annotations

import csv
import random
import struct
import zipfile
from pathlib import Path

from tests.corpora.public.runs.files import picture, replaced
from tests.corpora.public.runs.run import Run

SMALL_RESNET = {
    "in_planes = 64": "in_planes = 8",
    "Conv2d(3, 64": "Conv2d(3, 8",
    "BatchNorm2d(64)": "BatchNorm2d(8)",
    "block, 64,": "block, 8,",
    "block, 128,": "block, 16,",
    "block, 256,": "block, 32,",
    "block, 512,": "block, 64,",
    "Linear(512,": "Linear(64,",
    "batch_size=128": "batch_size=64",
}


def _resnet(folder: Path) -> None:
    replaced(folder / "ResNet18_CIFAR10_Train.ipynb", {**SMALL_RESNET, "range(0, 20):\\n": "range(0, 2):\\n"})


def _mixup(folder: Path) -> None:
    notebook = folder / "ResNet18_CIFAR10_Training_with_Input_Mixup.ipynb"
    replaced(notebook, {**SMALL_RESNET, "range(0, 150)": "range(0, 2)"})


def _gan(folder: Path) -> None:
    numbers = {"n_epochs = 200": "n_epochs = 2", "sample_interval = 2000": "sample_interval = 3"}
    replaced(folder / "GAN_for_MNIST_Tutorial.ipynb", {**numbers, "92000.png": "3.png"})


def _mnist(folder: Path) -> None:
    replaced(
        folder / "3.2-mnist.ipynb",
        {"BATCH_SIZE=512": "BATCH_SIZE=32", "EPOCHS=20": "EPOCHS=2", "+1)%30": "+1)%3"},
    )


def _fashion(folder: Path) -> None:
    """Pictures as rows of a table, and the beginnings of the two files of which the notebook shows the headers."""
    replaced(
        folder / "5.3-Fashion-MNIST.ipynb",
        {
            "BATCH_SIZE=256": "BATCH_SIZE=32",
            "TOTAL_EPOCHS=50": "TOTAL_EPOCHS=2",
            "TOTAL_EPOCHS=20": "TOTAL_EPOCHS=2",
            "TOTAL_EPOCHS=10": "TOTAL_EPOCHS=1",
            "(i+1) % 100": "(i+1) % 2",
        },
    )
    data = folder / "data"
    data.mkdir(exist_ok=True)
    chosen = random.Random(0)
    for name, count in (("train", 90), ("test", 45)):
        with (data / f"fashion-mnist_{name}.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["label", *(f"pixel{number}" for number in range(1, 785))])
            for _ in range(count):
                label = chosen.randrange(10)
                table.writerow([label, *(chosen.randrange(20 * label, 255) for _ in range(784))])
    (data / "train-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, 1, 28, 28) + bytes(784))
    (data / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, 1) + b"\1")


def _dogs(folder: Path) -> None:
    replaced(
        folder / "4.1-fine-tuning.ipynb",
        {
            "BATCH_SIZE= 256": "BATCH_SIZE= 8",
            "IMG_SIZE = 224": "IMG_SIZE = 32",
            "resnet50": "resnet18",
            "range(1, 10)": "range(1, 3)",
        },
    )
    lines = ["id,breed"]
    for number in range(40):
        picture(folder / "data" / "train" / f"dog{number}.jpg", number)
        lines.append(f"dog{number},breed{number % 4}")
    (folder / "data" / "labels.csv").write_text("\n".join(lines) + "\n")


def _lenet(folder: Path) -> None:
    replaced(
        folder / "2_lenet.ipynb",
        {
            "EPOCHS = 20\\n": "EPOCHS = 2\\n",
            "N_IMAGES = 25\\n": "N_IMAGES = 4\\n",
            "n_iterations=50_000": "n_iterations=5",
        },
    )


def _alexnet(folder: Path) -> None:
    replaced(
        folder / "3_alexnet.ipynb",
        {
            "BATCH_SIZE = 256": "BATCH_SIZE = 64",
            "4096": "32",
            "NUM_ITER = 100": "NUM_ITER = 6",
            "EPOCHS = 25": "EPOCHS = 2",
            "N_IMAGES = 36": "N_IMAGES = 4",
            "n_iterations=10_000": "n_iterations=3",
            "IMAGE = 'frog'": "IMAGE = classes[0]",
        },
    )


def _vision(folder: Path) -> None:
    replaced(folder / "03_pytorch_computer_vision.ipynb", {"epochs = 3\\n": "epochs = 1\\n"})


def _custom(folder: Path) -> None:
    replaced(folder / "04_pytorch_custom_datasets.ipynb", {"NUM_EPOCHS = 5": "NUM_EPOCHS = 2"})
    number = 0
    for part, count in (("train", 25), ("test", 9)):
        for kind in ("pizza", "steak", "sushi"):
            for _ in range(count):
                place = folder / "data" / "pizza_steak_sushi" / part / kind / f"{number}.jpg"
                picture(place, number, (80, 64))
                number += 1
    picture(folder / "data" / "04-pizza-dad.jpeg", 0, (80, 64))


def _cats_and_dogs(folder: Path) -> None:
    replaced(
        folder / "cats_and_dogs.ipynb",
        {"batch_size = 64": "batch_size = 8", "epochs = 20": "epochs = 2", "depth=12": "depth=1"},
    )
    for name, count in (("train", 40), ("test", 10)):
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as file:
            for number in range(count):
                place = folder / "made" / f"{number}.jpg"
                picture(place, number)
                kind = f"{'dog' if number % 2 else 'cat'}." if name == "train" else ""
                file.write(place, f"{name}/{kind}{number}.jpg")
                place.unlink()


RUNS: dict[str, Run] = {
    "ndb-resnet": Run((), _resnet, 40),
    "ndb-gan": Run((), _gan, 40),
    "ndb-mixup": Run((), _mixup, 40),
    "hb-mnist": Run((), _mnist, 40),
    "hb-fashion": Run((), _fashion, 40),
    "hb-finetune": Run((), _dogs, 40),
    "bent-lenet": Run((), _lenet, 40),
    "bent-alexnet": Run((), _alexnet, 11),  # behind its training, scikit-learn crashes in a forked process
    "bourke-cv": Run((), _vision, 60),
    "bourke-custom": Run((), _custom, 40),
    "vit-cats": Run((), _cats_and_dogs, 40, (".",)),
}
