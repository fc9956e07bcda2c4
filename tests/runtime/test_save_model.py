"""`save_model` and `save` are complete for every process that calls them, and hold up nobody who does not."""

import io
import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, FullyShardedDataParallelPlugin, InitProcessGroupKwargs
from crosstrain.cli import main
from safetensors.torch import load_file
from torch import Tensor, nn
from typer.testing import CliRunner

from tests.support.ranks import errors_of, on_ranks, run_ranks


def _slowly(accelerator: Accelerator) -> None:
    if accelerator.is_main_process:
        time.sleep(0.5)


@on_ranks(2)
def test_a_process_that_saves_without_writing_returns_when_the_file_is_there(tmp_path: Path) -> None:
    """Under accelerate the other processes return before the file exists. Guarded calls are of no concern to them."""
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(nn.Linear(2, 1))

    def save(name: str) -> bool:
        target = tmp_path / name
        if accelerator.is_main_process:
            target.unlink(missing_ok=True)
            time.sleep(0.3)
        accelerator.save_model(model, target)
        return target.is_file()

    for epoch in range(3):
        if accelerator.is_main_process and epoch != 1:
            save("best.pt")  # the same line as the unguarded one
        assert save("last.pt")
        assert save(f"epoch{epoch}.safetensors")
        accelerator.wait_for_everyone()


def _failing(folder: str) -> list[str]:
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(nn.Linear(2, 1))
    said = []
    for target in (Path(folder) / "file" / "model.pt", Path(folder) / "file"):
        _slowly(accelerator)
        try:
            accelerator.save_model(model, target)
        except (OSError, ValueError) as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


def test_the_writers_error_reaches_those_that_wait(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    zero, one = run_ranks(_failing, 2, str(tmp_path))
    for here, there in zip(zero, one, strict=True):
        kind, text = here.split(": ", 1)
        assert there.startswith(f"{kind}: process 0 could not write {tmp_path / 'file'}")
        assert text in there
    assert len(zero) == 2


def _alone() -> None:
    patience = InitProcessGroupKwargs(timeout=timedelta(seconds=2))
    accelerator = Accelerator(cpu=True, kwargs_handlers=[patience])
    if accelerator.process_index == 0:
        time.sleep(6)
        return
    accelerator.save_model(nn.Linear(2, 1), "/tmp/crosstrain-of-nobody.pt")


def test_a_file_that_nobody_writes_is_waited_for_no_longer_than_the_time_out() -> None:
    _, one = errors_of(_alone, 2)
    assert "rank 1 waited in vain in save_model('/tmp/crosstrain-of-nobody.pt')" in one
    assert "(missing: rank 0)" in one
    assert f"at {__file__}:" in one


def _everywhere(folder: str) -> None:
    """Objects saved by every process, under a guard, and to paths that differ by process."""
    accelerator = Accelerator(cpu=True)
    main, shared = accelerator.is_main_process, Path(folder)
    for epoch in range(3):
        _slowly(accelerator)
        if main and epoch == 1:
            accelerator.save({"guarded": epoch}, shared / "best.pt")
        accelerator.save({"epoch": epoch}, shared / "last.pt")
        assert torch.load(shared / "last.pt") == {"epoch": epoch}
        stamped = shared / f"run-{os.getpid()}-{time.time_ns()}.pt"
        accelerator.save({"epoch": epoch}, str(stamped))
        assert torch.load(stamped) == {"epoch": epoch}
        accelerator.wait_for_everyone()  # the next one replaces last.pt
    with pytest.raises(OSError, match=str(shared / "file")) as error:
        accelerator.save({}, shared / "file" / "x.pt")
    assert ("process 0 could not write" in str(error.value)) is not main
    os.chdir(tempfile.mkdtemp(dir=folder))
    accelerator.save({"cwd": accelerator.process_index}, "here.pt")
    assert torch.load("here.pt") == {"cwd": accelerator.process_index}
    buffer = io.BytesIO()
    accelerator.save({"a": 1}, buffer)
    assert bool(buffer.getvalue()) is main


@pytest.mark.parametrize("world", [2, 3])
def test_an_object_is_complete_on_every_process_that_saves_it(world: int, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    run_ranks(_everywhere, world, str(tmp_path))
    assert torch.load(tmp_path / "best.pt") == {"guarded": 1}


@on_ranks(2, 3)
def test_each_process_has_its_weights_in_its_own_temporary_directory(tmp_path: Path) -> None:
    """The best weights of a training go to a temporary directory and are read from there, as in PyTorch's tutorial."""
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(nn.Linear(2, 1))
    with tempfile.TemporaryDirectory(dir=tmp_path) as own:
        best = Path(own) / "best.pt"
        accelerator.save_model(model, best)
        for epoch in range(3):
            with torch.no_grad():
                model.weight.fill_(epoch)
            if epoch < 2:
                accelerator.save_model(model, best)
        model.load_state_dict(torch.load(best, weights_only=True))
        shards = Path(own) / "shards"
        accelerator.save_model(model, shards)
        assert [path.name for path in shards.iterdir()] == ["model.safetensors"]
        state = accelerator.save_state(Path(own) / "state")
        theirs = Path(own) / "state"
        with torch.no_grad():
            model.weight.zero_()
        accelerator.load_state(theirs)
        accelerator.wait_for_everyone()
        assert model.weight.flatten().tolist() == [1.0, 1.0]
        assert (state == str(theirs)) is accelerator.is_main_process  # where the main process says


# -- links ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors", "shards"])
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_stays_one_and_its_target_is_written(name: str, dangling: bool, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / name
    if not dangling:
        target.parent.mkdir()
        target.mkdir() if name == "shards" else target.touch()
    (tmp_path / name).symlink_to(target)
    if dangling and name == "shards":
        target.mkdir(parents=True)
    Accelerator(cpu=True).save_model(nn.Linear(2, 1), tmp_path / name)
    assert (tmp_path / name).is_symlink()
    written = target / "model.safetensors" if name == "shards" else target
    assert written.stat().st_size > 0


# -- `crosstrain merge-weights`: whatever a training saved, one file that any model loads ------------------


class Tied(nn.Module):
    """Two names for one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(64, 64)
        self.head = nn.Linear(64, 64, bias=False)
        self.head.weight = self.inside.weight


def merge(source: Path, target: Path, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["merge-weights", str(source), str(target)])
    assert result.exit_code == code, result.output
    return result.output


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
@pytest.mark.parametrize("how", ["shards", "state"])
def test_files_of_one_process(how: str, suffix: str, tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(Tied())
    if how == "shards":
        accelerator.save_model(model, tmp_path / "saved", max_shard_size="1KB")
        assert len(list((tmp_path / "saved").glob("*.safetensors"))) == 2
    else:
        accelerator.save_state(tmp_path / "saved")
    target = tmp_path / f"whole.{suffix}"
    assert merge(tmp_path / "saved", target).startswith(f"wrote {target}: 3 tensors")
    if suffix == "pt":
        loaded = torch.load(target, weights_only=True)
    else:
        loaded = load_file(target)
        loaded["head.weight"] = loaded["inside.weight"]  # safetensors stores one of them
    assert same(loaded, model.state_dict())


def _sharded(folder: str) -> dict[str, Any]:
    plugin = FullyShardedDataParallelPlugin(state_dict_type="SHARDED_STATE_DICT")
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.backward(model(torch.rand(4, 8)).sum())
    optimizer.step()
    accelerator.save_state(folder)
    return accelerator.get_state_dict(model)


def test_parts_of_two_processes(tmp_path: Path) -> None:
    whole = run_ranks(_sharded, 2, str(tmp_path / "state"))[0]
    assert not (tmp_path / "state" / "model.safetensors").exists()
    merge(tmp_path / "state", tmp_path / "whole.safetensors")
    assert same(load_file(tmp_path / "whole.safetensors"), whole)


def test_refusals(tmp_path: Path) -> None:
    assert "has to end in one of" in merge(tmp_path, tmp_path / "whole.zip", 2)
    assert "holds no model.safetensors" in merge(tmp_path, tmp_path / "whole.pt", 2)
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(nn.Linear(2, 2))
    accelerator.save_state(tmp_path / "state")
    (tmp_path / "state" / "model.safetensors").write_bytes(b"cut")
    assert "model.safetensors is not what was saved" in merge(tmp_path / "state", tmp_path / "whole.pt", 2)
    assert not (tmp_path / "whole.pt").exists()
