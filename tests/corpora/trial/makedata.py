"""Made-up data of the cases beside it; a `gen` entry [name, ...] calls the function of that name with the case's tree."""

import gzip
import json
import random
import subprocess
import sys

import numpy as np


def suball(root, path, old, new):
    """Replace a constant that every user edits, wherever it stands (the trial's own `sub` asks for one place)."""
    text = (root / path).read_text(encoding="utf-8")
    assert old in text, f"{path}: no {old!r}"
    (root / path).write_text(text.replace(old, new), encoding="utf-8")


def picture(number, kind, size):
    from PIL import Image

    draw = np.random.RandomState(number)
    blocks = np.random.RandomState(1000 + kind).randint(0, 200, (4, 4, 3))
    pixels = np.kron(blocks, np.ones((size // 4 + 1, size // 4 + 1, 1)))[:size, :size]
    return Image.fromarray((pixels + draw.randint(0, 56, (size, size, 3))).astype(np.uint8))


def poems(root, path, n):
    """Rows of 20 numbers for words, with the two dictionaries, as pybook-11 stores them."""
    words = list("春江花月夜凉如水天地人") + [f"w{i}" for i in range(20)] + ["<EOP>", "<START>", "</s>"]
    numbers = {word: i for i, word in enumerate(words)}
    rows = np.full((n, 20), numbers["</s>"], dtype=np.int32)
    draw = np.random.RandomState(n)
    for row in rows:
        length = draw.randint(8, 18)
        row[0], row[length + 1] = numbers["<START>"], numbers["<EOP>"]
        row[1 : length + 1] = draw.randint(0, 31, length)
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(root / path, data=rows, word2ix=numbers, ix2word={i: w for w, i in numbers.items()})


def boxes(root, folder, n_train, n_val, size):
    """Pictures with one or two boxes each, and the two lists that retinanet reads."""
    least, most = size // 3, size // 2
    (root / folder).mkdir(parents=True, exist_ok=True)
    for part, count, first in (("train", n_train, 0), ("val", n_val, n_train)):
        lines = []
        for i in range(first, first + count):
            draw = np.random.RandomState(i)
            picture(i, i % 4, size).save(root / folder / f"{i:03d}.png")
            line = [f"{i:03d}.png"]
            for _ in range(1 + i % 2):
                x, y = draw.randint(2, least, 2)
                line += [x, y, x + draw.randint(least, most), y + draw.randint(least, most), i % 4]
            lines.append(" ".join(map(str, line)))
        (root / f"data/voc12_{part}.txt").write_text("\n".join(lines) + "\n")


def retinanet_weights(root, path):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    code = f"import torch, retinanet; torch.manual_seed(0); torch.save(retinanet.RetinaNet().state_dict(), {path!r})"
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


def molecules(root, folder, *sizes):
    """Graphs with the features of atoms and bonds, already processed and split, for ogb-mol."""
    import torch
    from torch_geometric.data import Data, InMemoryDataset

    base = root / folder
    draw, made = random.Random(folder), []
    for i in range(sum(sizes)):
        n = draw.randint(5, 9)
        ends = [(a, (a + 1) % n) for a in range(n)]
        edges = torch.tensor(ends + [(b, a) for a, b in ends]).T.contiguous()
        kinds = torch.zeros(n, 9, dtype=torch.long)
        kinds[:, 0] = torch.tensor([draw.randint(0, 3 + 3 * (i % 2)) for _ in range(n)])
        bonds = torch.zeros(2 * n, 3, dtype=torch.long)
        made.append(Data(x=kinds, edge_index=edges, edge_attr=bonds, y=torch.tensor([[i % 2]]), num_nodes=n))
    for place in ("processed", "raw", "split/scaffold"):
        (base / place).mkdir(parents=True, exist_ok=True)
    torch.save(InMemoryDataset.collate(made), base / "processed/geometric_data_processed.pt")
    for name in ("pre_transform.pt", "pre_filter.pt"):
        torch.save("None", base / "processed" / name)
    for name in ("edge", "node-feat", "edge-feat"):
        (base / f"raw/{name}.csv.gz").write_bytes(gzip.compress(b""))
    (base / "RELEASE_v1.txt").write_text("made up")
    first = 0
    for part, n in zip(("train", "valid", "test"), sizes, strict=True):
        rows = "\n".join(map(str, range(first, first + n)))
        (base / f"split/scaffold/{part}.csv.gz").write_bytes(gzip.compress(rows.encode()))
        first += n


def shards(root, folder, n):
    """Two files of tokens to train with and one to evaluate, for build-nanogpt."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(("train_000001", "train_000002", "val_000000")):
        np.save(
            root / folder / f"made_{name}.npy", np.random.RandomState(i).randint(0, 250, n).astype(np.uint16)
        )


def hellaswag(root, path, n):
    draw = random.Random(path)
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {
            "ctx": "a man sits",
            "label": i % 4,
            "endings": ["".join(draw.choices("abcdef ", k=6 + j)) for j in range(4)],
        }
        for i in range(n)
    ]
    (root / path).write_text("\n".join(map(json.dumps, lines)) + "\n")


def dogs(root, folder, n, kinds, size):
    (root / folder / "train").mkdir(parents=True, exist_ok=True)
    for i in range(n):
        picture(i, i % kinds, size).save(root / folder / f"train/d{i:03d}.jpg")
    rows = "\n".join(f"d{i:03d},breed{i % kinds}" for i in range(n))
    (root / folder / "labels.csv").write_text("id,breed\n" + rows + "\n")


def series(root, path, n, columns):
    """A table of hourly values, for tslib."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    values = np.random.RandomState(n).randn(n, columns).cumsum(0)
    head = "date," + ",".join([f"c{i}" for i in range(columns - 1)] + ["OT"])
    rows = [
        f"2020-01-{1 + i // 24:02d} {i % 24:02d}:00:00," + ",".join(f"{v:.4f}" for v in row)
        for i, row in enumerate(values)
    ]
    (root / path).write_text("\n".join([head, *rows]) + "\n")


def ratings(root, path, users, items, negatives):
    """Who rated what, and for each user one item to find among others, for ncf."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    draw, rated, tests = random.Random(path), [], []
    for user in range(users):
        mine = draw.sample(range(items), 5 + negatives)
        rated += [f"{user}\t{item}\t1\t0" for item in mine[:4]]
        tests.append("\t".join([f"({user},{mine[4]})", *map(str, mine[5:])]))
    rated.append(f"0\t{items - 1}\t1\t0")
    (root / f"{path}.train.rating").write_text("\n".join(rated) + "\n")
    (root / f"{path}.test.negative").write_text("\n".join(tests) + "\n")


def letters(root, path, n):
    draw = random.Random(path)
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(gzip.compress("".join(draw.choices("abcde fg", k=n)).encode()))
