"""The loader options of an Accelerator under their own names."""

from __future__ import annotations

from typing import Literal

from crosstrain.utils.dataclasses import DataLoaderConfiguration


class LoaderOptionMembers:
    """Each option of the Accelerator's `DataLoaderConfiguration`; `even_batches` can be set, as in Accelerate."""

    dataloader_config: DataLoaderConfiguration

    @property
    def split_batches(self) -> bool:
        """Whether a loader's batch size is the global one."""
        return self.dataloader_config.split_batches

    @property
    def dispatch_batches(self) -> bool | None:
        """Whether process 0 reads the data for all; None if that depends on the data set."""
        return self.dataloader_config.dispatch_batches

    @property
    def even_batches(self) -> bool | Literal["weighted"]:
        """How the last global batch of a pass is completed (True), left uneven (False) or "weighted"."""
        return self.dataloader_config.even_batches

    @even_batches.setter
    def even_batches(self, value: bool | Literal["weighted"]) -> None:
        self.dataloader_config.even_batches = value

    @property
    def use_seedable_sampler(self) -> bool:
        """Whether the random order of a loader is a function of seed and epoch."""
        return self.dataloader_config.use_seedable_sampler

    @property
    def non_blocking(self) -> bool:
        """Whether copies of batches to the device return before they are done."""
        return self.dataloader_config.non_blocking

    @property
    def use_stateful_dataloader(self) -> bool:
        """Whether a loader's position includes the state of its data set."""
        return self.dataloader_config.use_stateful_dataloader
