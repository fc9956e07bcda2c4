"""Experiment trackers: those that `Accelerator(log_with=...)` knows, and the base class for one of your own.

In: names or objects, and the values that a script logs. Out: TensorBoard, Weights & Biases, MLflow, Comet, ClearML, Aim,
DVCLive, Trackio and SwanLab runs, and JSON-lines files.

- `base`: the base classes. `trackers`, `libraries`: one class per tracker. `registry`: the trackers' names.
- `members`: the Accelerator's methods.

A new tracker is a class and a line in `LOGGER_TYPE_TO_CLASS`, or a script's call of `register_tracker`.

Imports the state, the configuration and `utils`. Imported by the Accelerator.
"""

from crosstrain.tracking.base import GeneralTracker, on_main_process
from crosstrain.tracking.libraries import (
    AimTracker,
    ClearMLTracker,
    CometMLTracker,
    DVCLiveTracker,
    MLflowTracker,
    SwanLabTracker,
    TrackioTracker,
)
from crosstrain.tracking.registry import (
    LOGGER_TYPE_TO_CLASS,
    filter_trackers,
    get_available_trackers,
    register_tracker,
    register_tracker_class,
)
from crosstrain.tracking.trackers import JSONLTracker, TensorBoardTracker, WandBTracker

__all__ = [
    "LOGGER_TYPE_TO_CLASS",
    "AimTracker",
    "ClearMLTracker",
    "CometMLTracker",
    "DVCLiveTracker",
    "GeneralTracker",
    "JSONLTracker",
    "MLflowTracker",
    "SwanLabTracker",
    "TensorBoardTracker",
    "TrackioTracker",
    "WandBTracker",
    "filter_trackers",
    "get_available_trackers",
    "on_main_process",
    "register_tracker",
    "register_tracker_class",
]
