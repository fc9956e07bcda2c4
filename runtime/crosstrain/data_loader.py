"""Names that users import from `accelerate.data_loader`."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from crosstrain.data import (
    DataPlan,
    PreparedLoader,
    SeedableRandomSampler,
    SkipBatchSampler,
    prepare_loader,
    skip_first_batches,
)
from crosstrain.data.shard import Even

# Accelerate has a class for each way a loader is fed; here one class serves all, so isinstance holds for any.
DataLoaderShard = PreparedLoader
DataLoaderDispatcher = PreparedLoader

__all__ = [
    "DataLoaderDispatcher",
    "DataLoaderShard",
    "SeedableRandomSampler",
    "SkipBatchSampler",
    "prepare_data_loader",
    "skip_first_batches",
]


def prepare_data_loader(
    dataloader: DataLoader[Any],
    *,
    split_batches: bool = False,
    put_on_device: bool = False,
    rng_types: list[str] | None = None,
    dispatch_batches: bool | None = None,
    even_batches: Even = True,
    use_seedable_sampler: bool = False,
    data_seed: int | None = None,
    non_blocking: bool = False,
) -> DataLoader[Any]:
    """`Accelerator.prepare` for one loader, with the options given here instead of the Accelerator's.

    Every process must call it. Starts the run (`PartialState()`) if nothing has.
    """
    from crosstrain.state import RUN, PartialState

    PartialState()
    plan = DataPlan(
        split_batches=split_batches,
        even_batches=even_batches,
        dispatch_batches=dispatch_batches,
        use_seedable_sampler=use_seedable_sampler,
        data_seed=data_seed,
        non_blocking=non_blocking,
        put_on_device=put_on_device,
        rng_types=tuple(rng_types or ("generator",)),
    )
    return prepare_loader(dataloader, RUN.comm, plan, RUN.gradients.active)
