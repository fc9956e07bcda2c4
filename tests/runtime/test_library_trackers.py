"""MLflow, Comet, ClearML, Aim, DVCLive, Trackio and SwanLab without a network, on two processes: what was written is read back.

A test skips where its library is not installed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator

from tests.support.processes import remaining
from tests.support.ranks import run_ranks

CONFIG = {"lr": 0.1, "epochs": 3, "name": "digits"}
LOSSES = [(0, 1.0), (1, 3.0), (2, 5.0)]  # the sums over the two processes


def _train(name: str, folder: str, init: dict[str, Any]) -> str:
    os.chdir(folder)
    accelerator = Accelerator(cpu=True, log_with=name, project_dir=folder)
    accelerator.init_trackers("digits", CONFIG, init_kwargs={name: init})
    for step in range(3):
        mine = torch.tensor(float(step + accelerator.process_index))
        accelerator.log({"loss": accelerator.reduce(mine), "train_lr": 0.1 / (step + 1)}, step=step)
    run = accelerator.get_tracker(name, unwrap=True)
    accelerator.end_training()
    return type(run).__name__


def _run(name: str, folder: Path, init: dict[str, Any] | None = None, **env: str) -> None:
    seen = run_ranks(_train, 2, name, str(folder), init or {}, env=env, forks=True)  # git, pip
    assert (
        seen[1] == "GeneralTracker" != seen[0]
    )  # one process writes, the other has a tracker that does nothing


def test_mlflow(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    _run("mlflow", tmp_path, {"run_name": "first", "tags": '{"team": "vision"}'}, MLFLOW_TRACKING_URI=uri)
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    assert run.info.run_name == "first"
    assert run.info.status == "FINISHED"
    assert run.data.tags["team"] == "vision"
    assert run.data.params == {key: str(value) for key, value in CONFIG.items()}
    assert [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, "loss")] == LOSSES


def test_comet(tmp_path: Path) -> None:
    pytest.importorskip("comet_ml")
    _run("comet_ml", tmp_path, {"online": False}, COMET_OFFLINE_DIRECTORY=str(tmp_path), COMET_API_KEY="none")
    (archive,) = tmp_path.glob("*.zip")
    with zipfile.ZipFile(archive) as files:
        told = [json.loads(line) for line in files.read("messages.json").decode().splitlines()]
    metrics = [one["payload"]["metric"] for one in told if one["type"] == "metric_msg"]
    mine = [(one["step"], one["metricValue"]) for one in metrics if one["metricName"] == "loss"]
    assert mine == LOSSES
    assert '"digits"' in json.dumps(told)


CLEARML = """
from pathlib import Path
from tests.runtime.test_library_trackers import _run
if __name__ == "__main__":
    options = {f"auto_{what}": False for what in ("connect_frameworks", "resource_monitoring", "connect_arg_parser")}
    _run("clearml", Path("."), options, CLEARML_OFFLINE_MODE="1", CLEARML_CACHE_DIR=str(Path.cwd()))
"""


def run_apart(script: Path, seconds: float) -> None:
    """Run a script in a process group of its own: what it starts ends with it, at the latest when the time is over."""
    words = [sys.executable, str(script)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (script.parent / "output").open("w+") as said:
        process = subprocess.Popen(
            words, cwd=script.parent, env=env, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.seek(0)
        text = said.read()[-4000:]
    if code is None:
        pytest.fail(f"{script.name} had not ended after {seconds:.0f} s and was killed; it had said:\n{text}")
    assert code == 0, text


def test_a_library_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    script = tmp_path / "hangs.py"
    script.write_text(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('waits for', child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(pytest.fail.Exception, match=r"hangs.py had not ended after 5 s") as failure:
        run_apart(script, 5)
    child = int(str(failure.value).rsplit(maxsplit=1)[-1])
    assert not remaining([child])


def test_clearml(tmp_path: Path) -> None:
    """In a process of its own, with a limit: its offline mode has been seen to wait for ever."""
    if importlib.util.find_spec("clearml") is None:
        pytest.skip("clearml is not installed")
    script = tmp_path / "clearml_offline.py"
    script.write_text(CLEARML)
    run_apart(script, 200)
    (archive,) = tmp_path.rglob("offline-*.zip")
    with zipfile.ZipFile(archive) as files:
        task = json.loads(files.read("task.json"))
        told = [json.loads(line) for line in files.read("metrics.jsonl").decode().splitlines()]
    assert (task["name"], task["project_name"]) == ("digits", "digits")
    events = [event for batch in told for event in batch]
    mine = [(one["iter"], one["value"]) for one in events if one["metric"] == "loss"]
    assert sorted(mine) == LOSSES
    assert {(one["metric"], one["variant"]) for one in events} == {("loss", "train"), ("lr", "train")}


def test_aim(tmp_path: Path) -> None:
    aim = pytest.importorskip("aim")
    _run("aim", tmp_path, {"system_tracking_interval": None, "capture_terminal_logs": False})
    repository = aim.Repo.from_path(str(tmp_path))
    (run_hash,) = repository.list_all_runs()
    index = pytest.importorskip("aim.sdk.index_manager").RepoIndexManager.get_index_manager(repository)
    assert index.index(run_hash)  # as `aim up` does
    run = aim.Run(run_hash, repo=str(tmp_path), read_only=True)
    assert run.name == "digits"
    assert run["hparams"] == CONFIG
    (loss,) = (metric for metric in run.metrics() if metric.name == "loss")
    steps, (values, *_) = loss.data.numpy()
    assert list(zip(steps.tolist(), values.tolist(), strict=True)) == LOSSES


def test_dvclive(tmp_path: Path) -> None:
    pytest.importorskip("dvclive")
    options = {"dir": "live", "save_dvc_exp": False, "dvcyaml": None, "monitor_system": False}
    _run("dvclive", tmp_path, options, DVC_NO_ANALYTICS="1")
    live = tmp_path / "live"
    rows = (live / "plots" / "metrics" / "loss.tsv").read_text().splitlines()
    assert [tuple(float(cell) for cell in row.split("\t")) for row in rows[1:]] == LOSSES
    assert json.loads((live / "metrics.json").read_text())["loss"] == 5.0
    assert "name: digits" in (live / "params.yaml").read_text()


def test_swanlab(tmp_path: Path) -> None:
    if importlib.util.find_spec("swanlab") is None:
        pytest.skip("swanlab is not installed")
    folder = tmp_path / "runs"
    _run("swanlab", tmp_path, {"mode": "offline", "log_dir": str(folder), "name": "first"})
    (record,) = folder.rglob("*.swanlab")
    told = record.read_bytes()
    assert b"digits" in told and b"first" in told
    places = [told.find(struct.pack("<d", value)) for _, value in LOSSES]
    assert places == sorted(places) and places[0] > 0
    assert "value: 0.1" in (record.parent / "files" / "config.yaml").read_text()


def test_trackio(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    _run(
        "trackio", tmp_path, {"name": "first", "embed": False}, TRACKIO_DIR=str(tmp_path), HF_HUB_OFFLINE="1"
    )
    with sqlite3.connect(tmp_path / "digits.db") as database:
        told = database.execute(
            "select step, metrics from metrics where run_name = 'first' order by step"
        ).fetchall()
        ((config,),) = database.execute("select config from configs").fetchall()
    assert [(step, json.loads(metrics)["loss"]) for step, metrics in told] == LOSSES
    assert json.loads(config).items() >= CONFIG.items()
