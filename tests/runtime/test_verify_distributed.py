"""Scripts that distribute themselves: `verify` compares them with themselves, rank by rank."""

from pathlib import Path

import pytest
from crosstrain_verify import Report
from crosstrain_verify.judging.rank_by_rank import compare_rank
from crosstrain_verify.records.traces import RankTrace

from tests.runtime import verify_scripts
from tests.runtime.verify_scripts import verdicts

START = """
import os, sys, torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch.nn.parallel import DistributedDataParallel
"""
BODY = """
def main(rank, world):
    torch.manual_seed(3 + rank)
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(44, 6, generator=generator), torch.arange(44) % 2)
    sampler = DistributedSampler(data, num_replicas=world, rank=rank)
    loader = DataLoader(data, batch_size=16 // world, sampler=sampler)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    WRAP
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * world)
    PREPARE
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            BACKWARD
            optimizer.step()
        total = loss.detach().clone()
        if dist.is_initialized():
            dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / world:.6f}")
        print(f"rank {rank}: {loss.item():.6f}")
    if rank == 0:
        torch.save(model.state_dict(), "last.pt")
"""


def by_hand(call: str, wrap: str = "model = DistributedDataParallel(model)") -> str:
    body = BODY.replace("WRAP", wrap).replace("PREPARE", "pass").replace("BACKWARD", "loss.backward()")
    return START + body + call


def converted(*changes: tuple[str, str]) -> str:
    text = (
        BODY.replace("WRAP", "pass")
        .replace("PREPARE", "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)")
        .replace("BACKWARD", "accelerator.backward(loss)")
    )
    end = "main(accelerator.process_index, accelerator.num_processes)\n"
    text = START + "from crosstrain import Accelerator\naccelerator = Accelerator()\n" + text + end
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


TORCHRUN = by_hand(
    "dist.init_process_group('nccl' if torch.cuda.is_available() else 'gloo')\n"
    "main(dist.get_rank(), dist.get_world_size())\n"
)
SPAWN = by_hand(
    "def worker(gpu, count):\n"
    "    torch.cuda.set_device(gpu)\n"
    "    torch.cuda.manual_seed(1)\n"
    "    dist.init_process_group('nccl', init_method='tcp://127.0.0.1:54321', rank=gpu, world_size=count)\n"
    "    main(gpu, count)\n"
    "if __name__ == '__main__':\n"
    "    count = torch.cuda.device_count()\n"
    "    torch.multiprocessing.spawn(worker, nprocs=count, args=(count,))\n",
    "model = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model).cuda(rank), device_ids=[rank])",
)
FIXED = by_hand(
    "def worker(rank, world):\n"
    "    os.environ['MASTER_ADDR'], os.environ['MASTER_PORT'] = 'localhost', '12355'\n"
    "    dist.init_process_group('gloo', rank=rank, world_size=world)\n"
    "    main(rank, world)\n"
    "if __name__ == '__main__':\n"
    "    torch.multiprocessing.spawn(worker, nprocs=3, args=(3,))\n"
)


def run(place: Path, original: str, migrated: str, **options: object) -> Report:
    return verify_scripts.run(place, migrated, original, **{"default_launch": True} | options)


def test_original_that_torchrun_starts_is_compared_on_as_many_processes(tmp_path: Path) -> None:
    report = run(tmp_path, TORCHRUN, converted())
    assert verdicts(report) == ["identical", "identical"], report
    assert report.runs[1].against == "the original on 2 processes, rank by rank"
    assert report.runs[1].launch == "crosstrain launch --num-processes 2 after.py"
    assert report.runs[1].steps == 6
    assert [curve.name for curve in report.curves][2:] == ["original, 2 processes", report.runs[1].name]
    assert any("2 processes as torchrun does" in note for note in report.notes)


def test_original_that_starts_a_process_for_each_gpu(tmp_path: Path) -> None:
    report = run(tmp_path, SPAWN, converted())
    assert verdicts(report) == ["identical", "identical"], report
    for said in ("reported 2 devices to its 2 processes", "SyncBatchNorm needs a GPU"):
        assert any(said in note for note in report.notes)


def test_original_that_says_how_many_processes_it_starts(tmp_path: Path) -> None:
    report = run(tmp_path, FIXED, converted())
    assert verdicts(report) == ["equal"], report
    assert report.runs[0].processes == 3
    assert any("the original does not train on one process" in note for note in report.notes)


# Each planted mistake, and what is said about the two processes: (quantity, step, rank).
SAVES = "    if rank == 0:\n        torch.save"
PLANTED = {
    "batch_no_longer_divided": (("16 // world", "16"), ("batch", 1, 0)),
    "epoch_not_set": (("sampler.set_epoch(epoch)", "pass"), ("batch", 4, 0)),
    "dropout_alike": (("3 + rank", "3"), ("loss", 1, 1)),
    "another_says_more": ((SAVES, f"    if rank == 1: print('me too')\n{SAVES}"), ("printed line", None, 1)),
    "another_file": (('"last.pt"', '"final.pt"'), ("files", None, None)),
    "written_by_both": ((SAVES, SAVES.replace("rank == 0", "True")), ("files", None, None)),
    "weights_at_the_end": ((SAVES, f"    model[-1].bias.data += 0.001\n{SAVES}"), ("weights", None, 0)),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_mistake_is_named_with_its_rank(tmp_path: Path, name: str) -> None:
    change, (quantity, step, rank) = PLANTED[name]
    report = run(tmp_path, TORCHRUN, converted(change))
    found = report.runs[-1].difference
    assert found is not None, report
    assert (found.quantity, found.step) == (quantity, step), found
    assert rank is None or f"rank {rank}" in found.detail, found
    assert report.exit_code == 1


@pytest.mark.parametrize(
    ("said", "first", "same"),
    [(("a", "b"), True, True), (("a",), True, False), (("b",), False, True), (("a", "c"), False, False)],
)
def test_rank_0_says_every_line_and_no_rank_another(said: tuple[str, ...], first: bool, same: bool) -> None:
    original, result = (RankTrace("finished", lines=lines) for lines in (("a", "b"), said))
    assert (compare_rank(original, result, (), 0.0, None, first=first).difference is None) is same


def test_one_process_of_what_an_original_starts_is_compared_with_a_launched_one(tmp_path: Path) -> None:
    """`mp.spawn` on one GPU makes a group of one: so does a launcher with one process, and plain python does not."""
    spawned = by_hand(
        """
def start(rank, world):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "29511"
    dist.init_process_group("gloo", rank=rank, world_size=world)
    main(rank, world)
if __name__ == "__main__":
    count = torch.cuda.device_count()
    torch.multiprocessing.spawn(start, args=(count,), nprocs=count)
"""
    )
    asked = ("main(accelerator.process_index", 'assert "RANK" in os.environ\nmain(accelerator.process_index')
    report = run(tmp_path, spawned, converted(asked), processes=(1, 2), default_launch=False)
    assert report.runs[0].verdict.value == "identical", report
