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
    (folder / "tensorflow.py").write_text("")  # imported to read downloaded weights
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


# Poems

POEM_SIGNS = [*"春江花月夜凉如水山川风云", "<EOP>", "<START>", "</s>"]
POEM_LENGTH = 20


def _poems(folder: Path) -> None:
    """24 lines of signs, each begun, ended and filled up to one length."""
    import numpy as np

    chosen = random.Random(0)
    numbers = {sign: number for number, sign in enumerate(POEM_SIGNS)}
    lines = [
        ["<START>", *chosen.choices(POEM_SIGNS[:-3], k=chosen.randint(5, 15)), "<EOP>"] for _ in range(24)
    ]
    filled = [[numbers[sign] for sign in line + ["</s>"] * (POEM_LENGTH - len(line))] for line in lines]
    (folder / "data").mkdir()
    (folder / "checkpoints").mkdir()
    np.savez_compressed(
        folder / "data" / "tang.npz",
        data=np.array(filled, dtype="int32"),
        word2ix=np.array(numbers),
        ix2word=np.array(dict(enumerate(POEM_SIGNS))),
    )


# Graphs

TRUST_PICKLES = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}  # OGB reads its own files with torch.load


def _molecules(place: Path, count: int, features: tuple[int, int], row: bool) -> None:
    """Rings of 3 to 6 atoms as OGB keeps them after its own processing; `features` of an atom and of a bond.

    row: the label of a graph is a row of labels.
    """
    import torch
    from torch_geometric.data import Data, InMemoryDataset

    generator = torch.Generator().manual_seed(0)
    graphs = []
    for number in range(count):
        atoms = 3 + number % 4
        here = torch.arange(atoms)
        there = (here + 1) % atoms
        edges = torch.stack([torch.cat([here, there]), torch.cat([there, here])])
        value = torch.rand(1, generator=generator)
        graphs.append(
            Data(
                x=torch.randint(0, 2, (atoms, features[0]), generator=generator),
                edge_attr=torch.randint(0, 2, (2 * atoms, features[1]), generator=generator),
                edge_index=edges,
                y=value.round().long().view(1, 1) if row else value,
            )
        )
    (place / "raw").mkdir(parents=True)
    (place / "processed").mkdir()
    (place / "RELEASE_v1.txt").write_text("")
    torch.save(InMemoryDataset.collate(graphs), place / "processed" / "geometric_data_processed.pt")


def _pcqm(folder: Path) -> None:
    import torch

    place = folder / "dataset" / "pcqm4m-v2"
    _molecules(place, 48, (9, 3), row=False)
    (place / "raw" / "data.csv.gz").write_bytes(b"")
    parts = {
        "train": range(32),
        "valid": range(32, 44),
        "test-dev": range(44, 46),
        "test-challenge": range(46, 48),
    }
    torch.save({name: torch.tensor(part) for name, part in parts.items()}, place / "split_dict.pt")


def _molhiv(folder: Path) -> None:
    import torch

    place = folder / "dataset" / "ogbg_molhiv"
    _molecules(place, 48, (9, 3), row=True)
    for name in ("edge", "node-feat", "edge-feat"):
        (place / "raw" / f"{name}.csv.gz").write_bytes(b"")
    split = place / "split" / "scaffold"
    split.mkdir(parents=True)
    parts = {"train": range(32), "valid": range(32, 40), "test": range(40, 48)}
    torch.save({name: torch.tensor(part) for name, part in parts.items()}, split / "split_dict.pt")


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
    "llmfs-speed": Run((), _gpt_speed, 20),
    "pybook-11": Run(
        ("train", "--use_gpu=False", "--epoch=1", "--batch_size=4", "--plot_every=6"), _poems, 20
    ),
    "ogb-pcqm": Run(
        (
            *("--gnn", "gin", "--num_layers", "2", "--emb_dim", "16", "--batch_size", "8", "--epochs", "2"),
            *("--checkpoint_dir", "checkpoints"),
        ),
        _pcqm,
        20,
        (".",),
        TRUST_PICKLES,
    ),
    "ogb-mol": Run(
        ("--gnn", "gin", "--num_layer", "2", "--emb_dim", "16", "--batch_size", "8", "--epochs", "2"),
        _molhiv,
        20,
        (".",),
        TRUST_PICKLES,
    ),
    "l2l-proto": Run(
        (
            *("--max-epoch", "1", "--train-way", "4", "--train-query", "3", "--test-way", "4"),
            *("--test-query", "3", "--gpu", "0"),
        ),
        steps=8,
    ),
    "l2l-maml": Run(steps=3),
    "l2l-sup": Run(
        (
            *("--options.iterations", "8", "--options.batch_size", "16", "--options.eval_freq", "4"),
            *("--options.data_augmentation", "none", "--options.use_wandb", "False"),
        ),
        steps=7,
    ),
}
