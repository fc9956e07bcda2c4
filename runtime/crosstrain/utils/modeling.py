"""Loads weights into models, and finds and restores tied weights."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crosstrain.checkpoint.weights import load_into, tied_names, weights_for
from crosstrain.compat.not_supported import refuse
from crosstrain.step.model import unwrap

_BIG = "install accelerate for big-model inference (it works beside crosstrain)"


def load_checkpoint_in_model(
    model: nn.Module,
    checkpoint: str | Path,
    device_map: Mapping[str, Any] | None = None,
    offload_folder: str | Path | None = None,
    dtype: torch.dtype | str | None = None,
    offload_state_dict: bool = False,
    strict: bool = False,
    **options: Any,
) -> None:
    """Load a file, or a directory with one file or with shards and an index, into a model.

    Args:
        device_map: the device of each module or tensor by its name, "" for all others, such as ``{"": "cpu", "decoder": 0}``.
            Tensors are made there, so the model may be on the meta device; without a map its own memory is overwritten.
            Calls between modules on several devices need hooks that move the inputs. Those hooks, and parts on the disk, are
            features of accelerate.
        dtype: the model is converted to it first.
        strict: raise RuntimeError if names are missing or unexpected, as ``load_state_dict`` does.

    Raises ValueError for a map that leaves tensors out, and for tensors on the meta device that the checkpoint lacks.
    """
    for name, value in {"offload_folder": offload_folder, **options}.items():
        if value:
            refuse(f"load_checkpoint_in_model({name}=...)", _BIG)
    target = unwrap(model, keep_torch_compile=False)
    if dtype is not None:
        target.to(_dtype_named(dtype))
    if device_map is None:
        load_into(target, Path(checkpoint), strict)
    else:
        _load_placed(target, Path(checkpoint), _placement(target, device_map), strict)


def _placement(model: nn.Module, device_map: Mapping[str, Any]) -> Callable[[str], torch.device]:
    if not isinstance(device_map, Mapping):
        refuse(f"load_checkpoint_in_model(device_map={device_map!r})", f"give a dict, or {_BIG}")
    if "disk" in device_map.values():
        refuse("load_checkpoint_in_model(device_map=...) with parts on the disk", _BIG)
    devices = {key: torch.device(value) for key, value in device_map.items()}

    def key_of(name: str) -> str | None:
        fitting = (key for key in devices if key in ("", name) or name.startswith(f"{key}."))
        return max(fitting, key=len, default=None)

    left_out = [name for name in _tensors(model) if key_of(name) is None]
    if left_out:
        raise ValueError(
            f"device_map has no device for {_some(left_out)}: add their modules, or '' for all others"
        )
    return lambda name: devices[key_of(name) or ""]


def _load_placed(model: nn.Module, path: Path, place: Callable[[str], torch.device], strict: bool) -> None:
    ties = tied_names(model)
    own = _tensors(model)
    state = weights_for(model, path)
    for name in state.keys() & own.keys():
        state[name] = state[name].to(place(name), own[name].dtype)
    model.load_state_dict(state, strict=strict, assign=True)
    for first, *others in ties:
        for name in others:
            _put(model, name, _tensors(model)[first])
    tensors = _tensors(model)
    lacking = [
        name for name, tensor in tensors.items() if tensor.is_meta and place(name).type != tensor.device.type
    ]
    if lacking:
        raise ValueError(f"{path} holds nothing for {_some(lacking)}, which have no memory of their own")
    for name, tensor in tensors.items():
        if tensor.device != place(name) and name not in state:
            moved = tensor.detach().to(place(name))
            _put(
                model,
                name,
                nn.Parameter(moved, tensor.requires_grad)
                if name in dict(model.named_parameters())
                else moved,
            )


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers under all their names, including buffers that are not saved."""
    named = chain(model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
    return dict(named)


def _put(model: nn.Module, name: str, tensor: Tensor) -> None:
    owner, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(owner), attribute, tensor)


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def find_tied_parameters(model: nn.Module, **kwargs: Any) -> list[list[str]]:
    """The names of each parameter that has several, such as ``[["embedding.weight", "head.weight"]]``."""
    groups: dict[int, list[str]] = {}
    for name, param in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(param), []).append(name)
    return [sorted(names) for names in groups.values() if len(names) > 1]


def retie_parameters(model: nn.Module, tied_params: list[list[str]]) -> None:
    """Tie parameters again, as `find_tied_parameters` named them. The first one that is not on the meta device is used."""
    for names in tied_params:
        tensors = [operator.attrgetter(name)(model) for name in names]
        kept = next((tensor for tensor in tensors if not tensor.is_meta), None)
        if kept is not None:
            for name in names:
                _put(model, name, kept)


def is_peft_model(model: nn.Module) -> bool:
    """Whether the model, without wrappers of `prepare` or torch, is one of PEFT's."""
    peft = sys.modules.get("peft")  # without the package there can be no such model
    return peft is not None and isinstance(unwrap(model, keep_torch_compile=False), peft.PeftModel)


def set_module_tensor_to_device(
    module: nn.Module,
    tensor_name: str,
    device: int | str | torch.device,
    value: Tensor | None = None,
    dtype: torch.dtype | str | None = None,
    **options: Any,
) -> None:
    """Put a parameter or buffer of the module on a device, with a new value if one is given.

    A parameter that is not on the meta device stays the same object.

    Args:
        value: a tensor of the same shape.
        dtype: the tensor's dtype from now on, unless ``value`` has integers; by default it keeps its own.

    Raises ValueError for an unknown name, a value of another shape, and a tensor on the meta device that gets no value.
    """
    if options.get("fp16_statistics") is not None or options.get("tied_params_map"):
        refuse("set_module_tensor_to_device(fp16_statistics=..., tied_params_map=...)", _BIG)
    old = _tensors(module).get(tensor_name)
    if old is None:
        raise ValueError(f"{type(module).__name__} has no parameter or buffer {tensor_name!r}")
    target = torch.device(device)
    if value is None and old.is_meta and target.type != "meta":
        raise ValueError(f"{tensor_name} is on the meta device: a value is needed to put it on {target}")
    if value is not None and value.shape != old.shape:
        raise ValueError(
            f"{tensor_name} has the shape {tuple(old.shape)}, and the value {tuple(value.shape)}: they must be the same"
        )
    new = (old if value is None else value).detach()
    new = new.to(target, _dtype_for(new, old, dtype))
    if not isinstance(old, nn.Parameter):
        _put(module, tensor_name, new)
    elif old.is_meta or new.is_meta:
        _put(module, tensor_name, nn.Parameter(new, old.requires_grad))
    else:
        old.data = new


def _dtype_for(new: Tensor, old: Tensor, dtype: torch.dtype | str | None) -> torch.dtype:
    if dtype is None:
        return old.dtype
    if not (new.is_floating_point() or new.is_complex()):
        return new.dtype
    return _dtype_named(dtype)


def _dtype_named(dtype: torch.dtype | str) -> torch.dtype:
    named: torch.dtype = getattr(torch, dtype.removeprefix("torch.")) if isinstance(dtype, str) else dtype
    return named
