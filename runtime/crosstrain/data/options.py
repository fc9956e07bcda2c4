"""The Accelerator's options for loaders."""

from __future__ import annotations

from dataclasses import dataclass

from crosstrain.data.sharding import Even


@dataclass(frozen=True)
class DataPlan:
    """Options of every loader that one Accelerator prepares.

    split_batches: whether the loader's batch size is the global one, which is cut over the processes, instead of
        each process's.
    even_batches: True completes the last global batch from the start of the pass; False leaves it uneven; "weighted"
        splits it as evenly as possible and weights each process's loss by its rows.
    dispatch_batches: whether process 0 reads the data and sends each process its part. None: only for iterable data
        sets that cannot be sharded.
    use_seedable_sampler: whether the order is a function of (data_seed, epoch) instead of the sampler's generator.
    data_seed: None takes process 0's `torch.initial_seed()`.
    non_blocking: whether copies to the device, from pinned memory, return before they are done.
    put_on_device: whether batches arrive on the device.
    rng_types: random streams that every pass copies from process 0: "generator", "torch", "python", "numpy", or the
        device's type. Those that the order depends on are always copied.
    use_stateful_dataloader: whether positions include the state of the data set and of its iterator.

    Raises ValueError for an unknown ``even_batches``.
    """

    split_batches: bool = False
    even_batches: Even = True
    dispatch_batches: bool | None = None
    use_seedable_sampler: bool = False
    data_seed: int | None = None
    non_blocking: bool = False
    put_on_device: bool = True
    rng_types: tuple[str, ...] = ("generator",)
    use_stateful_dataloader: bool = False

    def __post_init__(self) -> None:
        if self.even_batches not in (True, False, "weighted"):
            raise ValueError(
                f'even_batches={self.even_batches!r} is unknown; choose True, False or "weighted".'
            )
