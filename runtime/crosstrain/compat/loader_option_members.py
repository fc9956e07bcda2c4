"""The loader options of an Accelerator under their own names."""

from __future__ import annotations

from typing import Literal

from crosstrain.utils.dataclasses import DataLoaderConfiguration


class LoaderOptionMembers:
    """Each option of the Accelerator's `DataLoaderConfiguration`; `even_batches` can be set, as in Accelerate."""

    dataloader_config: DataLoaderConfiguration

    @property
    def split_batches(self) -> bool:
        return self.dataloader_config.split_batches

    @property
    def dispatch_batches(self) -> bool | None:
        return self.dataloader_config.dispatch_batches

    @property
    def even_batches(self) -> bool | Literal["weighted"]:
        return self.dataloader_config.even_batches

    @even_batches.setter
    def even_batches(self, value: bool | Literal["weighted"]) -> None:
        self.dataloader_config.even_batches = value

    @property
    def use_seedable_sampler(self) -> bool:
        return self.dataloader_config.use_seedable_sampler

    @property
    def non_blocking(self) -> bool:
        return self.dataloader_config.non_blocking

    @property
    def use_stateful_dataloader(self) -> bool:
        return self.dataloader_config.use_stateful_dataloader
