"""The part of an Accelerator that saves a training and continues it exactly."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crosstrain.checkpoint import load_state, save_state
from crosstrain.checkpoint.state_files import Reading
from crosstrain.checkpoint.training import LoadHook, SaveHook, Training


class HookHandle:
    """Takes a hook off again."""

    def __init__(self, hooks: dict[str, Any], key: str) -> None:
        self._hooks = hooks
        self._key = key

    def remove(self) -> None:
        self._hooks.pop(self._key, None)


class Checkpoints:
    """Saving and loading of everything that was prepared."""

    def register_for_checkpointing(self: Training, *objects: Any) -> None:
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
        self._custom_objects.extend(objects)

    def register_save_state_pre_hook(self: Training, hook: SaveHook) -> HookHandle:
        """Call ``hook(models, weights, directory)`` before weights are written; what it pops it takes over."""
        key = uuid.uuid4().hex
        self._save_hooks[key] = hook
        return HookHandle(self._save_hooks, key)

    def register_load_state_pre_hook(self: Training, hook: LoadHook) -> HookHandle:
        """Call ``hook(models, directory)`` before weights are read; what it pops it takes over."""
        key = uuid.uuid4().hex
        self._load_hooks[key] = hook
        return HookHandle(self._load_hooks, key)

    def save_state(
        self: Training,
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
        return save_state.save_state(self, output_dir, safe_serialization, blocking)

    def load_state(
        self: Training,
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
            options.setdefault(
                "map_location", self._comm.device if map_location == "on_device" else map_location
            )
        runs_code = options.pop("weights_only", None) is False or allow_pickle
        load_state.load_state(self, input_dir, strict, Reading(runs_code, options))
