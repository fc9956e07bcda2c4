"""A model's weights as files: one file, or a directory of shards with an index."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

from crosstrain.comm.types import HOST
from crosstrain.utils.files import untie, write_atomically

SINGLE_FILES = (".safetensors", ".pt", ".pth", ".bin")
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_size(size: int | str) -> int:
    """A size such as "10GB" or "500MiB" in bytes; ValueError for other text. A number is returned as it is."""
    if isinstance(size, int):
        return size
    match = re.fullmatch(r"\s*([\d.]+)\s*([KMGT]I?B)\s*", size.upper())
    if match is None:
        raise ValueError(f"{size!r} is not a size; write it like '10GB' or '500MiB'")
    return int(float(match[1]) * _UNITS[match[2]])


def save_object(obj: Any, target: Path | IO[bytes], safe_serialization: bool = False) -> None:
    """Write ``obj`` with `torch.save`, or as safetensors where it is a flat dict of tensors.

    A path is written atomically; an open file is written to as it is. TypeError for safetensors into an open file.
    """
    if not isinstance(target, Path):
        if safe_serialization:
            raise TypeError("safe_serialization=True needs the path of a file, not an open one.")
        torch.save(obj, target)
    elif safe_serialization:
        save_safetensors(obj, target)
    else:
        write_atomically(target, lambda beside: torch.save(obj, beside))


def save_safetensors(state: dict[str, Tensor], path: Path) -> None:
    """Write one safetensors file, atomically; a tensor of several names is stored under the first."""
    tensors, same = untie({name: tensor.detach() for name, tensor in state.items()})
    _write_shard(tensors, same, path, safe=True)


def save_weights(
    state: dict[str, Any], path: Path, max_shard_size: int | str = "10GB", safe_serialization: bool = True
) -> None:
    """Write ``state`` to the file ``path`` if it has one of the suffixes `SINGLE_FILES`, else to the directory ``path``.

    A directory gets one file, or shards of at most ``max_shard_size`` bytes with an index; older shards are removed.
    Raises ValueError where the directory is a file, and for a size that cannot be read.
    """
    if path.suffix in SINGLE_FILES:
        save_object(state, path, safe_serialization=path.suffix == ".safetensors")
        return
    if path.is_file():
        raise ValueError(
            f"{path} is a file; give a directory, or a name that ends in one of {', '.join(SINGLE_FILES)}"
        )
    stem, suffix = ("model", "safetensors") if safe_serialization else ("pytorch_model", "bin")
    tensors, same = untie(state) if safe_serialization else (state, {})
    shards = _shards(tensors, parse_size(max_shard_size))
    names = [f"{stem}.{suffix}"]
    if len(shards) > 1:
        names = [f"{stem}-{i + 1:05d}-of-{len(shards):05d}.{suffix}" for i in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        _write_shard(shard, same, path / name, safe_serialization)
    index = f"{stem}.{suffix}.index.json"
    if len(shards) > 1:
        where = {key: name for name, shard in zip(names, shards, strict=True) for key in shard}
        total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        text = json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=2)
        write_atomically(path / index, lambda beside: beside.write_text(text + "\n"))
        names.append(index)
    _remove_stale(path, stem, suffix, keep=set(names))


def _write_shard(shard: dict[str, Tensor], same: dict[str, str], path: Path, safe: bool) -> None:
    if not safe:
        write_atomically(path, lambda beside: torch.save(shard, beside))
        return
    from safetensors.torch import save_file

    metadata = {"format": "pt"} | {name: kept for name, kept in same.items() if kept in shard}
    write_atomically(path, lambda beside: save_file(shard, beside, metadata=metadata))


def _shards(tensors: dict[str, Tensor], limit: int) -> list[dict[str, Tensor]]:
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        more = tensor.numel() * tensor.element_size() if isinstance(tensor, Tensor) else 0
        if shards[-1] and size + more > limit:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += more
    return shards


def _remove_stale(directory: Path, stem: str, suffix: str, keep: set[str]) -> None:
    ours = re.compile(rf"{stem}(-\d{{5}}-of-\d{{5}})?\.{suffix}(\.index\.json)?")
    for entry in directory.iterdir():
        if entry.name not in keep and ours.fullmatch(entry.name):
            entry.unlink(missing_ok=True)  # another process may have removed it


def load_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read what `save_weights`, accelerate or transformers wrote, without running code from the files.

    ``path`` is a file, or a directory with one file or an index. Returns the tensors by name, and for each name that
    is not stored itself the one that has its tensor. Raises FileNotFoundError where a file is missing, ValueError
    where an index names a file elsewhere.
    """
    if path.is_file():
        return _load_file(path)
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (path / name).is_file():
            return _load_file(path / name)
        if (path / f"{name}.index.json").is_file():
            index = json.loads((path / f"{name}.index.json").read_text())
            state: dict[str, Tensor] = {}
            same: dict[str, str] = {}
            for shard in sorted(set(index["weight_map"].values())):
                tensors, repeated = _load_file(_shard_in(path, shard))
                state |= tensors
                same |= repeated
            return state, same
    raise FileNotFoundError(
        f"{path} holds no model.safetensors, no pytorch_model.bin, and no index of either"
    )


def _shard_in(directory: Path, name: str) -> Path:
    """The path of a shard that an index names; ValueError if the name leads out of the directory."""
    if Path(name).name != name or "\\" in name:
        raise ValueError(f"the index in {directory} names a file outside of it: {name!r}")
    if not (directory / name).is_file():
        raise FileNotFoundError(f"{directory} lacks {name}, which its index names")
    return directory / name


def _load_file(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    if path.suffix != ".safetensors":
        return torch.load(path, map_location=HOST, weights_only=True), {}
    from safetensors import safe_open

    with safe_open(path, framework="pt") as opened:
        metadata = dict(opened.metadata() or {})
        metadata.pop("format", None)
        return {name: opened.get_tensor(name) for name in opened.keys()}, metadata  # noqa: SIM118 - it is no dict


def load_into(model: nn.Module, path: Path, strict: bool = True) -> Any:
    """Load weights into the model; tied names that were stored once count as present.

    Returns `load_state_dict`'s result.
    """
    return model.load_state_dict(weights_for(model, path), strict=strict)


def weights_for(model: nn.Module, path: Path) -> dict[str, Tensor]:
    """The tensors of `load_weights`, also under the other names that the model has for them."""
    state = with_repeated(*load_weights(path))
    for names in tied_names(model):  # accelerate's files do not list tied names: the model knows them
        there = next((name for name in names if name in state), None)
        if there is not None:
            state |= {name: state[there] for name in names if name not in state}
    return state


def with_repeated(state: dict[str, Tensor], same: dict[str, str]) -> dict[str, Tensor]:
    """The tensors that `load_weights` read, under all of their names."""
    return state | {name: state[kept] for name, kept in same.items() if name not in state and kept in state}


def tied_names(model: nn.Module) -> list[list[str]]:
    """The names of each tensor that the model's state has under several names."""
    groups: dict[Any, list[str]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor):
            address = 0 if tensor.is_meta else tensor.data_ptr()
            one = (address, tensor.shape) if address else id(tensor)  # not every device has addresses
            groups.setdefault(one, []).append(name)
    return [names for names in groups.values() if len(names) > 1]
