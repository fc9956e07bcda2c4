"""`notebook_launcher` and `debug_launcher`, as a notebook calls them: from `__main__`, with its functions."""

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from crosstrain.launch import notebook

CELLS = """
import json, os, signal, sys, threading
import torch
from crosstrain import Accelerator, debug_launcher, notebook_launcher
from crosstrain.launch import notebook
FACTOR = 10
seen = {}
def train(start):
    accelerator = Accelerator()
    mine = torch.tensor([start + accelerator.process_index * FACTOR])
    return {"all": accelerator.gather(mine).tolist(), "world": accelerator.num_processes, "pid": os.getpid(),
            "precision": accelerator.mixed_precision}
def broken():
    if Accelerator().process_index == 1:
        raise ValueError("boom")
    Accelerator().wait_for_everyone()
if __name__ == "__main__":
    handler, environment = signal.getsignal(signal.SIGINT), dict(os.environ)
    seen["here"] = os.getpid()
    seen["one"] = notebook_launcher(train, (1,), num_processes=1)
    seen["two"] = debug_launcher(train, (1,))  # although a cell has built an Accelerator
    try:
        debug_launcher(broken)
    except notebook.LaunchError as error:
        seen["error"] = str(error)
    notebook.may_have_context = lambda: True
    seen["fresh"] = notebook_launcher(train, (2,), num_processes=2, mixed_precision="bf16")
    def interrupted():
        accelerator = Accelerator()
        accelerator.wait_for_everyone()  # so that the agent is past starting the ranks
        if accelerator.is_main_process:
            os.kill(os.getppid(), signal.SIGINT)
        threading.Event().wait(600)
    notebook.may_have_context = lambda: False
    try:
        debug_launcher(interrupted)
    except KeyboardInterrupt:
        seen["interrupted"] = True
    seen["handlers"] = signal.getsignal(signal.SIGINT) is handler
    seen["environment"] = dict(os.environ) == environment
    print("RESULT" + json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    script = tmp_path_factory.mktemp("notebook") / "cells.py"
    script.write_text(CELLS)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert "RESULT" in done.stdout, done.stderr
    return json.loads(done.stdout.partition("RESULT")[2]) | {"stderr": done.stderr}


def test_one_process_runs_here_and_several_return_rank_0s_result(seen: dict[str, Any]) -> None:
    assert (seen["one"]["all"], seen["one"]["world"], seen["one"]["pid"]) == ([1], 1, seen["here"])
    assert (seen["two"]["all"], seen["two"]["world"]) == ([1, 11], 2)
    assert seen["two"]["pid"] != seen["here"]


def test_failing_rank_is_the_error_of_the_cell(seen: dict[str, Any]) -> None:
    assert seen["error"].count("Traceback (most recent call last):") == 1
    assert "ValueError: boom\nlauncher: rank 1 of 2 failed with the error above." in seen["error"]
    assert "torch/distributed/elastic" not in seen["error"]
    assert seen["stderr"] == ""


def test_fresh_processes_where_the_accelerator_is_in_use(seen: dict[str, Any]) -> None:
    """The functions of the notebook travel by value, and the options reach the ranks."""
    assert (seen["fresh"]["all"], seen["fresh"]["precision"]) == ([2, 12], "bf16")


def test_notebook_is_left_as_it_was(seen: dict[str, Any]) -> None:
    assert seen["interrupted"] and seen["handlers"] and seen["environment"]


@pytest.mark.parametrize(
    ("device", "in_use"),
    [
        (SimpleNamespace(), True),  # torch.mps, which cannot be asked
        (SimpleNamespace(is_initialized=lambda: False), False),
        (SimpleNamespace(is_initialized=lambda: True), True),
    ],
)
def test_an_accelerator_that_may_be_in_use_is_not_forked(
    device: SimpleNamespace, in_use: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Mac's device has no `is_initialized`: every launch of several processes was an AttributeError."""
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("mps"))
    monkeypatch.setattr(torch, "get_device_module", lambda accelerator: device)
    assert notebook.may_have_context() is in_use
    assert notebook._start_method() == ("spawn" if in_use else "fork")
    monkeypatch.setattr(notebook, "find_spec", lambda name: None)  # no cloudpickle
    if in_use:
        with pytest.raises(RuntimeError, match=r"or may do so.* pip install cloudpickle"):
            notebook._start_method()
    else:
        assert notebook._start_method() == "fork"
