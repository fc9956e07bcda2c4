"""The device meshes over which models are sharded."""

from __future__ import annotations

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from crosstrain.comm.protocol import Comm

_MESHES: dict[tuple[str, int, int], DeviceMesh] = {}


def device_mesh(comm: Comm, copy_size: int | None = None) -> DeviceMesh:
    """A mesh of all processes: one-dimensional, or groups of ``copy_size`` neighbours that share one copy of the model.

    Raises ValueError if the processes cannot form groups of that size.
    """
    size = comm.world if copy_size is None else copy_size
    if comm.world % size:
        raise ValueError(
            f"{comm.world} processes cannot form groups of {size}: hybrid sharding keeps a copy of the model in each "
            f"group, so start a multiple of {size} processes, as many on every machine, or choose FULL_SHARD."
        )
    key = (comm.device.type, comm.world, size)
    if key not in _MESHES:
        shape, names = (comm.world // size, size), ("replicate", "shard")
        dims = 1 if size == comm.world else 2
        _MESHES[key] = init_device_mesh(comm.device.type, shape[-dims:], mesh_dim_names=names[-dims:])
    return _MESHES[key]
