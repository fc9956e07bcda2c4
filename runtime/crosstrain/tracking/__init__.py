"""Experiment trackers: what `Accelerator(log_with=...)` knows, and what a tracker of your own derives from.

In: names or objects, and what a script logs. Out: TensorBoard, Weights & Biases and JSON-lines files. `trackers` has
the kinds; adding one means a class and a line in `LOGGER_TYPE_TO_CLASS`. `members` is the Accelerator's part.

Imports the state and `utils`. Imported by the Accelerator.
"""

from crosstrain.tracking.trackers import (
    LOGGER_TYPE_TO_CLASS,
    GeneralTracker,
    JSONLTracker,
    TensorBoardTracker,
    WandBTracker,
    filter_trackers,
    on_main_process,
)

__all__ = [
    "LOGGER_TYPE_TO_CLASS",
    "GeneralTracker",
    "JSONLTracker",
    "TensorBoardTracker",
    "WandBTracker",
    "filter_trackers",
    "on_main_process",
]
