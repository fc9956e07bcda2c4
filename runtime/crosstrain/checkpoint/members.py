"""The members of an Accelerator that write files: weights, objects, and trainings that continue exactly."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

from torch import nn

from crosstrain.checkpoint import load_state, save_state
from crosstrain.checkpoint.state_files import Reading
from crosstrain.checkpoint.training import LoadHook, SaveHook, Training
from crosstrain.checkpoint.weights import save_object, save_weights
from crosstrain.comm.write_once import write_once
from crosstrain.step import model as models
from crosstrain.utils.dataclasses import ProjectConfiguration


class HookHandle:
    """Returned by the functions that register a hook; `remove` takes the hook off again."""

    def __init__(self, hooks: dict[str, Any], key: str) -> None:
        self._hooks = hooks
        self._key = key

    def remove(self) -> None:
        self._hooks.pop(self._key, None)


class CheckpointMembers:
    """Saving and loading: what was prepared, a model's weights, or any object."""

    _training: Training

    @property
    def project_configuration(self) -> ProjectConfiguration:
        """Where checkpoints and logs go, and how checkpoints are named and kept."""
        return self._training.project

    @project_configuration.setter
    def project_configuration(self, project: ProjectConfiguration) -> None:
        self._training.project = project

    @property
    def project_dir(self) -> str | None:
        return self._training.project.project_dir

    @property
    def logging_dir(self) -> str | None:
        return self._training.project.logging_dir

    @property
    def save_iteration(self) -> int:
        """The number of the next checkpoint that automatic naming makes."""
        return self._training.project.iteration

    @property
    def _custom_objects(self) -> list[Any]:
        """Accelerate's name for the registered objects."""
        return self._training.registered

    def get_state_dict(self, model: nn.Module, unwrap: bool = True) -> dict[str, Any]:
        """The whole state under the author's names; collective only for a sharded model."""
        return models.state_dict_of(model) if unwrap else model.state_dict()

    def save(self, obj: Any, f: str | Path | IO[bytes], safe_serialization: bool = False) -> None:
        """torch.save (or safetensors) on the main process, atomic unless f is an open file; no communication."""
        if self._training.writes_files:
            target = Path(f) if isinstance(f, str) else f
            save_object(self._training.comm.to_host(obj), target, safe_serialization)

    def save_model(
        self,
        model: nn.Module,
        save_directory: str | Path,
        max_shard_size: int | str = "10GB",
        safe_serialization: bool = True,
    ) -> None:
        """Write the model's weights on the main process, atomic.

        ``save_directory`` with a suffix .pt, .pth, .bin or .safetensors is written as exactly that file,
        else it is a directory of shards. A process that calls this returns when the files are complete, or raises
        what kept the main process from writing them. No collective, unless the model is sharded: the main process
        may call it alone.
        """
        state = self.get_state_dict(model)
        comm = self._training.comm
        writer = comm.rank - comm.local_rank if self._training.project.save_on_each_node else 0
        write = partial(save_weights, state, Path(save_directory), max_shard_size, safe_serialization)
        write_once(comm, save_directory, writer, write)

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Save and load these objects too, in this order; ValueError lists those without a state."""
        lacking = [
            f"{type(obj).__name__} ({index})"
            for index, obj in enumerate(objects)
            if not hasattr(obj, "state_dict") or not hasattr(obj, "load_state_dict")
        ]
        if lacking:
            raise ValueError(
                f"objects need state_dict and load_state_dict to be checkpointed; missing in: {', '.join(lacking)}"
            )
        self._training.registered.extend(objects)

    def register_save_state_pre_hook(self, hook: SaveHook) -> HookHandle:
        """Call ``hook(models, weights, directory)`` before weights are written; what it pops it takes over."""
        return _register(self._training.save_hooks, hook)

    def register_load_state_pre_hook(self, hook: LoadHook) -> HookHandle:
        """Call ``hook(models, directory)`` before weights are read; what it pops it takes over."""
        return _register(self._training.load_hooks, hook)

    def save_state(
        self,
        output_dir: str | Path | None = None,
        safe_serialization: bool = True,
        *,
        blocking: bool = True,
    ) -> str:
        """Save models, optimizers, schedulers, loaders, scaler, random streams and registered objects.

        Every process calls it; the main process's directory counts. It appears when it is complete, an older one of
        the name is replaced then. Without ``output_dir``: the next ``checkpoints/checkpoint_<n>`` of the project, with
        automatic_checkpoint_naming. Returns the directory.

        ``blocking=False`` copies everything to host memory and returns; a thread writes the directory, which is there
        when the next `save_state`, `load_state` or `end_training` returns, or the script has ended. They wait for
        it, and raise its error on every process. The memory of the copy stays for the next one, until `free_memory`.
        """
        return save_state.save_state(self._training, output_dir, safe_serialization, blocking)

    def load_state(
        self,
        input_dir: str | Path | None = None,
        load_kwargs: Mapping[str, Any] | None = None,
        *,
        strict: bool = True,
        allow_pickle: bool = False,
        map_location: Any = None,
    ) -> None:
        """Continue what `save_state` (or accelerate) saved: next batches, random numbers, rates and weights are
        those of the training that was not interrupted, with the same number of processes.

        Every process calls it, with the same objects prepared and registered. Without ``input_dir``: the project's
        newest checkpoint that is complete and unchanged. Raises FileNotFoundError where there is none, and
        CorruptCheckpointError with the names of files that are missing or not what was saved.

        Two things go on otherwise than without the interruption: numbers that the workers of a loader draw in the
        rest of an epoch that was interrupted in its middle (and in later ones, where workers persist), and a
        sharded model's accumulation window (which warns).

        Nothing in the files is run, unless ``allow_pickle`` says that whoever wrote them is trusted: then states
        of registered objects may hold any object.

        ``load_kwargs`` are options of torch.load for the states of optimizers, schedulers, loaders and registered
        objects, such as ``mmap=True``; ``weights_only=False`` is ``allow_pickle=True``. ``map_location`` and
        ``load_kwargs["map_location"]`` say where states are read to, before each object takes them where it is.
        """
        options = dict(load_kwargs or {})
        if map_location is not None:
            device = self._training.comm.device
            options.setdefault("map_location", device if map_location == "on_device" else map_location)
        runs_code = options.pop("weights_only", None) is False or allow_pickle
        load_state.load_state(self._training, input_dir, strict, Reading(runs_code, options))


def _register(hooks: dict[str, Any], hook: Any) -> HookHandle:
    key = uuid.uuid4().hex
    hooks[key] = hook
    return HookHandle(hooks, key)
