"""How an Accelerator shards its models, and this process's place among the shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from crosstrain.comm.protocol import Comm
from crosstrain.run import RUN
from crosstrain.step.model import is_sharded
from crosstrain.step.prepared import PreparedObjects

if TYPE_CHECKING:
    from crosstrain.utils.dataclasses import FullyShardedDataParallelPlugin, ParallelismConfig


class Sharding:
    """The sharding options of one Accelerator. ``plugin`` is None where models stay whole."""

    def __init__(
        self,
        comm: Comm,
        prepared: PreparedObjects,
        plugin: FullyShardedDataParallelPlugin | None,
        parallelism: ParallelismConfig | None,
    ) -> None:
        self.comm = comm
        self.plugin = plugin
        self.parallelism = parallelism
        self._prepared = prepared

    @property
    def active(self) -> bool:
        """Whether any prepared model is sharded."""
        return any(is_sharded(model) for model in self._prepared.models)

    @property
    def mesh(self) -> Any:
        """See `Accelerator.torch_device_mesh`."""
        if not RUN.sharded:
            return None
        from crosstrain.step.fsdp import mesh_of

        plugin = self.plugin or RUN.fsdp_plugin
        return mesh_of(plugin, self.comm) if plugin is not None else None

    def saves_in_parts(self, model: nn.Module) -> bool:
        """Whether every process writes its own part of this model to a checkpoint."""
        plugin = self.plugin
        return plugin is not None and plugin.state_dict_type != "FULL_STATE_DICT" and is_sharded(model)


class ShardingMembers:
    """The members of an Accelerator that tell how models are sharded."""

    _sharding: Sharding

    @property
    def fsdp_plugin(self) -> FullyShardedDataParallelPlugin | None:
        """How prepared models are sharded; None if they are not."""
        return self._sharding.plugin

    @fsdp_plugin.setter
    def fsdp_plugin(self, plugin: FullyShardedDataParallelPlugin | None) -> None:
        self._sharding.plugin = plugin

    @property
    def parallelism_config(self) -> ParallelismConfig | None:
        """The `ParallelismConfig` that the Accelerator was given, or None."""
        return self._sharding.parallelism

    @property
    def torch_device_mesh(self) -> Any:
        """The `torch.distributed.device_mesh.DeviceMesh` that models are sharded over; None without sharding."""
        return self._sharding.mesh
