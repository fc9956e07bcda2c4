"""Experiment trackers: those that `Accelerator(log_with=...)` knows, and the base class for one of your own.

In: names or objects, and the values that a script logs. Out: TensorBoard, Weights & Biases, MLflow, Comet, ClearML, Aim,
DVCLive, Trackio and SwanLab runs, and JSON-lines files.

- `base`: the base classes. `trackers`, `libraries`: one class per tracker. `registry`: the trackers' names.
- `members`: the Accelerator's methods.

A new tracker is a class and a line in `LOGGER_TYPE_TO_CLASS`, or a script's call of `register_tracker`.

Imports the state, the configuration and `utils`. Imported by the Accelerator.
"""

from crosstrain.tracking.base import GeneralTracker as GeneralTracker
from crosstrain.tracking.base import on_main_process as on_main_process
from crosstrain.tracking.libraries import AimTracker as AimTracker
from crosstrain.tracking.libraries import ClearMLTracker as ClearMLTracker
from crosstrain.tracking.libraries import CometMLTracker as CometMLTracker
from crosstrain.tracking.libraries import DVCLiveTracker as DVCLiveTracker
from crosstrain.tracking.libraries import MLflowTracker as MLflowTracker
from crosstrain.tracking.libraries import SwanLabTracker as SwanLabTracker
from crosstrain.tracking.libraries import TrackioTracker as TrackioTracker
from crosstrain.tracking.registry import LOGGER_TYPE_TO_CLASS as LOGGER_TYPE_TO_CLASS
from crosstrain.tracking.registry import filter_trackers as filter_trackers
from crosstrain.tracking.registry import get_available_trackers as get_available_trackers
from crosstrain.tracking.registry import register_tracker as register_tracker
from crosstrain.tracking.registry import register_tracker_class as register_tracker_class
from crosstrain.tracking.trackers import JSONLTracker as JSONLTracker
from crosstrain.tracking.trackers import TensorBoardTracker as TensorBoardTracker
from crosstrain.tracking.trackers import WandBTracker as WandBTracker
