"""The options of an Accelerator as properties, which can be set if Accelerate allows it."""

from __future__ import annotations

from typing import Literal

from torch.optim import Optimizer

from crosstrain.state import AcceleratorState
from crosstrain.step.window import Gradients
from crosstrain.utils.dataclasses import DataLoaderConfiguration, ProjectConfiguration


class Choices:
    """The options under Accelerate's names."""

    state: AcceleratorState
    dataloader_config: DataLoaderConfiguration
    project_configuration: ProjectConfiguration
    _gradients: Gradients
    _optimizers: list[Optimizer]

    @property
    def native_amp(self) -> bool:
        return self.state.mixed_precision != "no"

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

    @property
    def project_dir(self) -> str | None:
        return self.project_configuration.project_dir

    @property
    def logging_dir(self) -> str | None:
        return self.project_configuration.logging_dir

    @property
    def save_iteration(self) -> int:
        return self.project_configuration.iteration

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """Whether the loss scaler skipped the last step of a prepared optimizer; False within an accumulation window."""
        return self._gradients.sync_gradients and any(
            getattr(optimizer, "step_was_skipped", False) for optimizer in self._optimizers
        )
