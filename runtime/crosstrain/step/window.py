"""The run's position in its accumulation window."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crosstrain.data.active_loaders import ActiveLoaders
    from crosstrain.utils.dataclasses import GradientAccumulationPlugin


class Gradients:
    """The run's accumulation options and its position in the window, and the loaders that are being iterated.

    The options are those of `GradientAccumulationPlugin`; ``steps`` is its num_steps.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Set everything to no accumulation. Loaders that are being iterated stay known until their loops end."""
        self.sync_gradients = True
        self.stepped_within = False  # whether the last optimizer step was made within a pass over a loader
        self.stepping = False  # whether the gradient scaler is making a prepared optimizer's step
        self.scaled = False  # a backward pass is running whose loss counts by this process's rows already
        self.steps = 1
        self.adjust_scheduler = True
        self.sync_with_dataloader = True
        self.sync_each_batch = False
        self.scale_last_window = False

    @cached_property
    def active(self) -> ActiveLoaders:
        # A run without loaders does not import the data package.
        from crosstrain.data.active_loaders import ActiveLoaders

        return ActiveLoaders()

    @property
    def is_within(self) -> bool:
        """Whether a loader is being iterated."""
        return "active" in vars(self) and self.active.current is not None

    def forget_draws(self) -> None:
        """Forget this process's own random streams, because another run begins."""
        if "active" in vars(self):
            self.active.draws.reset()

    def configure(self, plugin: GradientAccumulationPlugin) -> None:
        """Take the accumulation options of a new Accelerator."""
        self.steps = plugin.num_steps
        self.adjust_scheduler = plugin.adjust_scheduler
        self.sync_with_dataloader = plugin.sync_with_dataloader
        self.sync_each_batch = plugin.sync_each_batch
        self.scale_last_window = plugin.scale_last_window
