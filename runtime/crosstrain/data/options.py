"""The Accelerator's options for loaders."""

from __future__ import annotations

from dataclasses import dataclass

from crosstrain.utils.dataclasses import DataLoaderConfiguration


@dataclass
class DataPlan(DataLoaderConfiguration):
    """Options of every loader that one Accelerator prepares: those of its configuration, and two more.

    put_on_device: whether batches arrive on the device.
    rng_types: random streams that every pass copies from process 0: "generator", "torch", "python", "numpy", or the
        device's type. Those that the order depends on are always copied.

    Raises ValueError for an unknown ``even_batches``.
    """

    put_on_device: bool = True
    rng_types: tuple[str, ...] = ("generator",)

    def __post_init__(self) -> None:
        if self.even_batches not in (True, False, "weighted"):
            raise ValueError(
                f'even_batches={self.even_batches!r} is unknown; choose True, False or "weighted".'
            )
