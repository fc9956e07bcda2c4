"""The members of an Accelerator that few scripts need: triggers, profiling, uneven inputs, and unsupported members."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.data import DataLoader

from crosstrain.comm.protocol import Comm
from crosstrain.compat import not_supported
from crosstrain.data.prepare import skip_first_batches
from crosstrain.options import Handlers
from crosstrain.state import RUN, AcceleratorState
from crosstrain.step.accumulation import Accumulation
from crosstrain.step.model import is_sharded, sync_of
from crosstrain.step.precision import Precision
from crosstrain.step.uneven_inputs import join
from crosstrain.step.window import Gradients
from crosstrain.utils.dataclasses import ParallelismConfig, ProfileKwargs

_PREPARED = (
    "_models",
    "_syncs",
    "_optimizers",
    "_gates",
    "_schedulers",
    "_dataloaders",
    "_custom_objects",
)


_REMADE = (
    "_comm",
    "_gradients",
    "_accumulation",
    "_clipping",
    "_drift",
    "_first_step",
    "_trackers",
    "_save_hooks",
    "_load_hooks",
)


class Extras:
    """Less common members."""

    state: AcceleratorState
    handlers: Handlers
    flag_tensor: torch.Tensor | None
    _comm: Comm
    _parallelism: ParallelismConfig | None
    _compose: Callable[[], None]
    _accumulation: Accumulation
    _gradients: Gradients
    _precision: Precision
    _models: list[nn.Module]
    _dataloaders: list[DataLoader[Any]]

    def set_trigger(self) -> None:
        """Set this process's flag, of which `check_trigger` informs all processes."""
        self.flag_tensor = torch.ones(1, dtype=torch.int64)

    def check_trigger(self) -> bool:
        """Whether any process has set its flag; resets all flags. Every process must call it."""
        mine = torch.zeros(1, dtype=torch.int64) if self.flag_tensor is None else self.flag_tensor
        self.flag_tensor = None
        return bool(self._comm.all_reduce(mine, "max").item())

    def join_uneven_inputs(
        self, joinables: Sequence[nn.Module], even_batches: bool | Literal["weighted"] | None = None
    ) -> AbstractContextManager[None]:
        """Allow training inside with different numbers of batches on the processes.

        A process without further batches contributes zeros to the others' averages, and takes over the final weights.
        ``even_batches``: replaces that of the prepared map-style loaders inside.
        """
        syncs = [sync_of(model) for model in joinables if isinstance(model, nn.Module)]
        return join(syncs, self._comm, self._dataloaders, even_batches)

    @contextmanager
    def profile(self, profile_handler: ProfileKwargs | None = None) -> Iterator[torch.profiler.profile]:
        """Run torch.profiler around the body.

        With ``output_trace_dir`` every process writes a Chrome trace there, and all of them wait for the last.
        """
        handler = profile_handler or self.handlers.profile or ProfileKwargs()
        options = handler.to_kwargs()
        folder = options.pop("output_trace_dir", None)
        if names := options.pop("activities", None):
            options["activities"] = [
                torch.profiler.ProfilerActivity.__members__[name.upper()] for name in names
            ]
        if schedule := options.pop("schedule_option", None):
            options["schedule"] = torch.profiler.schedule(**schedule)
        with torch.profiler.profile(**options) as profiler:
            yield profiler
        if folder is not None:  # without a folder nothing is shared, so one process may profile alone
            Path(folder).mkdir(parents=True, exist_ok=True)
            profiler.export_chrome_trace(str(Path(folder) / f"profile_{self._comm.rank}.json"))
            self._comm.barrier()

    def verify_device_map(self, model: nn.Module) -> bool:
        """Whether another library has dispatched the model over several devices, so that it cannot be trained."""
        device_map = getattr(model, "hf_device_map", None)
        return device_map is not None and len(set(device_map.values())) > 1

    @property
    def is_fsdp2(self) -> bool:
        return any(is_sharded(model) for model in self._models)

    @property
    def should_save_model(self) -> bool:
        return True

    def skip_first_batches(self, dataloader: DataLoader[Any], num_batches: int = 0) -> DataLoader[Any]:
        """A loader for one epoch that starts after ``num_batches`` of this process's batches."""
        return skip_first_batches(dataloader, num_batches)

    @property
    def torch_device_mesh(self) -> Any:
        """The device mesh over which models are sharded; None without sharding."""
        if not RUN.sharded:
            return None
        from crosstrain.step.fsdp import mesh_of

        plugin = self.fsdp_plugin or RUN.fsdp_plugin
        return mesh_of(plugin, self._comm) if plugin is not None else None

    @property
    def parallelism_config(self) -> ParallelismConfig | None:
        return self._parallelism

    @property
    def is_composable_parallelism_enabled(self) -> bool:
        return False

    @property
    def data_parallel_rank(self) -> int:
        return self._comm.rank

    @property
    def data_parallel_shard_rank(self) -> int:
        return int(self.torch_device_mesh["shard"].get_local_rank()) if self.is_fsdp2 else 0

    @property
    def data_parallel_replicate_rank(self) -> int:
        """The number of the model's copy of which this process has a part."""
        hybrid = self.is_fsdp2 and "replicate" in self.torch_device_mesh.mesh_dim_names
        return int(self.torch_device_mesh["replicate"].get_local_rank()) if hybrid else 0

    def __getstate__(self) -> dict[str, Any]:
        """A pickled Accelerator keeps its options, but not what was prepared."""
        state = dict(self.__dict__)
        for name in _REMADE:
            del state[name]
        for name in _PREPARED:
            state[name] = []
        state["_weighed"] = (None, 1.0)
        state["_counted"] = (self._accumulation.step, self._accumulation.window)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        counted = state.pop("_counted")
        self.__dict__.update(state, _save_hooks={}, _load_hooks={})
        self._comm = RUN.start()
        self._gradients = RUN.gradients
        self._compose()
        self._accumulation.step, self._accumulation.window = counted
        RUN.settle_precision(self._precision.name)

    def __getattr__(self, name: str) -> Any:
        """Raise an error that names the alternative, for members of Accelerate's that this package does not have."""
        member = getattr(type(self), name, None)
        if isinstance(member, property):  # it raised an AttributeError itself: raise that one
            return member.__get__(self)
        if name in not_supported.MEMBERS:
            not_supported.refuse(f"Accelerator.{name}", not_supported.MEMBERS[name])
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
