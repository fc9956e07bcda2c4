"""`save_state(blocking=False)`: what is saved is the moment of the call, and nothing is lost on the way to the disk."""

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, FullyShardedDataParallelPlugin
from crosstrain.checkpoint import contents, host_copies, state_files
from crosstrain.checkpoint.host_copies import HostCopies
from crosstrain.checkpoint.manifests import beside, verify
from torch import Tensor, nn

from tests.runtime.checkpoints import Count, small_training
from tests.support.ranks import on_ranks

WITHIN = 300.0  # seconds


class Held(Count):
    """Something registered whose state can only be written when `release` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()


def waits_for(release: threading.Event) -> Callable[[Any, Path], None]:
    """A function that writes a state when it may."""
    write = state_files.save_beside_training

    def waits(state: Any, path: Path) -> None:
        assert release.wait(WITHIN)
        write(state, path)

    return waits


def hold_back(monkeypatch: pytest.MonkeyPatch, held: Held) -> None:
    monkeypatch.setattr(state_files, "save_beside_training", waits_for(held.release))


# -- the moment of the call ---------------------------------------------------------------------------


def test_the_training_goes_on_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator, model = small_training(tmp_path)
    held = Held()
    held.value = 7
    accelerator.register_for_checkpointing(held)
    hold_back(monkeypatch, held)
    nn.init.constant_(model.weight, 1.0)
    where = Path(accelerator.save_state(blocking=False))
    assert not where.exists()
    assert beside(where).exists()
    nn.init.constant_(model.weight, 2.0)
    held.value = 8
    held.release.set()
    accelerator.load_state()
    assert (model.weight.item(), held.value) == (1.0, 7)
    verify(where)


def test_the_next_save_waits_for_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator, _ = small_training(tmp_path, total_limit=1)
    held = Held()
    hold_back(monkeypatch, held)
    first = Path(accelerator.save_state(blocking=False))
    threading.Timer(0.2, held.release.set).start()
    second = Path(accelerator.save_state())
    assert held.release.is_set()
    assert (first.name, second.name) == ("checkpoint_0", "checkpoint_1")
    assert not first.exists()
    verify(second)


@pytest.mark.parametrize("kind", [None, "FULL_STATE_DICT", "SHARDED_STATE_DICT"])
@on_ranks(2)
def test_whole_and_sharded_models_come_back_as_they_were_saved(kind: str | None, tmp_path: Path) -> None:
    """Save in the background, train on while it is written, load."""
    plugin = None if kind is None else FullyShardedDataParallelPlugin(state_dict_type=kind)
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 300), nn.BatchNorm1d(300), nn.Linear(300, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)

    def step() -> None:
        accelerator.backward(model(torch.rand(8, 4)).square().mean())
        optimizer.step()
        optimizer.zero_grad()

    def local(tensor: Tensor) -> Tensor:
        return getattr(tensor, "_local_tensor", tensor).detach().clone()

    def now() -> list[Tensor]:
        states = [value for state in optimizer.state.values() for value in state.values()]
        return [local(value) for value in [*model.state_dict().values(), *states]]

    step()
    before = now()
    where, release = tmp_path / "state", threading.Event()
    state_files.save_beside_training = waits_for(release)
    accelerator.save_state(where, blocking=False)
    step()
    assert not where.exists()
    assert not torch.equal(before[0], now()[0])
    release.set()
    accelerator.load_state(where)
    assert all(torch.equal(a, b) for a, b in zip(before, now(), strict=True))
    accelerator.end_training()


# -- errors and ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", ["save", "load", "end"])
@on_ranks(2)
def test_an_error_of_one_rank_is_raised_on_all_by_the_next_call(ask: str, tmp_path: Path) -> None:
    accelerator, _ = small_training(tmp_path)
    write = state_files.save_beside_training

    def fails(state: Any, path: Path) -> None:
        if accelerator.process_index == 1:
            raise OSError("the disk is gone")
        write(state, path)

    contents.state_files.save_beside_training = fails
    where = Path(accelerator.save_state(blocking=False))
    load = functools.partial(accelerator.load_state, where)
    calls = {"save": accelerator.save_state, "load": load, "end": accelerator.end_training}
    with pytest.raises(OSError, match="the disk is gone"):
        calls[ask]()
    assert not where.exists() and not beside(where).exists()


SCRIPT = """
import sys
from pathlib import Path
import torch
from crosstrain import Accelerator
from crosstrain.checkpoint import state_files
accelerator = Accelerator(cpu=True)
accelerator.prepare(torch.nn.Linear(500, 500))
if "fail" in sys.argv:
    def fails(state, path): raise OSError("the disk is gone")
    state_files.save_beside_training = fails
accelerator.save_state(sys.argv[1], blocking=False)
if "raise" in sys.argv:
    raise SystemError("of the script's own")
"""


def run_script(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN, env=os.environ)


@pytest.mark.parametrize("words", [(), ("raise",)])
def test_the_end_of_the_script_waits_for_the_checkpoint(words: tuple[str, ...], tmp_path: Path) -> None:
    done = run_script(tmp_path / "state", *words)
    assert done.returncode == len(words), done.stderr
    assert "crosstrain" not in done.stderr
    verify(tmp_path / "state")


def test_a_script_that_loses_its_last_checkpoint_has_failed(tmp_path: Path) -> None:
    done = run_script(tmp_path / "state", "fail")
    assert done.returncode == 1
    assert f"the checkpoint {tmp_path / 'state'} was not saved: OSError: the disk is gone" in done.stderr
    assert not (tmp_path / "state").exists()


# -- copies -------------------------------------------------------------------------------------------


def test_copies_keep_what_is_one_and_use_their_memory_again() -> None:
    copies = HostCopies()
    big = torch.randn(64, 512)
    state = {"a": big, "same": big.view(64, 512), "turned": big.t().clone().t(), "small": torch.ones(3)}
    frozen = copies.freeze(state)
    expected = {name: value.clone() for name, value in state.items()}
    big.zero_()
    thawed = frozen.thaw()
    assert all(torch.equal(thawed[name], expected[name]) for name in state)
    assert thawed["a"].data_ptr() == thawed["same"].data_ptr()
    assert thawed["turned"].stride() == state["turned"].stride()
    addresses = {thawed["a"].data_ptr(), thawed["turned"].data_ptr()}
    copies.reuse()
    again = copies.freeze(state).thaw()
    assert {again["a"].data_ptr(), again["turned"].data_ptr()} == addresses


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_copy_a_tensor_piece_by_piece(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_copies, "PIECE", 2**14)
    base = torch.randn(7, 5, 33, 65)
    state = [base, base[2:5], base.permute(0, 2, 3, 1), base.to(torch.bfloat16), base.requires_grad_()]
    frozen = HostCopies(threads).freeze(state)
    expected = [tensor.detach().clone(memory_format=torch.preserve_format) for tensor in state]
    with torch.no_grad():
        base.zero_()
    for copied, tensor in zip(frozen.thaw(), expected, strict=True):
        assert torch.equal(copied, tensor)
        assert copied.stride() == tensor.stride()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(0, 5),
        torch.tensor(3.5),
        torch.randn(200, 200, dtype=torch.complex64).conj(),
        torch.randn(100, 1).expand(100, 300),
        torch.eye(200).to_sparse(),
        torch.randn(8, 16, 20, 20).to(memory_format=torch.channels_last),
        nn.Parameter(torch.randn(200, 200)),
    ],
    ids=["empty", "scalar", "conjugate", "expanded", "sparse", "channels_last", "parameter"],
)
def test_any_tensor_is_copied(tensor: Tensor) -> None:
    copied = HostCopies().freeze([tensor]).thaw()[0]
    assert type(copied) is type(tensor)
    assert copied.dtype == tensor.dtype
    assert torch.equal(copied.to_dense(), tensor.to_dense())
