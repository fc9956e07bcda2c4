"""Texts, sounds, graphs, recommendations, and pictures that are made or taken apart."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path

from tests.corpora.public.runs.run import Run

WORDS = ["river", "mountain", "winter", "quiet", "garden", "letter", "over", "the"]


def _numbers(path: Path, numbers: Mapping[str, int]) -> None:
    """Write these values to the entries ``"name": number`` of a script's own configuration."""
    text = path.read_text()
    for name, number in numbers.items():
        text, found = re.subn(rf'("{name}": )\d+', rf"\g<1>{number}", text)
        assert found, f"no number for {name} in {path.name}"
    path.write_text(text)


def _text(characters: int, seed: int = 0) -> str:
    """Words at random, in sentences."""
    chosen = random.Random(seed)
    words: list[str] = []
    while sum(map(len, words)) + len(words) < characters:
        words.append(chosen.choice(WORDS) + chosen.choice(["", "", "", ".", "\n"]))
    return " ".join(words)[:characters]


# Recommendations


def _ncf(folder: Path) -> None:
    """Twelve users who saw 12 of 40 items each; for each of them one more, and nine that they did not see."""
    config = folder / "config.py"
    config.write_text(re.sub(r"main_path = .*", "main_path = './data/'", config.read_text()))
    (folder / "data").mkdir()
    chosen, train, test = random.Random(0), [], []
    for user in range(12):
        first, *items = chosen.sample(range(40), 22)
        train += [f"{user}\t{item}\n" for item in items[:12]]
        test.append("\t".join([f"({user},{first})", *map(str, items[12:])]) + "\n")
    train.append("11\t39\n")
    (folder / "data" / "ml-1m.train.rating").write_text("".join(train))
    (folder / "data" / "ml-1m.test.negative").write_text("".join(test))


# Language models

SMALL_GPT = {"context_length": 32, "emb_dim": 24, "n_heads": 2, "n_layers": 2}


def _gpt_train(folder: Path) -> None:
    _numbers(folder / "gpt_train.py", {**SMALL_GPT, "num_epochs": 2})
    (folder / "the-verdict.txt").write_text(_text(512))


def _gutenberg(folder: Path) -> None:
    books = folder / "gutenberg" / "data"
    books.mkdir(parents=True)
    for book in range(2):
        (books / f"{book}.txt").write_text(_text(250, seed=book))


def _spam(folder: Path) -> None:
    data = folder / "sms_spam_collection" / "SMSSpamCollection.tsv"
    data.parent.mkdir()
    lines = [
        f"{'spam' if line % 3 == 0 else 'ham'}\t{_text(60, seed=line).replace(chr(10), ' ')}\n"
        for line in range(72)
    ]
    data.write_text("".join(lines))


def _gpt_speed(folder: Path) -> None:
    _numbers(folder / "01_opt_single_gpu.py", {**SMALL_GPT, "num_epochs": 2, "batch_size": 4})
    (folder / "middlemarch.txt").write_text(_text(600))


RUNS: dict[str, Run] = {
    "ncf": Run(
        ("--epochs", "2", "--batch_size", "128", "--factor_num", "8", "--test_num_ng", "9", "--top_k", "3"),
        _ncf,
        20,
    ),
    "llmfs-train": Run((), _gpt_train, 20),
    "llmfs-gutenberg": Run(
        (
            *("--debug", "True", "--n_epochs", "2", "--batch_size", "4", "--eval_freq", "3"),
            *("--print_sample_iter", "5", "--save_ckpt_freq", "4"),
        ),
        _gutenberg,
        20,
        libraries=("pkg",),
    ),
    "llmfs-class": Run(("--test_mode",), _spam, 30),
    "llmfs-speed": Run((), _gpt_speed, 20, variables={"TORCHDYNAMO_DISABLE": "1"}),
}
