"""The trackers' own libraries, on two processes: what they wrote is read back."""

import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock, call

import pytest
import torch
from crosstrain import Accelerator
from crosstrain.tracking import LOGGER_TYPE_TO_CLASS, registry
from crosstrain.utils import LoggerType

from tests.support.ranks import run_ranks

CONFIG = {"lr": 0.1, "layers": [2, 3], "name": "digits"}


def _train(name: str, folder: str, init: dict[str, Any]) -> tuple[bool, str]:
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=folder)
    accelerator = Accelerator(cpu=True, log_with=name, project_dir=folder)
    accelerator.init_trackers("digits", CONFIG, init_kwargs={name: init})
    for step in range(3):
        mine = torch.tensor(float(step + accelerator.process_index))
        accelerator.log({"loss": accelerator.reduce(mine), "lr": 0.1 / (step + 1)}, step=step)
    if name == "tensorboard":
        accelerator.log({"both": {"train": 1.0, "test": torch.tensor(2.0)}, "note": "a line"}, step=2)
    seen = accelerator.is_main_process, type(accelerator.get_tracker(name, unwrap=True)).__name__
    accelerator.end_training()
    return seen


def test_tensorboard_holds_what_was_logged_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seen = run_ranks(_train, 2, "tensorboard", str(tmp_path), {"flush_secs": 5})
    assert seen[0] == (True, "SummaryWriter")
    assert not seen[1][0]
    assert len(list((tmp_path / "digits").glob("events.out.tfevents.*"))) == 1  # one process writes
    events = EventAccumulator(str(tmp_path / "digits")).Reload()
    assert [(one.step, one.value) for one in events.Scalars("loss")] == [(0, 1.0), (1, 3.0), (2, 5.0)]
    assert events.Scalars("lr")[1].value == pytest.approx(0.05)
    assert "note/text_summary" in events.Tags()["tensors"]
    groups = {path.name for path in (tmp_path / "digits").iterdir() if path.is_dir()}
    assert {"both_train", "both_test"} <= groups
    (test,) = EventAccumulator(str(tmp_path / "digits" / "both_test")).Reload().Scalars("both")
    assert (test.step, test.value) == (2, 2.0)
    (hyper,) = (name for name in groups if not name.startswith("both"))
    data = next((tmp_path / "digits" / hyper).iterdir()).read_bytes()
    assert b"layers" in data and b"[2, 3]" in data


# -- What trackers ask of their libraries, which are recorders here; and trackers of the user's own --------

HYPER = {"lr": 0.1}
LIBRARIES = ["aim", "clearml", "comet_ml", "dvclive", "mlflow", "swanlab", "trackio"]


@pytest.fixture
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """A module of that name that records what is called."""
    name = request.param
    fake = MagicMock(spec_set=None)
    fake.__spec__ = ModuleSpec(name, None)
    fake.__path__ = []
    monkeypatch.setitem(sys.modules, name, fake)
    if name == "mlflow":
        limits = ModuleType("mlflow.utils.validation")
        vars(limits).update(MAX_PARAM_VAL_LENGTH=20, MAX_PARAMS_TAGS_PER_BATCH=2)
        monkeypatch.setitem(sys.modules, "mlflow.utils.validation", limits)
    for variable in [key for key in os.environ if key.startswith(("MLFLOW_", "CLEARML_"))]:
        monkeypatch.delenv(variable)
    return fake


def _log(kind: str, folder: Path, values: dict[str, Any], **options: Any) -> Any:
    """Log at step 3 as a script would; the library's run."""
    accelerator = Accelerator(cpu=True, log_with=kind, project_dir=folder)
    accelerator.init_trackers("digits", HYPER, init_kwargs={kind: options})
    accelerator.log(values, step=3)
    run = accelerator.get_tracker(kind, unwrap=True)
    accelerator.end_training()
    return run


VALUES = {"loss": torch.tensor(0.5), "eval_acc": 1, "note": "a line"}


@pytest.mark.parametrize("library", ["mlflow"], indirect=True)
def test_mlflow_runs_in_the_projects_experiment(library: MagicMock, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="mlflow records numbers: 'note', a str, is left out"):
        _log("mlflow", tmp_path, VALUES, run_name="first", tags='{"a": "b"}')
    library.get_experiment_by_name.assert_called_once_with("digits")
    told = {"run_id": None, "run_name": "first", "nested": False, "tags": {"a": "b"}, "description": None}
    experiment = library.get_experiment_by_name().experiment_id
    library.start_run.assert_called_once_with(experiment_id=experiment, **told)
    library.log_params.assert_called_once_with(HYPER)
    library.log_metrics.assert_called_once_with({"loss": 0.5, "eval_acc": 1}, step=3)
    library.end_run.assert_called_once_with()


RECORDS = {  # how each library is told of the loss
    "aim": call.track(0.5, name="loss", step=3),
    "clearml": call.get_logger().report_scalar(title="loss", series="train", value=0.5, iteration=3),
    "comet_ml": call.log_metric("loss", 0.5, step=3),
    "dvclive": call.log_metric("loss", 0.5),
    "swanlab": call.log({"loss": 0.5}, step=3),
    "trackio": call.log({"loss": 0.5}, step=3),
}


@pytest.mark.parametrize(("library", "record"), RECORDS.items(), indirect=["library"], ids=RECORDS)
def test_each_library_gets_configuration_and_numbers(library: MagicMock, record: Any, tmp_path: Path) -> None:
    run = _log(library.__spec__.name, tmp_path, {"loss": torch.tensor(0.5)})
    assert record in run.mock_calls
    assert str(HYPER) in str(library.mock_calls)
    assert library.__spec__.name != "dvclive" or run.step == 3


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_is_missing_is_named_in_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=f"log_with='{name}' needs its library: pip install {name}"):
        Accelerator(cpu=True, log_with=LoggerType(name))
    monkeypatch.setitem(sys.modules, name, None)  # import raises ModuleNotFoundError
    with pytest.raises(ImportError, match=f"^{name} is not installed: pip install {name}$"):
        LOGGER_TYPE_TO_CLASS[name]("digits").start()
