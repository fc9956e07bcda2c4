"""A script that was never converted, launched on several processes, is told apart from every other one."""

from pathlib import Path

import pytest
from crosstrain.launch.target import Target
from crosstrain.launch.unconverted import is_unconverted_training

from tests.runtime.test_launch import launch

PLAIN = """
import argparse
import torch
from torch import nn
from tqdm import tqdm
from parts.net import make
model = make()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in tqdm(range(1), disable=True):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).mean().backward()
    optimizer.step()
model.eval()
print("trained")
"""
NET = """
from torch import nn
from . import sizes
def make():
    return nn.Linear(2, sizes.OUT)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").touch()
    (tmp_path / "parts" / "net.py").write_text(NET)
    (tmp_path / "parts" / "sizes.py").write_text("OUT = 1\n")
    (tmp_path / "train.py").write_text(PLAIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_plain_training_is_one(folder: Path) -> None:
    assert is_unconverted_training(Target("train.py", is_module=False))
    assert is_unconverted_training(Target("train", is_module=True))
    assert not is_unconverted_training(Target("parts", is_module=True))
    (folder / "parts" / "__main__.py").write_text(PLAIN)
    assert is_unconverted_training(Target("parts", is_module=True))


OTHERS = [("train.py", "from crosstrain import Accelerator"), ("train.py", "import accelerate")]
OTHERS += [("train.py", "import torch.distributed as dist"), ("train.py", "from torch import distributed")]
OTHERS += [("train.py", "import os; place = os.environ.get('LOCAL_RANK')")]
OTHERS += [("train.py", "argparse.ArgumentParser().add_argument('--local_rank')")]
OTHERS += [("train.py", "import somebodys_training_library")]
OTHERS += [("train.py", "import importlib; importlib.import_module('x' + 'y')")]
OTHERS += [("train.py", "from transformers import Trainer"), ("train.py", "import wandb; wandb.agent('a')")]
OTHERS += [("train.py", "this is no python"), ("parts/net.py", "from crosstrain import PartialState")]
OTHERS += [("parts/sizes.py", "import torch; torch.distributed.init_process_group()")]
OTHERS += [("parts/__init__.py", "import os; os.environ['WORLD_SIZE']")]


@pytest.mark.parametrize(("file", "line"), OTHERS)
def test_what_may_know_of_other_processes_is_not_called_plain(folder: Path, file: str, line: str) -> None:
    path = folder / file
    path.write_text(f"{path.read_text()}\n{line}\n")
    assert not is_unconverted_training(Target("train.py", is_module=False))


def test_what_does_not_train_or_cannot_be_read_is_not_called_plain(folder: Path) -> None:
    (folder / "train.py").write_text(PLAIN.replace(".backward()", ""))
    assert not is_unconverted_training(Target("train.py", is_module=False))
    assert not is_unconverted_training(Target("timeit", is_module=True))
    (folder / "train.py").write_text(PLAIN)
    (folder / "parts" / "__init__.py").unlink()
    assert not is_unconverted_training(Target("train.py", is_module=False))


@pytest.mark.parametrize("processes", [1, 2])
def test_the_launcher_says_so_where_there_are_several(folder: Path, processes: int) -> None:
    """N unrelated trainings overwrote each other's files, and all looked well."""
    done = launch(folder, "--cpu", "--num-processes", str(processes), "train.py")
    assert (done.returncode, done.stdout) == (0, "trained\n" * processes)
    if processes == 1:
        assert done.stderr == ""
        return
    assert done.stderr.count("\n") == 1
    assert "train.py has no Accelerator and starts no process group: each of the 2 processes" in done.stderr
    assert "`migrate train.py`" in done.stderr


SPAWNS = """
import subprocess, sys
import torch.multiprocessing as mp
from crosstrain import Accelerator
accelerator = Accelerator()
accelerator.wait_for_everyone()
def work(queue):
    queue.put((accelerator.num_processes, accelerator.process_index, accelerator.share(4)))
if __name__ == "__main__":
    start = mp.get_context("spawn")
    queue = start.Queue()
    worker = start.Process(target=work, args=(queue,))
    worker.start()
    found = queue.get()
    worker.join()
    print("worker", accelerator.num_processes, accelerator.process_index, found)
"""


def test_a_process_that_a_rank_starts_does_not_join_its_group(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SPAWNS)
    done = launch(tmp_path, "--cpu", "--num-processes", "2", "train.py")
    said = sorted(line for line in done.stdout.splitlines() if "worker" in line)
    assert [line[line.index("worker") :] for line in said] == [
        "worker 2 0 (1, 0, 4)",
        "worker 2 1 (1, 1, 4)",
    ], done.stderr
