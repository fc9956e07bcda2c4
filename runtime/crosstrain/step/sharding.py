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

    def rank_along(self, dimension: str) -> int:
        """This process's index along a dimension of the mesh; 0 where the mesh has no such dimension."""
        if not self.active or dimension not in self.mesh.mesh_dim_names:
            return 0
        return int(self.mesh[dimension].get_local_rank())

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
    def is_composable_parallelism_enabled(self) -> bool:
        """Always False, kept for compatibility with Accelerate."""
        return False

    @property
    def is_fsdp2(self) -> bool:
        """Whether any prepared model is sharded."""
        return self._sharding.active

    @property
    def torch_device_mesh(self) -> Any:
        """The `torch.distributed.device_mesh.DeviceMesh` that models are sharded over; None without sharding."""
        return self._sharding.mesh

    @property
    def data_parallel_rank(self) -> int:
        """This process's rank, since every process trains on data of its own."""
        return self._sharding.comm.rank

    @property
    def data_parallel_shard_rank(self) -> int:
        """Which part of a sharded model this process holds; 0 without sharding."""
        return self._sharding.rank_along("shard")

    @property
    def data_parallel_replicate_rank(self) -> int:
        """Which copy of a sharded model this process holds a part of; 0 where there is only one."""
        return self._sharding.rank_along("replicate")
