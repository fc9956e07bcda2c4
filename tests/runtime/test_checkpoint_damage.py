"""Files of a checkpoint that are damaged, lost, or made to do harm."""

import json
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator
from crosstrain.checkpoint import checksums as module
from crosstrain.checkpoint.checksums import checksums
from crosstrain.checkpoint.manifests import CorruptCheckpointError, Manifest
from crosstrain.checkpoint.sharded_reader import check_indexes
from crosstrain.checkpoint.weights import load_weights
from torch import nn

from tests.runtime.checkpoints import Count, save_weight, small_training

KINDS = "crosstrain.json loader.bin model.safetensors optimizer.bin random_states_0.pkl scheduler.bin"
FILES = KINDS.split()


def _damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "flipped":
        data[len(data) // 2] ^= 4
    elif how == "short":
        del data[len(data) // 2 :]
    elif how == "empty":
        data.clear()
    path.write_bytes(data)
    if how == "gone":
        path.unlink()


@pytest.mark.parametrize("how", ["flipped", "short", "empty", "gone"])
@pytest.mark.parametrize("name", FILES)
def test_damaged_checkpoint_is_refused_and_the_one_before_loaded(name: str, how: str, tmp_path: Path) -> None:
    accelerator, model = small_training(tmp_path)
    save_weight(accelerator, model, 1.0)
    last = save_weight(accelerator, model, 2.0)
    assert sorted(path.name for path in last.iterdir()) == FILES
    _damage(last / name, how)
    with pytest.raises(CorruptCheckpointError) as refused:
        accelerator.load_state(last)
    assert str(last) in str(refused.value)
    assert name in str(refused.value)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        accelerator.load_state()
    assert model.weight.item() == 1.0
    # Without its manifest it is no complete checkpoint and needs no words.
    assert [str(last) in str(warning.message) for warning in caught] == (
        [] if (name, how) == (FILES[0], "gone") else [True]
    )
    assert save_weight(accelerator, model, 3.0).name == "checkpoint_2"
    accelerator.load_state()
    assert model.weight.item() == 3.0


def test_project_whose_checkpoints_are_all_damaged_is_an_error(tmp_path: Path) -> None:
    accelerator, model = small_training(tmp_path)
    _damage(save_weight(accelerator, model, 1.0) / "model.safetensors", "short")
    with pytest.raises(CorruptCheckpointError, match=r"model\.safetensors is not what was saved"):
        accelerator.load_state()
    with pytest.raises(FileNotFoundError, match="holds no complete checkpoint"):
        small_training(tmp_path / "other")[0].load_state()


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "..\\secret", "sub/../../secret"])
def test_names_in_files_do_not_lead_out_of_the_directory(name: str, tmp_path: Path) -> None:
    Manifest(world=1, files={name: "0" * 64}).write(tmp_path)
    with pytest.raises(CorruptCheckpointError, match="names a file outside"):
        Accelerator(cpu=True).load_state(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"weight": name}}))
    with pytest.raises(ValueError, match="names a file outside"):
        load_weights(tmp_path)


def test_lost_shard_is_named(tmp_path: Path) -> None:
    Accelerator(cpu=True).save_model(nn.Linear(64, 64), tmp_path, max_shard_size="10KB")
    assert {path.name for path in tmp_path.iterdir()} == {
        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"
    }  # fmt: skip
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"lacks model-00002-of-00002\.safetensors"):
        load_weights(tmp_path)


def test_weights_that_are_saved_again_are_the_only_ones(tmp_path: Path) -> None:
    """One file beside shards of older weights, or shards beside an older file, would be read in their place."""
    accelerator, model = Accelerator(cpu=True), nn.Linear(64, 64)
    for size, files in (("10KB", 3), ("1GB", 1), ("10KB", 3)):
        nn.init.uniform_(model.weight)
        accelerator.save_model(model, tmp_path, max_shard_size=size)
        assert len(list(tmp_path.iterdir())) == files
        assert torch.equal(load_weights(tmp_path)[0]["weight"], model.weight)


def test_files_have_the_users_umask(tmp_path: Path) -> None:
    """safetensors makes its files readable for their owner only, whatever the umask says."""
    accelerator, model = small_training(tmp_path)
    before = os.umask(0o027)
    try:
        folder = save_weight(accelerator, model, 1.0)
        accelerator.save_model(model, tmp_path / "weights.safetensors")
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in (*folder.iterdir(), tmp_path / "weights.safetensors")}
    assert (modes, folder.stat().st_mode & 0o777) == ({0o640}, 0o750)


class Evil:
    """Pickles into code."""

    def __reduce__(self) -> Any:
        return (os.system, ("echo run > /dev/null",))


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    counter = Count()
    accelerator.register_for_checkpointing(counter)
    accelerator.save_state(tmp_path / "state")
    manifest = Manifest.read(tmp_path / "state")
    assert manifest is not None
    evil = tmp_path / "state" / "custom_checkpoint_0.pkl"
    torch.save({"value": Evil()}, evil)
    (checksum,) = checksums([evil])
    assert checksum is not None
    manifest.files[evil.name] = checksum
    manifest.write(tmp_path / "state")
    with pytest.raises(ValueError, match="only be restored by running code from the file"):
        accelerator.load_state(tmp_path / "state")


class Opaque:
    """A registered object whose state is an object of a class of its own."""

    def __init__(self) -> None:
        self.state = Count()

    def state_dict(self) -> Any:
        return {"counter": self.state}

    def load_state_dict(self, state: Any) -> None:
        self.state = state["counter"]


def test_objects_in_a_checkpoint_need_the_users_word(tmp_path: Path) -> None:
    accelerator, opaque = Accelerator(cpu=True), Opaque()
    accelerator.register_for_checkpointing(opaque)
    opaque.state.value = 7
    accelerator.save_state(tmp_path / "state")
    opaque.state = Count()
    with pytest.raises(ValueError, match="load_state\\(allow_pickle=True\\) if you trust the file"):
        accelerator.load_state(tmp_path / "state")
    accelerator.load_state(tmp_path / "state", allow_pickle=True)
    assert opaque.state.value == 7


def test_index_of_a_sharded_checkpoint_is_not_run(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match=r"reading .*\.metadata would run code from it \(posix\.system\)"):
        check_indexes(tmp_path)


# -- Checksums tell any change of a file's content or length -----------------------------------------------


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 64)
    monkeypatch.setattr(module, "_READ", 24)


def _of(path: Path, content: bytes) -> str | None:
    path.write_bytes(content)
    return checksums([path])[0]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 128, 300])
def test_every_byte_and_the_length_count(size: int, tmp_path: Path) -> None:
    content = bytes(number % 251 for number in range(size))
    file = tmp_path / "file"
    right = _of(file, content)
    assert _of(tmp_path / "twin", content) == right
    changed = [content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in range(size)]
    others = [*changed, content + b"\0", *([content[:-1]] if size else [])]
    assert right not in [_of(file, other) for other in others]
