"""The line that a run begins with: the global batch, the steps of an epoch, the backend, the precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crosstrain.state import AcceleratorState
from crosstrain.step.prepared import PreparedObjects
from crosstrain.step.window import Gradients
from crosstrain.utils import run_summary
from crosstrain.utils.messages import say

if TYPE_CHECKING:
    from crosstrain.utils.dataclasses import DataLoaderConfiguration


class Announcement:
    """Tells the user once, when a loader and a model are prepared, how the run trains. ``made``: it has done so."""

    def __init__(
        self,
        state: AcceleratorState,
        prepared: PreparedObjects,
        gradients: Gradients,
        loader_options: DataLoaderConfiguration,
    ) -> None:
        self.made = False
        self._state = state
        self._prepared = prepared
        self._gradients = gradients
        self._loader_options = loader_options

    def make(self) -> None:
        """On the main process: say the line, and let the launcher's summary count from here."""
        if self.made or not self._prepared.loaders or not self._prepared.models:
            return
        self.made = True
        if self._state.is_main_process:
            run_summary.begin(self._progress)
            say(self.describe())

    def _progress(self) -> run_summary.Progress | None:
        if not self._prepared.loaders:
            return None
        loader: Any = self._prepared.loaders[0]
        rows = loader.total_batch_size
        steps = max((gate.steps for gate in self._prepared.gates), default=0)
        return run_summary.Progress(steps, None if rows is None else rows * self._gradients.steps)

    def describe(self) -> str:
        """``global batch = 8 x 2 ranks x 4 accumulated = 64; 125 steps per epoch; gloo on cpu; bf16``"""
        state = self._state
        loader: Any = self._prepared.loaders[0]
        steps = self._gradients.steps
        split = self._loader_options.split_batches
        total = loader.total_batch_size
        world = state.num_replicas
        share = "ranks" if world == state.num_processes else "devices"
        if total is None:
            batch = "batches of varying size"
        else:
            parts = [f"{total} split over {world} {share}" if split else f"{total // world}"]
            if world > 1 and not split:
                parts.append(f"{world} {share}")
            if steps > 1:
                parts.append(f"{steps} accumulated")
            product = f" = {total * steps}" if len(parts) > 1 else ""
            batch = f"global batch = {' x '.join(parts)}{product}"
        try:
            epoch = f"; {-(-len(loader) // steps)} steps per epoch"
        except TypeError:
            epoch = ""
        backend = state.backend or "one process"
        return f"{batch}{epoch}; {backend} on {state.device}; precision {state.mixed_precision}"
