"""Scripts that distribute themselves: the options that make them do so, and small data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from tests.corpora.public.runs.files import picture, replaced
from tests.corpora.public.runs.run import Run

# Options of scripts that start a process for each GPU of their machine.
SPAWNING = (
    *("--dist-url", "tcp://localhost:10001", "--multiprocessing-distributed"),
    *("--world-size", "1", "--rank", "0"),
)


def _folders(folder: Path, counts: Mapping[str, int], size: int = 48) -> None:
    """Pictures of two kinds, in a folder for each part and kind."""
    for part, count in counts.items():
        for number in range(count):
            kind = "cat" if number % 2 else "dog"
            picture(folder / "data" / part / kind / f"{number}.png", len(part) + number, (size, size))


def _simsiam(folder: Path) -> None:
    replaced(folder / "main_simsiam.py", {"RandomResizedCrop(224": "RandomResizedCrop(32"})
    _folders(folder, {"train": 17})


def _simsiam_lincls(folder: Path) -> None:
    """A checkpoint of no weights at all is what the script trains the last layer of, and compares itself with."""
    sizes = {"RandomResizedCrop(224": "RandomResizedCrop(32", "Resize(256)": "Resize(36)"}
    replaced(folder / "main_lincls.py", {**sizes, "CenterCrop(224)": "CenterCrop(32)"})
    _folders(folder, {"train": 16, "val": 7})


def _barlow(folder: Path) -> None:
    replaced(
        folder / "main.py",
        {
            "RandomResizedCrop(224": "RandomResizedCrop(32",
            "models.resnet50(": "models.resnet18(",
            "[2048]": "[512]",
        },
    )
    _folders(folder, {"train": 20})


def _deit(folder: Path) -> None:
    """Its sampler takes multiples of 256 pictures."""
    _folders(folder, {"train": 260, "val": 21}, 40)


def _nanogpt(folder: Path) -> None:
    """A model of two layers, eight files of tokens, and six questions with four answers each."""
    import numpy as np

    script = folder / "train_gpt2.py"
    text = script.read_text()
    numbers = {
        "block_size: int = ": 32, "n_layer: int = ": 2, "n_head: int = ": 2, "n_embd: int = ": 16,
        "total_batch_size = ": 128, "\nB = ": 2, "\nT = ": 16, "val_loss_steps = ": 3,
        "max_steps = ": 6, "warmup_steps = ": 2, "vocab_size=": 304,
    }  # fmt: skip
    for name, number in numbers.items():
        text, found = re.subn(re.escape(name) + r"\d+", f"{name}{number}", text)
        assert found, f"no number for {name}"
    script.write_text(text)
    (folder / "transformers.py").write_text("GPT2LMHeadModel = None\n")  # imported to compare with
    (folder / "edu_fineweb10B").mkdir()
    generator = np.random.default_rng(0)
    for name in ("train_0", "train_1", "val_0"):
        tokens = generator.integers(0, 256, 600, dtype=np.uint16)
        np.save(folder / "edu_fineweb10B" / f"{name}.npy", tokens)
    (folder / "hellaswag").mkdir()
    questions = (
        {"ctx": f"word {number}", "label": number % 4, "endings": ["one", "two or", "three", "four"]}
        for number in range(6)
    )
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    (folder / "hellaswag" / "hellaswag_val.jsonl").write_text(lines)


RUNS: dict[str, Run] = {
    "llmfs-ddp": Run(),
    "simsiam": Run(
        (
            *("data", "-a", "resnet18", "-j", "0", "--epochs", "2", "-b", "4", "-p", "1"),
            *("--dim", "32", "--pred-dim", "16", "--fix-pred-lr", *SPAWNING),
        ),
        _simsiam,
        6,
    ),
    "barlow": Run(
        (
            *("data", "--workers", "0", "--epochs", "2", "--batch-size", "8", "--projector", "32-32-16"),
            *("--print-freq", "1"),
        ),
        _barlow,
        4,
    ),
    "deit": Run(
        (
            *("--model", "deit_tiny_patch16_224", "--input-size", "32", "--data-path", "data"),
            *("--batch-size", "32", "--epochs", "2", "--num_workers", "0", "--output_dir", "output"),
            "--dist-eval",
        ),
        _deit,
        6,
    ),
    "build-nanogpt": Run((), _nanogpt, 6),
}
