"""The members of an Accelerator that write files: weights, objects, and trainings that continue exactly."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from crosstrain.checkpoint import load_state, save_state
from crosstrain.checkpoint.state_files import Reading
from crosstrain.checkpoint.training import LoadHook, SaveHook, Training
from crosstrain.checkpoint.weights import save_object, save_weights
from crosstrain.comm.write_once import write_once
from crosstrain.step import model as models
from crosstrain.utils.dataclasses import ProjectConfiguration


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
        """The project's directory; None where it has none."""
        return self._training.project.project_dir

    @property
    def logging_dir(self) -> str | None:
        """The directory of the project's logs; None where it has none."""
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
        """The model's whole state in host memory, by the names that its author gave.

        With a sharded model the call is collective, and the state is on rank 0 only. ``unwrap=False`` returns
        ``model.state_dict()`` as it is.
        """
        return models.state_dict_of(model) if unwrap else model.state_dict()

    def save(self, obj: Any, f: str | Path | IO[bytes], safe_serialization: bool = False) -> None:
        """Write ``obj`` on the main process with `torch.save`, or as safetensors.

        With ``save_on_each_node`` in the project configuration, one process of each machine writes. A path is written
        atomically; the main process may make the call alone, and a process that makes it too returns when the file is
        complete, or raises the main process's error. A process with another path than the main process's (a temporary
        directory, a time stamp) writes its own file. An open file is written to by the main process only, as it is.
        Raises TypeError for safetensors into an open file.
        """
        comm = self._training.comm
        if isinstance(f, (str, os.PathLike)):
            self._write_once("save", f, lambda: save_object(comm.to_host(obj), Path(f), safe_serialization))
        elif self._training.writes_files:
            save_object(comm.to_host(obj), f, safe_serialization)

    def _write_once(self, operation: str, path: str | os.PathLike[str], write: Callable[[], object]) -> None:
        comm = self._training.comm
        writer = comm.rank - comm.local_rank if self._training.project.save_on_each_node else 0
        write_once(comm, operation, path, writer, write)

    def save_model(
        self,
        model: nn.Module,
        save_directory: str | Path,
        max_shard_size: int | str = "10GB",
        safe_serialization: bool = True,
    ) -> None:
        """Write the model's weights on the main process; each file appears when it is complete.

        Where ``save_directory`` has the suffix .safetensors, .pt, .pth or .bin, exactly that file is written; otherwise
        a directory with one file, or with shards of at most ``max_shard_size`` (bytes, or text such as "10GB") and an
        index. ``safe_serialization`` chooses between safetensors and `torch.save` for a directory.

        The call is collective only for a sharded model: with any other, the main process may make it alone, and a
        process that makes it too returns when the files are complete, or raises the main process's error. A process
        with another path than the main process's (a temporary directory, a time stamp) writes its own files. Raises
        ValueError where the directory is a file, and for a size that cannot be read.
        """
        state = self.get_state_dict(model)
        if models.is_sharded(model):
            state = self._for_every_path(state, save_directory)
        write = partial(save_weights, state, Path(save_directory), max_shard_size, safe_serialization)
        self._write_once("save_model", save_directory, write)

    def _for_every_path(self, state: dict[str, Any], path: str | Path) -> dict[str, Any]:
        """A sharded model's state, which only rank 0 has, for the ranks that write too (collective)."""
        comm = self._training.comm
        writes = comm.local_rank == 0 and self._training.project.save_on_each_node
        table: list[tuple[str, bool]] = comm.all_gather_object((str(Path(path).absolute()), writes))
        several = any(where != table[0][0] or alone for where, alone in table[1:])
        return comm.broadcast_object(state) if several else state

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Let `save_state` and `load_state` include these objects, in this order.

        Raises ValueError, with a list of them, for objects without `state_dict` and `load_state_dict`.
        """
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

    def register_save_state_pre_hook(self, hook: SaveHook) -> RemovableHandle:
        """Call ``hook(models, weights, directory)`` in `save_state`, before the weights are written.

        ``weights`` has a state for each of ``models``; the hook itself saves the weights that it removes from the list.
        """
        return _register(self._training.save_hooks, hook)

    def register_load_state_pre_hook(self, hook: LoadHook) -> RemovableHandle:
        """Call ``hook(models, directory)`` in `load_state`, before the weights are read.

        The hook itself loads the models that it removes from the list.
        """
        return _register(self._training.load_hooks, hook)

    def save_state(
        self, output_dir: str | Path | None = None, safe_serialization: bool = True, *, blocking: bool = True
    ) -> str:
        """Save models, optimizers, schedulers, loaders, scaler, random streams and registered objects (collective).

        Returns the directory, which is the main process's choice. It exists only when it is complete, and then
        replaces an older one of the same name.

        Args:
            output_dir: the directory. With ``automatic_checkpoint_naming`` in the project configuration it is left out,
                and the directory is ``checkpoints/checkpoint_<n>`` in the project's.
            safe_serialization: write weights as safetensors; otherwise with `torch.save`.
            blocking: False copies everything to host memory and returns, while a thread writes the directory. The next
                `save_state`, `load_state` or `end_training`, and the end of the script, wait for it and raise its
                error on every process. The memory of the copy is kept for the next one, until `free_memory`.

        Raises ValueError where there is no directory to save to, or the next automatic one exists already;
        RuntimeError where the ranks' weights or learning rates differ. An error on one process is raised on all.
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
        """Load what `save_state` or accelerate saved, with the same objects prepared and registered (collective).

        With as many processes as before, the training continues as if it had not been interrupted: batches, random
        numbers, learning rates and weights are the same. There are two exceptions: the random numbers that a loader's
        workers draw in the rest of an epoch that was interrupted in its middle (and in later epochs, where workers
        persist), and a sharded model's accumulation window, which starts anew with a warning.

        Args:
            input_dir: the directory; None for the project's newest checkpoint that is complete and unchanged.
            load_kwargs: arguments of `torch.load` for the states of optimizers, schedulers, loaders and registered
                objects, such as ``mmap=True``. ``weights_only=False`` means ``allow_pickle=True``.
            strict: raise RuntimeError where a model and its saved weights have different names.
            allow_pickle: run code that the files name, so that states of registered objects may hold any object. Only
                for files from a source that you trust; by default no code from the files is run.
            map_location: where `torch.load` puts states before each object moves its own ("on_device": the device).

        Raises FileNotFoundError where there is no checkpoint, CorruptCheckpointError, with their names, for files
        that are missing or changed, RuntimeError where another number of objects is registered, and ValueError for
        states that only running code could restore.
        """
        options = dict(load_kwargs or {})
        if map_location is not None:
            device = self._training.comm.device
            options.setdefault("map_location", device if map_location == "on_device" else map_location)
        runs_code = options.pop("weights_only", None) is False or allow_pickle
        load_state.load_state(self._training, input_dir, strict, Reading(runs_code, options))


def _register(hooks: OrderedDict[int, Any], hook: Any) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle
