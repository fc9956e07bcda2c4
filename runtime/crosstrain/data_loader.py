"""Names that users import from `accelerate.data_loader`."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader

from crosstrain.data.loader import PreparedLoader
from crosstrain.data.options import DataPlan
from crosstrain.data.prepare import prepare_loader, skip_first_batches
from crosstrain.data.samplers import SeedableRandomSampler, ShardedBatchSampler, SkipBatchSampler
from crosstrain.data.sharding import Even
from crosstrain.run import RUN
from crosstrain.state import PartialState

# Accelerate has a class for each source of batches; here one class serves all, so isinstance holds for either name.
DataLoaderShard = PreparedLoader
DataLoaderDispatcher = PreparedLoader
BatchSamplerShard = ShardedBatchSampler

__all__ = [
    "BatchSamplerShard",
    "DataLoaderDispatcher",
    "DataLoaderShard",
    "SeedableRandomSampler",
    "SkipBatchSampler",
    "prepare_data_loader",
    "skip_first_batches",
]


def prepare_data_loader(
    dataloader: DataLoader[Any],
    device: torch.device | None = None,
    num_processes: int | None = None,
    process_index: int | None = None,
    split_batches: bool = False,
    put_on_device: bool = False,
    rng_types: list[Any] | None = None,
    dispatch_batches: bool | None = None,
    even_batches: Even = True,
    slice_fn_for_dispatch: Any = None,
    use_seedable_sampler: bool = False,
    data_seed: int | None = None,
    non_blocking: bool = False,
    use_stateful_dataloader: bool = False,
    torch_device_mesh: Any = None,
) -> DataLoader[Any]:
    """`Accelerator.prepare` for one loader, with the options given here instead of the Accelerator's.

    Collective; it starts the run (`PartialState()`) if nothing has. `device`, `num_processes` and `process_index` may
    only repeat those of the run. Raises ValueError where they differ, and for `slice_fn_for_dispatch` and
    `torch_device_mesh`; and the errors of `crosstrain.data.prepare.prepare_loader`.
    """
    PartialState()
    comm = RUN.comm
    given = {"device": device, "num_processes": num_processes, "process_index": process_index}
    actual = {"device": comm.device, "num_processes": comm.world, "process_index": comm.rank}
    for name, value in given.items():
        if value is not None and value != actual[name]:
            raise ValueError(
                f"prepare_data_loader: {name}={value!r}, but this run has {actual[name]!r}. Leave it out."
            )
    if slice_fn_for_dispatch is not None or torch_device_mesh is not None:
        raise ValueError(
            "prepare_data_loader: slice_fn_for_dispatch and torch_device_mesh are not supported; dispatched "
            "batches are cut by row. Leave them out."
        )
    plan = DataPlan(
        split_batches=split_batches,
        even_batches=even_batches,
        dispatch_batches=dispatch_batches,
        use_seedable_sampler=use_seedable_sampler,
        data_seed=data_seed,
        non_blocking=non_blocking,
        put_on_device=put_on_device,
        rng_types=tuple(getattr(name, "value", name) for name in rng_types or ("generator",)),
        use_stateful_dataloader=use_stateful_dataloader,
    )
    return prepare_loader(dataloader, comm, plan, RUN.gradients.active)
