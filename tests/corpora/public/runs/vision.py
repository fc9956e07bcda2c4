"""Classifiers of pictures, and what segments, compares and enlarges them."""

from __future__ import annotations

import random
from pathlib import Path

from tests.corpora.public.runs.files import drawn, picture, replaced
from tests.corpora.public.runs.run import Run


def _cifar(folder: Path) -> None:
    """Its options have no types, so a number cannot be given on the command line."""
    replaced(
        folder / "train.py",
        {
            "'--batch_size', default=128": "'--batch_size', default=16",
            "'--num_worker', default=4": "'--num_worker', default=0",
        },
    )


def _tsm(folder: Path) -> None:
    """Twenty videos of six frames. A view that torch has refused since 1.7 becomes what it says to write."""
    replaced(folder / "ops" / "utils.py", {"correct[:k].view(-1)": "correct[:k].reshape(-1)"})
    replaced(folder / "ops" / "dataset_config.py", {"'/ssd/video/'": "'videos/'"})
    videos = folder / "videos" / "jester"
    for name, numbers in {"train": range(14), "val": range(14, 20)}.items():
        listed = []
        for number in numbers:
            for frame in range(1, 7):
                picture(videos / "20bn-jester-v1" / str(number) / f"{frame:05d}.jpg", 10 * number + frame)
            listed.append(f"{number} 6 {number % 6}\n")
        (videos / f"{name}_videofolder.txt").write_text("".join(listed))
    (videos / "category.txt").write_text("".join(f"gesture {number}\n" for number in range(6)))


def _cats_and_dogs(folder: Path) -> None:
    (folder / "checkpoints").mkdir()
    for number in range(24):
        picture(
            folder / "data" / "train" / f"{'dog' if number % 3 else 'cat'}.{number}.jpg", number, (240, 240)
        )


def _large_and_small(folder: Path) -> None:
    replaced(
        folder / "train.py",
        {"num_workers=4, batch_size=64": "num_workers=0, batch_size=4", "num_workers=4": "num_workers=0"},
    )
    for number in range(14):
        picture(folder / "data" / "DIV2K_train_HR" / f"{number}.png", number)
    for number in range(5):
        picture(folder / "data" / "DIV2K_valid_HR" / f"{number}.png", 20 + number)


def _fashion(folder: Path) -> None:
    replaced(folder / "train.py", {"(224, 224)": "(32, 32)"})
    replaced(folder / "model.py", {"resnet50": "resnet18"})


def _voc(folder: Path) -> None:
    """Ten small pictures to train on and five to look at, with their classes by pixel."""
    sizes = {"base_size=520, crop_size=480": "base_size=65, crop_size=64", "base_size=520": "base_size=65"}
    replaced(folder / "train.py", sizes)
    root = folder / "data" / "VOCdevkit" / "VOC2012"
    for kind in ("SegmentationClass", "ImageSets/Segmentation"):
        (root / kind).mkdir(parents=True)
    for number in range(15):
        picture(root / "JPEGImages" / f"{number}.jpg", number, (64, 64))
        drawn(random.Random(number), "L", (64, 64), 20).save(root / "SegmentationClass" / f"{number}.png")
    for name, numbers in {"train": range(10), "val": range(10, 15)}.items():
        (root / "ImageSets" / "Segmentation" / f"{name}.txt").write_text("".join(f"{n}\n" for n in numbers))


RUNS: dict[str, Run] = {
    "hunkim-softmax": Run(),
    "hunkim-cnn": Run(),
    "cifar10-dnd": Run((), _cifar, 4),
    "dnd-densenet": Run((), _cifar, 3),
    "bourke-modular": Run(steps=8),
    "tsm": Run(
        (
            *("jester", "RGB", "--arch", "resnet18", "--num_segments", "2", "--shift", "--pretrain", "none"),
            *("-b", "4", "-j", "0", "--epochs", "2", "--eval-freq", "1", "-p", "1", "--gd", "20"),
        ),
        _tsm,
        4,
    ),
    "pybook-9": Run(
        ("train", "--max_epoch=2", "--batch_size=5", "--use_gpu=False", "--num_workers=0", "--print_freq=1"),
        _cats_and_dogs,
        5,
    ),
    "srgan-left": Run(("--crop_size", "32", "--num_epochs", "2"), _large_and_small, 8),
    "tv-sim": Run(
        ("-p", "4", "-k", "4", "--epochs", "2", "-j", "0", "--print-freq", "2", "--dataset-dir", "fashion"),
        _fashion,
        4,
    ),
    "tv-seg": Run(
        (
            *(
                "--data-path",
                "data",
                "--dataset",
                "voc",
                "--model",
                "lraspp_mobilenet_v3_large",
                "--device",
                "cpu",
            ),
            *("-b", "4", "-j", "0", "--epochs", "2", "--print-freq", "1"),
        ),
        _voc,
        3,
    ),
}
