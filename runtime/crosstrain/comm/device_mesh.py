"""The mesh of all processes, over which models are sharded."""

from __future__ import annotations

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from crosstrain.comm.protocol import Comm

_MESHES: dict[tuple[str, int], DeviceMesh] = {}


def device_mesh(comm: Comm) -> DeviceMesh:
    """All processes in one dimension."""
    key = (comm.device.type, comm.world)
    if key not in _MESHES:
        _MESHES[key] = init_device_mesh(comm.device.type, (comm.world,), mesh_dim_names=("shard",))
    return _MESHES[key]
