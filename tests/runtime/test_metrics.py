"""What is gathered over one pass is the data set: every sample once, in order."""

import contextlib
import itertools
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, skip_first_batches
from crosstrain.utils import broadcast_object_list, gather_object, pad_across_processes
from torch.utils.data import DataLoader, SubsetRandomSampler

from tests.runtime.loaders import Stream, plain
from tests.support.ranks import errors_of, on_ranks

EVEN: list[Any] = [{}, {"even_batches": False}, {"even_batches": "weighted"}, {"split_batches": True}]
MODES = [*EVEN, {"split_batches": True, "even_batches": "weighted"}, {"dispatch_batches": True}]
MODES += [{"dispatch_batches": True, "split_batches": True}]


@pytest.mark.parametrize("mode", MODES, ids=str)
@on_ranks(2, 3)
def test_every_sample_once_and_in_order(mode: dict[str, Any]) -> None:
    """accelerate counts the data set, not the step: token-level values, skipped and sampled loaders go wrong."""
    accelerator = Accelerator(cpu=True, **mode)
    world = accelerator.num_processes
    split, even = mode.get("split_batches", False), mode.get("even_batches", True)
    for n, size, skip in itertools.product((1, 2, 5, 8, 9, 12, 13), (1, 2, 3, 4, 6), (0, 1)):
        if split and even != "weighted" and size % world:
            continue
        if even is False and -(-n // size) % world:  # a rank has no batch: its collectives are the user's
            continue
        loader = skip_first_batches(accelerator.prepare(DataLoader(torch.arange(n), batch_size=size)), skip)
        rows: list[int] = []
        tokens: list[list[int]] = []
        names: list[str] = []
        for x in loader:
            nested = accelerator.gather_for_metrics({"x": x, "tokens": x.repeat_interleave(3)})
            rows += nested["x"].tolist()
            tokens += nested["tokens"].view(-1, 3).tolist()
            names += accelerator.gather_for_metrics([f"row {i}" for i in x.tolist()])
        expected = list(range(min(skip * size * (1 if split else world), n), n))
        assert rows == expected, (n, size, skip)
        assert tokens == [[i] * 3 for i in expected], (n, size, skip)
        assert names == [f"row {i}" for i in expected], (n, size, skip)


@pytest.mark.parametrize(
    ("mode", "entries", "means"),
    [
        ({}, [2, 2], None),
        ({"split_batches": True, "even_batches": "weighted"}, [2, 2, 1], [0.5, 2.5, 4.0]),
        ({"even_batches": "weighted"}, [2, 1], [1.5, 4.0]),
    ],
    ids=str,
)
@on_ranks(2)
def test_values_without_rows(mode: dict[str, Any], entries: list[int], means: list[float] | None) -> None:
    """One entry per rank and batch (accelerate loses the last batch's); a filler rank has none."""
    accelerator = Accelerator(cpu=True, **mode)
    loader = accelerator.prepare(DataLoader(torch.arange(5.0), batch_size=2))
    found, reduced = [], []
    for x in loader:
        found.append(accelerator.gather_for_metrics(x.mean()).numel())
        if len(x) == 2:  # where a batch has one row, (1,) is the shape of a row
            assert accelerator.gather_for_metrics(x.mean().reshape(1)).numel() == found[-1]
        reduced.append(accelerator.reduce(x.mean(), "mean").item())
    assert found == entries
    assert means is None or reduced == pytest.approx(means)


@on_ranks(2)
def test_what_is_no_tensor_becomes_one_list() -> None:
    accelerator = Accelerator(cpu=True)
    rows = [{"x": float(i), "name": f"row {i}"} for i in range(7)]
    seen: list[list[Any]] = [[] for _ in range(3)]
    for batch in accelerator.prepare(DataLoader(rows, batch_size=2)):  # type: ignore[arg-type]
        x, names = batch["x"], batch["name"]
        seen[0] += accelerator.gather_for_metrics(names)
        seen[1] += accelerator.gather_for_metrics(x.numpy())
        for part in accelerator.gather_for_metrics({"x": x, "names": names}):
            seen[2] += zip(part["x"].tolist(), part["names"], strict=True)
    pairs = [(row["x"], row["name"]) for row in rows]
    assert seen == [[name for _, name in pairs], [x for x, _ in pairs], pairs]


@on_ranks(2)
def test_streams_samplers_and_nested_loops() -> None:
    accelerator = Accelerator(cpu=True)

    def gathered(loader: Any) -> list[int]:
        return [row for x in loader for row in accelerator.gather_for_metrics(x).tolist()]

    assert gathered(accelerator.prepare(DataLoader(Stream(7), batch_size=2))) == list(range(7))
    sampler = SubsetRandomSampler(range(3, 9))
    sampled = accelerator.prepare(DataLoader(torch.arange(20), batch_size=4, sampler=sampler))  # type: ignore[arg-type]
    assert sorted(gathered(sampled)) == list(range(3, 9))
    outer = accelerator.prepare(DataLoader(torch.arange(6), batch_size=2))  # type: ignore[arg-type]
    inner = accelerator.prepare(DataLoader(torch.arange(5), batch_size=2))  # type: ignore[arg-type]
    rows = []
    for x in outer:
        assert gathered(inner) == list(range(5))
        rows.append(accelerator.gather_for_metrics(x).tolist())
    assert rows == [[0, 1, 2, 3], [4, 5]]
    assert accelerator.gather_for_metrics(torch.tensor([accelerator.process_index])).tolist() == [0, 1]


Pair = namedtuple("Pair", "a b")


@on_ranks(2)
def test_collective_operations() -> None:
    assert broadcast_object_list(["x"]) == ["x"]  # before a script has its Accelerator
    accelerator = Accelerator(cpu=True)
    me = accelerator.process_index
    pair = accelerator.gather(Pair(torch.tensor([me]), {"b": torch.tensor(float(me))}))
    assert (type(pair), pair.a.tolist(), pair.b["b"].tolist()) == (Pair, [0, 1], [0.0, 1.0])
    assert accelerator.gather(torch.full((3000,), me)).sum() == 3000
    uneven = torch.full((me + 1, 2), float(me + 1))
    padded = accelerator.pad_across_processes(uneven, pad_index=-1).tolist()
    assert padded == ([[2.0, 2.0]] * 2 if me else [[1.0, 1.0], [-1.0, -1.0]])
    padded = pad_across_processes(uneven, pad_first=True).tolist()
    assert padded == ([[2.0, 2.0]] * 2 if me else [[0.0, 0.0], [1.0, 1.0]])
    assert accelerator.pad_across_processes(uneven, dim=5) is uneven
    assert accelerator.reduce(torch.tensor([me + 1])).tolist() == [3]
    assert accelerator.reduce({"x": torch.tensor([me + 1])}, "mean")["x"].tolist() == [1.5]
    assert accelerator.reduce(torch.tensor(me), "max") == 1
    assert accelerator.reduce(torch.tensor(me), "none") == me
    assert accelerator.reduce(torch.tensor(1.0), scale=0.5) == 1.0
    assert gather_object([{"rank": me}]) == [{"rank": 0}, {"rank": 1}]
    assert broadcast_object_list([me, "x"], from_process=1) == [1, "x"]
    parts: list[tuple[Any, dict[str, bool], Any, Any]] = [
        (list("abcde"), {}, list("abc"), list("de")),
        (list("abc"), {"apply_padding": True}, list("ab"), list("cc")),
        (["one"], {}, ["one"], []),
        ({"x": [0, 1, 2], "y": "abc"}, {}, {"x": [0, 1], "y": "ab"}, {"x": [2], "y": "c"}),
        (torch.arange(3), {}, torch.tensor([0, 1]), torch.tensor([2])),
    ]
    for whole, options, first, second in parts:
        with accelerator.split_between_processes(whole, **options) as part:
            assert plain(part) == plain(second if me else first)


def _mismatch(kind: str) -> None:
    accelerator = Accelerator(cpu=True)
    me = accelerator.process_index
    if kind == "shape":
        accelerator.gather(torch.ones(3 + me))
    elif kind == "guard":
        if accelerator.is_main_process:
            accelerator.gather(torch.ones(2))
        accelerator.wait_for_everyone()
    elif kind == "object":
        accelerator.gather([torch.ones(1), "text"])
    else:
        accelerator.reduce(torch.ones(1), "average")


@pytest.mark.parametrize(
    ("kind", "messages"),
    [
        ("shape", ["rank 0: all_gather of (3,) float32 at ", "rank 1: all_gather of (4,) float32 at "]),
        (
            "guard",
            ["rank 0: all_gather of (2,) float32 at ", "rank 1: wait_for_everyone at ", "is_main_process"],
        ),
        ("object", ["gather takes tensors", "found a str", "gather_object"]),
        ("kind", ["'average' is unknown; choose one of sum, mean"]),
    ],
)
def test_a_collective_that_cannot_work_says_why(kind: str, messages: list[str]) -> None:
    """The plain collectives hang, abort the process or return garbage here."""
    for text in errors_of(_mismatch, 2, kind):
        assert all(message in text for message in messages), text


@on_ranks(2)
def test_a_block_that_fails_on_the_main_process_holds_up_nobody() -> None:
    accelerator = Accelerator(cpu=True)
    with contextlib.suppress(KeyError), accelerator.main_process_first():
        if accelerator.is_main_process:
            raise KeyError("the others must not wait for ever")
    accelerator.wait_for_everyone()


@on_ranks(2)
def test_one_block_within_another(tmp_path: Path) -> None:
    """A function that makes a folder ready calls one that fetches a file, each with its own block."""
    accelerator = Accelerator(cpu=True)
    found = tmp_path / "rows.txt"
    told: list[str] = []
    for _ in range(2):
        with accelerator.main_process_first():
            if not found.exists():
                with accelerator.main_process_first():
                    told.append("fetches")
                found.write_text("rows")
            told.append(found.read_text())
    accelerator.wait_for_everyone()
    assert told == ["fetches"] * accelerator.is_main_process + ["rows", "rows"]
